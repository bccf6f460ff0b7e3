package tombolo;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;

/**
 * An ordered map of bytes. Any number of threads may use it at once.
 *
 * <p>It is closed with its database. Writes are durable unless a method says otherwise.
 */
public final class Keyspace {
    final Handle handle;
    private final Database database;
    private final String name;

    Keyspace(MemorySegment pointer, Database database, String name) {
        this.handle = new Handle(pointer, "keyspace");
        this.database = database;
        this.name = name;
    }

    void destroy() {
        handle.close(pointer -> {
            Native.KEYSPACE_DESTROY.invokeExact(pointer);
        });
    }

    /**
     * Its name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Its database.
     *
     * @return the database
     */
    public Database database() {
        return database;
    }

    /** Calls the library; an error of it is thrown. */
    private <T> T use(Database.Use<T> use) {
        MemorySegment keyspace = handle.enter();
        try (Call call = Call.begin()) {
            T result = use.with(keyspace, call);
            call.check();
            return result;
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /**
     * Changes a setting of the keyspace.
     *
     * @param setting its name, such as {@code compression}
     * @param value its value
     */
    public void set(String setting, String value) {
        use((keyspace, call) -> {
            Native.KEYSPACE_SET_OPTION.invokeExact(
                    keyspace, call.text(setting), call.text(value), call.error());
            return null;
        });
    }

    /**
     * The value of a key.
     *
     * @param key the key
     * @return a copy of the value, or null when there is none
     */
    public byte[] get(byte[] key) {
        return get(key, null);
    }

    /**
     * The value of a key as a snapshot sees it.
     *
     * @param key the key
     * @param snapshot from where to look; null is now
     * @return a copy of the value, or null when there is none
     */
    public byte[] get(byte[] key, Snapshot snapshot) {
        Objects.requireNonNull(key, "key");
        MemorySegment looked = snapshot == null ? Native.NULL : snapshot.handle.enter();
        try {
            MemorySegment keyspace = handle.enter();
            try (Call call = Call.begin()) {
                var pointer = (MemorySegment) Native.GET_VALUE.invokeExact(
                        keyspace, looked, call.bytes(key), (long) key.length, call.error());
                call.check();
                if (pointer.address() == 0) {
                    return null;
                }
                try {
                    var bytes = (MemorySegment) Native.VALUE_BYTES.invokeExact(pointer, call.lengthPlace());
                    return Call.copied(bytes, call.length());
                } finally {
                    Native.VALUE_RELEASE.invokeExact(pointer);
                }
            } catch (Throwable thrown) {
                throw Native.unexpected(thrown);
            } finally {
                handle.leave();
            }
        } finally {
            if (snapshot != null) {
                snapshot.handle.leave();
            }
        }
    }

    /**
     * The value of a key where it lies, without a copy.
     *
     * @param key the key, in native memory or on the heap
     * @return the value, to be closed by this thread, or null when there is none
     */
    public Value view(MemorySegment key) {
        return view(key, null);
    }

    /**
     * As {@link #view(MemorySegment)}.
     *
     * @param key the key
     * @return the value, to be closed by this thread, or null when there is none
     */
    public Value view(byte[] key) {
        return view(MemorySegment.ofArray(key), null);
    }

    /**
     * The value of a key where it lies, as a snapshot sees it.
     *
     * @param key the key, in native memory or on the heap
     * @param snapshot from where to look; null is now
     * @return the value, to be closed by this thread, or null when there is none
     */
    public Value view(MemorySegment key, Snapshot snapshot) {
        MemorySegment looked = snapshot == null ? Native.NULL : snapshot.handle.enter();
        try {
            return use((keyspace, call) -> {
                var pointer = (MemorySegment) Native.GET_VALUE.invokeExact(
                        keyspace, looked, call.bytes(key), key.byteSize(), call.error());
                call.check();
                return pointer.address() == 0 ? null : new Value(pointer, call);
            });
        } finally {
            if (snapshot != null) {
                snapshot.handle.leave();
            }
        }
    }

    /**
     * The values of several keys at one moment.
     *
     * @param keys the keys
     * @param snapshot from where to look; null is now
     * @return a copy of each value, or null where there is none
     */
    public byte[][] multiGet(List<byte[]> keys, Snapshot snapshot) {
        int count = keys.size();
        byte[][] values = new byte[count][];
        if (count == 0) {
            return values;
        }
        MemorySegment looked = snapshot == null ? Native.NULL : snapshot.handle.enter();
        try {
            return use((keyspace, call) -> {
                MemorySegment pointers = call.allocate(8L * count);
                MemorySegment lengths = call.allocate(8L * count);
                MemorySegment found = call.allocate(8L * count).fill((byte) 0);
                MemorySegment foundLengths = call.allocate(8L * count);
                for (int index = 0; index < count; index++) {
                    byte[] key = keys.get(index);
                    pointers.setAtIndex(Native.POINTER, index, call.bytes(key));
                    lengths.setAtIndex(ValueLayout.JAVA_LONG, index, key.length);
                }
                Native.MULTI_GET.invokeExact(
                        keyspace, looked, (long) count, pointers, lengths, found, foundLengths, call.error());
                for (int index = 0; index < count; index++) {
                    MemorySegment value = found.getAtIndex(Native.POINTER, index);
                    values[index] =
                            Call.copied(value, foundLengths.getAtIndex(ValueLayout.JAVA_LONG, index));
                    Native.FREE.invokeExact(value);
                }
                return values;
            });
        } finally {
            if (snapshot != null) {
                snapshot.handle.leave();
            }
        }
    }

    /**
     * Begins to read a key.
     *
     * @param key the key
     * @return ends with a copy of the value, or null, on a thread of the common pool
     */
    public CompletableFuture<byte[]> getAsync(byte[] key) {
        CompletableFuture<byte[]> future = new CompletableFuture<>();
        use((keyspace, call) -> {
            Native.GET_THEN.invokeExact(
                    keyspace,
                    Native.NULL,
                    call.bytes(key),
                    (long) key.length,
                    Callbacks.FOUND,
                    Callbacks.keep(future));
            return null;
        });
        return future;
    }

    /**
     * Stores a value under a key, durably.
     *
     * @param key the key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        put(key, value, Durability.DURABLE);
    }

    /**
     * Stores a value under a key.
     *
     * @param key the key
     * @param value the value
     * @param survives what the write survives
     */
    public void put(byte[] key, byte[] value, Durability survives) {
        Objects.requireNonNull(value, "value");
        Objects.requireNonNull(key, "key");
        use((keyspace, call) -> {
            Native.PUT.invokeExact(
                    keyspace,
                    call.bytes(key),
                    (long) key.length,
                    call.bytes(value),
                    (long) value.length,
                    survives.ordinal(),
                    call.error());
            return null;
        });
    }

    /**
     * Stores a value under a key; what lies in native memory is not copied on the way.
     *
     * @param key the key
     * @param value the value
     * @param survives what the write survives
     */
    public void put(MemorySegment key, MemorySegment value, Durability survives) {
        use((keyspace, call) -> {
            Native.PUT.invokeExact(
                    keyspace,
                    call.bytes(key),
                    key.byteSize(),
                    call.bytes(value),
                    value.byteSize(),
                    survives.ordinal(),
                    call.error());
            return null;
        });
    }

    /**
     * Stores a value that the key has for some time.
     *
     * @param key the key
     * @param value the value
     * @param lives how long, in whole milliseconds
     * @param survives what the write survives
     */
    public void put(byte[] key, byte[] value, Duration lives, Durability survives) {
        Objects.requireNonNull(value, "value");
        Objects.requireNonNull(key, "key");
        use((keyspace, call) -> {
            Native.PUT_TTL.invokeExact(
                    keyspace,
                    call.bytes(key),
                    (long) key.length,
                    call.bytes(value),
                    (long) value.length,
                    lives.toMillis(),
                    survives.ordinal(),
                    call.error());
            return null;
        });
    }

    /**
     * Begins to store a value. Operations of one thread take their places in the order in which they
     * were begun.
     *
     * @param key the key
     * @param value the value
     * @param survives what the write survives
     * @return ends when the write does, on a thread of the common pool
     */
    public CompletableFuture<Void> putAsync(byte[] key, byte[] value, Durability survives) {
        Objects.requireNonNull(value, "value");
        Objects.requireNonNull(key, "key");
        CompletableFuture<Void> future = new CompletableFuture<>();
        use((keyspace, call) -> {
            Native.PUT_THEN.invokeExact(
                    keyspace,
                    call.bytes(key),
                    (long) key.length,
                    call.bytes(value),
                    (long) value.length,
                    survives.ordinal(),
                    Callbacks.ENDED,
                    Callbacks.keep(future));
            return null;
        });
        return future;
    }

    /**
     * Removes a key, there or not, durably.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        delete(key, Durability.DURABLE);
    }

    /**
     * Removes a key, there or not.
     *
     * @param key the key
     * @param survives what the write survives
     */
    public void delete(byte[] key, Durability survives) {
        Objects.requireNonNull(key, "key");
        use((keyspace, call) -> {
            Native.DELETE.invokeExact(
                    keyspace, call.bytes(key), (long) key.length, survives.ordinal(), call.error());
            return null;
        });
    }

    /**
     * Removes a key that was put once since it was last removed.
     *
     * @param key the key
     * @param survives what the write survives
     */
    public void singleDelete(byte[] key, Durability survives) {
        Objects.requireNonNull(key, "key");
        use((keyspace, call) -> {
            Native.SINGLE_DELETE.invokeExact(
                    keyspace, call.bytes(key), (long) key.length, survives.ordinal(), call.error());
            return null;
        });
    }

    /**
     * Removes all keys of a range, with one small write.
     *
     * @param from the first key
     * @param to the key before which it ends
     * @param survives what the write survives
     */
    public void deleteRange(byte[] from, byte[] to, Durability survives) {
        Objects.requireNonNull(from, "from");
        Objects.requireNonNull(to, "to");
        use((keyspace, call) -> {
            Native.DELETE_RANGE.invokeExact(
                    keyspace,
                    call.bytes(from),
                    (long) from.length,
                    call.bytes(to),
                    (long) to.length,
                    survives.ordinal(),
                    call.error());
            return null;
        });
    }

    /**
     * Merges an operand into the value of a key, by the operator that the keyspace names.
     *
     * @param key the key
     * @param operand the operand
     * @param survives what the write survives
     */
    public void merge(byte[] key, byte[] operand, Durability survives) {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(operand, "operand");
        use((keyspace, call) -> {
            Native.MERGE.invokeExact(
                    keyspace,
                    call.bytes(key),
                    (long) key.length,
                    call.bytes(operand),
                    (long) operand.length,
                    survives.ordinal(),
                    call.error());
            return null;
        });
    }

    /**
     * A cursor over all keys as they are now.
     *
     * @return the cursor, to be closed
     */
    public Cursor cursor() {
        return cursor(null, null, null);
    }

    /**
     * A cursor over a range.
     *
     * @param from the first key; null is no bound
     * @param to the key before which it ends; null is no bound
     * @param snapshot from where to look; null is now
     * @return the cursor, to be closed; it stands at no entry yet
     */
    public Cursor cursor(byte[] from, byte[] to, Snapshot snapshot) {
        MemorySegment looked = snapshot == null ? Native.NULL : snapshot.handle.enter();
        try {
            return use((keyspace, call) -> {
                var pointer = (MemorySegment) Native.CURSOR.invokeExact(
                        keyspace,
                        looked,
                        call.bytes(from),
                        from == null ? 0L : from.length,
                        call.bytes(to),
                        to == null ? 0L : to.length,
                        call.error());
                call.check();
                return new Cursor(pointer, database);
            });
        } finally {
            if (snapshot != null) {
                snapshot.handle.leave();
            }
        }
    }
}
