import java.util.*;
import java.util.concurrent.Callable;

/** What the checks share: running them, comparing, the broker's kill switch. */
final class Check {
    static final String BOOTSTRAP = System.getenv("INTEROP_BOOTSTRAP");
    static int made = 0;
    private static int failed = 0;

    interface Body { void run() throws Exception; }

    static void check(String what, Body body) {
        String only = System.getenv("INTEROP_ONLY");
        if (only != null && !what.contains(only)) return;
        String skip = System.getenv("INTEROP_SKIP");
        if (skip != null && Arrays.stream(skip.split("\\|")).anyMatch(words -> !words.isEmpty() && what.contains(words))) {
            System.out.println("    skipped " + what);
            return;
        }
        long began = System.nanoTime();
        try {
            body.run();
            System.out.printf("    ok      %s (%.1f s)%n", what, (System.nanoTime() - began) / 1e9);
        } catch (Throwable why) {
            failed++;
            System.out.println("    FAILED  " + what);
            why.printStackTrace(System.out);
        }
    }

    /** Kafka answers a change of topics before its broker has heard of it. */
    static void heardOf() throws InterruptedException { if ("kafka".equals(System.getenv("INTEROP_AGAINST"))) Thread.sleep(500); }

    static void end() { System.exit(failed > 0 ? 1 : 0); }

    static synchronized String fresh(String name) { return name + "-" + ProcessHandle.current().pid() + "-" + made++; }

    static <T> void equal(List<T> found, List<T> expected, String what) {
        if (found.equals(expected)) return;
        int at = 0;
        while (at < found.size() && at < expected.size() && Objects.equals(found.get(at), expected.get(at))) at++;
        throw new AssertionError(what + ": " + found.size() + " found, " + expected.size() + " expected; they part at " + at + ": found "
            + found.subList(at, Math.min(at + 5, found.size())) + ", expected " + expected.subList(at, Math.min(at + 5, expected.size())));
    }

    static void that(boolean holds, String what) { if (!holds) throw new AssertionError(what); }

    static void waitFor(Callable<Boolean> condition, int seconds, String what) throws Exception {
        for (long until = System.nanoTime() + seconds * 1_000_000_000L; !condition.call(); Thread.sleep(50))
            that(System.nanoTime() < until, "never: " + what);
    }

    static void broker(String command) throws Exception {
        List<String> words = new ArrayList<>(List.of(System.getenv("INTEROP_BROKER").split(" ")));
        words.add(command);
        that(new ProcessBuilder(words).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor() == 0, "broker " + command);
    }

    /** Every batch of partition 0 lies on the broker's disk under that codec: what is read back doesn't show it. */
    static void storedAs(String codec, String topic) throws Exception {
        List<String> words = new ArrayList<>(List.of(System.getenv("INTEROP_STORED").split(" ")));
        words.addAll(List.of(topic, "0"));
        Process process = new ProcessBuilder(words).redirectErrorStream(true).start();
        List<String> lines = new String(process.getInputStream().readAllBytes()).lines().toList();
        that(process.waitFor() == 0 && !lines.isEmpty(), "the stored batches: " + lines);
        equal(lines.stream().map(line -> line.split(" ")[1]).distinct().toList(), List.of(codec), "codecs of the stored batches sent under " + codec);
    }

    static Properties with(Object... pairs) {
        Properties made = new Properties();
        made.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < pairs.length; i += 2) made.put(pairs[i], pairs[i + 1].toString());
        return made;
    }
}
