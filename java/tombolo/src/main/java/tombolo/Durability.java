package tombolo;

/** What a write survives once it has returned. */
public enum Durability {
    /** All that its log survives: a sync or a round trip, shared with other writers. */
    DURABLE,
    /** The end of the process. */
    ACCEPTED,
    /** Nothing, until a later flush. */
    UNLOGGED
}
