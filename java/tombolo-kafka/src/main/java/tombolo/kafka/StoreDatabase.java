package tombolo.kafka;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.StreamsException;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.Task;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.internals.PositionSerde;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import tombolo.Batch;
import tombolo.Cursor;
import tombolo.Database;
import tombolo.Durability;
import tombolo.Keyspace;
import tombolo.Options;
import tombolo.TomboloException;
import tombolo.Transaction;

/**
 * The database of one store: its keyspaces of records, and one that says up to which offset of the
 * changelog they are.
 *
 * <p>With at-least-once processing writes survive the process, and a commit makes them durable with
 * the offsets, by one sync. With exactly-once processing writes since the last commit are a
 * transaction, which the commit ends together with the offsets: whatever happens, the store is at
 * the offset that it says, and is never restored from the beginning.
 *
 * <p>Threads: the stream's thread writes; any may read.
 */
final class StoreDatabase {
    /** Where databases lie, each below {@code application/task/store}; the state directory without it. */
    static final String URI = "tombolo.uri";
    /** Whether writes since a commit are a transaction: with exactly-once processing without it. */
    static final String TRANSACTIONAL = "tombolo.transactional";
    /** What follows is a setting of the keyspaces of records. */
    static final String OF_KEYSPACES = "tombolo.keyspace.";
    /** What follows is a setting of the database. */
    static final String OF_DATABASES = "tombolo.database.";

    private static final String OFFSETS = "kafka offsets";
    private static final byte[] POSITION = "position".getBytes(StandardCharsets.UTF_8);
    private static final String PARTITION = "offset ";
    /** That Kafka took its offsets away: it begins with nothing when it is opened again. */
    private static final byte[] CORRUPTED = "corrupted".getBytes(StandardCharsets.UTF_8);
    /** The settings that all keyspaces of records have. */
    private static final byte[] SETTINGS = "settings".getBytes(StandardCharsets.UTF_8);
    /** Of a write of several records that need not be whole. */
    private static final long WRITE_BYTES = 4 << 20;

    private final String store;
    private final Set<EntryIterator> iterators = Collections.synchronizedSet(new HashSet<>());

    private StateStoreContext context;
    private Database database;
    private Keyspace offsets;
    private Position position = Position.emptyPosition();
    private final Map<String, String> settings = new TreeMap<>();
    /** Whether keyspaces that exist may have others. */
    private boolean othersSet;
    private boolean transactional;
    private Transaction transaction;
    /** Dropped with the next commit, so that what it undoes is whole. */
    private final List<String> condemned = new ArrayList<>();
    private volatile boolean open;

    StoreDatabase(String store) {
        this.store = store;
    }

    String store() {
        return store;
    }

    /**
     * Opens or creates it, as the application's configuration says.
     *
     * @param then is run with it open; when that fails it is closed again
     */
    synchronized void open(StateStoreContext context, Runnable then) {
        this.context = context;
        Map<String, Object> configs = context.appConfigs();
        transactional = configs.containsKey(TRANSACTIONAL)
                ? Boolean.parseBoolean(configs.get(TRANSACTIONAL).toString())
                : StreamsConfig.EXACTLY_ONCE_V2.equals(
                        configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG));
        Options options = new Options();
        settings.clear();
        configs.forEach((name, value) -> {
            if (name.startsWith(OF_DATABASES)) {
                options.set(name.substring(OF_DATABASES.length()), String.valueOf(value));
            } else if (name.startsWith(OF_KEYSPACES)) {
                settings.put(name.substring(OF_KEYSPACES.length()), String.valueOf(value));
            }
        });
        String uri = uri(configs);
        try {
            open(uri, options);
            if (offsets.get(CORRUPTED) != null) {
                database.close();
                Database.destroy(uri, options);
                open(uri, options);
            }
            byte[] known = offsets.get(POSITION);
            position =
                    known == null ? Position.emptyPosition() : PositionSerde.deserialize(
                            ByteBuffer.wrap(known));
            byte[] set = offsets.get(SETTINGS);
            othersSet = !Arrays.equals(set == null ? new byte[0] : set, bytes(settingsText()));
            open = true;
            then.run();
        } catch (TomboloException failed) {
            giveUp();
            throw failed("opening", failed);
        } catch (RuntimeException | Error failed) {
            giveUp();
            throw failed;
        }
    }

    private void giveUp() {
        open = false;
        try {
            if (database != null) {
                database.close();
            }
        } catch (TomboloException later) {
            // What was first says more.
        }
    }

    private String settingsText() {
        StringBuilder text = new StringBuilder();
        settings.forEach((name, value) -> text.append(name).append('=').append(value).append(' '));
        return text.toString();
    }

    private void open(String uri, Options options) {
        database = Database.open(uri, options);
        offsets = database.openOrCreateKeyspace(OFFSETS, null);
    }

    private String uri(Map<String, Object> configs) {
        Object base = configs.get(URI);
        // Each instance has all of a global store, and is the only writer of its own.
        if (base != null && context.taskId().subtopology() >= 0) {
            refuseReplicas(configs);
            String below = "/" + context.applicationId() + "/" + context.taskId() + "/" + store;
            return base.toString().replaceFirst("/+$", "") + below;
        }
        File directory = new File(new File(context.stateDir(), "tombolo"), store);
        return "file://" + directory.getAbsolutePath();
    }

    /** A replica would take the database from the task that it shall stand by. */
    private void refuseReplicas(Map<String, Object> configs) {
        Object replicas = configs.get(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG);
        if (replicas != null && Integer.parseInt(replicas.toString().strip()) > 0) {
            throw new ConfigException(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, replicas,
                    "with " + URI + " a task that moves finds its state there, and a standby replica would"
                            + " take it from the active task: set it to 0");
        }
        if (context instanceof ProcessorContextImpl task && task.taskType() == Task.TaskType.STANDBY) {
            throw new ConfigException("with " + URI + " a task that moves finds its state there, and a"
                    + " warm-up replica of " + context.taskId() + " would take it from the active task: set "
                    + StreamsConfig.ACCEPTABLE_RECOVERY_LAG_CONFIG + " to " + Long.MAX_VALUE + " in all"
                    + " instances, so that Kafka makes none");
        }
    }

    boolean isOpen() {
        return open;
    }

    void validateOpen() {
        if (!open) {
            throw new InvalidStateStoreException("Store " + store + " is currently closed");
        }
    }

    Position position() {
        return position;
    }

    long keysEstimated() {
        try {
            return Long.parseLong(database.property("keys-estimated"));
        } catch (TomboloException failed) {
            throw failed("reading", failed);
        }
    }

    /** The keyspace of records of that name, which is created if it does not exist. */
    Keyspace keyspace(String name) {
        try {
            boolean sets = othersSet && database.keyspaceNames().contains(name);
            Keyspace keyspace = database.openOrCreateKeyspace(name, settingsText());
            if (sets) {
                settings.forEach(keyspace::set);
            }
            return keyspace;
        } catch (TomboloException failed) {
            throw failed("opening a keyspace of", failed);
        }
    }

    /** The names of the keyspaces of records that are not condemned. */
    synchronized List<String> keyspaceNames() {
        try {
            List<String> names = new ArrayList<>(database.keyspaceNames());
            names.remove(OFFSETS);
            names.removeAll(condemned);
            return names;
        } catch (TomboloException failed) {
            throw failed("reading", failed);
        }
    }

    /** Drops a keyspace with the next commit. */
    synchronized void condemn(String keyspace) {
        condemned.add(keyspace);
    }

    /** As Kafka knows it: a task that another process has is let go of, and no end of the thread. */
    StreamsException failed(String doing, TomboloException failed) {
        String message = doing + " store " + store + ": " + failed.getMessage();
        return failed instanceof TomboloException.Fenced
                ? new TaskMigratedException(message, failed)
                : new ProcessorStateException(message, failed);
    }

    /** Writes a record of the stream's; null removes it. */
    synchronized void put(Keyspace keyspace, byte[] key, byte[] value) {
        validateOpen();
        try {
            synchronized (position) {
                write(keyspace, key, value);
                StoreQueryUtils.updatePosition(position, context);
            }
        } catch (TomboloException failed) {
            throw failed("writing to", failed);
        }
    }

    private void write(Keyspace keyspace, byte[] key, byte[] value) {
        if (transactional) {
            if (transaction == null) {
                transaction = database.transaction();
            }
            if (value == null) {
                transaction.delete(keyspace, key);
            } else {
                transaction.put(keyspace, key, value);
            }
        } else if (value == null) {
            keyspace.delete(key, Durability.ACCEPTED);
        } else {
            keyspace.put(key, value, Durability.ACCEPTED);
        }
    }

    /** Writes several records of the stream's, in few writes. */
    synchronized void putAll(Keyspace keyspace, List<KeyValue<byte[], byte[]>> records) {
        validateOpen();
        try {
            synchronized (position) {
                if (transactional) {
                    records.forEach(record -> write(keyspace, record.key, record.value));
                } else {
                    batch(records, record -> keyspace, Durability.ACCEPTED, WRITE_BYTES);
                }
                StoreQueryUtils.updatePosition(position, context);
            }
        } catch (TomboloException failed) {
            throw failed("writing to", failed);
        }
    }

    /** Where a record belongs; null when it has expired. */
    interface Place {
        Keyspace of(KeyValue<byte[], byte[]> record);
    }

    /**
     * Takes records of the changelog, which are committed there: they need no transaction, and are
     * any number of writes. Nothing is said of a database that another process has: whatever
     * restoring throws ends Kafka's thread, and the commit after it tells that the task is migrated.
     */
    synchronized void restore(Collection<KeyValue<byte[], byte[]>> records, Place place) {
        validateOpen();
        try {
            batch(records, place, Durability.ACCEPTED, WRITE_BYTES);
        } catch (TomboloException.Fenced | TaskMigratedException taken) {
            // Nothing is durable here any more.
        } catch (TomboloException failed) {
            throw failed("restoring", failed);
        }
    }

    /** Writes records, in writes of at least so many bytes but for the last. */
    private void batch(
            Collection<KeyValue<byte[], byte[]>> records, Place place, Durability survives, long enough) {
        try (Batch batch = new Batch()) {
            long bytes = 0;
            for (KeyValue<byte[], byte[]> record : records) {
                Keyspace keyspace = place.of(record);
                if (keyspace == null) {
                    continue;
                }
                if (record.value == null) {
                    batch.delete(keyspace, record.key);
                } else {
                    batch.put(keyspace, record.key, record.value);
                    bytes += record.value.length;
                }
                bytes += record.key.length;
                if (bytes >= enough) {
                    database.write(batch, survives);
                    bytes = 0;
                }
            }
            database.write(batch, survives);
        }
    }

    byte[] get(Keyspace keyspace, byte[] key) {
        validateOpen();
        try {
            if (transactional) {
                synchronized (this) {
                    if (transaction != null) {
                        return transaction.get(keyspace, key);
                    }
                }
            }
            return keyspace.get(key);
        } catch (TomboloException failed) {
            throw failed("reading", failed);
        }
    }

    /** Records from a key on and before another; null is no bound. */
    EntryIterator iterator(Keyspace keyspace, byte[] from, byte[] to, boolean forward) {
        validateOpen();
        try {
            EntryIterator iterator = null;
            if (transactional) {
                synchronized (this) {
                    if (transaction != null) {
                        iterator = new EntryIterator(this, transaction, keyspace, from, to, forward);
                    }
                }
            }
            if (iterator == null) {
                iterator = new EntryIterator(this, null, keyspace, from, to, forward);
            }
            iterators.add(iterator);
            return iterator;
        } catch (TomboloException failed) {
            throw failed("reading", failed);
        }
    }

    /** Whether a transaction has not ended. */
    synchronized boolean isRunning(Transaction some) {
        return some == transaction;
    }

    /** Closes an iterator no more. */
    void forget(EntryIterator iterator) {
        iterators.remove(iterator);
    }

    /** Makes durable what was written, and with it up to where the changelog is in it. */
    synchronized void commit(Map<TopicPartition, Long> changelog) {
        validateOpen();
        List<KeyValue<byte[], byte[]>> said = new ArrayList<>();
        try {
            if (changelog.isEmpty()) {
                byte[] first = bytes(PARTITION);
                try (Cursor known = offsets.cursor(first, Keys.afterPrefix(first), null)) {
                    while (known.next()) {
                        said.add(KeyValue.pair(known.key(), null));
                        // A store without a changelog has no offsets, and is always told none.
                        said.add(KeyValue.pair(CORRUPTED, new byte[0]));
                    }
                }
            }
            if (!changelog.isEmpty() && offsets.get(CORRUPTED) != null) {
                said.add(KeyValue.pair(CORRUPTED, null));
            }
            changelog.forEach((partition, offset) -> said.add(KeyValue.pair(
                    bytes(PARTITION + partition),
                    offset == null ? null : ByteBuffer.allocate(Long.BYTES).putLong(offset).array())));
            end(said);
        } catch (TomboloException failed) {
            throw failed("committing", failed);
        }
    }

    /** Makes durable what was written; for versions of Kafka that keep the offsets themselves. */
    synchronized void flush() {
        validateOpen();
        try {
            end(new ArrayList<>());
        } catch (TomboloException failed) {
            throw failed("flushing", failed);
        }
    }

    private void end(List<KeyValue<byte[], byte[]>> said) {
        synchronized (position) {
            ByteBuffer serialized = PositionSerde.serialize(position);
            byte[] at = new byte[serialized.remaining()];
            serialized.get(at);
            said.add(KeyValue.pair(POSITION, at));
        }
        if (othersSet) {
            said.add(KeyValue.pair(SETTINGS, bytes(settingsText())));
        }
        if (transaction == null) {
            // Of one stream: what was accepted before it is durable with it.
            batch(said, record -> offsets, Durability.DURABLE, Long.MAX_VALUE);
        } else {
            try (Transaction ending = transaction) {
                said.forEach(record -> write(offsets, record.key, record.value));
                ending.commit();
            } finally {
                transaction = null;
            }
        }
        othersSet = false;
        for (Iterator<String> names = condemned.iterator(); names.hasNext(); names.remove()) {
            try {
                database.dropKeyspace(names.next());
            } catch (TomboloException.NotFound gone) {
                // An earlier drop took effect, and said an error.
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Up to where the changelog is in what was committed; null when nobody said. */
    Long committedOffset(TopicPartition partition) {
        validateOpen();
        try {
            byte[] offset = offsets.get(bytes(PARTITION + Objects.requireNonNull(partition)));
            return offset == null ? null : ByteBuffer.wrap(offset).getLong();
        } catch (TomboloException failed) {
            throw failed("reading", failed);
        }
    }

    /** Ends it; what was written since the last commit of a transactional one is undone. */
    synchronized void close() {
        if (!open) {
            return;
        }
        open = false;
        List.copyOf(iterators).forEach(EntryIterator::close);
        if (transaction != null) {
            transaction.close();
            transaction = null;
        }
        condemned.clear();
        try {
            database.close();
        } catch (TomboloException.Fenced taken) {
            // Another process has it: it was given to that one, and nothing is ours any more.
        } catch (TomboloException failed) {
            throw failed("closing", failed);
        }
    }
}
