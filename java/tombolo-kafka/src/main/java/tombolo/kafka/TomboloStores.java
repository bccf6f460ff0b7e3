package tombolo.kafka;

import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Suppliers of stores, as {@link org.apache.kafka.streams.state.Stores} has them for RocksDB.
 *
 * <p>Each task of each store has a database of its own: in the task's state directory, or below
 * {@code tombolo.uri} where the configuration has that, such as {@code s3://bucket/state}. In a
 * bucket a task that moves to another machine finds its state there, and restores what the changelog
 * has beyond it; standby and warm-up replicas are refused then. Global stores lie in the state
 * directory always. {@code tombolo.database.NAME} and {@code tombolo.keyspace.NAME} are settings.
 */
public final class TomboloStores {
    private static final String SCOPE = "tombolo";

    private TomboloStores() {}

    /**
     * A store of keys and values, for {@code Stores.keyValueStoreBuilder}.
     *
     * @param name of the store
     * @return its supplier
     */
    public static KeyValueBytesStoreSupplier keyValueStore(String name) {
        return new OfKeyValues(name, false);
    }

    /**
     * A store of keys and values with timestamps, for {@code Stores.timestampedKeyValueStoreBuilder}
     * and {@code Materialized.as}.
     *
     * @param name of the store
     * @return its supplier
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStore(String name) {
        return new OfKeyValues(name, true);
    }

    /**
     * A store of windows, for {@code Stores.windowStoreBuilder} and {@code StreamJoined}.
     *
     * @param name of the store
     * @param retention how long windows are kept, in time of the stream
     * @param windowSize of the windows
     * @param retainDuplicates whether a window keeps all values of a key, as joins need
     * @return its supplier
     */
    public static WindowBytesStoreSupplier windowStore(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return windows(name, retention, windowSize, retainDuplicates, false);
    }

    /**
     * A store of windows with timestamps, for {@code Stores.timestampedWindowStoreBuilder} and
     * {@code Materialized.as}.
     *
     * @param name of the store
     * @param retention how long windows are kept, in time of the stream
     * @param windowSize of the windows
     * @param retainDuplicates whether a window keeps all values of a key
     * @return its supplier
     */
    public static WindowBytesStoreSupplier timestampedWindowStore(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return windows(name, retention, windowSize, retainDuplicates, true);
    }

    private static WindowBytesStoreSupplier windows(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates,
                    boolean timestamped) {
        if (retention.isNegative() || windowSize.isNegative() || windowSize.compareTo(retention) > 0) {
            throw new IllegalArgumentException("the store " + name + " keeps windows of " + windowSize
                    + " for " + retention + ": it has to keep them for as long as they are at least");
        }
        return new OfWindows(
                name, retention.toMillis(), span(retention), windowSize.toMillis(), retainDuplicates,
                        timestamped);
    }

    /**
     * A store of sessions, for {@code Stores.sessionStoreBuilder} and {@code Materialized.as}.
     *
     * @param name of the store
     * @param retention how long sessions are kept, in time of the stream
     * @return its supplier
     */
    public static SessionBytesStoreSupplier sessionStore(String name, Duration retention) {
        if (retention.isNegative()) {
            throw new IllegalArgumentException("the store " + name + " keeps sessions for " + retention);
        }
        return new OfSessions(name, retention.toMillis(), span(retention));
    }

    /** How much time one keyspace has: Kafka's own choice. */
    private static long span(Duration retention) {
        return Math.max(retention.toMillis() / 2, 60_000);
    }

    private record OfKeyValues(String name, boolean timestamped) implements KeyValueBytesStoreSupplier {
        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return timestamped ? new TomboloKeyValueStore.Timestamped(name) : new TomboloKeyValueStore(name);
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }
    }

    private record OfWindows(
            String name,
            long retentionPeriod,
            long segmentIntervalMs,
            long windowSize,
            boolean retainDuplicates,
            boolean timestamped)
            implements WindowBytesStoreSupplier {
        @Override
        public WindowStore<Bytes, byte[]> get() {
            return timestamped
                    ? new TomboloWindowStore.Timestamped(
                            name, retentionPeriod, segmentIntervalMs, windowSize, retainDuplicates)
                    : new TomboloWindowStore(
                            name, retentionPeriod, segmentIntervalMs, windowSize, retainDuplicates);
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }
    }

    private record OfSessions(String name, long retentionPeriod, long segmentIntervalMs)
            implements SessionBytesStoreSupplier {
        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new TomboloSessionStore(name, retentionPeriod, segmentIntervalMs);
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }
    }
}
