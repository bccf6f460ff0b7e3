package tombolo;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The native memory of one call: copies of its arguments, the place of its error, and that of a
 * length. Each thread has one piece of memory that its calls use as a stack; what does not fit gets
 * memory of its own.
 *
 * <pre>{@code try (Call call = Call.begin()) { ...; call.check(); }}</pre>
 */
final class Call implements AutoCloseable {
    private static final int BYTES = 1 << 16;
    /** The error's place, then the length's. */
    private static final int PLACES = 16;
    /** No argument has these: they are left for the places of calls within the call. */
    private static final int LEFT = 4096;

    private static final ThreadLocal<Call> OF_THREAD = ThreadLocal.withInitial(Call::new);

    private final MemorySegment memory = Arena.ofAuto().allocate(BYTES, 16);
    private long top;
    /** Where the places of each call that has begun lie; a call in a callback is a second one. */
    private long[] begins = new long[4];
    private Arena[] extras = new Arena[4];
    private int depth;

    private Call() {}

    static Call begin() {
        Call call = OF_THREAD.get();
        if (call.top + PLACES > BYTES) {
            throw new IllegalStateException("too many calls of this thread are in each other");
        }
        if (call.depth == call.begins.length) {
            call.begins = Arrays.copyOf(call.begins, call.depth * 2);
            call.extras = Arrays.copyOf(call.extras, call.depth * 2);
        }
        call.begins[call.depth++] = call.top;
        call.memory.set(ValueLayout.JAVA_LONG, call.top, 0);
        call.memory.set(ValueLayout.JAVA_LONG, call.top + 8, 0);
        call.top += PLACES;
        return call;
    }

    private long places() {
        return begins[depth - 1];
    }

    /** Where the library puts an error. */
    MemorySegment error() {
        return memory.asSlice(places(), 8);
    }

    /** Where the library puts a length. */
    MemorySegment lengthPlace() {
        return memory.asSlice(places() + 8, 8);
    }

    /** The length that it put there. */
    long length() {
        return memory.get(ValueLayout.JAVA_LONG, places() + 8);
    }

    /** Fresh memory until the call ends. */
    MemorySegment allocate(long bytes) {
        long rounded = (bytes + 15) & ~15L;
        if (rounded <= BYTES - LEFT - top) {
            MemorySegment given = memory.asSlice(top, bytes);
            top += rounded;
            return given;
        }
        int index = depth - 1;
        if (extras[index] == null) {
            extras[index] = Arena.ofConfined();
        }
        return extras[index].allocate(bytes, 16);
    }

    /** A copy of the bytes; of null the null pointer, which is no bound. */
    MemorySegment bytes(byte[] bytes) {
        if (bytes == null) {
            return Native.NULL;
        }
        MemorySegment copy = allocate(Math.max(bytes.length, 1));
        MemorySegment.copy(bytes, 0, copy, ValueLayout.JAVA_BYTE, 0, bytes.length);
        return copy;
    }

    /** The bytes where they are if that is native memory, and else a copy. */
    MemorySegment bytes(MemorySegment bytes) {
        if (bytes.isNative()) {
            return bytes;
        }
        MemorySegment copy = allocate(Math.max(bytes.byteSize(), 1));
        copy.copyFrom(bytes);
        return copy;
    }

    /** A text of C. */
    MemorySegment text(String text) {
        if (text == null) {
            return Native.NULL;
        }
        if (text.indexOf('\0') >= 0) {
            throw TomboloException.of(Kind.INVALID, "Invalid: a text has a zero in it: " + text);
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        MemorySegment copy = allocate(bytes.length + 1L);
        MemorySegment.copy(bytes, 0, copy, ValueLayout.JAVA_BYTE, 0, bytes.length);
        copy.set(ValueLayout.JAVA_BYTE, bytes.length, (byte) 0);
        return copy;
    }

    /** Throws the error of the call, if there is one. */
    void check() {
        MemorySegment error = memory.get(Native.POINTER, places());
        if (error.address() != 0) {
            throw thrown(error);
        }
    }

    private TomboloException thrown(MemorySegment error) {
        memory.set(ValueLayout.JAVA_LONG, places(), 0);
        try {
            int kind = (int) Native.ERROR_KIND.invokeExact(error);
            String text = error.reinterpret(Long.MAX_VALUE).getString(0);
            Native.FREE.invokeExact(error);
            return TomboloException.of(Kind.of(kind), text);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /** A text that the library gave, which is freed; null of a null pointer. */
    static String taken(MemorySegment text) {
        if (text.address() == 0) {
            return null;
        }
        try {
            String copy = text.reinterpret(Long.MAX_VALUE).getString(0);
            Native.FREE.invokeExact(text);
            return copy;
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    /** A copy of bytes at an address; null of a null pointer. */
    static byte[] copied(MemorySegment address, long length) {
        if (address.address() == 0) {
            return null;
        }
        return address.reinterpret(length).toArray(ValueLayout.JAVA_BYTE);
    }

    @Override
    public void close() {
        int index = --depth;
        top = begins[index];
        if (extras[index] != null) {
            extras[index].close();
            extras[index] = null;
        }
    }
}
