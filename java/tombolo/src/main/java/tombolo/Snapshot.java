package tombolo;

import java.lang.foreign.MemorySegment;

/**
 * A state of all keyspaces, which stays as it is. Any number of threads may use it at once. What it
 * sees is kept until it is closed.
 */
public final class Snapshot implements AutoCloseable {
    final Handle handle;

    Snapshot(MemorySegment pointer) {
        handle = new Handle(pointer, "snapshot");
    }

    @Override
    public void close() {
        handle.close(pointer -> {
            Native.SNAPSHOT_RELEASE.invokeExact(pointer);
        });
    }
}
