package org.apache.kafka.streams.state.internals;

import static java.time.Duration.ofMillis;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Test;
import tombolo.kafka.TomboloStores;

/** Kafka's own tests of a store of sessions. */
public class TomboloSessionStoreTest extends AbstractSessionBytesStoreTest {
    private int built;

    /** Some tests build a second store beside the first, which has a database of its own here. */
    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retention, Serde<K> keys, Serde<V> values) {
        return Stores.sessionStoreBuilder(
                        TomboloStores.sessionStore("session-store" + built++, ofMillis(retention)), keys,
                                values)
                .build();
    }

    /** {@code TopologyTest} restores. */
    @Override
    @Test
    @Disabled("it reads a store after it has closed it, and restores it there")
    public void shouldRestore() {}

    /** One that finds sessions by time, and in segments, as ours does. */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }
}
