package tombolo;

import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * Reads and writes that take effect together, at one moment, or not at all. It sees its own writes.
 * One thread uses it at a time. Closed without a commit, it is rolled back.
 *
 * <p>{@link TomboloException.Conflict} says that somebody else was there: begin again.
 */
public final class Transaction implements AutoCloseable {
    /** Whether others are kept away. */
    public enum Locking {
        /** Nobody: the second of two commits that meet ends with {@link TomboloException.Conflict}. */
        OPTIMISTIC,
        /** Writes and reads for update lock their keys; others that want them wait. */
        PESSIMISTIC
    }

    /** What it sees of others. */
    public enum Isolation {
        /** All reads see one state. */
        SNAPSHOT,
        /** As if transactions ran one after the other. */
        SERIALIZABLE
    }

    private final Handle handle;

    Transaction(MemorySegment pointer) {
        handle = new Handle(pointer, "transaction");
    }

    private interface Use<T> {
        T with(MemorySegment transaction, MemorySegment keyspace, Call call) throws Throwable;
    }

    private <T> T use(Keyspace keyspace, Use<T> use) {
        MemorySegment transaction = handle.enterAlone();
        try {
            MemorySegment into = keyspace == null ? Native.NULL : keyspace.handle.enter();
            try (Call call = Call.begin()) {
                T result = use.with(transaction, into, call);
                call.check();
                return result;
            } finally {
                if (keyspace != null) {
                    keyspace.handle.leave();
                }
            }
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /**
     * The value of a key as the transaction sees it.
     *
     * @param keyspace where
     * @param key the key
     * @return a copy of the value, or null when there is none
     */
    public byte[] get(Keyspace keyspace, byte[] key) {
        return get(keyspace, key, 0);
    }

    /**
     * The value of a key, which counts as written from here on: others that write it meet this
     * transaction.
     *
     * @param keyspace where
     * @param key the key
     * @return a copy of the value, or null when there is none
     */
    public byte[] getForUpdate(Keyspace keyspace, byte[] key) {
        return get(keyspace, key, 1);
    }

    private byte[] get(Keyspace keyspace, byte[] key, int forUpdate) {
        Objects.requireNonNull(key, "key");
        return use(Objects.requireNonNull(keyspace), (transaction, into, call) -> {
            var value = (MemorySegment) Native.TRANSACTION_GET.invokeExact(
                    transaction,
                    into,
                    call.bytes(key),
                    (long) key.length,
                    forUpdate,
                    call.lengthPlace(),
                    call.error());
            byte[] copy = Call.copied(value, call.length());
            Native.FREE.invokeExact(value);
            return copy;
        });
    }

    /**
     * A cursor over what the transaction sees: its writes until now, and those since once the cursor
     * is refreshed.
     *
     * @param keyspace where
     * @param from the first key; null is no bound
     * @param to the key before which it ends; null is no bound
     * @return the cursor, to be closed
     */
    public Cursor cursor(Keyspace keyspace, byte[] from, byte[] to) {
        return use(Objects.requireNonNull(keyspace), (transaction, into, call) -> {
            var pointer = (MemorySegment) Native.TRANSACTION_CURSOR.invokeExact(
                    transaction,
                    into,
                    call.bytes(from),
                    from == null ? 0L : from.length,
                    call.bytes(to),
                    to == null ? 0L : to.length,
                    call.error());
            call.check();
            return new Cursor(pointer, keyspace.database());
        });
    }

    /**
     * Stores a value under a key.
     *
     * @param keyspace where
     * @param key the key
     * @param value the value
     */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        use(Objects.requireNonNull(keyspace), (transaction, into, call) -> {
            Native.TRANSACTION_PUT.invokeExact(
                    transaction,
                    into,
                    call.bytes(key),
                    (long) key.length,
                    call.bytes(value),
                    (long) value.length,
                    call.error());
            return null;
        });
    }

    /**
     * Merges an operand into the value of a key.
     *
     * @param keyspace where
     * @param key the key
     * @param operand the operand
     */
    public void merge(Keyspace keyspace, byte[] key, byte[] operand) {
        use(Objects.requireNonNull(keyspace), (transaction, into, call) -> {
            Native.TRANSACTION_MERGE.invokeExact(
                    transaction,
                    into,
                    call.bytes(key),
                    (long) key.length,
                    call.bytes(operand),
                    (long) operand.length,
                    call.error());
            return null;
        });
    }

    /**
     * Removes a key, there or not.
     *
     * @param keyspace where
     * @param key the key
     */
    public void delete(Keyspace keyspace, byte[] key) {
        use(Objects.requireNonNull(keyspace), (transaction, into, call) -> {
            Native.TRANSACTION_DELETE.invokeExact(
                    transaction, into, call.bytes(key), (long) key.length, call.error());
            return null;
        });
    }

    /** Sets a savepoint, on top of those that are set. */
    public void setSavepoint() {
        use(null, (transaction, none, call) -> {
            Native.TRANSACTION_SET_SAVEPOINT.invokeExact(transaction, call.error());
            return null;
        });
    }

    /** Undoes all writes since the newest savepoint, and takes that away. */
    public void rollbackToSavepoint() {
        use(null, (transaction, none, call) -> {
            Native.TRANSACTION_ROLLBACK_TO_SAVEPOINT.invokeExact(transaction, call.error());
            return null;
        });
    }

    /**
     * Commits: all of its writes take effect, or none.
     *
     * @return the number of the commit
     */
    public long commit() {
        return use(null, (transaction, none, call) ->
                (long) Native.TRANSACTION_COMMIT.invokeExact(transaction, call.error()));
    }

    /** Undoes it, and ends it. */
    public void rollback() {
        use(null, (transaction, none, call) -> {
            Native.TRANSACTION_ROLLBACK.invokeExact(transaction, call.error());
            return null;
        });
    }

    /** Rolls it back if it has not ended, and lets go of it. */
    @Override
    public void close() {
        handle.close(pointer -> {
            Native.TRANSACTION_DESTROY.invokeExact(pointer);
        });
    }
}
