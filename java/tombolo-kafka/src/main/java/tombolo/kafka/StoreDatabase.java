package tombolo.kafka;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStoreContext;
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

    private final String store;
    private final Set<EntryIterator> iterators = Collections.synchronizedSet(new HashSet<>());

    private StateStoreContext context;
    private Database database;
    private Keyspace offsets;
    private Position position = Position.emptyPosition();
    private String settings;
    private boolean transactional;
    private Transaction transaction;
    /** Dropped with the next commit, so that what it undoes is whole. */
    private final List<String> condemned = new ArrayList<>();
    private volatile boolean open;

    StoreDatabase(String store) {
        this.store = store;
    }

    /** Opens or creates it, as the application's configuration says. */
    synchronized void open(StateStoreContext context) {
        this.context = context;
        Map<String, Object> configs = context.appConfigs();
        transactional = configs.containsKey(TRANSACTIONAL)
                ? Boolean.parseBoolean(configs.get(TRANSACTIONAL).toString())
                : StreamsConfig.EXACTLY_ONCE_V2.equals(
                        configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG));
        Options options = new Options();
        StringBuilder ofKeyspaces = new StringBuilder();
        configs.forEach((name, value) -> {
            if (name.startsWith(OF_DATABASES)) {
                options.set(name.substring(OF_DATABASES.length()), String.valueOf(value));
            } else if (name.startsWith(OF_KEYSPACES)) {
                ofKeyspaces.append(name.substring(OF_KEYSPACES.length()))
                        .append('=')
                        .append(value)
                        .append(' ');
            }
        });
        settings = ofKeyspaces.toString();
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
        } catch (TomboloException failed) {
            if (database != null) {
                database.close();
            }
            throw failed("opening", failed);
        }
        open = true;
    }

    private void open(String uri, Options options) {
        database = Database.open(uri, options);
        offsets = database.openOrCreateKeyspace(OFFSETS, null);
    }

    private String uri(Map<String, Object> configs) {
        Object base = configs.get(URI);
        if (base != null) {
            String below = "/" + context.applicationId() + "/" + context.taskId() + "/" + store;
            return base.toString().replaceFirst("/+$", "") + below;
        }
        File directory = new File(new File(context.stateDir(), "tombolo"), store);
        return "file://" + directory.getAbsolutePath();
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
        return database.openOrCreateKeyspace(name, settings);
    }

    /** The names of the keyspaces of records that are not condemned. */
    synchronized List<String> keyspaceNames() {
        List<String> names = new ArrayList<>(database.keyspaceNames());
        names.remove(OFFSETS);
        names.removeAll(condemned);
        return names;
    }

    /** Drops a keyspace with the next commit. */
    synchronized void condemn(String keyspace) {
        condemned.add(keyspace);
    }

    private ProcessorStateException failed(String doing, TomboloException failed) {
        return new ProcessorStateException(doing + " store " + store + ": " + failed.getMessage(), failed);
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

    /** Writes several records of the stream's, together. */
    synchronized void putAll(Keyspace keyspace, List<KeyValue<byte[], byte[]>> records) {
        validateOpen();
        try {
            synchronized (position) {
                if (transactional) {
                    records.forEach(record -> write(keyspace, record.key, record.value));
                } else {
                    batch(records, record -> keyspace, Durability.ACCEPTED);
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

    /** Takes records of the changelog, which are committed there: they need no transaction. */
    synchronized void restore(Collection<KeyValue<byte[], byte[]>> records, Place place) {
        validateOpen();
        try {
            batch(records, place, Durability.ACCEPTED);
        } catch (TomboloException failed) {
            throw failed("restoring", failed);
        }
    }

    private void batch(
            Collection<KeyValue<byte[], byte[]>> records, Place place, Durability survives) {
        try (Batch batch = new Batch()) {
            for (KeyValue<byte[], byte[]> record : records) {
                Keyspace keyspace = place.of(record);
                if (keyspace == null) {
                    continue;
                }
                if (record.value == null) {
                    batch.delete(keyspace, record.key);
                } else {
                    batch.put(keyspace, record.key, record.value);
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
            return new EntryIterator(cursor(keyspace, from, to), forward, store, iterators);
        } catch (TomboloException failed) {
            throw failed("reading", failed);
        }
    }

    private Cursor cursor(Keyspace keyspace, byte[] from, byte[] to) {
        if (transactional) {
            synchronized (this) {
                if (transaction != null) {
                    return transaction.cursor(keyspace, from, to);
                }
            }
        }
        return keyspace.cursor(from, to, null);
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
        if (transaction == null) {
            // Of one stream: what was accepted before it is durable with it.
            batch(said, record -> offsets, Durability.DURABLE);
        } else {
            try (Transaction ending = transaction) {
                said.forEach(record -> write(offsets, record.key, record.value));
                ending.commit();
            } finally {
                transaction = null;
            }
        }
        condemned.forEach(database::dropKeyspace);
        condemned.clear();
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
