package tombolo.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Applications on stores of Tombolo, ended and begun again. */
class TopologyTest {
    private static final StringSerializer TO = new StringSerializer();
    private static final StringDeserializer FROM = new StringDeserializer();

    @TempDir
    Path directory;

    private Properties configuration(String guarantee) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "application");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve("local").toString());
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("tombolo.database.memory_bytes", "64MiB");
        properties.put("tombolo.keyspace.compression", "lz4");
        return properties;
    }

    private static Topology wordCount() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as(TomboloStores.timestampedKeyValueStore("counts")))
                .toStream()
                .to("words", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    /**
     * The state is there when the application begins again, and is made anew from its changelog when
     * it is not.
     */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aWordCountGoesOn(String guarantee) {
        Properties properties = configuration(guarantee);
        properties.put("tombolo.uri", "file://" + directory.resolve("shared"));
        List<KeyValue<byte[], byte[]>> changelog = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(wordCount(), properties)) {
            var lines = driver.createInputTopic("lines", TO, TO);
            lines.pipeInput("a bar of sand");
            lines.pipeInput("a tombolo of sand");
            KeyValueStore<String, Long> counts = driver.getKeyValueStore("counts");
            assertEquals(2, counts.get("sand"));
            assertEquals(5, entries(counts).size());
            assertEquals(5, counts.approximateNumEntries());
            var deserializer = new ByteArrayDeserializer();
            driver.createOutputTopic("application-counts-changelog", deserializer, deserializer)
                    .readKeyValuesToList()
                    .forEach(record -> changelog.add(KeyValue.pair(
                            record.key, TimestampedBytesStore.convertToTimestampedFormat(record.value))));
        }
        try (TopologyTestDriver driver = new TopologyTestDriver(wordCount(), properties)) {
            counts(driver, 3);
        }
        assertEquals(8, changelog.size());
        properties.put("tombolo.uri", "file://" + directory.resolve("anew"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        var context = new InternalMockProcessorContext<>(
                directory.resolve("local").toFile(), new StreamsConfig(properties));
        var store = TomboloStores.timestampedKeyValueStore("counts").get();
        store.init(context, store);
        context.restore("counts", changelog);
        store.close();
        try (TopologyTestDriver driver = new TopologyTestDriver(wordCount(), properties)) {
            counts(driver, 3);
        }
    }

    /** What was counted before is there, and counting goes on. */
    private static void counts(TopologyTestDriver driver, long sand) {
        KeyValueStore<String, Long> counts = driver.getKeyValueStore("counts");
        assertEquals(
                List.of(
                        KeyValue.pair("a", 2L),
                        KeyValue.pair("bar", 1L),
                        KeyValue.pair("of", 2L),
                        KeyValue.pair("sand", 2L),
                        KeyValue.pair("tombolo", 1L)),
                entries(counts));
        driver.createInputTopic("lines", TO, TO).pipeInput("sand");
        assertEquals(sand, counts.get("sand"));
    }

    private static <K, V> List<KeyValue<K, V>> entries(KeyValueStore<K, V> store) {
        List<KeyValue<K, V>> entries = new ArrayList<>();
        try (KeyValueIterator<K, V> all = store.all()) {
            all.forEachRemaining(entries::add);
        }
        return entries;
    }

    /** The whole DSL by one line of the configuration: a windowed join, with windows and sessions. */
    private static Topology join() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream("orders");
        KStream<String, String> payments = builder.stream("payments");
        orders.join(
                        payments,
                        (order, payment) -> order + " by " + payment,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(1)),
                        StreamJoined.as("join"))
                .to("paid");
        orders.groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(10)))
                .count(Materialized.as("ordered"));
        orders.groupByKey()
                .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(2)))
                .count(Materialized.as("visits"));
        return builder.build();
    }

    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void aWindowedJoinGoesOnElsewhere(String guarantee) {
        Properties properties = configuration(guarantee);
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, TomboloStoreSuppliers.class);
        properties.put("tombolo.uri", "file://" + directory.resolve("shared"));
        Instant start = Instant.ofEpochSecond(1_000_000);
        try (TopologyTestDriver driver = new TopologyTestDriver(join(), properties, start)) {
            driver.createInputTopic("orders", TO, TO).pipeInput("k", "books", start);
            driver.createInputTopic("orders", TO, TO).pipeInput("k", "a lamp", start.plusSeconds(50));
            assertTrue(driver.createOutputTopic("paid", FROM, FROM).isEmpty());
        }
        // Another machine, whose state directory is empty.
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve("other").toString());
        try (TopologyTestDriver driver = new TopologyTestDriver(join(), properties, start)) {
            driver.createInputTopic("payments", TO, TO).pipeInput("k", "card", start.plusSeconds(55));
            driver.createInputTopic("payments", TO, TO).pipeInput("k", "cash", start.plusSeconds(100));
            assertEquals(
                    List.of("books by card", "a lamp by card", "a lamp by cash"),
                    driver.createOutputTopic("paid", FROM, FROM).readValuesToList());
            try (var windows = driver.getTimestampedWindowStore("ordered")
                    .fetch("k", start.minusSeconds(1200), start.plusSeconds(1200))) {
                assertEquals(2L, windows.next().value.value());
                assertFalse(windows.hasNext());
            }
            try (var sessions = driver.<String, Long>getSessionStore("visits").fetch("k")) {
                assertEquals(2L, sessions.next().value);
                assertFalse(sessions.hasNext());
            }
        }
    }

    private InternalMockProcessorContext<?, ?> context(String where, String guarantee) {
        Properties properties = configuration(guarantee);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        return new InternalMockProcessorContext<>(
                directory.resolve(where).toFile(), new StreamsConfig(properties));
    }

    private static final TopicPartition CHANGELOG = new TopicPartition("application-store-changelog", 0);

    private static TomboloKeyValueStore opened(InternalMockProcessorContext<?, ?> context) {
        var store = (TomboloKeyValueStore) TomboloStores.keyValueStore("store").get();
        store.init(context, store);
        return store;
    }

    private static Bytes bytes(String text) {
        return Bytes.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    /** With nothing left of it, a store is made anew of its changelog, in batches. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void stateIsRestoredFromTheChangelog(String guarantee) {
        InternalMockProcessorContext<?, ?> context = context("restored", guarantee);
        TomboloKeyValueStore store = opened(context);
        List<KeyValue<byte[], byte[]>> changelog = new ArrayList<>();
        for (int number = 0; number < 1000; number++) {
            changelog.add(KeyValue.pair(bytes("k" + number % 100).get(), bytes("v" + number).get()));
        }
        changelog.add(KeyValue.pair(bytes("k7").get(), null));
        context.restore("store", changelog);
        store.commit(Map.of(CHANGELOG, 1000L));
        store.close();
        store = opened(context("restored", guarantee));
        assertEquals(1000L, store.committedOffset(CHANGELOG));
        assertEquals(99, entries(store).size());
        assertNull(store.get(bytes("k7")));
        assertEquals("v942", new String(store.get(bytes("k42"))));
        store.commit(Map.of());
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
        // So Kafka tells of state that is corrupted: it is made anew, wherever it lies.
        store = opened(context("restored", guarantee));
        assertEquals(0, entries(store).size());
        // A store without a changelog is always told so, and keeps what it has.
        store.put(bytes("k"), bytes("v").get());
        store.commit(Map.of());
        store.close();
        store = opened(context("restored", guarantee));
        assertEquals(1, entries(store).size());
        store.close();
    }

    /** What was not committed is undone with exactly-once processing, and the offset stays true. */
    @Test
    void anUncommittedTransactionIsUndone() {
        TomboloKeyValueStore store = opened(context("transactional", StreamsConfig.EXACTLY_ONCE_V2));
        store.put(bytes("k"), bytes("committed").get());
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(bytes("k"), bytes("lost").get());
        store.put(bytes("new"), bytes("lost").get());
        assertEquals("lost", new String(store.get(bytes("k"))));
        assertEquals(2, entries(store).size());
        store.close();
        store = opened(context("transactional", StreamsConfig.EXACTLY_ONCE_V2));
        assertEquals("committed", new String(store.get(bytes("k"))));
        assertEquals(1, entries(store).size());
        assertEquals(5L, store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    void prefixesAreFound() {
        TomboloKeyValueStore store = opened(context("prefixes", StreamsConfig.AT_LEAST_ONCE));
        for (byte[] key : new byte[][] {{1}, {1, 0}, {1, -1}, {1, -1, -1}, {2}, {-1, -1}, {-1, -1, 3}}) {
            store.put(Bytes.wrap(key), key);
        }
        assertEquals(4, count(store, new byte[] {1}));
        assertEquals(2, count(store, new byte[] {1, -1}));
        assertEquals(2, count(store, new byte[] {-1, -1}));
        assertEquals(7, count(store, new byte[0]));
        store.putAll(List.of(KeyValue.pair(bytes("a"), null), KeyValue.pair(Bytes.wrap(new byte[] {1}),
                null)));
        assertEquals(3, count(store, new byte[] {1}));
        assertInstanceOf(byte[].class, store.putIfAbsent(Bytes.wrap(new byte[] {2}), new byte[0]));
        store.close();
        store.close();
    }

    private static int count(TomboloKeyValueStore store, byte[] prefix) {
        int count = 0;
        try (var found = store.prefixScan(prefix, (topic, bytes) -> bytes)) {
            for (; found.hasNext(); found.next()) {
                count++;
            }
        }
        return count;
    }
}
