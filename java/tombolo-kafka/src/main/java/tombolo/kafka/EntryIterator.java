package tombolo.kafka;

import java.util.NoSuchElementException;
import java.util.Set;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.state.KeyValueIterator;
import tombolo.Cursor;
import tombolo.TomboloException;

/** The entries of a cursor, one way. It is closed with its store. */
final class EntryIterator implements KeyValueIterator<Bytes, byte[]> {
    private final Cursor cursor;
    private final boolean forward;
    private final String store;
    private final Set<EntryIterator> open;
    private KeyValue<Bytes, byte[]> next;
    private boolean begun;
    private volatile boolean closed;

    EntryIterator(Cursor cursor, boolean forward, String store, Set<EntryIterator> open) {
        this.cursor = cursor;
        this.forward = forward;
        this.store = store;
        this.open = open;
        open.add(this);
    }

    @Override
    public boolean hasNext() {
        if (closed) {
            throw new InvalidStateStoreException("Iterator for store " + store + " is closed");
        }
        if (next == null) {
            try {
                boolean stands = begun ? (forward ? cursor.next() : cursor.prev())
                        : (forward ? cursor.seekToFirst() : cursor.seekToLast());
                begun = true;
                if (stands) {
                    next = KeyValue.pair(Bytes.wrap(cursor.key()), cursor.value());
                }
            } catch (TomboloException failed) {
                throw new ProcessorStateException("reading store " + store + ": " + failed.getMessage(),
                        failed);
            }
        }
        return next != null;
    }

    @Override
    public KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<Bytes, byte[]> given = next;
        next = null;
        return given;
    }

    @Override
    public Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return next.key;
    }

    boolean isClosed() {
        return closed;
    }

    @Override
    public void close() {
        closed = true;
        open.remove(this);
        cursor.close();
    }
}
