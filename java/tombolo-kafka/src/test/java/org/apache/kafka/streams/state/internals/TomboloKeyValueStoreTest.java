package org.apache.kafka.streams.state.internals;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import tombolo.kafka.TomboloStores;

/** Kafka's own tests of a store of keys and values. */
public class TomboloKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @Override
    @SuppressWarnings("unchecked")
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        KeyValueStore<K, V> store = Stores.keyValueStoreBuilder(
                        TomboloStores.keyValueStore("my-store"),
                        (Serde<K>) context.keySerde(),
                        (Serde<V>) context.valueSerde())
                .build();
        store.init(context, store);
        return store;
    }
}
