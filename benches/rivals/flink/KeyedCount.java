import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A running count over a million uniform keys in one local Flink: arguments are records, parallelism, and milliseconds between
 * checkpoints (0: none), and a directory for them. Prints one line, RESULT, about the second half of the records: code is compiled then and all
 * keys have been seen, so that neither the start of the JVM nor its warming up counts.
 */
public final class KeyedCount {
    private static final long KEYS = 1_000_000;
    private static final AtomicLong seen = new AtomicLong();
    private static final AtomicLong halfAt = new AtomicLong();
    private static final AtomicLong halfCpu = new AtomicLong();
    private static final AtomicLong endAt = new AtomicLong();
    private static final AtomicLong endCpu = new AtomicLong();

    private static long cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    /** SplitMix64's finaliser: record i has the same key in every run. */
    private static long key(long i) {
        long z = i + 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return Math.floorMod(z ^ (z >>> 31), KEYS);
    }

    /** The count of each key in keyed state; tells of its records by the thousand, so that telling costs nothing. */
    private static final class Count extends KeyedProcessFunction<Long, Long, Long> {
        private final long total;
        private transient ValueState<Long> count;
        private transient int untold;

        private Count(long total) {
            this.total = total;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Long key, Context context, Collector<Long> out) throws Exception {
            Long before = count.value();
            long now = before == null ? 1 : before + 1;
            count.update(now);
            out.collect(now);
            if (++untold == 1000) {
                untold = 0;
                long all = seen.addAndGet(1000);
                if (all >= total / 2 && halfAt.compareAndSet(0, System.nanoTime())) halfCpu.set(cpu());
                if (all >= total - 2000) {
                    endAt.set(System.nanoTime());
                    endCpu.set(cpu());
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[0]);
        int parallelism = Integer.parseInt(args[1]);
        long interval = Long.parseLong(args[2]);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.dir", "file://" + args[3]);
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("taskmanager.numberOfTaskSlots", args[1]);
        var environment = StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        environment.getConfig().enableObjectReuse();
        if (interval > 0) environment.enableCheckpointing(interval);
        environment
                .fromSequence(0, records - 1)
                .map(KeyedCount::key)
                .returns(Types.LONG)
                .keyBy(key -> key)
                .process(new Count(records))
                .sinkTo(new DiscardingSink<>());
        environment.execute("keyed count");
        double half = records - records / 2.0;
        System.out.printf(
                "RESULT %.1f %.2f%n",
                (endCpu.get() - halfCpu.get()) / half, half / (endAt.get() - halfAt.get()) * 1e3);
    }
}
