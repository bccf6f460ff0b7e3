package tombolo;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/**
 * An open database: ordered maps of bytes, its keyspaces. Any number of threads may use it at once.
 *
 * <p>After {@link #close} every call of it, of its keyspaces, snapshots, cursors and transactions
 * throws {@link TomboloException.Closed}.
 */
public final class Database implements AutoCloseable {
    private final Handle handle;
    private final Map<String, Keyspace> keyspaces = new ConcurrentHashMap<>();
    /** Held while keyspaces come and go, so that a name has the handle of the keyspace that it names. */
    private final ReentrantLock naming = new ReentrantLock();

    private Database(MemorySegment pointer) {
        handle = new Handle(pointer, "database");
    }

    /**
     * Opens the database at a URI, and creates it if there is none. This process is its writer then,
     * until another takes it over.
     *
     * @param uri such as {@code file:///data/orders}
     * @return the database, to be closed
     */
    public static Database open(String uri) {
        return open(uri, null);
    }

    /**
     * As {@link #open(String)}, with options.
     *
     * @param uri such as {@code file:///data/orders}
     * @param options how; null is the defaults
     * @return the database, to be closed
     */
    public static Database open(String uri, Options options) {
        return Options.with(options, made -> {
            try (Call call = Call.begin()) {
                var pointer = (MemorySegment) Native.OPEN.invokeExact(made, call.text(uri), call.error());
                call.check();
                return new Database(pointer);
            }
        });
    }

    /**
     * Opens the durable state of the database, to read it. Disturbs no writer, and needs no right to
     * write.
     *
     * @param uri where it is
     * @param options how; null is the defaults
     * @return the database, to be closed
     */
    public static Database openReadOnly(String uri, Options options) {
        return Options.with(options, made -> {
            try (Call call = Call.begin()) {
                var pointer =
                        (MemorySegment) Native.OPEN_READ_ONLY.invokeExact(made, call.text(uri), call.error());
                call.check();
                return new Database(pointer);
            }
        });
    }

    /**
     * Deletes all objects of the database at a URI: its life ends for ever.
     *
     * @param uri where it is
     * @param options how it is opened; null is the defaults
     */
    public static void destroy(String uri, Options options) {
        Options.with(options, made -> {
            try (Call call = Call.begin()) {
                Native.DESTROY_DATABASE.invokeExact(made, call.text(uri), call.error());
                call.check();
                return null;
            }
        });
    }

    /**
     * The version of the library.
     *
     * @return such as {@code 0.1.0}
     */
    public static String version() {
        try {
            return ((MemorySegment) Native.VERSION.invokeExact()).reinterpret(Long.MAX_VALUE).getString(0);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    boolean isClosed() {
        return handle.isClosed();
    }

    /** What is done with the pointer. */
    interface Use<T> {
        T with(MemorySegment database, Call call) throws Throwable;
    }

    /** Calls the library; an error of it is thrown. */
    <T> T use(Use<T> use) {
        MemorySegment database = handle.enter();
        try (Call call = Call.begin()) {
            T result = use.with(database, call);
            call.check();
            return result;
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /**
     * The keyspace {@code default}, which every database has.
     *
     * @return the keyspace, which is closed with the database
     */
    public Keyspace keyspace() {
        return keyspace("default");
    }

    /**
     * A keyspace that exists.
     *
     * @param name its name
     * @return the keyspace, which is closed with the database
     */
    public Keyspace keyspace(String name) {
        return keyspace(
                name,
                (database, call) -> (MemorySegment)
                        Native.KEYSPACE.invokeExact(database, call.text(name), call.error()));
    }

    /**
     * A keyspace, which is created if it does not exist.
     *
     * @param name its name
     * @param settings names and values as {@code compression=zstd filter_bits=12}, for a creation
     * @return the keyspace, which is closed with the database
     */
    public Keyspace openOrCreateKeyspace(String name, String settings) {
        return keyspace(
                name,
                (database, call) -> (MemorySegment) Native.CREATE_KEYSPACE.invokeExact(
                        database, call.text(name), call.text(settings), 1, call.error()));
    }

    /**
     * A new keyspace.
     *
     * @param name its name, which no other has
     * @param settings names and values as {@code compression=zstd filter_bits=12}
     * @return the keyspace, which is closed with the database
     */
    public Keyspace createKeyspace(String name, String settings) {
        naming.lock();
        try {
            return opened(
                    name,
                    (database, call) -> (MemorySegment) Native.CREATE_KEYSPACE.invokeExact(
                            database, call.text(name), call.text(settings), 0, call.error()));
        } finally {
            naming.unlock();
        }
    }

    private Keyspace keyspace(String name, Use<MemorySegment> open) {
        if (handle.isClosed()) {
            handle.enter();
        }
        Keyspace known = keyspaces.get(name);
        if (known != null) {
            return known;
        }
        naming.lock();
        try {
            known = keyspaces.get(name);
            return known != null ? known : opened(name, open);
        } finally {
            naming.unlock();
        }
    }

    /** Opens one, and keeps it until the database is closed. */
    private Keyspace opened(String name, Use<MemorySegment> open) {
        Keyspace keyspace = use((database, call) -> {
            MemorySegment pointer = open.with(database, call);
            call.check();
            return new Keyspace(pointer, this, name);
        });
        Keyspace earlier = keyspaces.put(name, keyspace);
        if (earlier != null) {
            earlier.destroy();
        }
        if (handle.isClosed()) {
            keyspace.destroy();
        }
        return keyspace;
    }

    /**
     * Drops a keyspace with all in it.
     *
     * @param name its name
     */
    public void dropKeyspace(String name) {
        Keyspace known;
        naming.lock();
        try {
            use((database, call) -> {
                Native.DROP_KEYSPACE.invokeExact(database, call.text(name), call.error());
                return null;
            });
            known = keyspaces.remove(name);
        } finally {
            naming.unlock();
        }
        if (known != null) {
            known.destroy();
        }
    }

    /**
     * The names of all keyspaces.
     *
     * @return the names
     */
    public List<String> keyspaceNames() {
        String lines = use((database, call) -> Call.taken(
                (MemorySegment) Native.KEYSPACE_NAMES.invokeExact(database, call.error())));
        return lines == null ? List.of() : lines.lines().toList();
    }

    /**
     * Writes a batch, whole or not at all, and empties it, after an error too.
     *
     * @param batch the writes
     * @param survives what they survive
     */
    public void write(Batch batch, Durability survives) {
        MemorySegment pointer = batch.handle.enterAlone();
        try {
            use((database, call) -> {
                Native.WRITE.invokeExact(database, pointer, survives.ordinal(), call.error());
                return null;
            });
        } finally {
            batch.handle.leave();
        }
    }

    /**
     * Begins to write a batch, which is empty when this returns.
     *
     * @param batch the writes
     * @param survives what they survive
     * @return ends when they do, on a thread of the common pool
     */
    public CompletableFuture<Void> writeAsync(Batch batch, Durability survives) {
        CompletableFuture<Void> future = new CompletableFuture<>();
        MemorySegment pointer = batch.handle.enterAlone();
        try {
            use((database, call) -> {
                Native.WRITE_THEN.invokeExact(
                        database, pointer, survives.ordinal(), Callbacks.ENDED, Callbacks.keep(future));
                return null;
            });
        } finally {
            batch.handle.leave();
        }
        return future;
    }

    /**
     * All keyspaces as they are now.
     *
     * @return the snapshot, to be closed: what it sees is kept until then
     */
    public Snapshot snapshot() {
        return use((database, call) -> {
            var pointer = (MemorySegment) Native.SNAPSHOT.invokeExact(database, call.error());
            call.check();
            return new Snapshot(pointer);
        });
    }

    /**
     * Begins a transaction over all keyspaces: optimistic, with snapshot isolation, and durable.
     *
     * @return the transaction, to be closed
     */
    public Transaction transaction() {
        return transaction(Transaction.Locking.OPTIMISTIC, Transaction.Isolation.SNAPSHOT,
                Durability.DURABLE);
    }

    /**
     * Begins a transaction over all keyspaces.
     *
     * @param locking whether others are kept away from its keys
     * @param isolation what it sees
     * @param survives what its commit survives
     * @return the transaction, to be closed
     */
    public Transaction transaction(
            Transaction.Locking locking, Transaction.Isolation isolation, Durability survives) {
        return use((database, call) -> {
            var pointer = (MemorySegment) Native.TRANSACTION_BEGIN.invokeExact(
                    database,
                    locking.ordinal(),
                    isolation.ordinal(),
                    survives.ordinal(),
                    0L,
                    Native.NULL,
                    0L,
                    call.error());
            call.check();
            return new Transaction(pointer);
        });
    }

    /** Makes durable what was accepted before. */
    public void sync() {
        use((database, call) -> {
            Native.SYNC.invokeExact(database, call.error());
            return null;
        });
    }

    /** Writes all that is in memory to tables. */
    public void flush() {
        use((database, call) -> {
            Native.FLUSH.invokeExact(database, call.error());
            return null;
        });
    }

    /** Merges the tables of each keyspace into one run. */
    public void compact() {
        use((database, call) -> {
            Native.COMPACT.invokeExact(database, call.error());
            return null;
        });
    }

    /**
     * Makes a checkpoint: a state that stays until it is deleted.
     *
     * @param name its name
     */
    public void checkpoint(String name) {
        use((database, call) -> {
            Native.CHECKPOINT.invokeExact(database, call.text(name), call.error());
            return null;
        });
    }

    /**
     * Deletes a checkpoint.
     *
     * @param name its name
     */
    public void deleteCheckpoint(String name) {
        use((database, call) -> {
            Native.DELETE_CHECKPOINT.invokeExact(database, call.text(name), call.error());
            return null;
        });
    }

    /**
     * Changes a setting of the open database.
     *
     * @param name its name
     * @param value its value
     */
    public void set(String name, String value) {
        use((database, call) -> {
            Native.SET_OPTION.invokeExact(database, call.text(name), call.text(value), call.error());
            return null;
        });
    }

    /**
     * What the database says of itself.
     *
     * @param name a property, such as {@code keys-estimated}
     * @return its value
     */
    public String property(String name) {
        return use((database, call) -> Call.taken(
                (MemorySegment) Native.PROPERTY.invokeExact(database, call.text(name), call.error())));
    }

    /**
     * All that the database says of itself, as Prometheus reads it.
     *
     * @param label names the database there
     * @return the text
     */
    public String metrics(String label) {
        byte[] bytes = label.getBytes(StandardCharsets.UTF_8);
        return use((database, call) -> Call.taken((MemorySegment) Native.METRICS.invokeExact(
                database, call.bytes(bytes), (long) bytes.length, call.error())));
    }

    /**
     * Makes accepted writes durable and ends the handle, also after an exception, which says what may
     * not be durable. Waits for calls that have begun. A second time it does nothing.
     */
    @Override
    public void close() {
        try {
            handle.close(database -> {
                try (Call call = Call.begin()) {
                    Native.CLOSE.invokeExact(database, call.error());
                    call.check();
                }
            });
        } finally {
            keyspaces.values().forEach(Keyspace::destroy);
        }
    }
}
