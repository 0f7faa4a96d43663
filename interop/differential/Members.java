import static org.apache.kafka.common.protocol.ApiKeys.*;

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.requests.*;

/** Classic groups: joins that don't fit, members nobody knows, offsets and groups that are in use. */
final class Members {
    private static final String T = "members";
    private final Requests to;

    Members(Requests to) { this.to = to; }

    private static JoinGroupRequestData join(String group, String member, String type, String... protocols) {
        ByteBuffer subscribed = ConsumerProtocol.serializeSubscription(new Subscription(List.of(T)));
        byte[] metadata = new byte[subscribed.remaining()];
        subscribed.get(metadata);
        var all = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        for (String name : protocols) all.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName(name).setMetadata(metadata));
        return new JoinGroupRequestData().setGroupId(group).setMemberId(member).setProtocolType(type).setSessionTimeoutMs(10_000).setRebalanceTimeoutMs(5_000).setProtocols(all);
    }

    private String joined(String what, String connection, int version, JoinGroupRequestData request) {
        var answer = (JoinGroupResponse) to.say("members: " + what, connection, version, JOIN_GROUP, request);
        return answer == null ? "" : answer.data().memberId();
    }

    private void sync(String what, int version, String group, String member, int generation, String more) {
        to.say("members: " + what, "m", version, SYNC_GROUP, "{groupId: '" + group + "', memberId: '" + member + "', generationId: " + generation + more + "}");
    }

    private void beat(String what, String group, String member, int generation) {
        to.say("members: " + what, "m", 4, HEARTBEAT, "{groupId: '" + group + "', memberId: '" + member + "', generationId: " + generation + "}");
    }

    private void commit(String what, String group, String member, int generation, String topic) {
        to.say("members: " + what, "m", 8, OFFSET_COMMIT, "{groupId: '" + group + "', memberId: '" + member + "', generationIdOrMemberEpoch: " + generation + ", topics: [{name: '" + topic
            + "', partitions: [{partitionIndex: 0, committedOffset: 0}, {partitionIndex: 9, committedOffset: 0}]}]}");
    }

    private void into(String what, String id, long pid, int epoch, String group, String member, int generation) {
        to.say("members: " + what, "m", 3, TXN_OFFSET_COMMIT, "{transactionalId: '" + id + "', groupId: '" + group + "', producerId: " + pid + ", producerEpoch: " + epoch + ", memberId: '" + member + "', generationId: " + generation
            + ", topics: [{name: '" + T + "', partitions: [{partitionIndex: 0, committedOffset: 0}]}]}");
    }

    void script() throws Exception {
        to.create(T, 1);
        to.create("members-too", 1);
        String g = "members-g";
        joined("nobody knows it", "m", 5, join(g, "ghost", "consumer", "range"));
        joined("no protocols", "m", 5, join(g, "", "consumer"));
        joined("no type", "m", 5, join(g, "", "", "range"));
        joined("no group", "m", 5, join("", "", "consumer", "range"));
        joined("a session of a day", "m", 5, join(g, "", "consumer", "range").setSessionTimeoutMs(86_400_000));
        joined("a session below 0", "m", 5, join(g, "", "consumer", "range").setSessionTimeoutMs(-1));
        sync("a group that isn't there", 3, g, "ghost", 1, "");
        beat("a group that isn't there", g, "ghost", 1);
        to.say("members: leaves one that isn't there", "m", 4, LEAVE_GROUP, "{groupId: '" + g + "', members: [{memberId: 'ghost'}]}");
        commit("a group that isn't there commits", g, "ghost", 1, T);
        String one = joined("asks for a name", "m", 5, join(g, "", "consumer", "range"));
        beat("named, not joined", g, one, 0);
        sync("named, not joined", 3, g, one, 0, "");
        one = joined("joins", "m", 5, join(g, one, "consumer", "range", "roundrobin"));
        beat("before the others know", g, one, 1);
        commit("commits before it was given anything", g, one, 1, T);
        sync("of another generation", 3, g, one, 7, "");
        sync("of nobody", 3, g, "ghost", 1, "");
        sync("of another protocol", 5, g, one, 1, ", protocolType: 'consumer', protocolName: 'other'");
        sync("of another type", 5, g, one, 1, ", protocolType: 'connect', protocolName: 'range'");
        sync("is given its part", 5, g, one, 1, ", protocolType: 'consumer', protocolName: 'range', assignments: [{memberId: '" + one + "', assignment: 'part'}]");
        sync("asks again", 3, g, one, 1, "");
        beat("goes on", g, one, 1);
        beat("of another generation", g, one, 2);
        beat("of nobody", g, "ghost", 1);
        joined("a protocol that nobody has", "m", 5, join(g, "", "consumer", "other"));
        joined("another type", "m", 5, join(g, "", "connect", "range"));
        joined("joins again with nothing new, as leader not told to", "m", 5, join(g, "ghost", "consumer", "range"));
        commit("commits", g, one, 1, T);
        commit("commits in another generation", g, one, 0, T);
        commit("nobody commits", g, "ghost", 1, T);
        commit("an operator commits", g, "", -1, T);
        commit("commits a topic that isn't there", g, one, 1, "nowhere");
        commit("commits another topic", g, one, 1, "members-too");
        String id = "members-id";
        long p = ((InitProducerIdResponse) to.say("members: a producer", "m", 4, INIT_PRODUCER_ID, Requests.init(id, -1, -1))).data().producerId();
        to.say("members: with its group", "m", 3, ADD_OFFSETS_TO_TXN, "{transactionalId: '" + id + "', groupId: '" + g + "', producerId: " + p + ", producerEpoch: 0}");
        into("offsets of another generation", id, p, 0, g, one, 0);
        into("offsets of nobody", id, p, 0, g, "ghost", 1);
        into("offsets of no member", id, p, 0, g, "", -1);
        into("offsets of its member", id, p, 0, g, one, 1);
        to.say("members: abort", "m", 3, END_TXN, Requests.end(id, p, 0, false));
        Thread.sleep(300);
        for (int version : List.of(0, 4, 5, 6)) to.say("members: described", "m", version, DESCRIBE_GROUPS, "{groups: ['" + g + "', 'nowhere', '']}");
        to.say("members: described by the newer protocol", "m", 0, CONSUMER_GROUP_DESCRIBE, "{groupIds: ['" + g + "']}");
        to.say("members: joins by the newer protocol", "m", 0, CONSUMER_GROUP_HEARTBEAT, "{groupId: '" + g + "', memberId: 'n', memberEpoch: -1}");
        for (String filter : List.of("'Stable'", "'stable'", "'Dead'", "'Wrong'")) to.say("members: listed, " + filter, "m", 4, LIST_GROUPS, "{statesFilter: [" + filter + "]}");
        for (String filter : List.of("'classic'", "'Consumer'", "'share'", "'wrong'")) to.say("members: listed, types " + filter, "m", 5, LIST_GROUPS, "{statesFilter: ['Stable'], typesFilter: [" + filter + "]}");
        to.say("members: groups go", "m", 2, DELETE_GROUPS, "{groupsNames: ['" + g + "', 'nowhere', '']}");
        for (String topic : List.of(T, "members-too", "nowhere"))
            to.say("members: offsets go of " + topic, "m", 0, OFFSET_DELETE, "{groupId: '" + g + "', topics: [{name: '" + topic + "', partitions: [{partitionIndex: 0}, {partitionIndex: 9}]}]}");
        to.say("members: offsets go of no group", "m", 0, OFFSET_DELETE, "{groupId: 'nowhere', topics: [{name: '" + T + "', partitions: [{partitionIndex: 0}]}]}");
        to.say("members: offsets of every topic", "m", 8, OFFSET_FETCH, "{groups: [{groupId: '" + g + "', topics: null}]}");
        to.say("members: leaves, and so does nobody", "m", 4, LEAVE_GROUP, "{groupId: '" + g + "', members: [{memberId: 'ghost'}, {memberId: '" + one + "'}, {memberId: '', groupInstanceId: 'i'}]}");
        beat("after it left", g, one, 1);
        to.say("members: nobody is left", "m", 5, DESCRIBE_GROUPS, "{groups: ['" + g + "']}");
        to.say("members: offsets go", "m", 0, OFFSET_DELETE, "{groupId: '" + g + "', topics: [{name: '" + T + "', partitions: [{partitionIndex: 0}, {partitionIndex: 5}]}]}");
        statics();
        to.say("members: the group goes", "m", 2, DELETE_GROUPS, "{groupsNames: ['" + g + "']}");
        to.say("members: the group went", "m", 2, DELETE_GROUPS, "{groupsNames: ['" + g + "']}");
    }

    private void statics() {
        String g = "members-static";
        joined("static: a name nobody has", "m", 5, join(g, "ghost", "consumer", "range").setGroupInstanceId("i"));
        String one = joined("static: joins", "m", 5, join(g, "", "consumer", "range").setGroupInstanceId("i"));
        sync("static: is given its part", 3, g, one, 1, ", groupInstanceId: 'i', assignments: [{memberId: '" + one + "', assignment: 'part'}]");
        String two = joined("static: comes back", "m2", 5, join(g, "", "consumer", "range").setGroupInstanceId("i"));
        sync("static: asks for its part", 3, g, two, 1, ", groupInstanceId: 'i'");
        to.say("static: the one before goes on", "m", 4, HEARTBEAT, "{groupId: '" + g + "', memberId: '" + one + "', generationId: 1, groupInstanceId: 'i'}");
        to.say("static: an instance nobody has", "m", 4, HEARTBEAT, "{groupId: '" + g + "', memberId: '" + two + "', generationId: 1, groupInstanceId: 'j'}");
        to.say("static: the one before commits", "m", 8, OFFSET_COMMIT, "{groupId: '" + g + "', memberId: '" + one + "', generationIdOrMemberEpoch: 1, groupInstanceId: 'i', topics: [{name: '" + T + "', partitions: [{partitionIndex: 0, committedOffset: 0}]}]}");
        to.say("static: goes on", "m", 4, HEARTBEAT, "{groupId: '" + g + "', memberId: '" + two + "', generationId: 1, groupInstanceId: 'i'}");
        to.say("static: described", "m", 5, DESCRIBE_GROUPS, "{groups: ['" + g + "']}");
        to.say("static: leaves by another's name", "m", 4, LEAVE_GROUP, "{groupId: '" + g + "', members: [{memberId: '" + one + "', groupInstanceId: 'i'}]}");
        to.say("static: leaves by its instance", "m", 4, LEAVE_GROUP, "{groupId: '" + g + "', members: [{memberId: '', groupInstanceId: 'i'}]}");
    }
}
