package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import tombolo.kafka.TomboloStores;

/** Kafka's own tests of a store of windows. */
public class TomboloWindowStoreTest extends AbstractWindowBytesStoreTest {
    private int built;

    /** Some tests build a second store beside the first, which has a database of its own here. */
    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retention, long windowSize, boolean retainDuplicates, Serde<K> keys, Serde<V> values) {
        return Stores.windowStoreBuilder(
                        TomboloStores.windowStore(
                                "window-store" + built++, ofMillis(retention), ofMillis(windowSize),
                                        retainDuplicates),
                        keys,
                        values)
                .build();
    }
}
