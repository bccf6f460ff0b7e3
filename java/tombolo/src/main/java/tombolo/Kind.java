package tombolo;

/** What kind of trouble an exception tells of, and so what to do. */
public enum Kind {
    /** Passing trouble; nothing took effect: try again. */
    RETRY(1),
    /** A limit of work in flight or of memory: try again later. */
    BUSY(2),
    /** Somebody else was there: begin again. */
    CONFLICT(3),
    /** Another process has the database. */
    FENCED(4),
    /** Somebody has the database open. */
    IN_USE(5),
    /** The write may have taken effect: look. */
    OUTCOME_UNKNOWN(6),
    /** The deadline passed; a write may still take effect. */
    DEADLINE_EXCEEDED(7),
    /** What was named does not exist. */
    NOT_FOUND(8),
    /** What was to be created exists. */
    ALREADY_EXISTS(9),
    /** The call is wrong. */
    INVALID(10),
    /** This store or version cannot do it. */
    UNSUPPORTED(11),
    /** The system or the store refuses access. */
    PERMISSION_DENIED(12),
    /** The store is full. */
    OUT_OF_SPACE(13),
    /** Bytes in storage are not what was written. */
    CORRUPT(14),
    /** What a reader needs was deleted. */
    PIN_LOST(15),
    /** What was called is closed. */
    CLOSED(16),
    /** A bug of Tombolo. */
    BUG(17);

    private final int number;

    Kind(int number) {
        this.number = number;
    }

    static Kind of(int number) {
        for (Kind kind : values()) {
            if (kind.number == number) {
                return kind;
            }
        }
        return BUG;
    }
}
