package tombolo;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * A pointer of the library, and how many calls use it now. A pointer that was destroyed is never
 * passed on: a later call is an exception, and closing waits for the calls that have begun.
 */
final class Handle {
    private static final int CLOSED = Integer.MIN_VALUE;

    private final MemorySegment pointer;
    private final String what;
    private final AtomicInteger users = new AtomicInteger();

    Handle(MemorySegment pointer, String what) {
        if (pointer.address() == 0) {
            throw new AssertionError("the library gave no " + what);
        }
        this.pointer = pointer;
        this.what = what;
    }

    /** The pointer, until {@link #leave}. */
    MemorySegment enter() {
        int before = users.getAndIncrement();
        if (before < 0) {
            users.getAndDecrement();
            throw closed();
        }
        return pointer;
    }

    /** As {@link #enter}, for what one thread uses at a time: two at once are an exception. */
    MemorySegment enterAlone() {
        if (!users.compareAndSet(0, 1)) {
            if (users.get() < 0) {
                throw closed();
            }
            throw new IllegalStateException("two threads use one " + what + " at once");
        }
        return pointer;
    }

    void leave() {
        users.getAndDecrement();
    }

    boolean isClosed() {
        return users.get() < 0;
    }

    private TomboloException closed() {
        return TomboloException.of(Kind.CLOSED, "Closed: the " + what + " is closed");
    }

    /** What destroys a pointer. */
    interface Destroy {
        void destroy(MemorySegment pointer) throws Throwable;
    }

    /** Lets nobody in any more, waits for those who are, and destroys it: once. */
    void close(Destroy destroy) {
        int before;
        do {
            before = users.get();
            if (before < 0) {
                return;
            }
        } while (!users.compareAndSet(before, before | CLOSED));
        // A thread that is interrupted does not park: it is told so again afterwards.
        boolean interrupted = false;
        while ((users.get() & ~CLOSED) != 0) {
            LockSupport.parkNanos(20_000);
            interrupted |= Thread.interrupted();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        try {
            destroy.destroy(pointer);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }
}
