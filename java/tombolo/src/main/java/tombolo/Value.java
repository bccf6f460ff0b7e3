package tombolo;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * A value in the memory in which it was found. The thread that got it uses and closes it: until
 * then memory of the database is kept.
 */
public final class Value implements AutoCloseable {
    private final Arena arena = Arena.ofConfined();
    private final MemorySegment pointer;
    private final MemorySegment bytes;

    Value(MemorySegment pointer, Call call) throws Throwable {
        this.pointer = pointer;
        var address = (MemorySegment) Native.VALUE_BYTES.invokeExact(pointer, call.lengthPlace());
        bytes = address.reinterpret(call.length(), arena, null).asReadOnly();
    }

    /**
     * The bytes, not copied.
     *
     * @return readable by this thread until the value is closed; after that it throws
     */
    public MemorySegment segment() {
        return bytes;
    }

    /**
     * A copy of the bytes.
     *
     * @return the copy
     */
    public byte[] toByteArray() {
        return bytes.toArray(ValueLayout.JAVA_BYTE);
    }

    /** Lets go of the bytes. A second time it does nothing. */
    @Override
    public void close() {
        if (!arena.scope().isAlive()) {
            return;
        }
        // Refuses another thread, before the memory is given back.
        arena.close();
        try {
            Native.VALUE_RELEASE.invokeExact(pointer);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }
}
