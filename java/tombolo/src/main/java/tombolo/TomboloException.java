package tombolo;

/**
 * What went wrong, with a class for each {@link Kind}. The message begins with the kind and says
 * what to do.
 */
public abstract sealed class TomboloException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Its kind. */
    private final Kind kind;

    private TomboloException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    /**
     * The kind of the trouble.
     *
     * @return the kind, of which this class is one
     */
    public Kind kind() {
        return kind;
    }

    static TomboloException of(Kind kind, String message) {
        return switch (kind) {
            case RETRY -> new Retry(message);
            case BUSY -> new Busy(message);
            case CONFLICT -> new Conflict(message);
            case FENCED -> new Fenced(message);
            case IN_USE -> new InUse(message);
            case OUTCOME_UNKNOWN -> new OutcomeUnknown(message);
            case DEADLINE_EXCEEDED -> new DeadlineExceeded(message);
            case NOT_FOUND -> new NotFound(message);
            case ALREADY_EXISTS -> new AlreadyExists(message);
            case INVALID -> new Invalid(message);
            case UNSUPPORTED -> new Unsupported(message);
            case PERMISSION_DENIED -> new PermissionDenied(message);
            case OUT_OF_SPACE -> new OutOfSpace(message);
            case CORRUPT -> new Corrupt(message);
            case PIN_LOST -> new PinLost(message);
            case CLOSED -> new Closed(message);
            case BUG -> new Bug(message);
        };
    }

    /** Passing trouble; nothing took effect: try again. */
    public static final class Retry extends TomboloException {
        private static final long serialVersionUID = 1;

        private Retry(String message) {
            super(Kind.RETRY, message);
        }
    }

    /** A limit of work in flight or of memory: try again later. */
    public static final class Busy extends TomboloException {
        private static final long serialVersionUID = 1;

        private Busy(String message) {
            super(Kind.BUSY, message);
        }
    }

    /** Somebody else was there: begin again. */
    public static final class Conflict extends TomboloException {
        private static final long serialVersionUID = 1;

        private Conflict(String message) {
            super(Kind.CONFLICT, message);
        }
    }

    /** Another process has the database. */
    public static final class Fenced extends TomboloException {
        private static final long serialVersionUID = 1;

        private Fenced(String message) {
            super(Kind.FENCED, message);
        }
    }

    /** Somebody has the database open. */
    public static final class InUse extends TomboloException {
        private static final long serialVersionUID = 1;

        private InUse(String message) {
            super(Kind.IN_USE, message);
        }
    }

    /** The write may have taken effect: look. */
    public static final class OutcomeUnknown extends TomboloException {
        private static final long serialVersionUID = 1;

        private OutcomeUnknown(String message) {
            super(Kind.OUTCOME_UNKNOWN, message);
        }
    }

    /** The deadline passed; a write may still take effect. */
    public static final class DeadlineExceeded extends TomboloException {
        private static final long serialVersionUID = 1;

        private DeadlineExceeded(String message) {
            super(Kind.DEADLINE_EXCEEDED, message);
        }
    }

    /** What was named does not exist. */
    public static final class NotFound extends TomboloException {
        private static final long serialVersionUID = 1;

        private NotFound(String message) {
            super(Kind.NOT_FOUND, message);
        }
    }

    /** What was to be created exists. */
    public static final class AlreadyExists extends TomboloException {
        private static final long serialVersionUID = 1;

        private AlreadyExists(String message) {
            super(Kind.ALREADY_EXISTS, message);
        }
    }

    /** The call is wrong. */
    public static final class Invalid extends TomboloException {
        private static final long serialVersionUID = 1;

        private Invalid(String message) {
            super(Kind.INVALID, message);
        }
    }

    /** This store or version cannot do it. */
    public static final class Unsupported extends TomboloException {
        private static final long serialVersionUID = 1;

        private Unsupported(String message) {
            super(Kind.UNSUPPORTED, message);
        }
    }

    /** The system or the store refuses access. */
    public static final class PermissionDenied extends TomboloException {
        private static final long serialVersionUID = 1;

        private PermissionDenied(String message) {
            super(Kind.PERMISSION_DENIED, message);
        }
    }

    /** The store is full. */
    public static final class OutOfSpace extends TomboloException {
        private static final long serialVersionUID = 1;

        private OutOfSpace(String message) {
            super(Kind.OUT_OF_SPACE, message);
        }
    }

    /** Bytes in storage are not what was written. */
    public static final class Corrupt extends TomboloException {
        private static final long serialVersionUID = 1;

        private Corrupt(String message) {
            super(Kind.CORRUPT, message);
        }
    }

    /** What a reader needs was deleted. */
    public static final class PinLost extends TomboloException {
        private static final long serialVersionUID = 1;

        private PinLost(String message) {
            super(Kind.PIN_LOST, message);
        }
    }

    /** What was called is closed. */
    public static final class Closed extends TomboloException {
        private static final long serialVersionUID = 1;

        private Closed(String message) {
            super(Kind.CLOSED, message);
        }
    }

    /** A bug of Tombolo. */
    public static final class Bug extends TomboloException {
        private static final long serialVersionUID = 1;

        private Bug(String message) {
            super(Kind.BUG, message);
        }
    }
}
