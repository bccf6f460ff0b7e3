package tombolo.kafka;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;

/**
 * A persistent store of aggregates by key and session, in a database of Tombolo: see
 * {@link TomboloStores}.
 */
public final class TomboloSessionStore extends Segments implements SessionStore<Bytes, byte[]> {
    /** After the key: when the session ends, and when it begins. */
    private static final int SUFFIX = 2 * Long.BYTES;

    TomboloSessionStore(String name, long retention, long interval) {
        super(name, retention, interval);
    }

    private static byte[] suffix(long end, long start) {
        return ByteBuffer.allocate(SUFFIX).putLong(end).putLong(start).array();
    }

    private static byte[] binary(Bytes key, long start, long end) {
        return Keys.join(key.get(), suffix(end, start));
    }

    @Override
    long time(byte[] key) {
        return ByteBuffer.wrap(key).getLong(key.length - SUFFIX);
    }

    private static long start(byte[] key) {
        return ByteBuffer.wrap(key).getLong(key.length - Long.BYTES);
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        Objects.requireNonNull(session, "sessionKey cannot be null");
        write(binary(session.key(), session.window().start(), session.window().end()), aggregate);
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        Objects.requireNonNull(session, "sessionKey cannot be null");
        erase(binary(session.key(), session.window().start(), session.window().end()));
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        Objects.requireNonNull(key, "key cannot be null");
        return read(binary(key, start, end));
    }

    /** In the order of their ends, for which all that are found are in memory. */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long earliestEnd, long latestEnd) {
        long first = notExpired(earliestEnd);
        List<KeyValue<Bytes, byte[]>> found = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> entries = walk(first, latestEnd, null, null, true, key -> {
            long end = time(key);
            return first <= end && end <= latestEnd;
        })) {
            entries.forEachRemaining(found::add);
        }
        found.sort(Comparator.comparingLong(entry -> time(entry.key.get())));
        return windowed(Keys.of(found.iterator()));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd,
            long latestStart) {
        return ofKey(key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return ofKey(key, earliestEnd, latestStart, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> ofKey(
            Bytes key, long earliestEnd, long latestStart, boolean forward) {
        Objects.requireNonNull(key, "key cannot be null");
        byte[] wanted = key.get();
        long first = Math.max(0, notExpired(earliestEnd));
        return windowed(walk(
                first,
                Long.MAX_VALUE,
                Keys.join(wanted, suffix(first, 0)),
                Keys.join(wanted, suffix(Long.MAX_VALUE, latestStart)),
                forward,
                found -> Arrays.equals(found, 0, found.length - SUFFIX, wanted, 0, wanted.length)
                        && within(found, first, latestStart)));
    }

    private boolean within(byte[] key, long earliestEnd, long latestStart) {
        return time(key) >= earliestEnd && start(key) <= latestStart;
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return ofKeys(keyFrom, keyTo, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return ofKeys(keyFrom, keyTo, earliestEnd, latestStart, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> ofKeys(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart, boolean forward) {
        if (Keys.inWrongOrder(keyFrom, keyTo)) {
            return Keys.none();
        }
        long first = notExpired(earliestEnd);
        byte[] least = keyFrom == null ? null : keyFrom.get();
        byte[] most = keyTo == null ? null : keyTo.get();
        return windowed(walk(
                first,
                Long.MAX_VALUE,
                least,
                most == null ? null : Keys.greatest(most, suffix(Long.MAX_VALUE, latestStart)),
                forward,
                found -> Keys.isBetween(found, found.length - SUFFIX, least, most)
                        && within(found, first, latestStart)));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return findSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return backwardFindSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return findSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return backwardFindSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> windowed(KeyValueIterator<Bytes, byte[]> entries) {
        return new KeyValueIterator<>() {
            private Windowed<Bytes> session(Bytes key) {
                byte[] bytes = key.get();
                return new Windowed<>(
                        Bytes.wrap(Arrays.copyOf(bytes, bytes.length - SUFFIX)),
                        new SessionWindow(start(bytes), time(bytes)));
            }

            @Override
            public boolean hasNext() {
                return entries.hasNext();
            }

            @Override
            public KeyValue<Windowed<Bytes>, byte[]> next() {
                KeyValue<Bytes, byte[]> entry = entries.next();
                return KeyValue.pair(session(entry.key), entry.value);
            }

            @Override
            public Windowed<Bytes> peekNextKey() {
                return session(entries.peekNextKey());
            }

            @Override
            public void close() {
                entries.close();
            }
        };
    }
}
