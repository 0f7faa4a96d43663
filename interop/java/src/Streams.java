import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.stream.*;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams under exactly_once_v2: a word count through a repartition topic and a join of two streams, in a process of its own that is
 * killed, as the broker is. Caches are off, so a word that comes n times must give exactly the counts 1, 2 .. n, in order, to a reader of committed records.
 */
final class Streams {
    static final String[] WORDS = {"alpha", "beta", "gamma", "delta", "epsilon"};
    static final int LINES = 400;

    static void killed() throws Exception {
        String lines = Clients.topic("lines", 2), counts = Clients.topic("counts", 2);
        String left = Clients.topic("left", 2), right = Clients.topic("right", 2), joined = Clients.topic("joined", 2);
        String application = Check.fresh("streams");
        boolean brokerKilled = false;
        try (var p = Clients.producer("linger.ms", 1)) {
            Process app = start(application, lines, counts, left, right, joined);
            try {
                int kills = System.getenv("INTEROP_FULL") == null || System.getenv("INTEROP_FULL").isEmpty() ? 2 : 10;
                for (int n = 0; n < LINES; n++) {
                    p.send(new ProducerRecord<>(lines, n % 2, null, WORDS[n % 5] + " " + WORDS[n * 7 % 5]));
                    p.send(new ProducerRecord<>(left, "" + n, "l" + n));
                    p.send(new ProducerRecord<>(right, "" + n, "r" + n));
                    if (n % (LINES / (kills + 1)) == LINES / (kills + 1) - 1 && kills > 0 && n < LINES - 10) {
                        int sofar = n;
                        p.flush();
                        // In the middle of its work: some of the output is there; the first time it has hardly begun.
                        long least = n < LINES / (kills + 1) ? 1 : sofar / 2;
                        Check.waitFor(() -> joinedSoFar(joined) >= least, 60, least + " of the output of " + sofar + " pairs");
                        app.destroyForcibly().waitFor();
                        app = start(application, lines, counts, left, right, joined);
                        // The second time the broker too, while the application comes back.
                        if (n >= LINES / (kills + 1) && !brokerKilled) {
                            brokerKilled = true;
                            Check.broker("restart");
                        }
                    }
                }
                p.flush();
                Check.waitFor(() -> joinedSoFar(joined) >= LINES && total(counts) >= 2 * LINES, 60, "all of the output");
            } finally {
                app.destroyForcibly().waitFor();
            }
        }
        Check.that(brokerKilled, "the broker was killed too");
        Map<String, List<Long>> found = new TreeMap<>(), expected = new TreeMap<>();
        for (int n = 0; n < LINES; n++) for (String word : List.of(WORDS[n % 5], WORDS[n * 7 % 5])) {
            var so = expected.computeIfAbsent(word, w -> new ArrayList<>());
            so.add(so.size() + 1L);
        }
        for (var partition : Clients.read(counts, 2, "read_committed"))
            for (var r : partition) found.computeIfAbsent(r.key(), w -> new ArrayList<>()).add(Long.parseLong(r.value()));
        for (String word : expected.keySet()) Check.equal(found.getOrDefault(word, List.of()), expected.get(word), "counts of " + word);
        Check.equal(Clients.read(joined, 2, "read_committed").stream().flatMap(List::stream).map(r -> r.key() + "=" + r.value()).sorted().toList(),
            IntStream.range(0, LINES).mapToObj(n -> n + "=l" + n + "+r" + n).sorted().toList(), "joined");
    }

    private static long joinedSoFar(String joined) {
        return Clients.values(joined, 2, "read_committed").stream().mapToLong(List::size).sum();
    }

    private static long total(String counts) { return joinedSoFar(counts); }

    private static Process start(String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp", System.getProperty("java.class.path"), "Streams"));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(Path.of(System.getenv("INTEROP_STATE"), "streams.log").toFile())).start();
    }

    public static void main(String[] a) throws Exception {
        var builder = new StreamsBuilder();
        builder.stream(a[1], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((nothing, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream().mapValues(Object::toString).to(a[2], Produced.with(Serdes.String(), Serdes.String()));
        var window = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1));
        builder.stream(a[3], Consumed.with(Serdes.String(), Serdes.String()))
            .join(builder.stream(a[4], Consumed.with(Serdes.String(), Serdes.String())), (l, r) -> l + "+" + r, window,
                StreamJoined.<String, String, String>with(Stores.inMemoryWindowStore("left", Duration.ofHours(2), Duration.ofHours(2), true), Stores.inMemoryWindowStore("right", Duration.ofHours(2), Duration.ofHours(2), true))
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withOtherValueSerde(Serdes.String()))
            .to(a[5], Produced.with(Serdes.String(), Serdes.String()));
        var settings = Check.with("application.id", a[0], "processing.guarantee", "exactly_once_v2", "commit.interval.ms", 50, "statestore.cache.max.bytes", 0,
            "state.dir", Path.of(System.getenv("INTEROP_STATE"), "streams").toString(), "replication.factor", 1, "num.stream.threads", 1,
            "consumer.auto.offset.reset", "earliest", "consumer.session.timeout.ms", 6000, "consumer.heartbeat.interval.ms", 500);
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(why -> {
            why.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        TimeUnit.MINUTES.sleep(10);
    }
}
