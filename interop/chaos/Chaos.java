// Kafka's own clients in a round of chaos: a transactional producer, and a consumer of what is committed. How it tells what it
// does is at the head of chaos/src/record.rs.

import java.io.*;
import java.net.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Chaos {
    static final String TOPIC = "chaos";
    static final int PARTITIONS = 4;
    static final AtomicBoolean over = new AtomicBoolean();
    static String broker, recorder;

    static class Recorder {
        final BufferedReader in;
        final OutputStream out;
        long number;

        Recorder() throws IOException {
            var at = recorder.lastIndexOf(':');
            var socket = new Socket(recorder.substring(0, at), Integer.parseInt(recorder.substring(at + 1)));
            socket.setTcpNoDelay(true);
            in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            out = socket.getOutputStream();
        }

        synchronized long start() throws IOException {
            number++;
            out.write(("S " + number + "\n").getBytes());
            if (Long.parseLong(in.readLine()) != number) throw new IOException("the recorder answers something else");
            return number;
        }

        synchronized void end(long stamp, int process, String outcome, String what) {
            try {
                out.write(("E " + stamp + " " + process + " " + outcome + " " + what + "\n").getBytes());
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        synchronized void trouble(String what) throws IOException {
            out.write(("T 0 " + what.replace('\n', ' ') + "\n").getBytes());
        }
    }

    static KafkaProducer<String, String> producer(int process) {
        var producer = new KafkaProducer<>(Map.of("bootstrap.servers", broker, "transactional.id", "java-" + process, "linger.ms", 0,
            "transaction.timeout.ms", 300_000, "delivery.timeout.ms", 60_000, "request.timeout.ms", 6_000, "reconnect.backoff.max.ms", 200),
            new StringSerializer(), new StringSerializer());
        while (true) {
            try {
                producer.initTransactions();
                return producer;
            } catch (TimeoutException again) {
                if (over.get()) return producer;
            }
        }
    }

    static void write(int process, long seed) throws Exception {
        var recorder = new Recorder();
        var dice = new Random(seed);
        var producer = producer(process);
        for (long number = 1; !over.get(); number++) {
            recorder.end(recorder.start(), process, "ok", "begin " + number);
            long stamp = -1;
            try {
                producer.beginTransaction();
                for (int index = 0, records = 1 + dice.nextInt(8); index < records; index++) {
                    long value = (long) process << 48 | number << 16 | index, sent = recorder.start();
                    int partition = dice.nextInt(PARTITIONS);
                    producer.send(new ProducerRecord<>(TOPIC, partition, null, Long.toString(value)), (meta, error) -> {
                        if (error == null) recorder.end(sent, process, "ok", "send " + partition + " " + value + " " + meta.offset());
                        else recorder.end(sent, process, "unknown", "send " + partition + " " + value + " -1");
                    });
                }
                boolean commit = dice.nextInt(4) != 0;
                if (!commit) producer.flush();
                stamp = recorder.start();
                while (true) {
                    try {
                        if (commit) producer.commitTransaction(); else producer.abortTransaction();
                        break;
                    } catch (TimeoutException again) {
                        if (over.get()) throw again;
                    }
                }
                recorder.end(stamp, process, "ok", (commit ? "commit " : "abort ") + number);
            } catch (KafkaException error) {
                recorder.end(stamp < 0 ? recorder.start() : stamp, process, "unknown", "commit " + number);
                producer.close(Duration.ZERO);
                producer = producer(process);
            }
        }
        producer.close(Duration.ofSeconds(20));
    }

    static void read(int process) throws Exception {
        var recorder = new Recorder();
        var consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", broker, "isolation.level", "read_committed", "enable.auto.commit", false,
            "auto.offset.reset", "none", "fetch.max.wait.ms", 50, "reconnect.backoff.max.ms", 200), new StringDeserializer(), new StringDeserializer());
        var partitions = new ArrayList<TopicPartition>();
        for (int n = 0; n < PARTITIONS; n++) partitions.add(new TopicPartition(TOPIC, n));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        long[] position = new long[PARTITIONS], stamps = new long[PARTITIONS];
        while (!over.get()) {
            for (int n = 0; n < PARTITIONS; n++) stamps[n] = recorder.start();
            ConsumerRecords<String, String> found;
            try {
                found = consumer.poll(Duration.ofMillis(100));
            } catch (org.apache.kafka.clients.consumer.InvalidOffsetException error) {
                recorder.trouble("Java's consumer: " + error);
                return;
            }
            for (var at : found.partitions()) {
                int n = at.partition();
                var what = new StringBuilder();
                long next = position[n];
                for (var record : found.records(at)) {
                    what.append(' ').append(record.offset()).append(':').append(record.value());
                    next = record.offset() + 1;
                }
                recorder.end(stamps[n], process, "ok", "poll " + n + " " + position[n] + " " + next + " 0" + what);
                position[n] = next;
            }
        }
        consumer.close();
    }

    interface Act { void run() throws Exception; }

    static Thread go(Act act) {
        var thread = new Thread(() -> {
            try {
                act.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    public static void main(String[] a) throws Exception {
        broker = a[0];
        recorder = a[1];
        int first = Integer.parseInt(a[3]);
        var threads = List.of(go(() -> write(first, Long.parseLong(a[2]))), go(() -> read(first + 1)));
        while (System.in.read() >= 0) { }
        over.set(true);
        for (var thread : threads) thread.join(80_000);
        System.exit(threads.stream().anyMatch(Thread::isAlive) ? 1 : 0);
    }
}
