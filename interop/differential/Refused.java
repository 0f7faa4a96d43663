import static org.apache.kafka.common.protocol.ApiKeys.*;

import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.Consumer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.utils.Crc32C;

/** What is to be refused of producers: batches that are no batches, sequences, transactions that are asked for what they can't do. */
final class Refused {
    private static final String T = "refused";
    private final Requests to;

    Refused(Requests to) { this.to = to; }

    void script() throws Exception {
        to.create(T, 3);
        to.create("refused-batches", 1);
        to.create("refused-compacted", 1, "cleanup.policy", "compact");
        batches();
        sequences();
        firsts();
        versionOne();
        versionTwo();
        operators();
    }

    // --- batches ---

    private static MemoryRecords plain(String... values) {
        return MemoryRecords.withRecords(Compression.NONE, Arrays.stream(values).map(v -> new SimpleRecord(Requests.BASE, "k".getBytes(), v.getBytes())).toArray(SimpleRecord[]::new));
    }

    /** A batch whose bytes were changed; its checksum is made right again, unless that is what was changed. */
    private static MemoryRecords changed(boolean checksum, Consumer<ByteBuffer> change) { return changed(plain("a", "b"), checksum, change); }

    private static MemoryRecords changed(MemoryRecords of, boolean checksum, Consumer<ByteBuffer> change) {
        var bytes = of.buffer().duplicate();
        var copy = ByteBuffer.allocate(bytes.remaining());
        copy.put(bytes).flip();
        change.accept(copy);
        if (checksum) copy.putInt(17, (int) Crc32C.compute(copy, 21, copy.limit() - 21));
        return MemoryRecords.readableRecords(copy);
    }

    private void batch(String what, MemoryRecords records) { batch(what, 9, records); }

    private void batch(String what, int version, MemoryRecords records) {
        to.say("batches: " + what, "p", version, PRODUCE, Requests.produce(null, "refused-batches", 0, -1, records));
    }

    private void batches() {
        batch("a good one", changed(true, b -> { }));
        batch("a wrong checksum", changed(false, b -> b.put(b.limit() - 1, (byte) 7)));
        for (int magic : List.of(0, 1, 3, -1)) batch("magic " + magic, changed(true, b -> b.put(16, (byte) magic)));
        for (int codec : List.of(5, 6, 7)) batch("codec " + codec, changed(true, b -> b.putShort(21, (short) codec)));
        batch("compressed, says the head", changed(true, b -> b.putShort(21, (short) 1)));
        batch("the time of the log", changed(true, b -> b.putShort(21, (short) 8)));
        batch("transactional, by nobody", changed(true, b -> b.putShort(21, (short) 16)));
        batch("a control batch", changed(true, b -> b.putShort(21, (short) 32)));
        batch("bits nobody has", changed(true, b -> b.putShort(21, (short) 0x4000)));
        batch("more records than there are", changed(true, b -> b.putInt(57, 3)));
        batch("fewer records than there are", changed(true, b -> b.putInt(57, 1)));
        batch("no records", changed(true, b -> b.putInt(57, 0)));
        batch("a last offset too high", changed(true, b -> b.putInt(23, 5)));
        batch("a last offset too low", changed(true, b -> b.putInt(23, 0)));
        batch("a base offset", changed(true, b -> b.putLong(0, 77)));
        batch("a leader epoch", changed(true, b -> b.putInt(12, 77)));
        batch("longer than it is", changed(true, b -> b.putInt(8, b.limit())));
        batch("shorter than it is", changed(true, b -> b.putInt(8, b.limit() - 20)));
        batch("a length below 0", changed(true, b -> b.putInt(8, -5)));
        batch("a record's length too great", changed(true, b -> b.put(61, (byte) 126)));
        batch("a record's length below 0", changed(true, b -> b.put(61, (byte) 5)));
        batch("a key longer than the record", changed(true, b -> b.put(65, (byte) 120)));
        batch("an offset in the wrong order", changed(true, b -> b.put(64, (byte) 8)));
        batch("half a head", MemoryRecords.readableRecords(ByteBuffer.wrap(new byte[30])));
        batch("no bytes", MemoryRecords.EMPTY);
        batch("null", null);
        var two = ByteBuffer.allocate(1000);
        two.put(plain("a").buffer().duplicate()).put(plain("b").buffer().duplicate()).flip();
        batch("two batches", MemoryRecords.readableRecords(two));
        for (int version : List.of(3, 7)) batch("zstd", version, MemoryRecords.withRecords(Compression.zstd().build(), new SimpleRecord(Requests.BASE, null, "z".getBytes())));
        batch("a time before 1970", changed(true, b -> b.putLong(27, -5).putLong(35, -5)));
        batch("a greatest time that no record has", changed(true, b -> b.putLong(35, Requests.BASE + 77)));
        batch("no time", MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(-1L, null, "z".getBytes())));
        batch("a time in two hours", MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(System.currentTimeMillis() + 7_200_000, null, "z".getBytes())));
        batch("twenty megabytes", MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(Requests.BASE, null, new byte[20_000_000])));
        batch("null and empty", MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(Requests.BASE, (byte[]) null, null), new SimpleRecord(Requests.BASE, new byte[0], new byte[0])));
        to.say("batches: no key, compacted", "p", 9, PRODUCE, Requests.produce(null, "refused-compacted", 0, -1, MemoryRecords.withRecords(Compression.NONE, new SimpleRecord(Requests.BASE, "k".getBytes(), "v".getBytes()),
            new SimpleRecord(Requests.BASE, null, "v".getBytes()), new SimpleRecord(Requests.BASE, null, "v".getBytes()))));
        to.say("batches: a key, compacted", "p", 9, PRODUCE, Requests.produce(null, "refused-compacted", 0, -1, plain("v")));
        for (String topic : List.of("no name at all", "", ".", "nowhere")) to.say("batches: to '" + topic + "'", "p", 9, PRODUCE, Requests.produce(null, topic, 0, -1, plain("v")));
        for (int acks : List.of(-2, 2, 3)) to.say("batches: acks " + acks, "p", 9, PRODUCE, Requests.produce(null, T, 0, acks, plain("v")));
        to.say("batches: to partition -1", "p", 9, PRODUCE, Requests.produce(null, T, -1, -1, plain("v")));
        to.say("batches: nothing to nobody", "p", 9, PRODUCE, "{acks: -1, timeoutMs: 1000, topicData: []}");
    }

    // --- sequences ---

    private long producer() throws Exception { return ((InitProducerIdResponse) to.ask("p", (short) 4, INIT_PRODUCER_ID, Requests.init(null, -1, -1))).data().producerId(); }

    private void sequence(String what, long pid, int epoch, int sequence, int count) {
        var records = Collections.nCopies(count, new SimpleRecord(Requests.BASE, null, "s".getBytes())).toArray(SimpleRecord[]::new);
        // Kafka's classes don't write what isn't to be.
        var batch = changed(MemoryRecords.withRecords(Compression.NONE, records), true, b -> b.putLong(43, pid).putShort(51, (short) epoch).putInt(53, sequence));
        to.say("sequences: " + what, "p", 9, PRODUCE, Requests.produce(null, T, 1, -1, batch));
    }

    private void sequences() throws Exception {
        long p = producer();
        for (int i = 0; i < 7; i++) sequence("batch " + i, p, 0, 2 * i, 2);
        for (int i = 6; i >= 0; i--) sequence("batch " + i + " again", p, 0, 2 * i, 2);
        sequence("the last batch, longer", p, 0, 12, 3);
        sequence("two that are there as one", p, 0, 10, 4);
        sequence("half of one and more", p, 0, 13, 2);
        sequence("the next but one", p, 0, 15, 1);
        sequence("an epoch skipped", p, 3, 0, 1);
        sequence("and its next", p, 3, 1, 1);
        sequence("the epoch between", p, 2, 0, 1);
        sequence("the first of all again", p, 0, 0, 2);
        sequence("no sequence", p, 3, -1, 1);
        sequence("no epoch", p, -1, 2, 1);
        sequence("no producer", -1, 0, 0, 1);
        sequence("a producer nobody was given", p + 1_000_000, 0, 0, 1);
        sequence("a producer nobody was given, at 5", p + 2_000_000, 5, 5, 1);
        long q = producer();
        sequence("the last sequences of all", q, 0, Integer.MAX_VALUE - 1, 4);
        sequence("go on at 2", q, 0, 2, 1);
        sequence("not at 4", q, 0, 4, 1);
    }

    // --- the first answer ---

    private void init(String what, int version, String fields) { to.say("begins: " + what, "p", version, INIT_PRODUCER_ID, fields); }

    private void firsts() {
        for (int version : List.of(4, 5)) {
            for (int timeout : List.of(-1, 0, 1, 86_400_000, 86_400_001, Integer.MAX_VALUE)) init("a time-out of " + timeout, version, "{transactionalId: 'refused-timeout', transactionTimeoutMs: " + timeout + "}");
            init("a time-out of nobody", version, "{transactionalId: null, transactionTimeoutMs: 2147483647}");
            init("a time-out below 0 of nobody", version, "{transactionalId: null, transactionTimeoutMs: -5}");
            init("an empty id", version, "{transactionalId: '', transactionTimeoutMs: 1000}");
            init("a producer without an epoch", version, "{transactionalId: 'refused-half', transactionTimeoutMs: 1000, producerId: 5, producerEpoch: -1}");
            init("an epoch without a producer", version, "{transactionalId: 'refused-half', transactionTimeoutMs: 1000, producerId: -1, producerEpoch: 5}");
            init("a producer that isn't its", version, "{transactionalId: 'refused-half', transactionTimeoutMs: 1000, producerId: 123456, producerEpoch: 0}");
            init("a producer of nobody", version, "{transactionalId: null, transactionTimeoutMs: 1000, producerId: 123456, producerEpoch: 3}");
        }
    }

    // --- transactions, version 1: partitions are added ---

    private static MemoryRecords in(long pid, int epoch, int sequence) {
        return MemoryRecords.withTransactionalRecords(Compression.NONE, pid, (short) epoch, sequence, new SimpleRecord(Requests.BASE, null, "t".getBytes()));
    }

    private void produce(String what, String connection, int version, String id, int partition, long pid, int epoch, int sequence) {
        to.say(what, connection, version, PRODUCE, Requests.produce(id, T, partition, -1, in(pid, epoch, sequence)));
    }

    private static String offsets(String id, String group, long pid, int epoch, String more) {
        return "{transactionalId: '" + id + "', groupId: '" + group + "', producerId: " + pid + ", producerEpoch: " + epoch + more
            + ", topics: [{name: '" + T + "', partitions: [{partitionIndex: 0, committedOffset: 4, committedMetadata: 'm'}]}]}";
    }

    private static String addOffsets(String id, String group, long pid, int epoch) {
        return "{transactionalId: '" + id + "', groupId: '" + group + "', producerId: " + pid + ", producerEpoch: " + epoch + "}";
    }

    private void versionOne() throws Exception {
        String id = "refused-one", other = "refused-other";
        long p = ((InitProducerIdResponse) to.say("v1: begins", "q", 4, INIT_PRODUCER_ID, Requests.init(id, -1, -1))).data().producerId();
        long o = ((InitProducerIdResponse) to.say("v1: another begins", "q", 4, INIT_PRODUCER_ID, Requests.init(other, -1, -1))).data().producerId();
        to.say("v1: ends what nobody began", "q", 3, END_TXN, Requests.end("refused-nobody", p, 0, true));
        to.say("v1: ends under an empty id", "q", 3, END_TXN, Requests.end("", p, 0, true));
        to.say("v1: ends another's", "q", 3, END_TXN, Requests.end(id, o, 0, true));
        to.say("v1: ends in an epoch to come", "q", 3, END_TXN, Requests.end(id, p, 1, false));
        to.say("v1: aborts nothing", "q", 3, END_TXN, Requests.end(id, p, 0, false));
        to.say("v1: adds", "q", 3, ADD_PARTITIONS_TO_TXN, Requests.add(id, p, 0, T, 0));
        to.say("v1: adds one that is and one that isn't", "q", 3, ADD_PARTITIONS_TO_TXN, Requests.add(id, p, 0, T, 1, 9));
        to.say("v1: adds under an empty id", "q", 3, ADD_PARTITIONS_TO_TXN, Requests.add("", p, 0, T, 1));
        to.say("v1: adds nothing", "q", 3, ADD_PARTITIONS_TO_TXN, "{v3AndBelowTransactionalId: '" + id + "', v3AndBelowProducerId: " + p + ", v3AndBelowProducerEpoch: 0, v3AndBelowTopics: []}");
        produce("v1: writes", "q", 9, id, 0, p, 0, 0);
        produce("v1: writes where it didn't add", "q", 9, id, 2, p, 0, 0);
        produce("v1: writes another's batch under its id", "q", 9, id, 0, o, 0, 0);
        // A repeated one, so that nothing more is there if it is taken.
        produce("v1: writes its batch under another's id", "q", 9, other, 0, p, 0, 0);
        produce("v1: writes without an id", "q", 9, null, 0, p, 0, 1);
        to.say("v1: writes without a transaction, as itself", "q", 9, PRODUCE, Requests.produce(id, T, 0, -1, MemoryRecords.withIdempotentRecords(Compression.NONE, p, (short) 0, 1, new SimpleRecord(Requests.BASE, null, "n".getBytes()))));
        produce("v1: writes on", "q", 9, id, 0, p, 0, 1);
        to.say("v1: writes with acks 1", "q", 9, PRODUCE, Requests.produce(id, T, 0, 1, in(p, 0, 2)));
        produce("v1: leaves a gap", "q", 9, id, 0, p, 0, 5);
        produce("v1: writes in an epoch to come", "q", 9, id, 0, p, 1, 0);
        to.say("v1: offsets before their group", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 0, ""));
        to.say("v1: no group", "q", 3, ADD_OFFSETS_TO_TXN, addOffsets(id, "", p, 0));
        to.say("v1: a group for nobody", "q", 3, ADD_OFFSETS_TO_TXN, addOffsets("refused-nobody", "g", p, 0));
        to.say("v1: a group for another", "q", 3, ADD_OFFSETS_TO_TXN, addOffsets(id, "g", o, 0));
        to.say("v1: a group in an epoch to come", "q", 3, ADD_OFFSETS_TO_TXN, addOffsets(id, "g", p, 9));
        to.say("v1: a group", "q", 3, ADD_OFFSETS_TO_TXN, addOffsets(id, "refused-g", p, 0));
        to.say("v1: offsets of a generation without members", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 0, ", memberId: 'm', generationId: 3"));
        to.say("v1: offsets of a member without a generation", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 0, ", memberId: 'm'"));
        to.say("v1: offsets of a generation without a member", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 0, ", generationId: 3"));
        to.say("v1: offsets of an instance", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 0, ", memberId: 'm', generationId: 3, groupInstanceId: 'i'"));
        to.say("v1: offsets in an epoch to come", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 1, ""));
        to.say("v1: offsets of another", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", o, 0, ""));
        to.say("v1: offsets for no group", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "", p, 0, ""));
        to.say("v1: offsets", "q", 3, TXN_OFFSET_COMMIT, offsets(id, "refused-g", p, 0, ""));
        to.say("v1: they wait", "q", 8, OFFSET_FETCH, "{requireStable: true, groups: [{groupId: 'refused-g', topics: [{name: '" + T + "', partitionIndexes: [0]}]}]}");
        to.say("v1: the group can't go", "q", 2, DELETE_GROUPS, "{groupsNames: ['refused-g']}");
        to.say("v1: described", "q", 0, DESCRIBE_TRANSACTIONS, "{transactionalIds: ['" + id + "', '" + other + "', 'refused-nobody', '']}");
        to.say("v1: its producers", "q", 0, DESCRIBE_PRODUCERS, "{topics: [{name: '" + T + "', partitionIndexes: [0, 2, 7]}, {name: 'nowhere', partitionIndexes: [0]}]}");
        for (int version : List.of(0, 1)) {
            to.say("v1: listed, going on", "q", version, LIST_TRANSACTIONS, "{stateFilters: ['Ongoing']}");
            to.say("v1: listed in a state nobody knows", "q", version, LIST_TRANSACTIONS, "{stateFilters: ['Ongoing', 'Wrong', 'ongoing']}");
            to.say("v1: listed by producer", "q", version, LIST_TRANSACTIONS, "{producerIdFilters: [" + o + ", 123456]}");
        }
        for (String state : List.of("PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence")) to.say("v1: listed in " + state, "q", 0, LIST_TRANSACTIONS, "{stateFilters: ['" + state + "']}");
        to.say("v1: listed, of an hour", "q", 1, LIST_TRANSACTIONS, "{durationFilter: 3600000}");
        to.say("v1: listed, of a moment", "q", 1, LIST_TRANSACTIONS, "{durationFilter: 0}");
        for (String pattern : List.of("refused-o.*", "refused-one", "fused-o", "refused-[", "", "(refused)-(one|two)")) to.say("v2: listed by " + pattern, "q", 2, LIST_TRANSACTIONS, "{transactionalIdPattern: '" + pattern + "'}");
        to.say("v1: commits", "q", 3, END_TXN, Requests.end(id, p, 0, true));
        Thread.sleep(500);
        to.say("v1: commits again", "q", 3, END_TXN, Requests.end(id, p, 0, true));
        to.say("v1: aborts what was committed", "q", 3, END_TXN, Requests.end(id, p, 0, false));
        produce("v1: writes after the end", "q", 9, id, 0, p, 0, 3);
        to.say("v1: described at last", "q", 0, DESCRIBE_TRANSACTIONS, "{transactionalIds: ['" + id + "']}");
        to.say("v1: its producers at last", "q", 0, DESCRIBE_PRODUCERS, "{topics: [{name: '" + T + "', partitionIndexes: [0]}]}");
        to.say("v1: the group goes", "q", 2, DELETE_GROUPS, "{groupsNames: ['refused-g']}");
    }

    // --- transactions, version 2: what is written is added ---

    private void versionTwo() throws Exception {
        String id = "refused-two";
        long p = ((InitProducerIdResponse) to.say("v2: begins", "s", 5, INIT_PRODUCER_ID, Requests.init(id, -1, -1))).data().producerId();
        to.say("v2: aborts nothing", "s", 5, END_TXN, Requests.end(id, p, 0, false));
        Thread.sleep(500);
        produce("v2: writes in the epoch before", "s", 12, id, 2, p, 0, 0);
        produce("v2: writes in an epoch to come", "s", 12, id, 2, p, 9, 0);
        produce("v2: writes", "s", 12, id, 2, p, 1, 0);
        produce("v2: writes again", "s", 12, id, 2, p, 1, 0);
        produce("v2: leaves a gap", "s", 12, id, 2, p, 1, 7);
        produce("v2: writes under another id", "s", 12, "refused-nobody", 2, p, 1, 0);
        to.say("v2: offsets of a generation without members", "s", 5, TXN_OFFSET_COMMIT, offsets(id, "refused-h", p, 1, ", memberId: 'm', generationId: 3"));
        to.say("v2: offsets in the epoch before", "s", 5, TXN_OFFSET_COMMIT, offsets(id, "refused-h", p, 0, ""));
        to.say("v2: offsets", "s", 5, TXN_OFFSET_COMMIT, offsets(id, "refused-h", p, 1, ""));
        to.say("v2: ends in the epoch before", "s", 5, END_TXN, Requests.end(id, p, 0, true));
        to.say("v2: commits", "s", 5, END_TXN, Requests.end(id, p, 1, true));
        Thread.sleep(500);
        to.say("v2: commits again", "s", 5, END_TXN, Requests.end(id, p, 1, true));
        to.say("v2: aborts what was committed", "s", 5, END_TXN, Requests.end(id, p, 1, false));
        to.say("v2: its producers", "s", 0, DESCRIBE_PRODUCERS, "{topics: [{name: '" + T + "', partitionIndexes: [2]}]}");
        produce("v2: goes on", "s", 12, id, 2, p, 2, 0);
        // Kafka ends what the one before left open first, and says try again meanwhile.
        for (int i = 0; i < 50 && ((InitProducerIdResponse) to.ask("s", (short) 5, INIT_PRODUCER_ID, Requests.init(id, -1, -1))).data().errorCode() == 51; i++) Thread.sleep(50);
        to.say("v2: another starts", "s", 5, INIT_PRODUCER_ID, Requests.init(id, -1, -1));
        produce("v2: the one before writes", "s", 12, id, 2, p, 2, 1);
        to.say("v2: the one before commits", "s", 5, END_TXN, Requests.end(id, p, 2, true));
        to.say("v2: all of it", "s", 11, FETCH, Requests.fetch(T, 2, 0, true));
    }

    // --- an operator ends a transaction ---

    private void operators() throws Exception {
        String id = "refused-hanging";
        long p = ((InitProducerIdResponse) to.say("ended: begins", "t", 4, INIT_PRODUCER_ID, Requests.init(id, -1, -1))).data().producerId();
        to.say("ended: adds", "t", 3, ADD_PARTITIONS_TO_TXN, Requests.add(id, p, 0, T, 0));
        produce("ended: writes", "t", 9, id, 0, p, 0, 0);
        String marker = "{markers: [{producerId: %d, producerEpoch: %d, transactionResult: false, coordinatorEpoch: %d, topics: [{name: '%s', partitionIndexes: [%d]}]}]}";
        to.say("ended: where there is no partition", "t", 1, WRITE_TXN_MARKERS, marker.formatted(p, 0, 0, T, 9));
        to.say("ended: in an epoch before", "t", 1, WRITE_TXN_MARKERS, marker.formatted(p, -1, 0, T, 0));
        to.say("ended: by an operator", "t", 1, WRITE_TXN_MARKERS, marker.formatted(p, 0, 0, T, 0));
        to.say("ended: nothing left open", "t", 11, FETCH, Requests.fetch(T, 0, 0, true));
    }
}
