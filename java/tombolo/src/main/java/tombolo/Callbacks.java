package tombolo;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Objects of Java that the library calls. Each has a number, which is the state that the library
 * gives back, so that one function of each shape serves all and lives as long as the process.
 *
 * <p>No exception may leave a function that C calls: it would end the process.
 */
final class Callbacks {
    private static final Map<Long, Object> OBJECTS = new ConcurrentHashMap<>();
    private static final AtomicLong LAST = new AtomicLong();

    static final MemorySegment FOLD = callback(
            "fold",
            MethodType.methodType(
                    MemorySegment.class,
                    MemorySegment.class,
                    MemorySegment.class,
                    long.class,
                    MemorySegment.class,
                    long.class,
                    MemorySegment.class,
                    MemorySegment.class,
                    long.class,
                    MemorySegment.class),
            "p ppspsppsp");
    static final MemorySegment TELL = callback(
            "tell",
            MethodType.methodType(void.class, MemorySegment.class, int.class, MemorySegment.class),
            "v pip");
    static final MemorySegment FORGET =
            callback("forget", MethodType.methodType(void.class, MemorySegment.class), "v p");
    static final MemorySegment ENDED = callback(
            "ended", MethodType.methodType(void.class, MemorySegment.class, MemorySegment.class), "v pp");
    static final MemorySegment FOUND = callback(
            "found",
            MethodType.methodType(
                    void.class, MemorySegment.class, MemorySegment.class, long.class, MemorySegment.class),
            "v ppsp");

    private Callbacks() {}

    private static MemorySegment callback(String name, MethodType type, String signature) {
        try {
            return Native.callback(MethodHandles.lookup().findStatic(Callbacks.class, name, type), signature);
        } catch (ReflectiveOperationException absent) {
            throw new AssertionError(absent);
        }
    }

    /** Keeps an object until it is forgotten; its state for the library. */
    static MemorySegment keep(Object object) {
        long number = LAST.incrementAndGet();
        OBJECTS.put(number, object);
        return MemorySegment.ofAddress(number);
    }

    /** How many objects are kept. */
    static int kept() {
        return OBJECTS.size();
    }

    static void forget(MemorySegment state) {
        OBJECTS.remove(state.address());
    }

    static MemorySegment fold(
            MemorySegment state,
            MemorySegment key,
            long keyBytes,
            MemorySegment base,
            long baseBytes,
            MemorySegment operands,
            MemorySegment lengths,
            long count,
            MemorySegment valueBytes) {
        try {
            MergeOperator operator = (MergeOperator) OBJECTS.get(state.address());
            MemorySegment pointers = operands.reinterpret(count * ADDRESS.byteSize());
            MemorySegment sizes = lengths.reinterpret(count * JAVA_LONG.byteSize());
            List<byte[]> list = new ArrayList<>((int) count);
            for (long index = 0; index < count; index++) {
                list.add(Call.copied(
                        pointers.getAtIndex(ADDRESS, index), sizes.getAtIndex(JAVA_LONG, index)));
            }
            byte[] value = operator.merge(Call.copied(key, keyBytes), Call.copied(base, baseBytes), list);
            if (value == null) {
                return Native.NULL;
            }
            MemorySegment memory = (MemorySegment) Native.MALLOC.invokeExact((long) Math.max(value.length,
                    1));
            if (memory.address() == 0) {
                return Native.NULL;
            }
            MemorySegment.copy(value, 0, memory.reinterpret(value.length), JAVA_BYTE, 0, value.length);
            valueBytes.reinterpret(JAVA_LONG.byteSize()).set(JAVA_LONG, 0, value.length);
            return memory;
        } catch (Throwable thrown) {
            return Native.NULL;
        }
    }

    static void tell(MemorySegment state, int level, MemorySegment text) {
        try {
            EventListener listener = (EventListener) OBJECTS.get(state.address());
            EventListener.Level[] levels = EventListener.Level.values();
            listener.tell(
                    levels[Math.clamp(level, 0, levels.length - 1)],
                    text.reinterpret(Long.MAX_VALUE).getString(0));
        } catch (Throwable thrown) {
            // A log that fails fails nothing else.
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> CompletableFuture<T> taken(MemorySegment state) {
        return (CompletableFuture<T>) OBJECTS.remove(state.address());
    }

    private static TomboloException error(MemorySegment error) throws Throwable {
        int kind = (int) Native.ERROR_KIND.invokeExact(error);
        return TomboloException.of(Kind.of(kind), error.reinterpret(Long.MAX_VALUE).getString(0));
    }

    static void ended(MemorySegment state, MemorySegment error) {
        try {
            CompletableFuture<Void> future = taken(state);
            if (error.address() == 0) {
                future.completeAsync(() -> null);
            } else {
                TomboloException thrown = error(error);
                future.completeAsync(() -> {
                    throw thrown;
                });
            }
        } catch (Throwable thrown) {
            // Nobody waits for it.
        }
    }

    static void found(MemorySegment state, MemorySegment value, long bytes, MemorySegment error) {
        try {
            CompletableFuture<byte[]> future = taken(state);
            if (error.address() == 0) {
                byte[] copy = Call.copied(value, bytes);
                future.completeAsync(() -> copy);
            } else {
                TomboloException thrown = error(error);
                future.completeAsync(() -> {
                    throw thrown;
                });
            }
        } catch (Throwable thrown) {
            // Nobody waits for it.
        }
    }
}
