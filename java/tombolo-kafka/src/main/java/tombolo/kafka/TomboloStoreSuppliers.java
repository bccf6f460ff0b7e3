package tombolo.kafka;

import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Makes all stores of the DSL so, when the configuration {@code dsl.store.suppliers.class} names
 * it. Stores that keep headers keep timestamps only.
 */
public final class TomboloStoreSuppliers implements DslStoreSuppliers {
    /** Made by Kafka Streams. */
    public TomboloStoreSuppliers() {}

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return params.dslStoreFormat() == DslStoreFormat.PLAIN
                ? TomboloStores.keyValueStore(params.name())
                : TomboloStores.timestampedKeyValueStore(params.name());
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        return params.dslStoreFormat() == DslStoreFormat.PLAIN
                ? TomboloStores.windowStore(
                        params.name(), params.retentionPeriod(), params.windowSize(),
                                params.retainDuplicates())
                : TomboloStores.timestampedWindowStore(
                        params.name(), params.retentionPeriod(), params.windowSize(),
                                params.retainDuplicates());
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return TomboloStores.sessionStore(params.name(), params.retentionPeriod());
    }
}
