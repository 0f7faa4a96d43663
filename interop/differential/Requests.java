import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.regex.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.requests.*;

/**
 * One script of requests, sent over plain sockets in versions the script names, each answer decoded in full and printed, one line each.
 * Run against two brokers, the two transcripts must be equal but for what `explained.txt` lists. Names the brokers choose are given numbers in
 * the order they come up; times of the broker are blotted out.
 */
public final class Requests {
    private final String host;
    private final int port;
    private int correlation = 0;
    private final Map<String, Socket> connections = new HashMap<>();
    private final Map<Long, Integer> producers = new LinkedHashMap<>();

    Requests(String at) {
        host = at.split(":")[0];
        port = Integer.parseInt(at.split(":")[1]);
    }

    AbstractResponse ask(String connection, short version, ApiKeys key, Message body) throws IOException {
        Socket socket = connections.get(connection);
        if (socket == null) connections.put(connection, socket = new Socket(host, port));
        socket.setSoTimeout(15_000);
        var header = new RequestHeader(key, version, "differential", ++correlation);
        var cache = new ObjectSerializationCache();
        int size = header.data().size(cache, header.headerVersion()) + body.size(cache, version);
        var buffer = ByteBuffer.allocate(size);
        header.data().write(new ByteBufferAccessor(buffer), cache, header.headerVersion());
        body.write(new ByteBufferAccessor(buffer), cache, version);
        var out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(size);
        out.write(buffer.array());
        out.flush();
        var in = new DataInputStream(socket.getInputStream());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        var bytes = ByteBuffer.wrap(answer);
        ResponseHeader.parse(bytes, key.responseHeaderVersion(version));
        return AbstractResponse.parseResponse(key, new ByteBufferAccessor(bytes), version);
    }

    /** Asks, and prints the answer under a name. A closed connection is an answer too. */
    AbstractResponse say(String what, String connection, int version, ApiKeys key, Message body) {
        try {
            AbstractResponse answer = ask(connection, (short) version, key, body);
            System.out.println(what + " | " + key + " v" + version + " | " + show(answer));
            return answer;
        } catch (EOFException | java.net.SocketException e) {
            connections.remove(connection);
            System.out.println(what + " | " + key + " v" + version + " | connection closed");
        } catch (IOException e) {
            connections.remove(connection);
            System.out.println(what + " | " + key + " v" + version + " | " + e.getClass().getSimpleName());
        }
        return null;
    }

    /** The same, of a request told by its fields. */
    AbstractResponse say(String what, String connection, int version, ApiKeys key, String fields) { return say(what, connection, version, key, Make.request(key, fields)); }

    /** Makes a topic, and waits until it is known; settings are names and values by turns. */
    void create(String name, int partitions, String... settings) throws Exception {
        var configs = new StringBuilder();
        for (int i = 0; i < settings.length; i += 2) configs.append("{name: '").append(settings[i]).append("', value: '").append(settings[i + 1]).append("'},");
        if (settings.length > 0) configs.setLength(configs.length() - 1);
        ask("quiet", (short) 4, ApiKeys.CREATE_TOPICS, Make.request(ApiKeys.CREATE_TOPICS, "{timeoutMs: 10000, topics: [{name: '" + name + "', numPartitions: " + partitions + ", replicationFactor: 1, configs: [" + configs + "]}]}"));
        while (topicId(name) == null) Thread.sleep(20);
    }

    /** The id of a topic, if it is there and has a leader. */
    String topicId(String name) throws IOException {
        var metadata = (MetadataResponse) ask("quiet", (short) 12, ApiKeys.METADATA, Make.request(ApiKeys.METADATA, "{topics: [{name: '" + name + "'}], allowAutoTopicCreation: false}"));
        for (var topic : metadata.data().topics()) if (topic.errorCode() == 0 && topic.partitions().stream().allMatch(p -> p.leaderId() >= 0)) return topic.topicId().toString();
        return null;
    }

    private String show(AbstractResponse answer) {
        if (answer instanceof FetchResponse fetch) {
            StringBuilder shown = new StringBuilder("error=" + fetch.data().errorCode() + (fetch.data().sessionId() == 0 ? "" : " session"));
            for (var t : fetch.data().responses()) for (var p : t.partitions()) {
                shown.append(" [").append(t.topic()).append(t.topic().isEmpty() ? "" : "-").append(p.partitionIndex()).append(" error=").append(p.errorCode()).append(" hw=").append(p.highWatermark()).append(" lso=").append(p.lastStableOffset())
                    .append(" start=").append(p.logStartOffset()).append(p.divergingEpoch().epoch() < 0 ? "" : " diverging=" + p.divergingEpoch().epoch() + "/" + p.divergingEpoch().endOffset()).append(" aborted=");
                // Beside an error Kafka has an empty list of them now, none then.
                if (p.abortedTransactions() == null) { if (p.errorCode() == 0) shown.append("null"); }
                else for (var a : p.abortedTransactions()) shown.append('(').append(name(a.producerId())).append(" from ").append(a.firstOffset()).append(')');
                var records = (Records) p.records();
                if (records != null) for (RecordBatch batch : records.batches()) {
                    shown.append(" {").append(batch.baseOffset()).append("..").append(batch.lastOffset()).append(batch.isTransactional() ? " txn" : "").append(batch.isControlBatch() ? " control" : "")
                        .append(" epoch=").append(batch.producerEpoch()).append(" seq=").append(batch.baseSequence());
                    for (org.apache.kafka.common.record.Record r : batch)
                        shown.append(' ').append(batch.isControlBatch() ? "" + ControlRecordType.parse(r.key()) : new String(bytes(r.value())));
                    shown.append('}');
                }
                shown.append(']');
            }
            return shown.toString();
        }
        if (answer instanceof ProduceResponse produced) {
            StringBuilder shown = new StringBuilder();
            for (var t : produced.data().responses()) for (var p : t.partitionResponses()) {
                shown.append('[').append(t.name()).append('-').append(p.index()).append(" error=").append(p.errorCode()).append(" base=").append(p.baseOffset());
                if (p.errorCode() == 0) shown.append(" start=").append(p.logStartOffset());
                for (var e : p.recordErrors()) shown.append(" bad=").append(e.batchIndex());
                if (p.currentLeader().leaderId() >= 0) shown.append(" leader=").append(p.currentLeader());
                shown.append(']');
            }
            return shown.toString();
        }
        // Kafka gives much in the order of hash tables.
        if (answer instanceof ListOffsetsResponse offsets) offsets.data().topics().forEach(t -> t.partitions().sort(Comparator.comparingInt(ListOffsetsResponseData.ListOffsetsPartitionResponse::partitionIndex)));
        if (answer instanceof OffsetCommitResponse done) done.data().topics().forEach(t -> t.partitions().sort(Comparator.comparingInt(OffsetCommitResponseData.OffsetCommitResponsePartition::partitionIndex)));
        if (answer instanceof ListTransactionsResponse listed) listed.data().transactionStates().sort(Comparator.comparing(ListTransactionsResponseData.TransactionState::transactionalId));
        if (answer instanceof DescribeConfigsResponse told) told.data().results().forEach(r -> r.configs().sort(Comparator.comparing(DescribeConfigsResponseData.DescribeConfigsResourceResult::name)));
        if (answer instanceof DescribeAclsResponse told) {
            told.data().resources().forEach(r -> r.acls().sort(Comparator.comparing(Object::toString)));
            told.data().resources().sort(Comparator.comparing(Object::toString));
        }
        if (answer instanceof DeleteAclsResponse done) done.data().filterResults().forEach(f -> f.matchingAcls().sort(Comparator.comparing(Object::toString)));
        if (answer instanceof OffsetFetchResponse told) told.data().groups().forEach(g -> g.topics().sort(Comparator.comparing(OffsetFetchResponseData.OffsetFetchResponseTopics::name)));
        // Kafka gives a topic's partitions in the order of a hash table.
        if (answer instanceof MetadataResponse metadata) metadata.data().topics().forEach(t -> t.partitions().sort(Comparator.comparingInt(MetadataResponseData.MetadataResponsePartition::partitionIndex)));
        if (answer instanceof ConsumerGroupHeartbeatResponse beat && beat.data().assignment() != null) beat.data().assignment().topicPartitions().forEach(t -> Collections.sort(t.partitions()));
        // Collections that are hash tables themselves.
        String text = sorted(sorted(answer.data().toString(), "OffsetDeleteResponsePartition"), "Deletable(?:Topic|Group)Result");
        text = replace(text, "producerId=(-?\\d+)", m -> "producerId=" + name(Long.parseLong(m)));
        text = replace(text, "topicId=([\\w-]+)", m -> "topicId=" + (m.equals("AAAAAAAAAAAAAAAAAAAAAA") ? "zero" : "some"));
        text = replace(text, "memberId='?([\\w-]*)'?", m -> "memberId=" + (m.isEmpty() ? "empty" : "some"));
        text = replace(text, "leader='([\\w-]*)'", m -> "leader=" + (m.isEmpty() ? "empty" : "some"));
        text = replace(text, "(?:[eE]rrorMessage|clusterId|transactionalId|host)=('.*?'|null)(?=, \\w+=|[)][,\\])])", m -> "(-)");
        text = replace(text, "(?:heartbeatIntervalMs|port|lastTimestamp|transactionStartTimeMs|coordinatorEpoch|throttleTimeMs)=(-?\\d+)", m -> "(-)");
        text = replace(text, "timestamp=(\\d+)", m -> "timestamp=" + (Long.parseLong(m) - BASE));
        return text;
    }

    /** Elements of that name, which have no lists in them, in their order as text. */
    private static String sorted(String text, String element) {
        return Pattern.compile("\\[(" + element + "\\([^()]*\\)(?:, )?)+\\]").matcher(text).replaceAll(m -> {
            var all = new ArrayList<>(List.of(m.group().substring(1, m.group().length() - 1).split("(?<=\\)), ")));
            Collections.sort(all);
            return Matcher.quoteReplacement(all.toString());
        });
    }

    private static byte[] bytes(ByteBuffer of) { byte[] b = new byte[of == null ? 0 : of.remaining()]; if (of != null) of.duplicate().get(b); return b; }

    private static String replace(String text, String pattern, java.util.function.Function<String, String> by) {
        return Pattern.compile(pattern).matcher(text).replaceAll(m -> Matcher.quoteReplacement(by.apply(m.group(1))));
    }

    private String name(long producer) { return producer < 0 ? "" + producer : "P" + producers.computeIfAbsent(producer, p -> producers.size()); }

    // --- bodies ---

    /** The time of all records: now, since Kafka starts a segment, which ends a fetch, when times leap by a week. */
    static final long BASE = System.currentTimeMillis() - 10_000;
    static final String T = "differential";

    static ProduceRequestData produce(String id, int partition, long pid, int epoch, int sequence, int acks, String... values) {
        SimpleRecord[] records = Arrays.stream(values).map(v -> new SimpleRecord(BASE, null, v.getBytes())).toArray(SimpleRecord[]::new);
        MemoryRecords batch = id != null ? MemoryRecords.withTransactionalRecords(Compression.NONE, pid, (short) epoch, sequence, records)
            : pid >= 0 ? MemoryRecords.withIdempotentRecords(Compression.NONE, pid, (short) epoch, sequence, records) : MemoryRecords.withRecords(Compression.NONE, records);
        return produce(id, T, partition, acks, batch);
    }

    static ProduceRequestData produce(String id, String topic, int partition, int acks, MemoryRecords batch) {
        var topics = new ProduceRequestData.TopicProduceDataCollection();
        topics.add(new ProduceRequestData.TopicProduceData().setName(topic).setPartitionData(List.of(new ProduceRequestData.PartitionProduceData().setIndex(partition).setRecords(batch))));
        return new ProduceRequestData().setTransactionalId(id).setAcks((short) acks).setTimeoutMs(10_000).setTopicData(topics);
    }

    static FetchRequestData fetch(String topic, int partition, long offset, boolean committed) {
        return new FetchRequestData().setReplicaId(-1).setMaxWaitMs(100).setMinBytes(0).setMaxBytes(1 << 20).setIsolationLevel((byte) (committed ? 1 : 0)).setSessionEpoch(-1)
            .setTopics(List.of(new FetchRequestData.FetchTopic().setTopic(topic).setPartitions(List.of(new FetchRequestData.FetchPartition().setPartition(partition).setFetchOffset(offset)
                .setCurrentLeaderEpoch(-1).setLogStartOffset(-1).setPartitionMaxBytes(1 << 20)))));
    }

    static ListOffsetsRequestData offsets(String topic, int partition, long time, boolean committed) {
        return new ListOffsetsRequestData().setReplicaId(-1).setIsolationLevel((byte) (committed ? 1 : 0)).setTopics(List.of(new ListOffsetsRequestData.ListOffsetsTopic().setName(topic)
            .setPartitions(List.of(new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(partition).setTimestamp(time).setCurrentLeaderEpoch(-1)))));
    }

    static InitProducerIdRequestData init(String id, long pid, int epoch) {
        return new InitProducerIdRequestData().setTransactionalId(id).setTransactionTimeoutMs(60_000).setProducerId(pid).setProducerEpoch((short) epoch);
    }

    static AddPartitionsToTxnRequestData add(String id, long pid, int epoch, String topic, Integer... partitions) {
        var topics = new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection();
        topics.add(new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopic().setName(topic).setPartitions(List.of(partitions)));
        return new AddPartitionsToTxnRequestData().setV3AndBelowTransactionalId(id).setV3AndBelowProducerId(pid).setV3AndBelowProducerEpoch((short) epoch).setV3AndBelowTopics(topics);
    }

    static EndTxnRequestData end(String id, long pid, int epoch, boolean commit) {
        return new EndTxnRequestData().setTransactionalId(id).setProducerId(pid).setProducerEpoch((short) epoch).setCommitted(commit);
    }

    static TxnOffsetCommitRequestData offsetCommit(String id, String group, long pid, int epoch, long offset) {
        return new TxnOffsetCommitRequestData().setTransactionalId(id).setGroupId(group).setProducerId(pid).setProducerEpoch((short) epoch).setTopics(List.of(
            new TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic().setName(T).setPartitions(List.of(
                new TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition().setPartitionIndex(0).setCommittedOffset(offset).setCommittedMetadata("m")))));
    }

    static OffsetFetchRequestData offsetFetch(String group, boolean stable) {
        return new OffsetFetchRequestData().setRequireStable(stable).setGroups(List.of(new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(group).setTopics(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestTopics().setName(T).setPartitionIndexes(List.of(0, 1))))));
    }

    /** The next state of both is only looked at once the last transaction's end is done: Kafka answers before its markers are written. */
    void settle() throws Exception {
        for (int i = 0; i < 100; i++) {
            var a = (ListOffsetsResponse) ask("settle", (short) 7, ApiKeys.LIST_OFFSETS, offsets(T, 0, -1, true));
            var b = (ListOffsetsResponse) ask("settle", (short) 7, ApiKeys.LIST_OFFSETS, offsets(T, 0, -1, false));
            if (a.topics().get(0).partitions().get(0).offset() == b.topics().get(0).partitions().get(0).offset()) return;
            Thread.sleep(50);
        }
    }

    void script() throws Exception {
        var topics = new CreateTopicsRequestData.CreatableTopicCollection();
        topics.add(new CreateTopicsRequestData.CreatableTopic().setName(T).setNumPartitions(2).setReplicationFactor((short) 1));
        var create = new CreateTopicsRequestData().setTimeoutMs(10_000).setTopics(topics);
        // Not compared: Kafka tells all of a topic's settings there.
        ask("a", (short) 4, ApiKeys.CREATE_TOPICS, create);
        // Kafka makes its internal topics when it is first asked, and says so with retriable errors.
        for (int i = 0; i < 200; i++) {
            var plain = (InitProducerIdResponse) ask("a", (short) 4, ApiKeys.INIT_PRODUCER_ID, init(null, -1, -1));
            var first = (InitProducerIdResponse) ask("a", (short) 4, ApiKeys.INIT_PRODUCER_ID, init("warm", -1, -1));
            var coordinator = (FindCoordinatorResponse) ask("a", (short) 2, ApiKeys.FIND_COORDINATOR, new FindCoordinatorRequestData().setKey("warm").setKeyType((byte) 1));
            var find = (FindCoordinatorResponse) ask("a", (short) 2, ApiKeys.FIND_COORDINATOR, new FindCoordinatorRequestData().setKey("g").setKeyType((byte) 0));
            var offsets = (OffsetFetchResponse) ask("a", (short) 8, ApiKeys.OFFSET_FETCH, offsetFetch("g", true));
            if (plain.data().errorCode() == 0 && first.data().errorCode() == 0 && find.data().errorCode() == 0 && coordinator.data().errorCode() == 0 && offsets.data().groups().get(0).errorCode() == 0) break;
            Thread.sleep(100);
        }
        Thread.sleep(500);
        say("create it again", "a", 4, ApiKeys.CREATE_TOPICS, create);
        for (int v : List.of(3, 7, 8, 9, 10, 11, 12)) say("plain", "a", v, ApiKeys.PRODUCE, produce(null, 1, -1, -1, -1, v % 2 == 0 ? 1 : -1, "v" + v));
        say("no such topic", "a", 9, ApiKeys.PRODUCE, produce(null, "nowhere", 0, -1, MemoryRecords.withRecords(Compression.NONE, new SimpleRecord("x".getBytes()))));
        say("no such partition", "a", 9, ApiKeys.PRODUCE, produce(null, T, 7, -1, MemoryRecords.withRecords(Compression.NONE, new SimpleRecord("x".getBytes()))));
        say("two in one batch", "a", 9, ApiKeys.PRODUCE, produce(null, 1, -1, -1, -1, -1, "first", "second"));
        say("acks 2", "a", 9, ApiKeys.PRODUCE, produce(null, 1, -1, -1, -1, 2, "x"));
        for (int v : List.of(1, 2, 3, 4, 5, 6, 7, 8, 9)) {
            say("latest", "a", v, ApiKeys.LIST_OFFSETS, offsets(T, 1, -1, false));
            say("earliest", "a", v, ApiKeys.LIST_OFFSETS, offsets(T, 1, -2, false));
        }
        say("by time", "a", 7, ApiKeys.LIST_OFFSETS, offsets(T, 1, BASE, false));
        say("by a late time", "a", 7, ApiKeys.LIST_OFFSETS, offsets(T, 1, BASE + 1_000_000_000L, false));
        say("of the largest time", "a", 7, ApiKeys.LIST_OFFSETS, offsets(T, 1, -3, false));
        say("of no topic", "a", 7, ApiKeys.LIST_OFFSETS, offsets("nowhere", 0, -1, false));
        for (int v : List.of(4, 5, 7, 9, 11, 12)) say("from 0", "a", v, ApiKeys.FETCH, fetch(T, 1, 0, v % 2 == 0));
        say("from the middle of a batch", "a", 11, ApiKeys.FETCH, fetch(T, 1, 8, false));
        say("at the end", "a", 11, ApiKeys.FETCH, fetch(T, 1, 9, false));
        say("past the end", "a", 11, ApiKeys.FETCH, fetch(T, 1, 10, false));
        say("no such partition", "a", 11, ApiKeys.FETCH, fetch(T, 7, 0, false));

        var made = (InitProducerIdResponse) say("idempotent", "a", 4, ApiKeys.INIT_PRODUCER_ID, init(null, -1, -1));
        long p = made.data().producerId();
        say("sequence 0", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 0, 0, -1, "i0", "i1"));
        say("sequence 0 again", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 0, 0, -1, "i0", "i1"));
        say("a gap", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 0, 5, -1, "i5"));
        say("sequence 2", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 0, 2, -1, "i2"));
        say("half of what is there", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 0, 1, -1, "i1"));
        say("a new epoch, not at 0", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 1, 3, -1, "i3"));
        say("a new epoch, at 0", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 1, 0, -1, "e1"));
        say("the old epoch", "a", 9, ApiKeys.PRODUCE, produce(null, 1, p, 0, 3, -1, "i3"));
        say("never seen, at 4", "a", 9, ApiKeys.PRODUCE, produce(null, 0, p, 0, 4, -1, "n4"));

        String id = "differential-id";
        for (int v : List.of(0, 1, 2)) say("find", "a", v, ApiKeys.FIND_COORDINATOR, new FindCoordinatorRequestData().setKey(id).setKeyType((byte) (v == 0 ? 0 : 1)));
        var t = (InitProducerIdResponse) say("transactional", "b", 4, ApiKeys.INIT_PRODUCER_ID, init(id, -1, -1));
        long q = t.data().producerId();
        say("an empty id", "b", 4, ApiKeys.INIT_PRODUCER_ID, init("", -1, -1));
        say("no time-out", "b", 4, ApiKeys.INIT_PRODUCER_ID, init("other", -1, -1).setTransactionTimeoutMs(0));
        say("v1: end of nothing", "b", 3, ApiKeys.END_TXN, end(id, q, 0, true));
        say("v1: produce without the partition", "b", 9, ApiKeys.PRODUCE, produce(id, 0, q, 0, 0, -1, "t0"));
        say("add", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 0, T, 0));
        say("add again", "b", 0, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 0, T, 0));
        say("add no such topic", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 0, "nowhere", 0));
        say("add with another producer's id", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q + 500, 0, T, 0));
        say("add with an epoch too high", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 7, T, 0));
        say("add with an id nobody has", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add("nobody", q, 0, T, 0));
        say("produce", "b", 9, ApiKeys.PRODUCE, produce(id, 0, q, 0, 0, -1, "t0", "t1"));
        say("another's plain record behind it", "a", 9, ApiKeys.PRODUCE, produce(null, 0, -1, -1, -1, -1, "plain"));
        say("committed end", "a", 7, ApiKeys.LIST_OFFSETS, offsets(T, 0, -1, true));
        say("uncommitted end", "a", 7, ApiKeys.LIST_OFFSETS, offsets(T, 0, -1, false));
        say("committed fetch", "a", 11, ApiKeys.FETCH, fetch(T, 0, 0, true));
        say("uncommitted fetch", "a", 11, ApiKeys.FETCH, fetch(T, 0, 0, false));
        say("abort", "b", 3, ApiKeys.END_TXN, end(id, q, 0, false));
        settle();
        say("abort again", "b", 3, ApiKeys.END_TXN, end(id, q, 0, false));
        say("commit after the abort", "b", 3, ApiKeys.END_TXN, end(id, q, 0, true));
        for (long from = 0; from < 6; from++) say("committed fetch from " + from, "a", 11, ApiKeys.FETCH, fetch(T, 0, from, true));
        say("uncommitted fetch", "a", 11, ApiKeys.FETCH, fetch(T, 0, 0, false));
        say("add", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 0, T, 0));
        say("the sequence goes on", "b", 9, ApiKeys.PRODUCE, produce(id, 0, q, 0, 2, -1, "t2"));
        say("group's offsets into it", "b", 3, ApiKeys.ADD_OFFSETS_TO_TXN, new AddOffsetsToTxnRequestData().setTransactionalId(id).setProducerId(q).setProducerEpoch((short) 0).setGroupId("g"));
        say("offsets", "b", 3, ApiKeys.TXN_OFFSET_COMMIT, offsetCommit(id, "g", q, 0, 4));
        say("offsets, unstable", "a", 8, ApiKeys.OFFSET_FETCH, offsetFetch("g", true));
        say("offsets, before the commit", "a", 8, ApiKeys.OFFSET_FETCH, offsetFetch("g", false));
        say("commit", "b", 1, ApiKeys.END_TXN, end(id, q, 0, true));
        settle();
        Thread.sleep(300);
        say("offsets, after the commit", "a", 8, ApiKeys.OFFSET_FETCH, offsetFetch("g", true));
        say("the same producer again", "b", 4, ApiKeys.INIT_PRODUCER_ID, init(id, q, 0));
        say("and its retry", "b", 4, ApiKeys.INIT_PRODUCER_ID, init(id, q, 0));
        say("the old epoch, v4", "b", 4, ApiKeys.INIT_PRODUCER_ID, init(id, q, 17));
        say("the old epoch, v3", "b", 3, ApiKeys.INIT_PRODUCER_ID, init(id, q, 17));
        say("add with the old epoch, v1", "b", 1, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 0, T, 0));
        say("add with the old epoch, v3", "b", 3, ApiKeys.ADD_PARTITIONS_TO_TXN, add(id, q, 0, T, 0));
        say("end with the old epoch, v1", "b", 1, ApiKeys.END_TXN, end(id, q, 0, true));
        say("end with the old epoch, v3", "b", 3, ApiKeys.END_TXN, end(id, q, 0, true));
        say("a new start", "c", 4, ApiKeys.INIT_PRODUCER_ID, init(id, -1, -1));

        String two = "differential-two";
        var u = (InitProducerIdResponse) say("version 2", "d", 5, ApiKeys.INIT_PRODUCER_ID, init(two, -1, -1));
        long r = u.data().producerId();
        say("v2: produce begins it", "d", 12, ApiKeys.PRODUCE, produce(two, 0, r, 0, 0, -1, "w0"));
        say("v2: offsets, without adding the group", "d", 5, ApiKeys.TXN_OFFSET_COMMIT, offsetCommit(two, "g", r, 0, 5));
        say("v2: commit", "d", 5, ApiKeys.END_TXN, end(two, r, 0, true));
        settle();
        Thread.sleep(300);
        say("v2: commit again", "d", 5, ApiKeys.END_TXN, end(two, r, 0, true));
        say("v2: its offsets", "a", 8, ApiKeys.OFFSET_FETCH, offsetFetch("g", true));
        say("v2: produce with the old epoch", "d", 12, ApiKeys.PRODUCE, produce(two, 0, r, 0, 1, -1, "w1"));
        say("v2: the new epoch", "d", 12, ApiKeys.PRODUCE, produce(two, 0, r, 1, 0, -1, "w1"));
        say("v2: abort", "d", 5, ApiKeys.END_TXN, end(two, r, 1, false));
        settle();
        say("v2: abort of nothing", "d", 5, ApiKeys.END_TXN, end(two, r, 2, false));
        Thread.sleep(300);
        say("v2: commit of nothing", "d", 5, ApiKeys.END_TXN, end(two, r, 3, true));
        say("v2: all of it", "a", 11, ApiKeys.FETCH, fetch(T, 0, 0, true));

        say("commit of a group without members", "a", 8, ApiKeys.OFFSET_COMMIT, new OffsetCommitRequestData().setGroupId("simple").setGenerationIdOrMemberEpoch(-1).setTopics(List.of(
            new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(T).setPartitions(List.of(new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(1).setCommittedOffset(3).setCommittedMetadata("x"))))));
        say("of a member it doesn't have", "a", 8, ApiKeys.OFFSET_COMMIT, new OffsetCommitRequestData().setGroupId("simple").setGenerationIdOrMemberEpoch(1).setMemberId("m").setTopics(List.of(
            new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(T).setPartitions(List.of(new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(1).setCommittedOffset(3))))));
        say("read", "a", 8, ApiKeys.OFFSET_FETCH, offsetFetch("simple", true));
        for (int v = 1; v <= 7; v++) say("read", "a", v, ApiKeys.OFFSET_FETCH, new OffsetFetchRequestData().setGroupId("simple").setTopics(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestTopic().setName(T).setPartitionIndexes(List.of(0, 1)))));
        for (int v = 2; v <= 9; v++) say("write", "a", v, ApiKeys.OFFSET_COMMIT, new OffsetCommitRequestData().setGroupId("simple").setGenerationIdOrMemberEpoch(-1).setTopics(List.of(
            new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(T).setPartitions(List.of(new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(0).setCommittedOffset(v))))));
        for (int v = 0; v <= 13; v++) say("of the topic", "a", v, ApiKeys.METADATA, new MetadataRequestData().setTopics(List.of(new MetadataRequestData.MetadataRequestTopic().setName(T))).setAllowAutoTopicCreation(true));
        say("of a group nobody has", "a", 8, ApiKeys.OFFSET_FETCH, offsetFetch("nobody", true));
        say("heartbeat of nobody", "a", 4, ApiKeys.HEARTBEAT, new HeartbeatRequestData().setGroupId("simple").setMemberId("m").setGenerationId(1));
        var protocols = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName("range").setMetadata(new byte[] {0, 0}));
        say("join without an id", "a", 6, ApiKeys.JOIN_GROUP, new JoinGroupRequestData().setGroupId("joined").setProtocolType("consumer").setSessionTimeoutMs(10_000).setRebalanceTimeoutMs(10_000).setProtocols(protocols));
        say("join with a short session", "a", 6, ApiKeys.JOIN_GROUP, new JoinGroupRequestData().setGroupId("joined").setProtocolType("consumer").setSessionTimeoutMs(1).setRebalanceTimeoutMs(10_000).setProtocols(protocols));
        say("delete records", "a", 1, ApiKeys.DELETE_RECORDS, new DeleteRecordsRequestData().setTimeoutMs(10_000).setTopics(List.of(new DeleteRecordsRequestData.DeleteRecordsTopic().setName(T)
            .setPartitions(List.of(new DeleteRecordsRequestData.DeleteRecordsPartition().setPartitionIndex(1).setOffset(4))))));
        say("delete past the end", "a", 1, ApiKeys.DELETE_RECORDS, new DeleteRecordsRequestData().setTimeoutMs(10_000).setTopics(List.of(new DeleteRecordsRequestData.DeleteRecordsTopic().setName(T)
            .setPartitions(List.of(new DeleteRecordsRequestData.DeleteRecordsPartition().setPartitionIndex(0).setOffset(99))))));
        say("below the start", "a", 11, ApiKeys.FETCH, fetch(T, 1, 3, false));
        say("earliest now", "a", 7, ApiKeys.LIST_OFFSETS, offsets(T, 1, -2, false));
        consumerGroups();
        new Reads(this).script();
        new Refused(this).script();
        new Members(this).script();
        new Admin(this).script();
    }

    // --- consumer groups by KIP-848 ---

    private static ConsumerGroupHeartbeatRequestData beat(String group, String member, int epoch) {
        return new ConsumerGroupHeartbeatRequestData().setGroupId(group).setMemberId(member).setMemberEpoch(epoch);
    }

    private static ConsumerGroupHeartbeatRequestData joins(String group, String member) {
        return beat(group, member, 0).setRebalanceTimeoutMs(10_000).setSubscribedTopicNames(List.of(T)).setTopicPartitions(List.of());
    }

    private static OffsetCommitRequestData commits(String group, String member, int epoch) {
        return new OffsetCommitRequestData().setGroupId(group).setGenerationIdOrMemberEpoch(epoch).setMemberId(member).setTopics(List.of(
            new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(T).setPartitions(List.of(new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(0).setCommittedOffset(1)))));
    }

    private static OffsetFetchRequestData fetches(String group, String member, int epoch) {
        return new OffsetFetchRequestData().setGroups(List.of(new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(group).setMemberId(member).setMemberEpoch(epoch).setTopics(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestTopics().setName(T).setPartitionIndexes(List.of(0))))));
    }

    void consumerGroups() {
        var key = ApiKeys.CONSUMER_GROUP_HEARTBEAT;
        String g = "kip848";
        say("848: goes on in a group that isn't there", "k", 0, key, beat(g, "m1", 1));
        say("848: leaves a group that isn't there", "k", 0, key, beat(g, "m1", -1));
        say("848: joins", "k", 0, key, joins(g, "m1"));
        say("848: joins again", "k", 0, key, joins(g, "m1"));
        say("848: goes on", "k", 0, key, beat(g, "m1", 1));
        say("848: says it all again", "k", 0, key, joins(g, "m1").setMemberEpoch(1));
        say("848: of a later epoch", "k", 0, key, beat(g, "m1", 7));
        say("848: of nobody", "k", 0, key, beat(g, "nobody", 1));
        say("848: joins without a time-out", "k", 0, key, joins(g, "m3").setRebalanceTimeoutMs(-1));
        say("848: joins without topics", "k", 0, key, joins(g, "m3").setSubscribedTopicNames(null));
        say("848: joins without saying what it owns", "k", 0, key, joins(g, "m3").setTopicPartitions(null));
        say("848: an assignor that isn't there", "k", 0, key, joins(g, "m3").setServerAssignor("sticky"));
        say("848: an epoch that isn't", "k", 0, key, beat(g, "m1", -3));
        say("848: leaves for a while without an instance", "k", 0, key, beat(g, "m1", -2));
        say("848: an empty group", "k", 0, key, joins("", "m3"));
        say("848: without a member", "k", 0, key, beat(g, "", 1));
        say("848: commits", "k", 9, ApiKeys.OFFSET_COMMIT, commits(g, "m1", 1));
        say("848: commits in an older version", "k", 8, ApiKeys.OFFSET_COMMIT, commits(g, "m1", 0));
        for (int epoch : List.of(0, 2)) say("848: commits in epoch " + epoch, "k", 9, ApiKeys.OFFSET_COMMIT, commits(g, "m1", epoch));
        say("848: nobody commits", "k", 9, ApiKeys.OFFSET_COMMIT, commits(g, "nobody", 1));
        say("848: an operator commits", "k", 9, ApiKeys.OFFSET_COMMIT, commits(g, "", -1));
        say("848: fetches", "k", 9, ApiKeys.OFFSET_FETCH, fetches(g, "m1", 1));
        say("848: fetches in epoch 2", "k", 9, ApiKeys.OFFSET_FETCH, fetches(g, "m1", 2));
        say("848: nobody fetches", "k", 9, ApiKeys.OFFSET_FETCH, fetches(g, "nobody", 1));
        say("848: an operator fetches", "k", 9, ApiKeys.OFFSET_FETCH, fetches(g, null, -1));
        say("848: described", "k", 0, ApiKeys.CONSUMER_GROUP_DESCRIBE, new ConsumerGroupDescribeRequestData().setGroupIds(List.of(g, "nowhere")));
        say("848: described as a classic one", "k", 6, ApiKeys.DESCRIBE_GROUPS, new DescribeGroupsRequestData().setGroups(List.of(g)));
        say("848: described as a classic one", "k", 5, ApiKeys.DESCRIBE_GROUPS, new DescribeGroupsRequestData().setGroups(List.of(g)));
        say("848: listed", "k", 5, ApiKeys.LIST_GROUPS, new ListGroupsRequestData().setTypesFilter(List.of("consumer")));
        say("848: heartbeat of the other protocol", "k", 4, ApiKeys.HEARTBEAT, new HeartbeatRequestData().setGroupId(g).setMemberId("m1").setGenerationId(1));
        say("848: deleted", "k", 2, ApiKeys.DELETE_GROUPS, new DeleteGroupsRequestData().setGroupsNames(List.of(g)));
        say("848: a second one joins", "k", 0, key, joins(g, "m2"));
        say("848: it goes on", "k", 0, key, beat(g, "m2", 2));
        say("848: and leaves", "k", 0, key, beat(g, "m2", -1));
        say("848: the first one goes on", "k", 0, key, beat(g, "m1", 1));
        say("848: in its new epoch", "k", 0, key, beat(g, "m1", 3));
        say("848: leaves", "k", 0, key, beat(g, "m1", -1));
        say("848: once more", "k", 0, key, beat(g, "m1", -1));
        say("848: an operator commits to nobody's group", "k", 9, ApiKeys.OFFSET_COMMIT, commits(g, "", -1));
        say("848: a static one joins", "k", 0, key, joins(g, "s1").setInstanceId("i"));
        say("848: another of its instance", "k", 0, key, joins(g, "s2").setInstanceId("i"));
        say("848: another one goes on for it", "k", 0, key, beat(g, "s2", 5).setInstanceId("i"));
        say("848: an instance nobody has", "k", 0, key, beat(g, "s1", 5).setInstanceId("j"));
        say("848: leaves for a while", "k", 0, key, beat(g, "s1", -2).setInstanceId("i"));
        say("848: is away", "k", 0, key, beat(g, "s1", 5).setInstanceId("i"));
        say("848: comes back under another name", "k", 0, key, joins(g, "s2").setInstanceId("i"));
        say("848: described at last", "k", 0, ApiKeys.CONSUMER_GROUP_DESCRIBE, new ConsumerGroupDescribeRequestData().setGroupIds(List.of(g)));
        say("848: leaves for good", "k", 0, key, beat(g, "s2", -1).setInstanceId("i"));
    }

    public static void main(String[] a) throws Exception { new Requests(a[0]).script(); System.exit(0); }
}
