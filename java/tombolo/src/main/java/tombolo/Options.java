package tombolo;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** How a database is opened. Without any, the defaults count. One thread uses it at a time. */
public final class Options {
    /** Whether opening may create a database. */
    public enum Mode {
        /** It is opened, and created if there is none. */
        CREATE_OR_OPEN,
        /** It is created; there must be none. */
        CREATE,
        /** It is opened; there must be one. */
        OPEN
    }

    /** From whom opening may take a database. */
    public enum TakeOver {
        /** From whichever process has it; not from a handle of this process. */
        OTHERS,
        /** From whichever handle has it. */
        ALWAYS,
        /** From nobody: opening fails with {@link TomboloException.InUse}. */
        NEVER
    }

    private interface Step {
        void take(MemorySegment options, Call call) throws Throwable;
    }

    private final List<Step> steps = new ArrayList<>();

    /** The defaults. */
    public Options() {}

    /**
     * Sets a setting of the database.
     *
     * @param name its name, such as {@code memory_bytes}
     * @param value its value, such as {@code 1GiB}; opening says if it is wrong
     * @return these options
     */
    public Options set(String name, String value) {
        return step((options, call) -> {
            Native.OPTIONS_SET.invokeExact( options, call.text(name), call.text(value), call.error());
        });
    }

    /**
     * Sets whether opening may create.
     *
     * @param mode {@link Mode#CREATE_OR_OPEN} by default
     * @return these options
     */
    public Options mode(Mode mode) {
        return step((options, call) -> {
            Native.OPTIONS_SET_MODE.invokeExact(options, mode.ordinal(), call.error());
        });
    }

    /**
     * Sets from whom opening may take the database.
     *
     * @param takeOver {@link TakeOver#OTHERS} by default
     * @return these options
     */
    public Options takeOver(TakeOver takeOver) {
        return step((options, call) -> {
            Native.OPTIONS_SET_TAKE_OVER.invokeExact(options, takeOver.ordinal(), call.error());
        });
    }

    /**
     * Sets the log store. A database is always opened with the log that it was created with.
     *
     * @param uri where it is
     * @return these options
     */
    public Options log(String uri) {
        return step((options, call) -> {
            Native.OPTIONS_SET_LOG.invokeExact(options, call.text(uri), call.error());
        });
    }

    /**
     * Adds a merge operator, for keyspaces whose setting {@code operator} is {@code name@version}.
     *
     * @param name its name
     * @param version its version, which changes whenever its results do
     * @param operator what it does
     * @return these options
     */
    public Options operator(String name, int version, MergeOperator operator) {
        // The library forgets what it keeps, after an error too.
        return step((options, call) -> {
            Native.OPTIONS_ADD_OPERATOR.invokeExact(
                    options, call.text(name), version, Callbacks.FOLD, Callbacks.keep(operator),
                    Callbacks.FORGET, call.error());
        });
    }

    /**
     * Sets who is told of events.
     *
     * @param listener the listener
     * @return these options
     */
    public Options listener(EventListener listener) {
        return step((options, call) -> {
            Native.OPTIONS_SET_LISTENER.invokeExact(
                    options, Callbacks.TELL, Callbacks.keep(listener), Callbacks.FORGET, call.error());
        });
    }

    private Options step(Step step) {
        steps.add(step);
        return this;
    }

    /** What is done with options of the library. */
    interface Use<T> {
        T with(MemorySegment options) throws Throwable;
    }

    /** Makes the library's options of these, for one use. */
    static <T> T with(Options options, Use<T> use) {
        try {
            var made = (MemorySegment) Native.OPTIONS_CREATE.invokeExact();
            try {
                if (options != null) {
                    for (Step step : options.steps) {
                        try (Call call = Call.begin()) {
                            step.take(made, call);
                            call.check();
                        }
                    }
                }
                return use.with(made);
            } finally {
                Native.OPTIONS_DESTROY.invokeExact(made);
            }
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }
}
