package tombolo;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Pointers are destroyed when nobody uses them. */
class HandleTest {
    /** It waits without the flag that keeps a thread from waiting, and has it again afterwards. */
    @Test
    @Timeout(60)
    void anInterruptedThreadWaitsForCallsAndStaysInterrupted() throws Exception {
        Handle handle = new Handle(MemorySegment.ofAddress(8), "pointer");
        handle.enter();
        AtomicBoolean destroyed = new AtomicBoolean();
        AtomicBoolean interrupted = new AtomicBoolean();
        Thread closing = Thread.ofPlatform().start(() -> {
            Thread.currentThread().interrupt();
            handle.close(pointer -> destroyed.set(true));
            interrupted.set(Thread.currentThread().isInterrupted());
        });
        while (!handle.isClosed() || closing.isInterrupted()) {
            Thread.sleep(1);
        }
        assertFalse(destroyed.get());
        handle.leave();
        closing.join();
        assertTrue(destroyed.get());
        assertTrue(interrupted.get());
    }
}
