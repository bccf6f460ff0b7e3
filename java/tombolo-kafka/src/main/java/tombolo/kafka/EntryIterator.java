package tombolo.kafka;

import java.util.NoSuchElementException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;
import tombolo.Cursor;
import tombolo.Keyspace;
import tombolo.TomboloException;
import tombolo.Transaction;

/**
 * The entries of a range, one way. One that began in a transaction goes on over committed entries
 * once that has ended. It is closed with its store.
 */
final class EntryIterator implements KeyValueIterator<Bytes, byte[]> {
    private final StoreDatabase database;
    private final Keyspace keyspace;
    private final byte[] from;
    private final byte[] to;
    private final boolean forward;
    private volatile Cursor cursor;
    /** Where it began; null when that is no transaction, or one that has ended. */
    private Transaction transaction;
    private KeyValue<Bytes, byte[]> next;
    /** The key of the newest entry that was found. */
    private byte[] last;
    private boolean begun;
    private volatile boolean closed;

    EntryIterator(
            StoreDatabase database,
            Transaction transaction,
            Keyspace keyspace,
            byte[] from,
            byte[] to,
            boolean forward) {
        this.database = database;
        this.transaction = transaction;
        this.keyspace = keyspace;
        this.from = from;
        this.to = to;
        this.forward = forward;
        cursor = transaction == null
                ? keyspace.cursor(from, to, null)
                : transaction.cursor(keyspace, from, to);
    }

    @Override
    public boolean hasNext() {
        validateOpen();
        while (next == null) {
            try {
                boolean stands = begun ? (forward ? cursor.next() : cursor.prev())
                        : (forward ? cursor.seekToFirst() : cursor.seekToLast());
                begun = true;
                if (!stands) {
                    return false;
                }
                next = KeyValue.pair(Bytes.wrap(cursor.key()), cursor.value());
                last = next.key.get();
            } catch (TomboloException failed) {
                validateOpen();
                if (!goesOnAfterCommit()) {
                    throw database.failed("reading", failed);
                }
            }
        }
        return true;
    }

    private void validateOpen() {
        if (closed) {
            throw new InvalidStateStoreException("Iterator for store " + database.store() + " is closed");
        }
    }

    /** Goes on past the last entry over what is committed, if it was a transaction's, which has ended. */
    private boolean goesOnAfterCommit() {
        // A commit that runs is waited for, and the store is not closed meanwhile.
        synchronized (database) {
            validateOpen();
            if (transaction == null || database.isRunning(transaction)) {
                return false;
            }
            cursor.close();
            try {
                cursor = keyspace.cursor(
                        forward && last != null ? Keys.after(last) : from,
                        !forward && last != null ? last : to,
                        null);
            } catch (TomboloException failed) {
                throw database.failed("reading", failed);
            }
            transaction = null;
            begun = false;
            return true;
        }
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

    @Override
    public void close() {
        closed = true;
        database.forget(this);
        cursor.close();
    }
}
