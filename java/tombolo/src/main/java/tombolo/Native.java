package tombolo;

import static java.lang.foreign.SymbolLookup.*;

import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

/** The functions of {@code tombolo.h}, as method handles of the foreign-function interface. */
final class Native {
    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = library();

    static final AddressLayout POINTER = ValueLayout.ADDRESS;
    static final MemorySegment NULL = MemorySegment.NULL;

    static final MethodHandle ERROR_KIND = function("tombolo_error_kind", "i p");
    static final MethodHandle FREE = function("tombolo_free", "v p");
    static final MethodHandle VERSION = function("tombolo_version", "p ");

    static final MethodHandle OPTIONS_CREATE = function("tombolo_options_create", "p ");
    static final MethodHandle OPTIONS_DESTROY = function("tombolo_options_destroy", "v p");
    static final MethodHandle OPTIONS_SET = function("tombolo_options_set", "v pppp");
    static final MethodHandle OPTIONS_SET_MODE = function("tombolo_options_set_mode", "v pip");
    static final MethodHandle OPTIONS_SET_TAKE_OVER = function("tombolo_options_set_take_over", "v pip");
    static final MethodHandle OPTIONS_SET_LOG = function("tombolo_options_set_log", "v ppp");
    static final MethodHandle OPTIONS_ADD_OPERATOR = function("tombolo_options_add_operator", "v ppipppp");
    static final MethodHandle OPTIONS_SET_LISTENER = function("tombolo_options_set_listener", "v ppppp");

    static final MethodHandle OPEN = function("tombolo_open", "p ppp");
    static final MethodHandle OPEN_READ_ONLY = function("tombolo_open_read_only", "p ppp");
    static final MethodHandle CLOSE = function("tombolo_close", "v pp");
    static final MethodHandle DESTROY_DATABASE = function("tombolo_destroy_database", "v ppp");
    static final MethodHandle KEYSPACE = function("tombolo_keyspace", "p ppp");
    static final MethodHandle CREATE_KEYSPACE = function("tombolo_create_keyspace", "p pppip");
    static final MethodHandle DROP_KEYSPACE = function("tombolo_drop_keyspace", "v ppp");
    static final MethodHandle KEYSPACE_NAMES = function("tombolo_keyspace_names", "p pp");
    static final MethodHandle SYNC = function("tombolo_sync", "v pp");
    static final MethodHandle FLUSH = function("tombolo_flush", "v pp");
    static final MethodHandle COMPACT = function("tombolo_compact", "v pp");
    static final MethodHandle CHECKPOINT = function("tombolo_checkpoint", "v ppp");
    static final MethodHandle DELETE_CHECKPOINT = function("tombolo_delete_checkpoint", "v ppp");
    static final MethodHandle SET_OPTION = function("tombolo_set_option", "v pppp");
    static final MethodHandle PROPERTY = function("tombolo_property", "p ppp");
    static final MethodHandle METRICS = function("tombolo_metrics", "p ppsp");

    static final MethodHandle KEYSPACE_DESTROY = function("tombolo_keyspace_destroy", "v p");
    static final MethodHandle KEYSPACE_SET_OPTION = function("tombolo_keyspace_set_option", "v pppp");
    static final MethodHandle PUT = function("tombolo_put", "v ppspsip");
    static final MethodHandle PUT_TTL = function("tombolo_put_ttl", "v ppspslip");
    static final MethodHandle DELETE = function("tombolo_delete", "v ppsip");
    static final MethodHandle SINGLE_DELETE = function("tombolo_single_delete", "v ppsip");
    static final MethodHandle DELETE_RANGE = function("tombolo_delete_range", "v ppspsip");
    static final MethodHandle MERGE = function("tombolo_merge", "v ppspsip");

    static final MethodHandle SNAPSHOT = function("tombolo_snapshot", "p pp");
    static final MethodHandle SNAPSHOT_RELEASE = function("tombolo_snapshot_release", "v p");
    static final MethodHandle GET_VALUE = function("tombolo_get_value", "p pppsp");
    static final MethodHandle VALUE_BYTES = quick("tombolo_value_bytes", "p pp");
    static final MethodHandle VALUE_RELEASE = function("tombolo_value_release", "v p");
    static final MethodHandle MULTI_GET = function("tombolo_multi_get", "v ppsppppp");

    static final MethodHandle BATCH_CREATE = function("tombolo_batch_create", "p ");
    static final MethodHandle BATCH_DESTROY = function("tombolo_batch_destroy", "v p");
    static final MethodHandle BATCH_CLEAR = function("tombolo_batch_clear", "v p");
    static final MethodHandle BATCH_COUNT = quick("tombolo_batch_count", "s p");
    // These only copy into memory, so that they may look into Java's own heap meanwhile.
    static final MethodHandle BATCH_PUT = onHeap("tombolo_batch_put", "v pppspsp");
    static final MethodHandle BATCH_PUT_TTL = onHeap("tombolo_batch_put_ttl", "v pppspslp");
    static final MethodHandle BATCH_DELETE = onHeap("tombolo_batch_delete", "v pppsp");
    static final MethodHandle BATCH_SINGLE_DELETE = onHeap("tombolo_batch_single_delete", "v pppsp");
    static final MethodHandle BATCH_DELETE_RANGE = onHeap("tombolo_batch_delete_range", "v pppspsp");
    static final MethodHandle BATCH_MERGE = onHeap("tombolo_batch_merge", "v pppspsp");
    static final MethodHandle WRITE = function("tombolo_write", "v ppip");

    static final MethodHandle CURSOR = function("tombolo_cursor", "p pppspsp");
    static final MethodHandle CURSOR_DESTROY = function("tombolo_cursor_destroy", "v p");
    static final MethodHandle CURSOR_SEEK_TO_FIRST = function("tombolo_cursor_seek_to_first", "i pp");
    static final MethodHandle CURSOR_SEEK_TO_LAST = function("tombolo_cursor_seek_to_last", "i pp");
    static final MethodHandle CURSOR_SEEK = function("tombolo_cursor_seek", "i ppsp");
    static final MethodHandle CURSOR_SEEK_FOR_PREV = function("tombolo_cursor_seek_for_prev", "i ppsp");
    static final MethodHandle CURSOR_NEXT = function("tombolo_cursor_next", "i pp");
    static final MethodHandle CURSOR_PREV = function("tombolo_cursor_prev", "i pp");
    static final MethodHandle CURSOR_VALID = quick("tombolo_cursor_valid", "i p");
    static final MethodHandle CURSOR_KEY = quick("tombolo_cursor_key", "p pp");
    static final MethodHandle CURSOR_VALUE = quick("tombolo_cursor_value", "p pp");
    static final MethodHandle CURSOR_REFRESH = function("tombolo_cursor_refresh", "v pp");

    static final MethodHandle TRANSACTION_BEGIN = function("tombolo_transaction_begin", "p piiilpsp");
    static final MethodHandle TRANSACTION_DESTROY = function("tombolo_transaction_destroy", "v p");
    static final MethodHandle TRANSACTION_GET = function("tombolo_transaction_get", "p pppsipp");
    static final MethodHandle TRANSACTION_CURSOR = function("tombolo_transaction_cursor", "p pppspsp");
    static final MethodHandle TRANSACTION_PUT = function("tombolo_transaction_put", "v pppspsp");
    static final MethodHandle TRANSACTION_MERGE = function("tombolo_transaction_merge", "v pppspsp");
    static final MethodHandle TRANSACTION_DELETE = function("tombolo_transaction_delete", "v pppsp");
    static final MethodHandle TRANSACTION_SET_SAVEPOINT =
            function("tombolo_transaction_set_savepoint", "v pp");
    static final MethodHandle TRANSACTION_ROLLBACK_TO_SAVEPOINT =
            function("tombolo_transaction_rollback_to_savepoint", "v pp");
    static final MethodHandle TRANSACTION_COMMIT = function("tombolo_transaction_commit", "l pp");
    static final MethodHandle TRANSACTION_ROLLBACK = function("tombolo_transaction_rollback", "v pp");

    static final MethodHandle PUT_THEN = function("tombolo_put_then", "v ppspsipp");
    static final MethodHandle WRITE_THEN = function("tombolo_write_then", "v ppipp");
    static final MethodHandle GET_THEN = function("tombolo_get_then", "v pppspp");

    /** {@code malloc} of the C library, whose memory the library frees. */
    static final MethodHandle MALLOC =
            LINKER.downcallHandle(symbol(LINKER.defaultLookup(), "malloc"), descriptor("p s"));

    private Native() {}

    private static MemorySegment symbol(SymbolLookup library, String name) {
        return library.find(name).orElseThrow(() -> new UnsatisfiedLinkError(
                "there is no " + name + " in the library: it and these classes are of different versions"));
    }

    /** A function that may wait, so that the collector goes on meanwhile. */
    private static MethodHandle function(String name, String signature) {
        return LINKER.downcallHandle(symbol(LIBRARY, name), descriptor(signature));
    }

    /** A function that takes some nanoseconds. */
    private static MethodHandle quick(String name, String signature) {
        return LINKER.downcallHandle(
                symbol(LIBRARY, name), descriptor(signature), Linker.Option.critical(false));
    }

    /** A function of microseconds at most that is given arrays of Java as they lie. */
    private static MethodHandle onHeap(String name, String signature) {
        return LINKER.downcallHandle(
                symbol(LIBRARY, name), descriptor(signature), Linker.Option.critical(true));
    }

    /** A function of Java's that the library may call as long as the process lives. */
    static MemorySegment callback(MethodHandle target, String signature) {
        return LINKER.upcallStub(target, descriptor(signature), Arena.global());
    }

    /**
     * The result, a space, and the arguments: {@code p} a pointer, {@code s} a length, {@code l} 64
     * bits, {@code i} an int, {@code v} nothing.
     */
    private static FunctionDescriptor descriptor(String signature) {
        MemoryLayout[] arguments =
                signature.substring(2).chars().mapToObj(Native::layout).toArray(MemoryLayout[]::new);
        return signature.charAt(0) == 'v'
                ? FunctionDescriptor.ofVoid(arguments)
                : FunctionDescriptor.of(layout(signature.charAt(0)), arguments);
    }

    private static MemoryLayout layout(int letter) {
        return switch (letter) {
            case 'p' -> POINTER;
            case 's', 'l' -> ValueLayout.JAVA_LONG;
            case 'i' -> ValueLayout.JAVA_INT;
            default -> throw new IllegalArgumentException("no layout is called " + (char) letter);
        };
    }

    private static SymbolLookup library() {
        if (ValueLayout.ADDRESS.byteSize() != Long.BYTES) {
            throw new UnsupportedOperationException("Tombolo for Java needs 64 bits");
        }
        String path = System.getProperty("tombolo.native", System.getenv("TOMBOLO_LIBRARY"));
        path = path == null || path.isEmpty() ? null : path;
        try {
            return path == null
                    ? libraryLookup(System.mapLibraryName("tombolo_c"), Arena.global())
                    : libraryLookup(Path.of(path), Arena.global());
        } catch (IllegalArgumentException notFound) {
            throw new UnsatisfiedLinkError(
                    (path == null ? "libtombolo_c is not where the system looks for libraries" : path)
                            + ": build it with `cargo build --release -p tombolo-capi`, and name it with"
                            + " -Dtombolo.native=PATH or TOMBOLO_LIBRARY");
        }
    }

    /** An exception of a method handle, which no function of C throws. */
    static AssertionError unexpected(Throwable thrown) {
        if (thrown instanceof RuntimeException unchecked) {
            throw unchecked;
        }
        if (thrown instanceof Error error) {
            throw error;
        }
        return new AssertionError(thrown);
    }
}
