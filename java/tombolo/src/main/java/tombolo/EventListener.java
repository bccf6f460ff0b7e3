package tombolo;

/** Is told of flushes, compactions, stalls, trouble and takeover: for the program's log. */
@FunctionalInterface
public interface EventListener {
    /** How much an event matters. */
    enum Level {
        /** It is usual. */
        INFO,
        /** It is trouble that the engine deals with. */
        WARNING,
        /** It ends the handle. */
        ERROR
    }

    /**
     * Is called on a thread of the engine, for one event after the other. An exception is ignored.
     *
     * @param level how much it matters
     * @param text what happened
     */
    void tell(Level level, String text);
}
