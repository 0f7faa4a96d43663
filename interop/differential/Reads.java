import static org.apache.kafka.common.protocol.ApiKeys.*;

import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.requests.*;

/** What is asked of records and topics: offsets by name and by time, epochs, fetch sessions, fetches that can't be, topics page by page. */
final class Reads {
    private static final String T = "reads";
    private final Requests to;

    Reads(Requests to) { this.to = to; }

    private void write(long time, String... values) {
        var records = Arrays.stream(values).map(v -> new SimpleRecord(Requests.BASE + time, null, v.getBytes())).toArray(SimpleRecord[]::new);
        to.say("reads: written", "r", 9, PRODUCE, Requests.produce(null, T, 0, -1, MemoryRecords.withRecords(Compression.NONE, records)));
    }

    void script() throws Exception {
        to.create(T, 2);
        to.create("reads-too", 3);
        write(0, "a", "b");
        write(5_000, "c");
        write(1_000, "d", "e");
        offsets();
        epochs();
        fetches();
        sessions();
        pages();
    }

    private void offset(String what, int version, String partitions, int isolation) {
        to.say("offsets: " + what, "r", version, LIST_OFFSETS, "{replicaId: -1, isolationLevel: " + isolation + ", topics: [{name: '" + T + "', partitions: [" + partitions + "]}]}");
    }

    private void offsets() {
        for (long time : List.of(-1L, -2L, -3L, -4L, -5L, -6L, -7L, -100L))
            for (int version : time == -3 ? List.of(7, 10) : List.of(7, 8, 9, 10)) offset("of " + time, version, "{partitionIndex: 0, timestamp: " + time + "}", 0);
        for (long time : List.of(-1L, -2L, -3L, -4L)) offset("of nothing, " + time, 8, "{partitionIndex: 1, timestamp: " + time + "}", 1);
        for (int time : List.of(-1, 0, 1, 1_000, 1_001, 4_999, 5_000, 5_001)) offset("by time, " + time, 7, "{partitionIndex: 0, timestamp: " + (Requests.BASE + time) + "}", 0);
        offset("at the beginning of time", 7, "{partitionIndex: 0, timestamp: 0}", 0);
        for (int epoch : List.of(-1, 0, 1)) offset("in epoch " + epoch, 7, "{partitionIndex: 0, timestamp: -1, currentLeaderEpoch: " + epoch + "}", 0);
        for (int p : List.of(2, -1)) offset("of partition " + p, 7, "{partitionIndex: " + p + ", timestamp: -1}", 0);
        offset("of one partition twice", 7, "{partitionIndex: 0, timestamp: -1}, {partitionIndex: 0, timestamp: -2}", 0);
        offset("of two partitions", 7, "{partitionIndex: 0, timestamp: -1}, {partitionIndex: 1, timestamp: -1}", 0);
        offset("under no isolation", 7, "{partitionIndex: 0, timestamp: -1}", 2);
    }

    private void epochs() {
        for (int version : List.of(2, 3, 4))
            for (int[] e : new int[][] {{-1, 0}, {0, 0}, {1, 0}, {-1, 1}, {-1, -1}, {-2, 0}})
                to.say("epochs: " + e[1] + " under " + e[0], "r", version, OFFSET_FOR_LEADER_EPOCH,
                    "{replicaId: -1, topics: [{topic: '" + T + "', partitions: [{partition: 0, currentLeaderEpoch: " + e[0] + ", leaderEpoch: " + e[1] + "}]}]}");
        to.say("epochs: no such partition", "r", 4, OFFSET_FOR_LEADER_EPOCH, "{replicaId: -1, topics: [{topic: '" + T + "', partitions: [{partition: 7, leaderEpoch: 0}]}]}");
        to.say("epochs: no such topic", "r", 4, OFFSET_FOR_LEADER_EPOCH, "{replicaId: -1, topics: [{topic: 'nowhere', partitions: [{partition: 0, leaderEpoch: 0}]}]}");
    }

    private static String partition(int partition, long offset, String more) {
        return "{partition: " + partition + ", fetchOffset: " + offset + ", logStartOffset: -1, partitionMaxBytes: 1000000" + more + "}";
    }

    private void fetch(String what, int version, String topics, String more) {
        to.say("fetches: " + what, "r", version, FETCH, "{replicaId: -1, maxWaitMs: 50, minBytes: 0, maxBytes: 1000000, sessionEpoch: -1, topics: [" + topics + "]" + more + "}");
    }

    private static String of(String name, String partitions) { return "{topic: '" + name + "', partitions: [" + partitions + "]}"; }

    private void fetches() throws Exception {
        for (int offset : List.of(-1, -2, 5, 6)) fetch("from " + offset, 12, of(T, partition(0, offset, "")), "");
        for (int epoch : List.of(-1, 0, 1)) fetch("in epoch " + epoch, 12, of(T, partition(0, 4, ", currentLeaderEpoch: " + epoch)), "");
        for (int offset : List.of(4, 5, 6))
            for (int last : List.of(-1, 0, 1)) fetch("from " + offset + " behind epoch " + last, 12, of(T, partition(0, offset, ", currentLeaderEpoch: 0, lastFetchedEpoch: " + last)), "");
        fetch("one byte of each", 12, of(T, partition(0, 0, ", partitionMaxBytes: 1")), "");
        fetch("one byte of all", 12, of(T, partition(0, 0, "")), ", maxBytes: 1");
        fetch("no bytes", 12, of(T, partition(0, 0, ", partitionMaxBytes: 0")), ", maxBytes: 0");
        fetch("partition -1", 12, of(T, partition(-1, 0, "")), "");
        fetch("under no isolation", 12, of(T, partition(0, 4, "")), ", isolationLevel: 2");
        fetch("more than there is", 12, of(T, partition(0, 4, "")), ", minBytes: 1000000");
        fetch("nothing at all", 12, "", "");
        String id = to.topicId(T);
        for (int version : List.of(13, 14, 15, 16, 17)) fetch("by id", version, "{topicId: '" + id + "', partitions: [" + partition(0, 4, "") + "]}", "");
        fetch("by no id", 13, "{topicId: 'AAAAAAAAAAAAAAAAAAAAAA', partitions: [" + partition(0, 4, "") + "]}", "");
        fetch("by an id nobody has", 13, "{topicId: 'xtzWWN4bTjitpL3kfd9s5g', partitions: [" + partition(0, 4, "") + "]}", "");
    }

    private Integer session(String what, int id, int epoch, String topics, String forgotten) {
        var answer = (FetchResponse) to.say("sessions: " + what, "r", 12, FETCH, "{replicaId: -1, maxWaitMs: 50, minBytes: 0, maxBytes: 1000000, sessionId: " + id + ", sessionEpoch: " + epoch
            + ", topics: [" + topics + "], forgottenTopicsData: [" + forgotten + "]}");
        return answer == null ? 0 : answer.data().sessionId();
    }

    private void sessions() {
        int id = session("begun", 0, 0, of(T, partition(0, 3, "") + ", " + partition(1, 0, "")) + ", " + of("reads-too", partition(2, 0, "")), "");
        session("again, for the position hasn't moved", id, 1, "", "");
        session("the position moved", id, 2, of(T, partition(0, 5, "")), "");
        session("nothing new", id, 3, "", "");
        write(6_000, "f");
        session("one partition has a record", id, 4, "", "");
        session("an epoch again", id, 4, "", "");
        session("an epoch too far", id, 9, "", "");
        session("one is forgotten", id, 5, "", of(T, "0").replace("{partition: 0", "0"));
        session("one nobody asked for is forgotten", id, 6, "", of("nowhere", "0"));
        session("one is added", id, 7, of("reads-too", partition(0, 0, "")), "");
        session("one that isn't there is added", id, 8, of("nowhere", partition(0, 0, "")), "");
        session("one that isn't there stays", id, 9, "", "");
        session("past the end", id, 10, of("reads-too", partition(0, 9, "")), "");
        session("another's", id + 1, 1, "", "");
        session("closed", id, -1, "", "");
        session("gone on with after the end", id, 11, "", "");
        session("begun in the middle", 0, 1, of(T, partition(0, 5, "")), "");
        session("begun without partitions", 0, 0, "", "");
    }

    private void pages() {
        String names = "topics: [{name: '" + T + "'}, {name: 'reads-too'}, {name: 'nowhere'}, {name: 'not a name'}]";
        for (int limit : List.of(2000, 5, 4, 2, 1, 0, -1)) to.say("pages: of " + limit, "r", 0, DESCRIBE_TOPIC_PARTITIONS, "{" + names + ", responsePartitionLimit: " + limit + "}");
        for (String cursor : List.of("'reads-too', partitionIndex: 1", "'reads-too', partitionIndex: 9", "'reads-to', partitionIndex: 0", "'z', partitionIndex: 0", "'" + T + "', partitionIndex: -1"))
            to.say("pages: behind " + cursor.replace("'", ""), "r", 0, DESCRIBE_TOPIC_PARTITIONS, "{" + names + ", responsePartitionLimit: 10, cursor: {topicName: " + cursor + "}}");
        to.say("pages: one topic twice", "r", 0, DESCRIBE_TOPIC_PARTITIONS, "{topics: [{name: '" + T + "'}, {name: '" + T + "'}]}");
        for (int version : List.of(9, 12)) {
            to.say("metadata: no such topic", "r", version, METADATA, "{topics: [{name: 'nowhere'}], allowAutoTopicCreation: false}");
            to.say("metadata: not a name", "r", version, METADATA, "{topics: [{name: 'not a name'}], allowAutoTopicCreation: true}");
        }
        to.say("metadata: no such id", "r", 12, METADATA, "{topics: [{topicId: 'xtzWWN4bTjitpL3kfd9s5g', name: null}], allowAutoTopicCreation: false}");
        to.say("metadata: no topics", "r", 12, METADATA, "{topics: [], allowAutoTopicCreation: false}");
    }
}
