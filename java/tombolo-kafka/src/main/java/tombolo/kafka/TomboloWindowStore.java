package tombolo.kafka;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * A persistent store of values by key and window, in a database of Tombolo: see
 * {@link TomboloStores}.
 */
public class TomboloWindowStore extends Segments implements WindowStore<Bytes, byte[]> {
    /** After the key: when the window begins, and the number of a duplicate. */
    private static final int SUFFIX = Long.BYTES + Integer.BYTES;

    private final long windowSize;
    private final boolean duplicates;
    /** Of the newest duplicate. It begins anywhere, so as to meet none of an earlier life. */
    private int number;

    TomboloWindowStore(String name, long retention, long interval, long windowSize, boolean duplicates) {
        super(name, retention, interval);
        this.windowSize = windowSize;
        this.duplicates = duplicates;
        number = duplicates ? ThreadLocalRandom.current().nextInt(1 << 30) : 0;
    }

    /** Its values begin with their timestamps. */
    static final class Timestamped extends TomboloWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long interval, long windowSize, boolean duplicates) {
            super(name, retention, interval, windowSize, duplicates);
        }
    }

    private static byte[] suffix(long time, int number) {
        return ByteBuffer.allocate(SUFFIX).putLong(time).putInt(number).array();
    }

    @Override
    long time(byte[] key) {
        return ByteBuffer.wrap(key).getLong(key.length - SUFFIX);
    }

    private static int keyEnd(byte[] key) {
        return key.length - SUFFIX;
    }

    @Override
    public void put(Bytes key, byte[] value, long windowStart) {
        Objects.requireNonNull(key, "key cannot be null");
        if (duplicates) {
            if (value == null) {
                return;
            }
            number = (number + 1) & Integer.MAX_VALUE;
        }
        write(Keys.join(key.get(), suffix(windowStart, number)), value);
    }

    @Override
    public byte[] fetch(Bytes key, long time) {
        Objects.requireNonNull(key, "key cannot be null");
        return read(Keys.join(key.get(), suffix(time, number)));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return new OfKey(ofKey(key, from, to, true));
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return new OfKey(ofKey(key, from, to, false));
    }

    private KeyValueIterator<Bytes, byte[]> ofKey(Bytes key, long from, long to, boolean forward) {
        Objects.requireNonNull(key, "key cannot be null");
        long first = Math.max(0, notExpired(from));
        byte[] wanted = key.get();
        return walk(
                first,
                to,
                Keys.join(wanted, suffix(first, 0)),
                Keys.join(wanted, suffix(to, Integer.MAX_VALUE)),
                forward,
                found -> Arrays.equals(found, 0, keyEnd(found), wanted, 0, wanted.length)
                        && within(found, first, to));
    }

    private boolean within(byte[] key, long from, long to) {
        long time = time(key);
        return from <= time && time <= to;
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return ofKeys(keyFrom, keyTo, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(
            Bytes keyFrom, Bytes keyTo, long from, long to) {
        return ofKeys(keyFrom, keyTo, from, to, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> ofKeys(
            Bytes keyFrom, Bytes keyTo, long from, long to, boolean forward) {
        if (Keys.inWrongOrder(keyFrom, keyTo)) {
            return Keys.none();
        }
        long first = notExpired(from);
        byte[] least = keyFrom == null ? null : keyFrom.get();
        byte[] most = keyTo == null ? null : keyTo.get();
        return new OfKeys(walk(
                first,
                to,
                least,
                most == null ? null : Keys.greatest(most, suffix(to, Integer.MAX_VALUE)),
                forward,
                found -> Keys.isBetween(found, keyEnd(found), least, most) && within(found, first, to)));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return ofKeys(null, null, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return ofKeys(null, null, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return ofKeys(null, null, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return ofKeys(null, null, 0, Long.MAX_VALUE, false);
    }

    /** Entries with other keys. */
    private abstract static class Mapped<K> implements KeyValueIterator<K, byte[]> {
        private final KeyValueIterator<Bytes, byte[]> entries;
        private final Function<byte[], K> key;

        private Mapped(KeyValueIterator<Bytes, byte[]> entries, Function<byte[], K> key) {
            this.entries = entries;
            this.key = key;
        }

        @Override
        public boolean hasNext() {
            return entries.hasNext();
        }

        @Override
        public KeyValue<K, byte[]> next() {
            KeyValue<Bytes, byte[]> entry = entries.next();
            return KeyValue.pair(key.apply(entry.key.get()), entry.value);
        }

        @Override
        public K peekNextKey() {
            return key.apply(entries.peekNextKey().get());
        }

        @Override
        public void close() {
            entries.close();
        }
    }

    private final class OfKey extends Mapped<Long> implements WindowStoreIterator<byte[]> {
        private OfKey(KeyValueIterator<Bytes, byte[]> entries) {
            super(entries, TomboloWindowStore.this::time);
        }
    }

    private final class OfKeys extends Mapped<Windowed<Bytes>> {
        private OfKeys(KeyValueIterator<Bytes, byte[]> entries) {
            super(entries, TomboloWindowStore.this::windowed);
        }
    }

    private Windowed<Bytes> windowed(byte[] key) {
        long start = time(key);
        long end = start + windowSize < 0 ? Long.MAX_VALUE : start + windowSize;
        return new Windowed<>(Bytes.wrap(Arrays.copyOf(key, keyEnd(key))), new TimeWindow(start, end));
    }
}
