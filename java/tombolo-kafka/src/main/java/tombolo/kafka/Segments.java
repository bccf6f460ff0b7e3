package tombolo.kafka;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.TreeMap;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.BatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ProcessorContextUtils;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.state.KeyValueIterator;
import tombolo.Keyspace;

/**
 * Records that expire by the time of the stream: one keyspace for each span of it, which is dropped
 * whole. Keys are those of the changelog: a key, then its times.
 */
abstract class Segments extends DatabaseStore {
    private static final String NAME = "from ";

    private final long retention;
    private final long interval;
    /** By the number of the span. */
    private final NavigableMap<Long, Keyspace> segments = new TreeMap<>();

    private Sensor expired;
    private long streamTime = -1;

    Segments(String name, long retention, long interval) {
        super(name);
        this.retention = retention;
        this.interval = interval;
    }

    /** The time by which a record expires. */
    abstract long time(byte[] key);

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = context;
        expired = TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(),
                context.taskId().toString(),
                ProcessorContextUtils.metricsImpl(context));
        segments.clear();
        database.open(context, () -> {
            for (String keyspace : database.keyspaceNames()) {
                if (keyspace.startsWith(NAME)) {
                    long from = Long.parseLong(keyspace.substring(NAME.length()));
                    segments.put(from / interval, database.keyspace(keyspace));
                }
            }
            context.register(root, (BatchingStateRestoreCallback) this::restore);
        });
    }

    private synchronized void restore(Collection<KeyValue<byte[], byte[]>> records) {
        // Before any is written: what expires by the last of them is not worth a keyspace.
        records.forEach(record -> streamTime = Math.max(streamTime, time(record.key)));
        database.restore(records, record -> segment(time(record.key)));
    }

    /** The keyspace of that time; null when it has expired. Drops those that have. */
    private Keyspace segment(long time) {
        long first = Math.floorDiv(streamTime - retention, interval);
        long number = time / interval;
        if (number < first) {
            return null;
        }
        Keyspace segment =
                segments.computeIfAbsent(number, absent -> database.keyspace(NAME + absent * interval));
        NavigableMap<Long, Keyspace> old = segments.headMap(first, false);
        old.values().forEach(keyspace -> database.condemn(keyspace.name()));
        old.clear();
        return segment;
    }

    /** Writes a record, or removes it where the value is null. */
    synchronized void write(byte[] key, byte[] value) {
        database.validateOpen();
        long time = time(key);
        streamTime = Math.max(streamTime, time);
        Keyspace segment = segment(time);
        if (segment == null) {
            expired.record();
        } else {
            database.put(segment, key, value);
        }
    }

    /** Removes a record where it may be. */
    synchronized void erase(byte[] key) {
        database.validateOpen();
        long time = time(key);
        streamTime = Math.max(streamTime, time);
        Keyspace segment = segments.get(time / interval);
        if (segment != null) {
            database.put(segment, key, null);
        }
    }

    /** The first time that has not expired, and not before {@code from}. */
    synchronized long notExpired(long from) {
        return Math.max(from, streamTime - retention + 1);
    }

    synchronized byte[] read(byte[] key) {
        database.validateOpen();
        long time = time(key);
        Keyspace segment = time < notExpired(0) ? null : segments.get(time / interval);
        return segment == null ? null : database.get(segment, key);
    }

    /** Whether a key is looked for. */
    interface Wanted {
        boolean is(byte[] key);
    }

    /**
     * The records of spans, one span after the other, that lie between two keys and are wanted.
     *
     * @param from the first time of the first span
     * @param to a time of the last span
     * @param first null is no bound
     * @param last which is included; null is no bound
     */
    synchronized KeyValueIterator<Bytes, byte[]> walk(
            long from, long to, byte[] first, byte[] last, boolean forward, Wanted wanted) {
        database.validateOpen();
        if (to < from) {
            return Keys.none();
        }
        NavigableMap<Long, Keyspace> found =
                segments.subMap(Math.floorDiv(from, interval), true, Math.floorDiv(to, interval), true);
        List<Keyspace> spans =
                new ArrayList<>(forward ? found.values() : found.descendingMap().values());
        return new Walk(spans.iterator(), first, last == null ? null : Keys.after(last), forward, wanted);
    }

    private final class Walk implements KeyValueIterator<Bytes, byte[]> {
        private final Iterator<Keyspace> spans;
        private final byte[] first;
        private final byte[] end;
        private final boolean forward;
        private final Wanted wanted;
        private Keyspace span;
        private EntryIterator entries;

        private Walk(Iterator<Keyspace> spans, byte[] first, byte[] end, boolean forward, Wanted wanted) {
            this.spans = spans;
            this.first = first;
            this.end = end;
            this.forward = forward;
            this.wanted = wanted;
        }

        @Override
        public boolean hasNext() {
            while (database.isOpen()) {
                try {
                    if (entries == null) {
                        if (!spans.hasNext()) {
                            return false;
                        }
                        span = spans.next();
                        if (isGone(span)) {
                            continue;
                        }
                        entries = database.iterator(span, first, end, forward);
                    }
                    while (entries.hasNext()) {
                        if (wanted.is(entries.peekNextKey().get())) {
                            return true;
                        }
                        entries.next();
                    }
                } catch (ProcessorStateException failed) {
                    // Of a span that was dropped meanwhile nothing more is shown.
                    if (!isGone(span)) {
                        throw failed;
                    }
                }
                close();
            }
            return false;
        }

        @Override
        public KeyValue<Bytes, byte[]> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return entries.next();
        }

        @Override
        public Bytes peekNextKey() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return entries.peekNextKey();
        }

        @Override
        public void close() {
            if (entries != null) {
                entries.close();
                entries = null;
            }
        }
    }

    /** Whether a span expired since an iterator began. */
    private synchronized boolean isGone(Keyspace span) {
        return !segments.containsValue(span);
    }

    @Override
    public synchronized void close() {
        segments.clear();
        super.close();
    }
}
