package tombolo;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Every method does what it says, and what is wrong is an exception. */
class BindingsTest {
    @TempDir
    Path directory;

    private String uri;
    private Database database;
    private Keyspace keyspace;

    @BeforeEach
    void open() {
        uri = directory.resolve("database").toUri().toString().replaceFirst("^file:/+", "file:///");
        database = Database.open(uri, new Options().set("memory_bytes", "64MiB").mode(Options.Mode.CREATE));
        keyspace = database.keyspace();
    }

    @AfterEach
    void close() {
        database.close();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private List<String> entries(Keyspace of) {
        List<String> entries = new ArrayList<>();
        try (Cursor cursor = of.cursor()) {
            while (cursor.next()) {
                entries.add(text(cursor.key()) + "=" + text(cursor.value()));
            }
        }
        return entries;
    }

    @Test
    void writesAreReadAndSurvive() {
        for (Durability survives : Durability.values()) {
            keyspace.put(bytes(survives.name()), bytes("value"), survives);
        }
        keyspace.put(bytes("empty"), new byte[0]);
        assertEquals("value", text(keyspace.get(bytes("DURABLE"))));
        assertEquals(0, keyspace.get(bytes("empty")).length);
        assertNull(keyspace.get(bytes("absent")));
        keyspace.delete(bytes("ACCEPTED"));
        keyspace.put(bytes("once"), bytes("1"));
        keyspace.singleDelete(bytes("once"), Durability.DURABLE);
        database.sync();
        database.flush();
        database.compact();
        database.close();
        database = Database.open(uri, new Options().mode(Options.Mode.OPEN));
        assertEquals(List.of("DURABLE=value", "UNLOGGED=value", "empty="), entries(database.keyspace()));
    }

    @Test
    void rangesAreDeletedAndValuesExpire() {
        for (int index = 0; index < 10; index++) {
            keyspace.put(bytes("k" + index), bytes("v"), Durability.ACCEPTED);
        }
        keyspace.deleteRange(bytes("k2"), bytes("k9"), Durability.ACCEPTED);
        assertEquals(List.of("k0=v", "k1=v", "k9=v"), entries(keyspace));
        assertThrows(
                TomboloException.Invalid.class,
                () -> keyspace.put(bytes("k"), bytes("v"), Duration.ZERO, Durability.ACCEPTED));
        keyspace.put(bytes("long"), bytes("v"), Duration.ofDays(1), Durability.ACCEPTED);
        assertEquals("v", text(keyspace.get(bytes("long"))));
    }

    @Test
    void mergesCount() {
        Keyspace counts = database.createKeyspace("counts", "operator=add_u64");
        byte[] one = new byte[] {1, 0, 0, 0, 0, 0, 0, 0};
        for (int count = 0; count < 5; count++) {
            counts.merge(bytes("k"), one, Durability.ACCEPTED);
        }
        assertEquals(5, counts.get(bytes("k"))[0]);
    }

    @Test
    void operatorsOfJavaMergeAndThrowWithoutEndingTheProcess() {
        database.close();
        MergeOperator joins = (key, base, operands) -> {
            StringBuilder joined = new StringBuilder(base == null ? "" : text(base));
            for (byte[] operand : operands) {
                if (text(operand).equals("throw")) {
                    throw new IllegalStateException("as the test wants");
                }
                joined.append(text(operand));
            }
            return bytes(joined.toString());
        };
        database = Database.open(uri, new Options().operator("joins", 1, joins));
        Keyspace joined = database.createKeyspace("joined", "operator=joins@1");
        joined.put(bytes("k"), bytes("a"));
        joined.merge(bytes("k"), bytes("b"), Durability.ACCEPTED);
        joined.merge(bytes("k"), bytes("c"), Durability.ACCEPTED);
        assertEquals("abc", text(joined.get(bytes("k"))));
        joined.merge(bytes("bad"), bytes("throw"), Durability.ACCEPTED);
        assertThrows(TomboloException.class, () -> joined.get(bytes("bad")));
        joined.delete(bytes("bad"));
    }

    @Test
    void listenersAreToldAndForgotten() throws Exception {
        database.close();
        int before = Callbacks.kept();
        CountDownLatch told = new CountDownLatch(1);
        database = Database.open(uri, new Options().listener((level, text) -> {
            told.countDown();
            throw new IllegalStateException("which nobody hears");
        }));
        database.keyspace().put(bytes("k"), bytes("v"));
        database.flush();
        told.await();
        assertEquals(before + 1, Callbacks.kept());
        database.close();
        assertEquals(before, Callbacks.kept());
    }

    @Test
    void batchesAreWhole() {
        Keyspace other = database.openOrCreateKeyspace("other", "compression=zstd");
        byte[] large = new byte[200_000];
        Arrays.fill(large, (byte) 7);
        try (Batch batch = new Batch()) {
            batch.put(keyspace, bytes("1"), bytes("a"))
                    .put(other, bytes("2"), large)
                    .put(other, bytes("3"), bytes("c"), Duration.ofDays(1))
                    .put(keyspace, bytes("4"), bytes("d"))
                    .put(keyspace, bytes("5"), bytes("e"))
                    .delete(keyspace, bytes("4"));
            assertEquals(6, batch.size());
            assertNull(keyspace.get(bytes("1")));
            database.write(batch, Durability.DURABLE);
            assertEquals(0, batch.size());
            assertArrayEquals(large, other.get(bytes("2")));
            assertEquals("c", text(other.get(bytes("3"))));
            assertEquals(List.of("1=a", "5=e"), entries(keyspace));
            batch.deleteRange(keyspace, bytes("0"), bytes("9")).singleDelete(other, bytes("2"));
            batch.clear();
            batch.singleDelete(keyspace, bytes("5"));
            database.writeAsync(batch, Durability.DURABLE).join();
            assertEquals(List.of("1=a"), entries(keyspace));
        }
        assertEquals(List.of("default", "other"), database.keyspaceNames().stream().sorted().toList());
        assertEquals("other", other.name());
        database.dropKeyspace("other");
        assertInstanceOf(
                TomboloException.Closed.class,
                assertThrows(TomboloException.class, () -> other.get(bytes("2"))));
    }

    /** A keyspace that is made while one of its name is dropped is the new one. */
    @Test
    void aNameIsOfTheNewKeyspaceBesideADrop() throws Exception {
        for (int round = 0; round < 30; round++) {
            database.openOrCreateKeyspace("k", null).put(bytes("k"), bytes("old"), Durability.ACCEPTED);
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            Thread dropping = Thread.ofPlatform().start(() -> {
                try {
                    database.dropKeyspace("k");
                } catch (Throwable thrown) {
                    wrong.set(thrown);
                }
            });
            Keyspace made = null;
            while (made == null && wrong.get() == null) {
                try {
                    made = database.createKeyspace("k", null);
                } catch (TomboloException.AlreadyExists early) {
                    Thread.onSpinWait();
                }
            }
            dropping.join();
            assertNull(wrong.get());
            assertNull(made.get(bytes("k")));
            assertSame(made, database.keyspace("k"));
        }
    }

    @Test
    void cursorsGoBothWaysAndSeeTheirState() {
        for (String key : List.of("a", "c", "e", "g")) {
            keyspace.put(bytes(key), bytes("v" + key), Durability.ACCEPTED);
        }
        try (Snapshot snapshot = database.snapshot();
                Cursor all = keyspace.cursor();
                Cursor some = keyspace.cursor(bytes("b"), bytes("g"), snapshot)) {
            keyspace.put(bytes("d"), bytes("new"), Durability.ACCEPTED);
            assertFalse(all.isValid());
            assertThrows(NoSuchElementException.class, all::key);
            assertTrue(all.seekToLast());
            assertEquals("g", text(all.key()));
            assertTrue(all.prev());
            assertTrue(all.seekForPrev(bytes("b")));
            assertEquals("va", text(all.value()));
            assertFalse(all.prev());
            assertTrue(some.seekToFirst());
            assertEquals("c", text(some.key()));
            assertTrue(some.next());
            assertEquals("ve", text(some.withValue(value -> value.toArray(ValueLayout.JAVA_BYTE))));
            assertEquals(1L, some.withKey(MemorySegment::byteSize));
            assertFalse(some.next());
            all.refresh();
            assertTrue(all.seek(bytes("d")));
            assertEquals("new", text(all.value()));
            MemorySegment kept = all.withValue(value -> value);
            assertThrows(IllegalStateException.class, () -> kept.get(ValueLayout.JAVA_BYTE, 0));
            assertThrows(
                    IllegalStateException.class, () -> all.withKey(key -> all.next()));
            assertNull(keyspace.get(bytes("d"), snapshot));
            byte[][] found = keyspace.multiGet(List.of(bytes("d"), bytes("a"), bytes("z")), snapshot);
            assertNull(found[0]);
            assertEquals("va", text(found[1]));
            assertNull(found[2]);
            assertEquals(0, keyspace.multiGet(List.of(), null).length);
            assertEquals("new", text(keyspace.multiGet(List.of(bytes("d")), null)[0]));
        }
    }

    @Test
    void valuesLieWhereTheyWereFound() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment key = arena.allocateFrom("native").asSlice(0, 6);
            keyspace.put(key, arena.allocateFrom("memory").asSlice(0, 6), Durability.DURABLE);
            Value value = keyspace.view(key);
            MemorySegment seen = value.segment();
            assertEquals(6, seen.byteSize());
            assertEquals('m', seen.get(ValueLayout.JAVA_BYTE, 0));
            assertThrows(
                    IllegalArgumentException.class, () -> seen.set(ValueLayout.JAVA_BYTE, 0, (byte) 1));
            keyspace.put(bytes("native"), bytes("changed"));
            assertEquals("memory", text(value.toByteArray()));
            value.close();
            value.close();
            assertThrows(IllegalStateException.class, () -> seen.get(ValueLayout.JAVA_BYTE, 0));
            assertThrows(IllegalStateException.class, value::toByteArray);
            assertNull(keyspace.view(bytes("absent")));
        }
    }

    @Test
    void whatIsAskedAsynchronouslyEnds() {
        List<CompletableFuture<Void>> writes = new ArrayList<>();
        for (int index = 0; index < 100; index++) {
            writes.add(keyspace.putAsync(bytes("k"), bytes("v" + index), Durability.DURABLE));
        }
        writes.forEach(CompletableFuture::join);
        assertEquals("v99", text(keyspace.getAsync(bytes("k")).join()));
        assertNull(keyspace.getAsync(bytes("absent")).join());
        database.close();
        assertThrows(TomboloException.Closed.class, () -> keyspace.getAsync(bytes("k")));
    }

    @Test
    void whatEndsBadlyEndsItsFuture() {
        try (Database reader = Database.openReadOnly(uri, null)) {
            CompletionException thrown = assertThrows(
                    CompletionException.class,
                    () -> reader.keyspace().putAsync(bytes("k"), bytes("v"), Durability.DURABLE).join());
            assertInstanceOf(TomboloException.PermissionDenied.class, thrown.getCause());
        }
    }

    @Test
    void transactionsAreWholeAndConflict() {
        try (Transaction first = database.transaction();
                Transaction second = database.transaction()) {
            first.put(keyspace, bytes("k"), bytes("first"));
            assertEquals("first", text(first.get(keyspace, bytes("k"))));
            assertNull(keyspace.get(bytes("k")));
            assertNull(second.getForUpdate(keyspace, bytes("k")));
            first.setSavepoint();
            first.delete(keyspace, bytes("k"));
            try (Cursor cursor = first.cursor(keyspace, null, null)) {
                assertFalse(cursor.seekToFirst());
            }
            first.rollbackToSavepoint();
            assertTrue(first.commit() > 0);
            second.put(keyspace, bytes("k"), bytes("second"));
            assertThrows(TomboloException.Conflict.class, second::commit);
        }
        assertEquals("first", text(keyspace.get(bytes("k"))));
        try (Transaction undone = database.transaction(
                Transaction.Locking.PESSIMISTIC, Transaction.Isolation.SERIALIZABLE, Durability.ACCEPTED)) {
            undone.put(keyspace, bytes("k"), bytes("third"));
            undone.rollback();
        }
        assertEquals("first", text(keyspace.get(bytes("k"))));
    }

    @Test
    void theDatabaseSaysWhatItHas() {
        keyspace.put(bytes("k"), bytes("v"));
        assertTrue(Long.parseLong(database.property("writes")) >= 1);
        assertThrows(TomboloException.class, () -> database.property("nothing"));
        assertTrue(database.metrics("orders").contains("database=\"orders\""));
        database.set("automatic_compaction", "false");
        assertThrows(TomboloException.Invalid.class, () -> database.set("no such setting", "1"));
        keyspace.set("compression", "zstd");
        database.checkpoint("noon");
        assertThrows(TomboloException.AlreadyExists.class, () -> database.checkpoint("noon"));
        database.deleteCheckpoint("noon");
        assertTrue(Character.isDigit(Database.version().charAt(0)));
    }

    @Test
    void everyKindHasItsClass() {
        for (Kind kind : Kind.values()) {
            TomboloException thrown = TomboloException.of(kind, "text");
            assertEquals(kind, thrown.kind());
            assertEquals(
                    kind.name().replace("_", ""), thrown.getClass().getSimpleName().toUpperCase(Locale.ROOT));
        }
        assertThrows(TomboloException.Invalid.class, () -> Database.open("no uri"));
        assertThrows(TomboloException.InUse.class, () -> Database.open(uri));
        assertThrows(TomboloException.NotFound.class, () -> database.keyspace("absent"));
        assertThrows(TomboloException.Invalid.class, () -> database.keyspace("a\0b"));
        assertThrows(NullPointerException.class, () -> keyspace.put(null, bytes("v")));
        assertThrows(NullPointerException.class, () -> keyspace.put(bytes("k"), (byte[]) null));
        assertThrows(
                TomboloException.InUse.class,
                () -> Database.open(uri, new Options().takeOver(Options.TakeOver.NEVER)));
        Database.open(uri, new Options().takeOver(Options.TakeOver.ALWAYS)).close();
        assertThrows(TomboloException.Fenced.class, () -> keyspace.put(bytes("k"), bytes("v")));
        assertThrows(TomboloException.Fenced.class, database::close);
    }

    @Test
    void whatIsClosedThrows() {
        Snapshot snapshot = database.snapshot();
        Cursor cursor = keyspace.cursor();
        Transaction transaction = database.transaction();
        Batch batch = new Batch().put(keyspace, bytes("k"), bytes("v"));
        Value value;
        keyspace.put(bytes("k"), bytes("v"));
        value = keyspace.view(bytes("k"));
        database.close();
        database.close();
        assertThrows(TomboloException.Closed.class, () -> keyspace.get(bytes("k")));
        assertThrows(TomboloException.Closed.class, () -> keyspace.get(bytes("k"), snapshot));
        assertThrows(TomboloException.Closed.class, () -> database.keyspace());
        assertThrows(TomboloException.Closed.class, () -> database.write(batch, Durability.DURABLE));
        assertThrows(TomboloException.Closed.class, () -> batch.put(keyspace, bytes("k"), bytes("v")));
        assertThrows(TomboloException.Closed.class, cursor::seekToFirst);
        assertThrows(TomboloException.class, transaction::commit);
        assertThrows(TomboloException.Closed.class, database::snapshot);
        // What was found stays.
        assertEquals("v", text(value.toByteArray()));
        value.close();
        for (AutoCloseable closed : List.of(snapshot, cursor, transaction, batch)) {
            for (int times = 0; times < 2; times++) {
                assertTrue(closesWell(closed));
            }
        }
        assertThrows(TomboloException.Closed.class, cursor::next);
        assertThrows(TomboloException.Closed.class, cursor::key);
        assertThrows(TomboloException.Closed.class, batch::size);
        assertThrows(TomboloException.Closed.class, transaction::rollback);
    }

    private static boolean closesWell(AutoCloseable closed) {
        try {
            closed.close();
            return true;
        } catch (Exception thrown) {
            return false;
        }
    }

    /** A database that is closed while threads use it and all it gave ends them by exceptions. */
    @Test
    void closingBesideThreadsCrashesNothing() throws Exception {
        keyspace.put(bytes("k"), bytes("v"));
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        AtomicInteger ended = new AtomicInteger();
        CountDownLatch busy = new CountDownLatch(4);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            boolean writes = number % 2 == 0;
            threads.add(Thread.ofPlatform().start(() -> {
                try {
                    for (int round = 0; ; round++) {
                        if (writes) {
                            keyspace.put(bytes("k"), bytes("v" + round), Durability.ACCEPTED);
                        } else {
                            try (Cursor cursor = keyspace.cursor();
                                    Value value = keyspace.view(bytes("k"))) {
                                cursor.seekToFirst();
                                value.segment().get(ValueLayout.JAVA_BYTE, 0);
                            }
                        }
                        if (round == 20) {
                            busy.countDown();
                        }
                    }
                } catch (TomboloException.Closed closed) {
                    ended.incrementAndGet();
                } catch (Throwable thrown) {
                    wrong.set(thrown);
                    busy.countDown();
                }
            }));
        }
        busy.await();
        database.close();
        for (Thread thread : threads) {
            thread.join();
        }
        assertNull(wrong.get());
        assertEquals(4, ended.get());
    }

    /** Two threads in one batch or cursor: an exception, never torn memory. */
    @Test
    void twoThreadsInOneCursorAreRefused() throws Exception {
        keyspace.put(bytes("k"), bytes("v"));
        try (Cursor cursor = keyspace.cursor()) {
            cursor.seekToFirst();
            CountDownLatch inside = new CountDownLatch(1);
            CountDownLatch done = new CountDownLatch(1);
            Thread other = Thread.ofPlatform().start(() -> cursor.withKey(key -> {
                inside.countDown();
                try {
                    done.await();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
                return null;
            }));
            inside.await();
            assertThrows(IllegalStateException.class, cursor::next);
            done.countDown();
            other.join();
            assertFalse(cursor.next());
        }
    }

    @Test
    void destroyedIsGone() {
        keyspace.put(bytes("k"), bytes("v"));
        database.close();
        Database.destroy(uri, null);
        assertThrows(
                TomboloException.NotFound.class,
                () -> Database.open(uri, new Options().mode(Options.Mode.OPEN)));
        database = Database.open(uri);
        assertEquals(List.of(), entries(database.keyspace()));
    }
}
