import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.utils.Exit;

/** The classes behind Kafka's shell scripts, each called in this process as its script would call it, what it prints compared. */
final class Tools {
    static final String TOOLS = "org.apache.kafka.tools.";

    private static final class Exited extends RuntimeException {}

    /** Runs a tool's main: what it printed on standard output. */
    static String run(String stdin, String tool, String... arguments) throws Exception {
        PrintStream out = System.out, err = System.err;
        InputStream in = System.in;
        var said = new ByteArrayOutputStream();
        var complained = new ByteArrayOutputStream();
        // The first one counts: tools catch what we throw to leave them, and exit again.
        List<Integer> codes = new ArrayList<>();
        Exit.Procedure leave = (code, message) -> { codes.add(code); throw new Exited(); };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        try {
            System.setOut(new PrintStream(said, true));
            System.setErr(new PrintStream(complained, true));
            System.setIn(new ByteArrayInputStream(stdin.getBytes()));
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException e) {
            if (!(e.getCause() instanceof Exited)) throw e;
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
        }
        if (!codes.isEmpty() && codes.get(0) != 0) throw new AssertionError(tool + " " + List.of(arguments) + " ended with " + codes.get(0) + ": " + said + complained);
        return said.toString();
    }

    /** Runs a tool in a process of its own: some have their last word when that ends. */
    static String child(String tool, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", System.getProperty("java.class.path"), tool));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes());
        if (process.waitFor() != 0) throw new AssertionError(tool + " " + List.of(arguments) + " ended with " + process.exitValue() + ": " + said);
        return said;
    }

    static void contains(String said, String... words) {
        for (String word : words) Check.that(said.contains(word), "'" + word + "' is not in: " + said);
    }

    static void all() throws Exception {
        String topic = Check.fresh("tools"), group = Check.fresh("group"), at = Check.BOOTSTRAP;
        run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=7200000");
        Check.heardOf();
        contains(run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--describe", "--topic", topic), "PartitionCount: 2", "ReplicationFactor: 1", "retention.ms=7200000", "Leader: 1");
        contains(run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--list"), topic);
        run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--alter", "--topic", topic, "--partitions", "3");
        Check.heardOf();
        contains(run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--describe", "--topic", topic), "PartitionCount: 3");

        StringBuilder lines = new StringBuilder();
        List<String> expected = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            lines.append("key-").append(i).append(":value ").append(i).append('\n');
            expected.add("key-" + i + "\tvalue " + i);
        }
        run(lines.toString(), TOOLS + "ConsoleProducer", "--bootstrap-server", at, "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:");
        String read = run("", TOOLS + "consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", topic, "--from-beginning", "--group", group, "--max-messages", "50",
            "--timeout-ms", "20000", "--property", "print.key=true", "--isolation-level", "read_committed");
        Check.equal(read.lines().sorted().toList(), expected.stream().sorted().toList(), "console producer to console consumer");

        String groups = TOOLS + "consumer.group.ConsumerGroupCommand";
        contains(run("", groups, "--bootstrap-server", at, "--list"), group);
        String described = run("", groups, "--bootstrap-server", at, "--describe", "--group", group);
        Check.equal(List.of(described.lines().filter(l -> l.startsWith(group)).mapToInt(l -> Integer.parseInt(l.split(" +")[3])).sum()), List.of(50), "committed: " + described);
        Check.equal(List.of(described.lines().filter(l -> l.startsWith(group)).mapToInt(l -> Integer.parseInt(l.split(" +")[5])).sum()), List.of(0), "lag: " + described);
        contains(run("", groups, "--bootstrap-server", at, "--describe", "--group", group, "--state"), "Empty");
        run("", groups, "--bootstrap-server", at, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute");
        described = run("", groups, "--bootstrap-server", at, "--describe", "--group", group);
        Check.equal(List.of(described.lines().filter(l -> l.startsWith(group)).mapToInt(l -> Integer.parseInt(l.split(" +")[5])).sum()), List.of(50), "lag after the reset: " + described);
        contains(run("", groups, "--bootstrap-server", at, "--delete-offsets", "--group", group, "--topic", topic), "Successful");
        contains(run("", groups, "--bootstrap-server", at, "--delete", "--group", group), "successful");

        String ends = run("", TOOLS + "GetOffsetShell", "--bootstrap-server", at, "--topic", topic);
        Check.equal(List.of(ends.lines().mapToInt(l -> Integer.parseInt(l.split(":")[2])).sum()), List.of(50), "get-offsets: " + ends);
        long first = Long.parseLong(ends.lines().filter(l -> l.startsWith(topic + ":0:")).findFirst().orElseThrow().split(":")[2]);
        Path json = Files.createTempFile("delete", ".json");
        Files.writeString(json, "{\"partitions\":[{\"topic\":\"" + topic + "\",\"partition\":0,\"offset\":" + first + "}],\"version\":1}");
        contains(run("", TOOLS + "DeleteRecordsCommand", "--bootstrap-server", at, "--offset-json-file", json.toString()), "low_watermark: " + first);
        Files.delete(json);
        contains(run("", TOOLS + "GetOffsetShell", "--bootstrap-server", at, "--topic", topic, "--time", "earliest"), topic + ":0:" + first, topic + ":1:0");

        String dirs = run("", TOOLS + "LogDirsCommand", "--bootstrap-server", at, "--describe", "--topic-list", topic);
        contains(dirs, "\"partition\":\"" + topic + "-0\"", "\"partition\":\"" + topic + "-1\"", "\"error\":null", "\"isFuture\":false");
        Check.that(!dirs.contains("\"size\":0,"), "both partitions have bytes: " + dirs);

        run("", "kafka.admin.ConfigCommand", "--bootstrap-server", at, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.bytes=1000000");
        Check.heardOf();
        contains(run("", "kafka.admin.ConfigCommand", "--bootstrap-server", at, "--describe", "--entity-type", "topics", "--entity-name", topic), "retention.bytes=1000000", "retention.ms=7200000");
        run("", "kafka.admin.ConfigCommand", "--bootstrap-server", at, "--alter", "--entity-type", "topics", "--entity-name", topic, "--delete-config", "retention.bytes");

        String id = Check.fresh("hanging");
        var hanging = Clients.producer("transactional.id", id);
        hanging.initTransactions();
        hanging.beginTransaction();
        Clients.now(hanging.send(new ProducerRecord<>(topic, 1, null, "never committed")));
        long start = Clients.read(topic, 3, "read_uncommitted").get(1).stream().filter(r -> r.value().equals("never committed")).findFirst().orElseThrow().offset();
        String transactions = TOOLS + "TransactionsCommand";
        contains(run("", transactions, "--bootstrap-server", at, "list"), id, "Ongoing");
        contains(run("", transactions, "--bootstrap-server", at, "describe", "--transactional-id", id), topic + "-1", "Ongoing");
        contains(run("", transactions, "--bootstrap-server", at, "describe-producers", "--topic", topic, "--partition", "1"), "" + start);
        run("", transactions, "--bootstrap-server", at, "abort", "--topic", topic, "--partition", "1", "--start-offset", "" + start);
        Check.that(Clients.values(topic, 3, "read_committed").get(1).stream().noneMatch("never committed"::equals), "aborted by the tool");
        hanging.close(java.time.Duration.ZERO);

        String produced = child(TOOLS + "VerifiableProducer", "--bootstrap-server", at, "--topic", topic, "--max-messages", "200", "--acks", "-1");
        contains(produced, "\"acked\":200");
        String consumed = child(TOOLS + "VerifiableConsumer", "--bootstrap-server", at, "--topic", topic, "--group-id", Check.fresh("group"), "--max-messages", "200", "--reset-policy", "earliest");
        contains(consumed, "partitions_assigned", "offsets_committed", "shutdown_complete");

        run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--delete", "--topic", topic);
        Check.heardOf();
        Check.that(!run("", TOOLS + "TopicCommand", "--bootstrap-server", at, "--list").contains(topic), "deleted");
    }
}
