package tombolo;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Objects;

/**
 * Writes that take effect whole or not at all, by {@link Database#write}. One thread uses it at a
 * time.
 */
public final class Batch implements AutoCloseable {
    final Handle handle;

    /** An empty batch, to be closed. */
    public Batch() {
        try {
            handle = new Handle((MemorySegment) Native.BATCH_CREATE.invokeExact(), "batch");
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private interface Add {
        void to(MemorySegment batch, MemorySegment keyspace, Call call) throws Throwable;
    }

    private Batch add(Keyspace keyspace, Add add) {
        MemorySegment batch = handle.enterAlone();
        try {
            MemorySegment into = keyspace.handle.enter();
            try (Call call = Call.begin()) {
                add.to(batch, into, call);
                call.check();
            } finally {
                keyspace.handle.leave();
            }
            return this;
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /**
     * Adds a put.
     *
     * @param keyspace where
     * @param key the key
     * @param value the value
     * @return this batch
     */
    public Batch put(Keyspace keyspace, byte[] key, byte[] value) {
        return put(keyspace, MemorySegment.ofArray(key), MemorySegment.ofArray(value));
    }

    /**
     * Adds a put.
     *
     * @param keyspace where
     * @param key the key
     * @param value the value
     * @return this batch
     */
    public Batch put(Keyspace keyspace, MemorySegment key, MemorySegment value) {
        return add(keyspace, (batch, into, call) -> {
            Native.BATCH_PUT.invokeExact(
                    batch, into, key, key.byteSize(), value, value.byteSize(), call.error());
        });
    }

    /**
     * Adds a put of a value that lives from now on for some time.
     *
     * @param keyspace where
     * @param key the key
     * @param value the value
     * @param lives how long, in whole milliseconds
     * @return this batch
     */
    public Batch put(Keyspace keyspace, byte[] key, byte[] value, Duration lives) {
        MemorySegment bytes = MemorySegment.ofArray(key);
        MemorySegment content = MemorySegment.ofArray(value);
        return add(keyspace, (batch, into, call) -> {
            Native.BATCH_PUT_TTL.invokeExact(
                    batch, into, bytes, (long) key.length, content, (long) value.length, lives.toMillis(),
                    call.error());
        });
    }

    /**
     * Adds a delete.
     *
     * @param keyspace where
     * @param key the key
     * @return this batch
     */
    public Batch delete(Keyspace keyspace, byte[] key) {
        MemorySegment bytes = MemorySegment.ofArray(key);
        return add(keyspace, (batch, into, call) -> {
            Native.BATCH_DELETE.invokeExact(batch, into, bytes, (long) key.length, call.error());
        });
    }

    /**
     * Adds a delete of a key that was put once since it was last removed.
     *
     * @param keyspace where
     * @param key the key
     * @return this batch
     */
    public Batch singleDelete(Keyspace keyspace, byte[] key) {
        MemorySegment bytes = MemorySegment.ofArray(key);
        return add(keyspace, (batch, into, call) -> {
            Native.BATCH_SINGLE_DELETE.invokeExact(batch, into, bytes, (long) key.length, call.error());
        });
    }

    /**
     * Adds a delete of all keys of a range.
     *
     * @param keyspace where
     * @param from the first key
     * @param to the key before which it ends
     * @return this batch
     */
    public Batch deleteRange(Keyspace keyspace, byte[] from, byte[] to) {
        MemorySegment first = MemorySegment.ofArray(from);
        MemorySegment end = MemorySegment.ofArray(to);
        return add(keyspace, (batch, into, call) -> {
            Native.BATCH_DELETE_RANGE.invokeExact(
                    batch, into, first, (long) from.length, end, (long) to.length, call.error());
        });
    }

    /**
     * Adds a merge.
     *
     * @param keyspace where
     * @param key the key
     * @param operand the operand
     * @return this batch
     */
    public Batch merge(Keyspace keyspace, byte[] key, byte[] operand) {
        MemorySegment bytes = MemorySegment.ofArray(key);
        MemorySegment content = MemorySegment.ofArray(Objects.requireNonNull(operand));
        return add(keyspace, (batch, into, call) -> {
            Native.BATCH_MERGE.invokeExact(
                    batch, into, bytes, (long) key.length, content, (long) operand.length, call.error());
        });
    }

    /**
     * How many writes are in it.
     *
     * @return the number
     */
    public long size() {
        MemorySegment batch = handle.enterAlone();
        try {
            return (long) Native.BATCH_COUNT.invokeExact(batch);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /** Forgets all writes in it. */
    public void clear() {
        MemorySegment batch = handle.enterAlone();
        try {
            Native.BATCH_CLEAR.invokeExact(batch);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /** What was not written is forgotten. */
    @Override
    public void close() {
        handle.close(pointer -> {
            Native.BATCH_DESTROY.invokeExact(pointer);
        });
    }
}
