package tombolo.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.ProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.Task;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tombolo.Database;
import tombolo.Keyspace;
import tombolo.Options;
import tombolo.TomboloException;

/** Stores beside commits, other processes and trouble. */
class StoreDatabaseTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("application-store-changelog", 0);

    @TempDir
    Path directory;

    private final Properties properties = new Properties();

    private StreamsConfig config(String guarantee) {
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "application");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        properties.put("tombolo.database.memory_bytes", "64MiB");
        return new StreamsConfig(properties);
    }

    private InternalMockProcessorContext<?, ?> context(String where, String guarantee) {
        return new InternalMockProcessorContext<>(directory.resolve(where).toFile(), config(guarantee));
    }

    private InternalMockProcessorContext<?, ?> ofTask(String where, TaskId task) {
        return new InternalMockProcessorContext<>(
                directory.resolve(where).toFile(), config(StreamsConfig.AT_LEAST_ONCE)) {
            @Override
            public TaskId taskId() {
                return task;
            }
        };
    }

    private static TomboloKeyValueStore store() {
        return (TomboloKeyValueStore) TomboloStores.keyValueStore("store").get();
    }

    private TomboloKeyValueStore opened(String guarantee) {
        TomboloKeyValueStore store = store();
        store.init(context("state", guarantee), store);
        return store;
    }

    private String uri() {
        return "file://" + directory.resolve("state/tombolo/store");
    }

    private static Bytes bytes(String text) {
        return Bytes.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static <K> List<String> rest(KeyValueIterator<K, byte[]> iterator) {
        List<String> values = new ArrayList<>();
        iterator.forEachRemaining(entry -> values.add(text(entry.value)));
        iterator.close();
        return values;
    }

    private static void put(TomboloKeyValueStore store, String... keys) {
        for (String key : keys) {
            store.put(bytes(key), bytes(key).get());
        }
    }

    /** As RocksDB's: an iterator goes on where it stood, whatever is committed meanwhile. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void iteratorsSurviveCommits(String guarantee) {
        TomboloKeyValueStore store = opened(guarantee);
        put(store, "a", "c", "e");
        store.commit(Map.of(CHANGELOG, 1L));
        put(store, "b", "d");
        var fresh = store.all();
        var forward = store.range(bytes("a"), bytes("d"));
        var backward = store.reverseAll();
        var peeked = store.all();
        var ended = store.range(bytes("a"), bytes("b"));
        assertEquals("a", text(forward.next().value));
        assertEquals("b", text(forward.next().value));
        assertEquals("e", text(backward.next().value));
        assertEquals("d", text(backward.next().value));
        assertEquals(bytes("a"), peeked.peekNextKey());
        assertEquals("a", text(ended.next().value));
        assertEquals("b", text(ended.next().value));
        store.commit(Map.of(CHANGELOG, 2L));
        // Another transaction, which ends before some are moved again.
        store.delete(bytes("a"));
        assertEquals("c", text(forward.next().value));
        store.commit(Map.of(CHANGELOG, 3L));
        assertEquals(List.of("d"), rest(forward));
        assertEquals(List.of("c", "b"), rest(backward).subList(0, 2));
        assertEquals(List.of("a", "b", "c", "d", "e"), rest(peeked));
        assertEquals(List.of(), rest(ended));
        List<String> seen = rest(fresh);
        assertTrue(seen.containsAll(List.of("b", "c", "d", "e")), seen.toString());
        store.close();
    }

    /** A span that is dropped under a query shows nothing more; the spans after it are shown. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aQueryBesideADropGoesOn(String guarantee) {
        var store = (TomboloWindowStore) TomboloStores.windowStore(
                "store", Duration.ofMinutes(2), Duration.ofMinutes(1), false).get();
        store.init(context("state", guarantee), store);
        long minute = 60_000;
        store.put(bytes("k"), bytes("first").get(), 1);
        store.put(bytes("l"), bytes("second").get(), 2);
        store.put(bytes("k"), bytes("third").get(), 2 * minute);
        var all = store.fetchAll(0, 10 * minute);
        assertEquals("first", text(all.next().value));
        store.put(bytes("k"), bytes("fourth").get(), 4 * minute);
        store.commit(Map.of(CHANGELOG, 1L));
        List<String> seen = rest(all);
        assertEquals("third", seen.get(seen.size() - 1));
        store.close();
    }

    /** Kafka gives such a task up and goes on; anything else ends its thread. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aTaskThatAnotherProcessHasIsMigrated(String guarantee) {
        TomboloKeyValueStore store = store();
        InternalMockProcessorContext<?, ?> context = context("state", guarantee);
        store.init(context, store);
        put(store, "k");
        Database.open(uri(), new Options().takeOver(Options.TakeOver.ALWAYS)).close();
        assertThrows(TaskMigratedException.class, () -> store.commit(Map.of(CHANGELOG, 1L)));
        assertThrows(TaskMigratedException.class, () -> {
            put(store, "k");
            store.commit(Map.of(CHANGELOG, 1L));
        });
        store.close();
        // While it is restored Kafka takes whatever is thrown for the end of its thread.
        store.init(context, store);
        Database.open(uri(), new Options().takeOver(Options.TakeOver.ALWAYS)).close();
        for (int times = 0; times < 2; times++) {
            context.restore("store", List.of(KeyValue.pair(new byte[1], new byte[1])));
            assertThrows(TaskMigratedException.class, () -> store.commit(Map.of(CHANGELOG, 1L)));
        }
        store.close();
    }

    /** Of a global store each instance has its own, wherever those of tasks lie. */
    @Test
    void globalStoresOfTwoInstancesStandSideBySide() {
        properties.put("tombolo.uri", "file://" + directory.resolve("shared"));
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        TomboloKeyValueStore one = store();
        TomboloKeyValueStore other = store();
        one.init(ofTask("one", new TaskId(-1, -1)), one);
        other.init(ofTask("other", new TaskId(-1, -1)), other);
        put(one, "k");
        put(other, "l");
        one.commit(Map.of());
        other.commit(Map.of());
        assertEquals(List.of("k"), rest(one.all()));
        one.close();
        other.close();
    }

    /** A replica would fence the task that it stands by. */
    @Test
    void replicasAreRefusedWhereStateIsShared() {
        properties.put("tombolo.uri", "file://" + directory.resolve("shared"));
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, "1");
        TomboloKeyValueStore store = store();
        ConfigException refused = assertThrows(
                ConfigException.class, () -> store.init(ofTask("one", new TaskId(0, 0)), store));
        assertTrue(refused.getMessage().contains("num.standby.replicas"), refused.getMessage());
        properties.remove(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG);
        ProcessorContextImpl replica = mock(ProcessorContextImpl.class);
        when(replica.appConfigs()).thenReturn(config(StreamsConfig.AT_LEAST_ONCE).originals());
        when(replica.taskId()).thenReturn(new TaskId(0, 0));
        when(replica.taskType()).thenReturn(Task.TaskType.STANDBY);
        refused = assertThrows(ConfigException.class, () -> store.init(replica, store));
        assertTrue(refused.getMessage().contains("acceptable.recovery.lag"), refused.getMessage());
        store.init(ofTask("one", new TaskId(0, 0)), store);
        store.close();
    }

    /** Settings count for keyspaces that exist, as the one of a store of keys and values always does. */
    @Test
    void settingsOfKeyspacesHold() {
        TomboloKeyValueStore store = opened(StreamsConfig.AT_LEAST_ONCE);
        put(store, "k");
        store.close();
        assertThrows(TomboloException.class, this::merged);
        properties.put("tombolo.keyspace.operator", "add_u64");
        for (int times = 0; times < 2; times++) {
            store = opened(StreamsConfig.AT_LEAST_ONCE);
            store.commit(Map.of(CHANGELOG, 1L));
            store.close();
            assertEquals(times + 1, merged());
        }
        properties.put("tombolo.keyspace.no_such", "1");
        assertThrows(RuntimeException.class, () -> opened(StreamsConfig.AT_LEAST_ONCE));
        properties.remove("tombolo.keyspace.no_such");
        // It was closed again.
        opened(StreamsConfig.AT_LEAST_ONCE).close();
    }

    private int merged() {
        byte[] key = bytes("count").get();
        try (Database database = Database.open(uri())) {
            database.keyspace().merge(key, new byte[] {1, 0, 0, 0, 0, 0, 0, 0}, tombolo.Durability.ACCEPTED);
            return database.keyspace().get(key)[0];
        }
    }

    /** More than one write may have. */
    @Test
    void muchIsRestoredAtOnce() {
        InternalMockProcessorContext<?, ?> context = context("state", StreamsConfig.AT_LEAST_ONCE);
        TomboloKeyValueStore store = store();
        store.init(context, store);
        byte[] value = new byte[4 << 20];
        List<KeyValue<byte[], byte[]>> changelog = new ArrayList<>();
        for (int number = 0; number < 26; number++) {
            changelog.add(KeyValue.pair(new byte[] {(byte) number}, value));
        }
        context.restore("store", changelog);
        assertEquals(26, store.approximateNumEntries());
        store.close();
    }

    /** A drop that fails keeps none of the others, and no later commit, from taking effect. */
    @Test
    void keyspacesAreDroppedOneByOne() {
        StoreDatabase database = new StoreDatabase("store");
        database.open(context("state", StreamsConfig.AT_LEAST_ONCE), () -> {});
        for (String name : List.of("one", "two")) {
            Keyspace keyspace = database.keyspace(name);
            database.put(keyspace, new byte[1], new byte[1]);
        }
        database.condemn("one");
        database.condemn("absent");
        database.condemn("two");
        database.commit(Map.of(CHANGELOG, 1L));
        database.commit(Map.of(CHANGELOG, 2L));
        assertEquals(List.of("default"), database.keyspaceNames());
        assertEquals(2L, database.committedOffset(CHANGELOG));
        database.close();
    }

    /** Whatever fails while a store begins leaves no database open. */
    @Test
    void aStoreThatCannotBeginIsClosed() {
        var bad = new InternalMockProcessorContext<>(
                directory.resolve("state").toFile(), config(StreamsConfig.AT_LEAST_ONCE)) {
            @Override
            public void register(StateStore store, StateRestoreCallback callback) {
                throw new IllegalStateException("as the test wants");
            }
        };
        for (StateStore store : List.of(
                store(), TomboloStores.sessionStore("store", Duration.ofMinutes(1)).get())) {
            assertThrows(IllegalStateException.class, () -> store.init(bad, store));
            assertFalse(store.isOpen());
        }
        opened(StreamsConfig.AT_LEAST_ONCE).close();
    }
}
