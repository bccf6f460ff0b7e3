package tombolo.kafka;

import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.BatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import tombolo.Keyspace;

/** A persistent store of keys and values, in a database of Tombolo: see {@link TomboloStores}. */
public class TomboloKeyValueStore extends DatabaseStore implements KeyValueStore<Bytes, byte[]> {
    private static final long COUNTED_MAX = 1000;

    private Keyspace records;

    TomboloKeyValueStore(String name) {
        super(name);
    }

    /** Its values begin with their timestamps. */
    static final class Timestamped extends TomboloKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name);
        }
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = context;
        database.open(context, () -> {
            records = database.keyspace("default");
            context.register(
                    root, (BatchingStateRestoreCallback) restored -> database.restore(restored,
                            record -> records));
        });
    }

    @Override
    public void put(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        database.put(records, key.get(), value);
    }

    @Override
    public synchronized byte[] putIfAbsent(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        byte[] before = get(key);
        if (before == null && value != null) {
            put(key, value);
        }
        return before;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        entries.forEach(entry -> Objects.requireNonNull(entry.key, "key cannot be null"));
        database.putAll(
                records, entries.stream().map(entry -> KeyValue.pair(entry.key.get(), entry.value)).toList());
    }

    @Override
    public synchronized byte[] delete(Bytes key) {
        byte[] before = get(key);
        database.put(records, key.get(), null);
        return before;
    }

    @Override
    public byte[] get(Bytes key) {
        Objects.requireNonNull(key, "key cannot be null");
        return database.get(records, key.get());
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return range(from, to, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return range(from, to, false);
    }

    private KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to, boolean forward) {
        if (Keys.inWrongOrder(from, to)) {
            database.validateOpen();
            return Keys.none();
        }
        return database.iterator(
                records, from == null ? null : from.get(), to == null ? null : Keys.after(to.get()), forward);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return range(null, null, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return range(null, null, false);
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS serializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null");
        byte[] first = serializer.serialize(null, prefix);
        return database.iterator(records, first, Keys.afterPrefix(first), true);
    }

    /**
     * Exact up to a thousand, which are counted. Beyond that the database's property
     * {@code keys-estimated}, which knows of tables only.
     */
    @Override
    public long approximateNumEntries() {
        long counted = 0;
        try (KeyValueIterator<Bytes, byte[]> entries = all()) {
            for (; counted < COUNTED_MAX && entries.hasNext(); entries.next()) {
                counted++;
            }
        }
        return counted < COUNTED_MAX ? counted : Math.max(counted, database.keysEstimated());
    }
}
