package tombolo;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Test;

/** The native memory of calls that are in each other. */
class CallTest {
    /** However much the arguments of a call take, one within it has its places and arguments. */
    @Test
    void aCallWithinACallHasRoom() {
        for (int taken = (1 << 16) - 64; taken <= (1 << 16); taken += 16) {
            try (Call outer = Call.begin()) {
                MemorySegment before = outer.allocate(taken).fill((byte) 1);
                try (Call inner = Call.begin()) {
                    assertEquals("text", inner.text("text").getString(0));
                    assertEquals(0, inner.length());
                    inner.check();
                }
                assertEquals(1, before.get(ValueLayout.JAVA_BYTE, taken - 1));
                outer.check();
            }
        }
    }
}
