package tombolo;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.NoSuchElementException;
import java.util.function.Function;

/**
 * Entries in the order of their keys, both ways. It stands at an entry, or at none. One thread uses
 * it at a time.
 */
public final class Cursor implements AutoCloseable {
    private final Handle handle;

    /** A cursor could go on over what it keeps; that of a closed database does not. */
    private final Database database;

    Cursor(MemorySegment pointer, Database database) {
        handle = new Handle(pointer, "cursor");
        this.database = database;
    }

    private MemorySegment enter() {
        MemorySegment cursor = handle.enterAlone();
        if (database.isClosed()) {
            handle.leave();
            throw TomboloException.of(Kind.CLOSED, "Closed: the database of the cursor is closed");
        }
        return cursor;
    }

    private interface Move {
        int by(MemorySegment cursor, Call call) throws Throwable;
    }

    private boolean move(Move move) {
        MemorySegment cursor = enter();
        try (Call call = Call.begin()) {
            int stands = move.by(cursor, call);
            call.check();
            return stands == 1;
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /**
     * Moves to the first entry.
     *
     * @return whether there is one
     */
    public boolean seekToFirst() {
        return move((cursor, call) -> (int) Native.CURSOR_SEEK_TO_FIRST.invokeExact(cursor, call.error()));
    }

    /**
     * Moves to the last entry.
     *
     * @return whether there is one
     */
    public boolean seekToLast() {
        return move((cursor, call) -> (int) Native.CURSOR_SEEK_TO_LAST.invokeExact(cursor, call.error()));
    }

    /**
     * Moves to the first entry at or after a key.
     *
     * @param key the key
     * @return whether there is one
     */
    public boolean seek(byte[] key) {
        return move((cursor, call) -> (int)
                Native.CURSOR_SEEK.invokeExact(cursor, call.bytes(key), (long) key.length, call.error()));
    }

    /**
     * Moves to the last entry at or before a key.
     *
     * @param key the key
     * @return whether there is one
     */
    public boolean seekForPrev(byte[] key) {
        return move((cursor, call) -> (int) Native.CURSOR_SEEK_FOR_PREV.invokeExact(
                cursor, call.bytes(key), (long) key.length, call.error()));
    }

    /**
     * Moves to the next entry, from a fresh cursor to the first.
     *
     * @return whether there is one
     */
    public boolean next() {
        return move((cursor, call) -> (int) Native.CURSOR_NEXT.invokeExact(cursor, call.error()));
    }

    /**
     * Moves to the entry before.
     *
     * @return whether there is one
     */
    public boolean prev() {
        return move((cursor, call) -> (int) Native.CURSOR_PREV.invokeExact(cursor, call.error()));
    }

    /**
     * Whether it stands at an entry.
     *
     * @return whether it does
     */
    public boolean isValid() {
        return move((cursor, call) -> (int) Native.CURSOR_VALID.invokeExact(cursor));
    }

    /** Looks at the database as it is now, in the gap before the entry where it stood. */
    public void refresh() {
        move((cursor, call) -> {
            Native.CURSOR_REFRESH.invokeExact(cursor, call.error());
            return 0;
        });
    }

    /**
     * The key at which it stands.
     *
     * @return a copy
     * @throws NoSuchElementException when it stands at none
     */
    public byte[] key() {
        return copy(Native.CURSOR_KEY);
    }

    /**
     * The value at which it stands.
     *
     * @return a copy
     * @throws NoSuchElementException when it stands at none
     */
    public byte[] value() {
        return copy(Native.CURSOR_VALUE);
    }

    private byte[] copy(MethodHandle part) {
        MemorySegment cursor = enter();
        try (Call call = Call.begin()) {
            var address = (MemorySegment) part.invokeExact(cursor, call.lengthPlace());
            return Call.copied(present(address), call.length());
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    /**
     * Lends the key at which it stands, without a copy.
     *
     * @param use is given the bytes, which it can read until it returns; it must not use the cursor
     * @param <T> what it gives
     * @return what it gives
     * @throws NoSuchElementException when it stands at none
     */
    public <T> T withKey(Function<MemorySegment, T> use) {
        return with(Native.CURSOR_KEY, use);
    }

    /**
     * Lends the value at which it stands, without a copy.
     *
     * @param use is given the bytes, which it can read until it returns; it must not use the cursor
     * @param <T> what it gives
     * @return what it gives
     * @throws NoSuchElementException when it stands at none
     */
    public <T> T withValue(Function<MemorySegment, T> use) {
        return with(Native.CURSOR_VALUE, use);
    }

    private <T> T with(MethodHandle part, Function<MemorySegment, T> use) {
        MemorySegment cursor = enter();
        try (Call call = Call.begin();
                Arena arena = Arena.ofConfined()) {
            var address = (MemorySegment) part.invokeExact(cursor, call.lengthPlace());
            return use.apply(present(address).reinterpret(call.length(), arena, null).asReadOnly());
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        } finally {
            handle.leave();
        }
    }

    private static MemorySegment present(MemorySegment address) {
        if (address.address() == 0) {
            throw new NoSuchElementException("the cursor stands at no entry");
        }
        return address;
    }

    /** Lets go of what the cursor keeps. */
    @Override
    public void close() {
        handle.close(pointer -> {
            Native.CURSOR_DESTROY.invokeExact(pointer);
        });
    }
}
