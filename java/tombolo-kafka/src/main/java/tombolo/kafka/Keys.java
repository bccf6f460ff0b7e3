package tombolo.kafka;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Bounds of ranges of keys. */
final class Keys {
    private static final Logger LOG = LoggerFactory.getLogger(Keys.class);

    private Keys() {}

    /** The key right after one. */
    static byte[] after(byte[] key) {
        return Arrays.copyOf(key, key.length + 1);
    }

    /** The first key after all that begin so; null when there is none. */
    static byte[] afterPrefix(byte[] prefix) {
        for (int index = prefix.length - 1; index >= 0; index--) {
            if (prefix[index] != -1) {
                byte[] bound = Arrays.copyOf(prefix, index + 1);
                bound[index]++;
                return bound;
            }
        }
        return null;
    }

    static byte[] join(byte[] key, byte[] suffix) {
        return ByteBuffer.allocate(key.length + suffix.length).put(key).put(suffix).array();
    }

    /**
     * The greatest of all keys that are at most {@code key}, each followed by at most {@code suffix}.
     * A shorter one that begins as {@code key} may be greater with its suffix.
     */
    static byte[] greatest(byte[] key, byte[] suffix) {
        byte[] greatest = join(key, suffix);
        for (int length = Math.min(1, key.length); length < key.length; length++) {
            byte[] shorter = join(Arrays.copyOf(key, length), suffix);
            if (Arrays.compareUnsigned(shorter, greatest) > 0) {
                greatest = shorter;
            }
        }
        return greatest;
    }

    /** Whether a range is empty as its bounds are in the wrong order, which is said. */
    static boolean inWrongOrder(Bytes from, Bytes to) {
        if (from == null || to == null || from.compareTo(to) <= 0) {
            return false;
        }
        LOG.warn("Returning empty iterator for fetch with invalid key range: from > to."
                + " This may be due to range arguments set in the wrong order,"
                + " or serdes that don't preserve ordering when lexicographically comparing the serialized"
                + " bytes. Note that the built-in numerical serdes do not follow this for negative numbers");
        return true;
    }

    /** Whether a key, up to {@code end}, is between two, both included; null is no bound. */
    static boolean isBetween(byte[] key, int end, byte[] least, byte[] most) {
        return (least == null || Arrays.compareUnsigned(key, 0, end, least, 0, least.length) >= 0)
                && (most == null || Arrays.compareUnsigned(key, 0, end, most, 0, most.length) <= 0);
    }

    /** No entries. */
    static <K, V> KeyValueIterator<K, V> none() {
        return of(Collections.emptyIterator());
    }

    /** Entries that are in memory. */
    static <K, V> KeyValueIterator<K, V> of(Iterator<KeyValue<K, V>> entries) {
        return new KeyValueIterator<>() {
            private KeyValue<K, V> next;

            @Override
            public boolean hasNext() {
                return next != null || entries.hasNext();
            }

            @Override
            public KeyValue<K, V> next() {
                KeyValue<K, V> given = next == null ? entries.next() : next;
                next = null;
                return given;
            }

            @Override
            public K peekNextKey() {
                next = next == null ? entries.next() : next;
                return next.key;
            }

            @Override
            public void close() {}
        };
    }
}
