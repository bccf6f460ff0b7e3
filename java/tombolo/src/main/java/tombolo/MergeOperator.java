package tombolo;

import java.util.List;

/**
 * What a key has with a value below operands: a merge operator of the program's own.
 *
 * <p>It is called on threads of the engine, several at once, and must not use the database that
 * calls it. It is pure: the same input gives the same output for ever.
 */
@FunctionalInterface
public interface MergeOperator {
    /**
     * The value of a key.
     *
     * @param key the key
     * @param base the value below the operands, or null where there is none
     * @param operands what was merged since, oldest first
     * @return the value; null says that it cannot, as an exception does, and the merge fails
     */
    byte[] merge(byte[] key, byte[] base, List<byte[]> operands);
}
