import static org.apache.kafka.common.protocol.ApiKeys.*;

import java.util.*;
import org.apache.kafka.common.protocol.ApiKeys;

/** What operators ask for: topics, partitions, settings, users and rules, and what of it has to be refused. */
final class Admin {
    private static final String T = "admin";
    private final Requests to;

    Admin(Requests to) { this.to = to; }

    private void ask(String what, int version, ApiKeys key, String fields) { to.say(what, "o", version, key, fields); }

    void script() throws Exception {
        to.create(T, 2, "retention.ms", "3600000");
        to.create("admin.dots", 1);
        topics();
        partitions();
        settings();
        records();
        cluster();
        users();
        rules();
    }

    private void creates(String what, String topics) { ask("topics: " + what, 4, CREATE_TOPICS, "{timeoutMs: 10000, validateOnly: true, topics: [" + topics + "]}"); }

    private void topics() throws Exception {
        String one = ", numPartitions: 1, replicationFactor: 1";
        for (String name : List.of("not a name", "", ".", "..", "x".repeat(249), "x".repeat(250), "admin_dots", "ünder", "__consumer_offsets")) creates("named " + (name.length() > 100 ? name.length() + " letters" : "'" + name + "'"), "{name: '" + name + "'" + one + "}");
        for (int count : List.of(-2, -1, 0, 10_001, Integer.MAX_VALUE)) creates(count + " partitions", "{name: 'admin-new', numPartitions: " + count + ", replicationFactor: 1}");
        for (int count : List.of(-2, -1, 0, 2)) creates(count + " replicas", "{name: 'admin-new', numPartitions: 1, replicationFactor: " + count + "}");
        creates("once more", "{name: '" + T + "'" + one + "}");
        creates("twice", "{name: 'admin-new'" + one + "}, {name: 'admin-new', numPartitions: 2, replicationFactor: 1}");
        creates("one good, one bad", "{name: 'admin-new'" + one + "}, {name: 'not a name'" + one + "}");
        creates("placed", "{name: 'admin-new', numPartitions: -1, replicationFactor: -1, assignments: [{partitionIndex: 0, brokerIds: [1]}, {partitionIndex: 1, brokerIds: [1]}]}");
        creates("placed and counted", "{name: 'admin-new', numPartitions: 1, replicationFactor: -1, assignments: [{partitionIndex: 0, brokerIds: [1]}]}");
        creates("placed nowhere", "{name: 'admin-new', numPartitions: -1, replicationFactor: -1, assignments: [{partitionIndex: 0, brokerIds: [9]}]}");
        creates("placed with a gap", "{name: 'admin-new', numPartitions: -1, replicationFactor: -1, assignments: [{partitionIndex: 1, brokerIds: [1]}]}");
        creates("placed twice on one", "{name: 'admin-new', numPartitions: -1, replicationFactor: -1, assignments: [{partitionIndex: 0, brokerIds: [1, 1]}]}");
        creates("placed on none", "{name: 'admin-new', numPartitions: -1, replicationFactor: -1, assignments: [{partitionIndex: 0, brokerIds: []}]}");
        for (String set : VALUES) creates("with " + set, "{name: 'admin-new'" + one + ", configs: [" + config(set) + "]}");
        creates("with one setting twice", "{name: 'admin-new'" + one + ", configs: [{name: 'retention.ms', value: '1'}, {name: 'retention.ms', value: '2'}]}");
        ask("topics: that were only looked at", 9, METADATA, "{topics: [{name: 'admin-new'}], allowAutoTopicCreation: false}");
        ask("topics: none", 4, CREATE_TOPICS, "{timeoutMs: 1000, topics: []}");
        ask("topics: in no time", 4, CREATE_TOPICS, "{timeoutMs: 10000, topics: [{name: 'admin-quick', numPartitions: 1, replicationFactor: 1, configs: [{name: 'cleanup.policy', value: 'compact'}]}]}");
        Thread.sleep(300);
        ask("topics: gone", 4, DELETE_TOPICS, "{timeoutMs: 10000, topicNames: ['admin-quick', 'nowhere', 'not a name', '']}");
        Thread.sleep(300);
        ask("topics: gone twice", 4, DELETE_TOPICS, "{timeoutMs: 10000, topicNames: ['admin-quick']}");
        ask("topics: gone by ids", 6, DELETE_TOPICS, "{timeoutMs: 10000, topics: [{name: null, topicId: 'xtzWWN4bTjitpL3kfd9s5g'}, {name: 'nowhere'}, {name: null}]}");
        ask("topics: gone by name and id", 6, DELETE_TOPICS, "{timeoutMs: 10000, topics: [{name: '" + T + "', topicId: 'xtzWWN4bTjitpL3kfd9s5g'}]}");
    }

    private void partitions() throws Exception {
        String more = "{timeoutMs: 10000, validateOnly: %s, topics: [%s]}";
        for (int count : List.of(-1, 0, 1, 2, 3, 20_000)) ask("partitions: " + count, 3, CREATE_PARTITIONS, more.formatted(true, "{name: '" + T + "', count: " + count + ", assignments: null}"));
        ask("partitions: no such topic", 3, CREATE_PARTITIONS, more.formatted(false, "{name: 'nowhere', count: 3, assignments: null}"));
        ask("partitions: not a name", 3, CREATE_PARTITIONS, more.formatted(false, "{name: 'not a name', count: 3, assignments: null}"));
        ask("partitions: twice", 3, CREATE_PARTITIONS, more.formatted(true, "{name: '" + T + "', count: 3, assignments: null}, {name: '" + T + "', count: 4, assignments: null}"));
        ask("partitions: placed", 3, CREATE_PARTITIONS, more.formatted(true, "{name: '" + T + "', count: 3, assignments: [{brokerIds: [1]}]}"));
        ask("partitions: too few places", 3, CREATE_PARTITIONS, more.formatted(true, "{name: '" + T + "', count: 4, assignments: [{brokerIds: [1]}]}"));
        ask("partitions: placed nowhere", 3, CREATE_PARTITIONS, more.formatted(true, "{name: '" + T + "', count: 3, assignments: [{brokerIds: [9]}]}"));
        ask("partitions: placed twice", 3, CREATE_PARTITIONS, more.formatted(true, "{name: '" + T + "', count: 3, assignments: [{brokerIds: [1, 1]}]}"));
        ask("partitions: one more", 3, CREATE_PARTITIONS, more.formatted(false, "{name: '" + T + "', count: 3, assignments: null}"));
        Thread.sleep(300);
        ask("partitions: one more than before", 9, METADATA, "{topics: [{name: '" + T + "'}], allowAutoTopicCreation: false}");
    }

    /** Settings with values that Kafka takes and some that it doesn't. */
    private static final List<String> VALUES = List.of("retention.ms=-1", "retention.ms=-2", "retention.ms=soon", "retention.ms=", "retention.ms= 5", "retention.bytes=-1", "retention.bytes=-5", "cleanup.policy=compact", "cleanup.policy=compact,delete",
        "cleanup.policy=shred", "cleanup.policy=", "segment.bytes=13", "segment.bytes=1048575", "segment.bytes=1048576", "segment.ms=0", "segment.ms=1", "min.cleanable.dirty.ratio=1.5", "min.cleanable.dirty.ratio=0", "max.message.bytes=-1", "max.message.bytes=0",
        "delete.retention.ms=-1", "min.compaction.lag.ms=-1", "max.compaction.lag.ms=0", "max.compaction.lag.ms=1", "compression.type=rar", "message.timestamp.type=Never", "min.insync.replicas=0", "unclean.leader.election.enable=maybe",
        "flush.messages=0", "index.interval.bytes=-1", "file.delete.delay.ms=-1", "no.such.setting=1", "flush.ms=-1");

    private static String config(String set) { return "{name: '" + set.split("=", 2)[0] + "', value: '" + set.split("=", 2)[1] + "'}"; }

    private void settings() throws Exception {
        String keys = ", configurationKeys: ['cleanup.policy', 'retention.ms', 'min.cleanable.dirty.ratio', 'delete.retention.ms', 'min.compaction.lag.ms', 'max.compaction.lag.ms', 'min.insync.replicas', 'no.such.setting']";
        for (int version : List.of(1, 2, 3, 4)) ask("settings: of a topic", version, DESCRIBE_CONFIGS, "{resources: [{resourceType: 2, resourceName: '" + T + "'" + keys + "}], includeSynonyms: false, includeDocumentation: false}");
        for (String resource : List.of("2, resourceName: 'nowhere'", "2, resourceName: ''", "2, resourceName: 'not a name'", "4, resourceName: '9'", "4, resourceName: 'x'", "0, resourceName: 'x'", "1, resourceName: 'x'", "3, resourceName: 'x'", "77, resourceName: 'x'"))
            ask("settings: of " + resource, 4, DESCRIBE_CONFIGS, "{resources: [{resourceType: " + resource + ", configurationKeys: ['retention.ms']}]}");
        for (String set : VALUES) {
            ask("settings: " + set, 2, ALTER_CONFIGS, "{validateOnly: true, resources: [{resourceType: 2, resourceName: '" + T + "', configs: [" + config(set) + "]}]}");
            ask("settings: " + set, 1, INCREMENTAL_ALTER_CONFIGS, "{validateOnly: true, resources: [{resourceType: 2, resourceName: '" + T + "', configs: [" + config(set).replace("{", "{configOperation: 0, ") + "]}]}");
        }
        for (int operation : List.of(1, 2, 3, 4, -1)) for (String set : List.of("cleanup.policy=compact", "retention.ms=5"))
            ask("settings: operation " + operation + " " + set, 1, INCREMENTAL_ALTER_CONFIGS, "{validateOnly: true, resources: [{resourceType: 2, resourceName: '" + T + "', configs: [" + config(set).replace("{", "{configOperation: " + operation + ", ") + "]}]}");
        String some = "{validateOnly: %s, resources: [{resourceType: %s, configs: [%s]}]}";
        for (String resource : List.of("2, resourceName: 'nowhere'", "2, resourceName: ''", "4, resourceName: '9'", "0, resourceName: 'x'", "3, resourceName: 'x'")) {
            ask("settings: changed of " + resource, 1, INCREMENTAL_ALTER_CONFIGS, some.formatted(true, resource, "{name: 'retention.ms', configOperation: 0, value: '5'}"));
            ask("settings: changed of " + resource, 2, ALTER_CONFIGS, some.formatted(true, resource, "{name: 'retention.ms', value: '5'}"));
        }
        ask("settings: no value", 1, INCREMENTAL_ALTER_CONFIGS, some.formatted(true, "2, resourceName: '" + T + "'", "{name: 'retention.ms', configOperation: 0, value: null}"));
        ask("settings: no value", 2, ALTER_CONFIGS, some.formatted(true, "2, resourceName: '" + T + "'", "{name: 'retention.ms', value: null}"));
        ask("settings: one twice", 1, INCREMENTAL_ALTER_CONFIGS, some.formatted(true, "2, resourceName: '" + T + "'", "{name: 'retention.ms', configOperation: 0, value: '5'}, {name: 'retention.ms', configOperation: 1, value: null}"));
        ask("settings: one topic twice", 1, INCREMENTAL_ALTER_CONFIGS, "{validateOnly: true, resources: [{resourceType: 2, resourceName: '" + T + "', configs: [{name: 'retention.ms', configOperation: 0, value: '5'}]}, {resourceType: 2, resourceName: '" + T + "', configs: [{name: 'segment.ms', configOperation: 0, value: '5'}]}]}");
        ask("settings: two are set", 1, INCREMENTAL_ALTER_CONFIGS, some.formatted(false, "2, resourceName: '" + T + "'", "{name: 'delete.retention.ms', configOperation: 0, value: '5'}, {name: 'cleanup.policy', configOperation: 2, value: 'compact'}"));
        Thread.sleep(300);
        ask("settings: they are set", 4, DESCRIBE_CONFIGS, "{resources: [{resourceType: 2, resourceName: '" + T + "'" + keys + "}], includeSynonyms: false, includeDocumentation: false}");
        ask("settings: anew", 2, ALTER_CONFIGS, some.formatted(false, "2, resourceName: '" + T + "'", "{name: 'min.insync.replicas', value: '1'}, {name: 'retention.ms', value: '1000'}"));
        Thread.sleep(300);
        ask("settings: they are new", 4, DESCRIBE_CONFIGS, "{resources: [{resourceType: 2, resourceName: '" + T + "'" + keys + "}], includeSynonyms: false, includeDocumentation: false}");
    }

    private void records() {
        String delete = "{timeoutMs: 5000, topics: [{name: '%s', partitions: [{partitionIndex: %d, offset: %d}]}]}";
        for (int offset : List.of(-1, -2, 0, 1)) ask("records: deleted below " + offset, 2, DELETE_RECORDS, delete.formatted(T, 0, offset));
        ask("records: of no partition", 2, DELETE_RECORDS, delete.formatted(T, 9, 0));
        ask("records: of no topic", 2, DELETE_RECORDS, delete.formatted("nowhere", 0, 0));
    }

    private void cluster() {
        for (int version : List.of(0, 1)) for (boolean rights : List.of(false, true)) ask("cluster: rights " + rights, version, DESCRIBE_CLUSTER, "{includeClusterAuthorizedOperations: " + rights + "}");
        ask("cluster: of controllers", 1, DESCRIBE_CLUSTER, "{endpointType: 2}");
        ask("cluster: of what isn't", 1, DESCRIBE_CLUSTER, "{endpointType: 3}");
        ask("cluster: reassigned", 0, LIST_PARTITION_REASSIGNMENTS, "{timeoutMs: 1000, topics: null}");
        ask("cluster: reassigned of one", 0, LIST_PARTITION_REASSIGNMENTS, "{timeoutMs: 1000, topics: [{name: '" + T + "', partitionIndexes: [0]}, {name: 'nowhere', partitionIndexes: [0]}]}");
        for (int kind : List.of(0, 1, 2, 7)) for (int version : List.of(3, 4)) ask("cluster: coordinator of kind " + kind, version, FIND_COORDINATOR, version == 3 ? "{key: 'g', keyType: " + kind + "}" : "{coordinatorKeys: ['g', ''], keyType: " + kind + "}");
        ask("cluster: no key", 3, FIND_COORDINATOR, "{key: '', keyType: 0}");
        ask("cluster: no keys", 4, FIND_COORDINATOR, "{coordinatorKeys: [], keyType: 0}");
        ask("cluster: a user without a listener for it", 1, SASL_HANDSHAKE, "{mechanism: 'SCRAM-SHA-256'}");
        ask("cluster: and its password", 2, SASL_AUTHENTICATE, "{authBytes: 'x'}");
    }

    private void users() throws Exception {
        ask("users: of nobody", 0, DESCRIBE_USER_SCRAM_CREDENTIALS, "{users: [{name: 'ghost'}]}");
        ask("users: without a name", 0, DESCRIBE_USER_SCRAM_CREDENTIALS, "{users: [{name: ''}]}");
        ask("users: twice", 0, DESCRIBE_USER_SCRAM_CREDENTIALS, "{users: [{name: 'ghost'}, {name: 'ghost'}]}");
        String salt = ", salt: 'salt of a user', saltedPassword: '0123456789abcdef0123456789abcdef'";
        for (String made : List.of("name: 'carol', mechanism: 1, iterations: 4095", "name: 'carol', mechanism: 1, iterations: 16385", "name: 'carol', mechanism: 0, iterations: 4096", "name: 'carol', mechanism: 7, iterations: 4096", "name: '', mechanism: 1, iterations: 4096"))
            ask("users: made, " + made, 0, ALTER_USER_SCRAM_CREDENTIALS, "{upsertions: [{" + made + salt + "}]}");
        ask("users: removed that isn't", 0, ALTER_USER_SCRAM_CREDENTIALS, "{deletions: [{name: 'ghost', mechanism: 1}]}");
        ask("users: removed by another mechanism", 0, ALTER_USER_SCRAM_CREDENTIALS, "{deletions: [{name: 'ghost', mechanism: 5}]}");
        ask("users: removed without a name", 0, ALTER_USER_SCRAM_CREDENTIALS, "{deletions: [{name: '', mechanism: 1}]}");
        ask("users: made twice", 0, ALTER_USER_SCRAM_CREDENTIALS, "{upsertions: [{name: 'carol', mechanism: 1, iterations: 4096" + salt + "}, {name: 'carol', mechanism: 1, iterations: 8192" + salt + "}]}");
        ask("users: made and removed", 0, ALTER_USER_SCRAM_CREDENTIALS, "{deletions: [{name: 'carol', mechanism: 1}], upsertions: [{name: 'carol', mechanism: 1, iterations: 4096" + salt + "}]}");
        ask("users: one good, one bad", 0, ALTER_USER_SCRAM_CREDENTIALS, "{upsertions: [{name: 'carol', mechanism: 1, iterations: 4096" + salt + "}, {name: 'dave', mechanism: 1, iterations: 5" + salt + "}]}");
        ask("users: no change", 0, ALTER_USER_SCRAM_CREDENTIALS, "{}");
        Thread.sleep(300);
        ask("users: of the good one", 0, DESCRIBE_USER_SCRAM_CREDENTIALS, "{users: [{name: 'carol'}, {name: 'dave'}]}");
        ask("users: all", 0, DESCRIBE_USER_SCRAM_CREDENTIALS, "{users: null}");
        ask("users: no one", 0, DESCRIBE_USER_SCRAM_CREDENTIALS, "{users: []}");
        ask("users: removed", 0, ALTER_USER_SCRAM_CREDENTIALS, "{deletions: [{name: 'carol', mechanism: 1}]}");
    }

    private static String rule(String name, int type, int pattern, String principal, String host, int operation, int permission) {
        return "{resourceType: " + type + ", resourceName: '" + name + "', resourcePatternType: " + pattern + ", principal: '" + principal + "', host: '" + host + "', operation: " + operation + ", permissionType: " + permission + "}";
    }

    private static String filter(String name, int type, int pattern, String principal, String host, int operation, int permission) {
        return "{resourceTypeFilter: " + type + ", resourceNameFilter: " + name + ", patternTypeFilter: " + pattern + ", principalFilter: " + principal + ", hostFilter: " + host + ", operation: " + operation + ", permissionType: " + permission + "}";
    }

    private void rules() throws Exception {
        for (String bad : List.of(
            rule("r", 0, 3, "User:x", "*", 3, 3), rule("r", 1, 3, "User:x", "*", 3, 3), rule("r", 77, 3, "User:x", "*", 3, 3), rule("", 2, 3, "User:x", "*", 3, 3), rule("r", 2, 0, "User:x", "*", 3, 3), rule("r", 2, 1, "User:x", "*", 3, 3),
            rule("r", 2, 2, "User:x", "*", 3, 3), rule("r", 2, 3, "x", "*", 3, 3), rule("r", 2, 3, "", "*", 3, 3), rule("r", 2, 3, "Group:x", "*", 3, 3), rule("r", 2, 3, "User:", "*", 3, 3), rule("r", 2, 3, "User:x", "", 3, 3), rule("r", 2, 3, "User:x", "not a host", 3, 3),
            rule("r", 2, 3, "User:x", "*", 0, 3), rule("r", 2, 3, "User:x", "*", 1, 3), rule("r", 2, 3, "User:x", "*", 77, 3), rule("r", 2, 3, "User:x", "*", 12, 3), rule("r", 2, 3, "User:x", "*", 3, 0), rule("r", 2, 3, "User:x", "*", 3, 1),
            rule("r", 4, 3, "User:x", "*", 3, 3), rule("kafka-cluster", 4, 3, "User:x", "*", 3, 3), rule("kafka-cluster", 4, 4, "User:x", "*", 12, 3), rule("r", 3, 3, "User:x", "*", 4, 3), rule("not a name", 2, 3, "User:x", "*", 3, 3)))
            ask("rules: " + bad.replaceAll("\\w+: ", ""), 3, CREATE_ACLS, "{creations: [" + bad + "]}");
        Thread.sleep(300);
        for (String at : List.of("'User:x'", "'Group:x'", "'User:'")) ask("rules: that were taken of " + at, 3, DESCRIBE_ACLS, filter("null", 1, 1, at, "null", 1, 1));
        ask("rules: all away", 3, DELETE_ACLS, "{filters: [" + filter("null", 1, 1, "null", "null", 1, 1) + "]}");
        Thread.sleep(300);
        ask("rules: one", 3, CREATE_ACLS, "{creations: [" + rule("team", 2, 4, "User:x", "*", 3, 3) + "]}");
        ask("rules: the same again", 3, CREATE_ACLS, "{creations: [" + rule("team", 2, 4, "User:x", "*", 3, 3) + ", " + rule("team-a", 2, 3, "User:y", "127.0.0.1", 2, 2) + ", " + rule("*", 3, 3, "User:*", "*", 3, 3) + "]}");
        Thread.sleep(300);
        for (String f : List.of(filter("null", 1, 1, "null", "null", 1, 1), filter("'team-a'", 2, 2, "null", "null", 1, 1), filter("'team-a'", 2, 3, "null", "null", 1, 1), filter("'team'", 2, 4, "null", "null", 1, 1), filter("'team-a'", 2, 1, "null", "null", 1, 1),
            filter("'any'", 3, 2, "null", "null", 1, 1), filter("null", 1, 1, "'User:x'", "null", 1, 1), filter("null", 1, 1, "null", "'127.0.0.1'", 1, 1), filter("null", 1, 1, "null", "null", 2, 1), filter("null", 1, 1, "null", "null", 1, 2),
            filter("null", 0, 1, "null", "null", 1, 1), filter("null", 1, 0, "null", "null", 1, 1), filter("null", 1, 1, "null", "null", 0, 1), filter("null", 1, 1, "null", "null", 1, 0), filter("null", 77, 1, "null", "null", 1, 1)))
            for (int version : List.of(1, 3)) ask("rules: found by " + f.replaceAll("\\w+: ", ""), version, DESCRIBE_ACLS, f);
        for (String f : List.of(filter("null", 0, 1, "null", "null", 1, 1), filter("null", 1, 0, "null", "null", 1, 1), filter("'nobody'", 2, 3, "null", "null", 1, 1), filter("'team-a'", 2, 2, "null", "null", 1, 3), filter("null", 1, 1, "null", "null", 1, 1)))
            ask("rules: gone by " + f.replaceAll("\\w+: ", ""), 3, DELETE_ACLS, "{filters: [" + f + "]}");
        ask("rules: none left", 3, DESCRIBE_ACLS, filter("null", 1, 1, "null", "null", 1, 1));
    }
}
