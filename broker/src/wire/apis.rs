//! The one table of what this server speaks: key, versions, and the shape of every request.
//!
//! `ApiVersions` answers from it, the guard reads requests by it, `docs/broker.md` is generated from it.
//!
//! A shape is Kafka's message schema in short. Fields stand one behind the other: `b` one byte, `h` `i` `l` integers of 2, 4
//! and 8 bytes, `u` a UUID, `s` a string, `y` bytes, `[x]` an array of plain `x`, `{ ... }` an array of structs. `3+:`,
//! `0-2:` and `13:` before a field say in which versions it is there. `<0 x>` is a tagged field of number 0 that holds an `x`,
//! and `( ... )` in it a struct; they may stand anywhere among the others. `?( ... )` is a struct that may be null. Whether strings are compact, and whether structs end
//! with tagged fields, follows from the version alone. A test encodes every request in every version and has the guard
//! read it to the last byte, so that no shape can differ from what `kafka-protocol` decodes.

use kafka_protocol::messages::ApiKey;

/// One API.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    /// Kafka's key.
    pub key: ApiKey,
    /// The oldest and the newest version that is served.
    pub versions: (i16, i16),
    /// The oldest version that is named in the answer to `ApiVersions`, where that isn't the oldest served.
    pub listed_from: i16,
    /// From this version on its requests have compact lengths and tagged fields.
    pub flexible_from: i16,
    /// The request's fields.
    pub shape: &'static str,
    /// Its frames may be as large as any; others are bounded by [`SMALL_FRAME_BYTES`].
    pub large: bool,
}

/// No request but those that carry records is larger.
pub const SMALL_FRAME_BYTES: usize = 4 << 20;

/// Of an API that has no flexible versions.
const NEVER: i16 = i16::MAX;

const fn api(key: ApiKey, from: i16, to: i16, flexible_from: i16, shape: &'static str) -> Api {
    Api { key, versions: (from, to), listed_from: from, flexible_from, shape, large: false }
}

/// Everything that is served.
///
/// Produce is listed from version 0 on though older ones than 3 are refused: librdkafka decides by version 0 whether it may
/// compress (KAFKA-18659).
pub const APIS: &[Api] = &[
    Api { listed_from: 0, large: true, ..api(ApiKey::Produce, 3, 12, 9, "s h i { s { i y } }") },
    api(
        ApiKey::Fetch,
        4,
        17,
        12,
        "0-14:i i i i b 7+:i 7+:i { 0-12:s 13+:u { i 9+:i l 12+:i 5+:l i 17+:<0 u> } } 7+:{ 0-12:s 13+:u [i] } 11+:s \
         <0 s> 15+:<1 (i l)>",
    ),
    api(ApiKey::ListOffsets, 1, 10, 6, "i 2+:b { s { i 4+:i l } } 10+:i"),
    api(ApiKey::Metadata, 0, 13, 9, "{ 10+:u s } 4+:b 8-10:b 8+:b"),
    api(ApiKey::OffsetCommit, 2, 9, 8, "s i s 7+:s 2-4:l { s { i l 6+:i s } }"),
    api(ApiKey::OffsetFetch, 1, 9, 6, "0-7:s 0-7:{ s [i] } 8+:{ s 9+:s 9+:i { s [i] } } 7+:b"),
    api(ApiKey::FindCoordinator, 0, 6, 3, "0-3:s 1+:b 4+:[s]"),
    api(ApiKey::JoinGroup, 0, 9, 6, "s i 1+:i s 5+:s s { s y } 8+:s"),
    api(ApiKey::Heartbeat, 0, 4, 4, "s i s 3+:s"),
    api(ApiKey::LeaveGroup, 0, 5, 4, "s 0-2:s 3+:{ s s 5+:s }"),
    api(ApiKey::SyncGroup, 0, 5, 4, "s i s 3+:s 5+:s 5+:s { s y }"),
    api(ApiKey::DescribeGroups, 0, 6, 5, "[s] 3+:b"),
    api(ApiKey::ListGroups, 0, 5, 3, "4+:[s] 5+:[s]"),
    api(ApiKey::SaslHandshake, 0, 1, NEVER, "s"),
    api(ApiKey::ApiVersions, 0, 4, 3, "3+:s 3+:s"),
    api(ApiKey::CreateTopics, 2, 7, 5, "{ s i h { i [i] } { s s } } i b"),
    api(ApiKey::DeleteTopics, 1, 6, 4, "6+:{ s u } 0-5:[s] i"),
    api(ApiKey::DeleteRecords, 0, 2, 2, "{ s { i l } } i"),
    api(ApiKey::InitProducerId, 0, 5, 2, "s i 3+:l 3+:h"),
    api(ApiKey::OffsetForLeaderEpoch, 2, 4, 4, "3+:i { s { i i i } }"),
    api(ApiKey::AddPartitionsToTxn, 0, 3, 3, "s l h { s [i] }"),
    api(ApiKey::AddOffsetsToTxn, 0, 4, 3, "s l h s"),
    api(ApiKey::EndTxn, 0, 5, 3, "s l h b"),
    api(ApiKey::WriteTxnMarkers, 1, 1, 1, "{ l h b { s [i] } i }"),
    api(ApiKey::TxnOffsetCommit, 0, 5, 3, "s s l h 3+:i 3+:s 3+:s { s { i l 2+:i s } }"),
    api(ApiKey::DescribeAcls, 1, 3, 2, "b s b s s b b"),
    api(ApiKey::CreateAcls, 1, 3, 2, "{ b s b s s b b }"),
    api(ApiKey::DeleteAcls, 1, 3, 2, "{ b s b s s b b }"),
    api(ApiKey::DescribeConfigs, 1, 4, 4, "{ b s [s] } b 3+:b"),
    api(ApiKey::AlterConfigs, 0, 2, 2, "{ b s { s s } } b"),
    api(ApiKey::DescribeLogDirs, 1, 4, 2, "{ s [i] }"),
    api(ApiKey::SaslAuthenticate, 0, 2, 2, "y"),
    api(ApiKey::CreatePartitions, 0, 3, 2, "{ s i { [i] } } i b"),
    api(ApiKey::DeleteGroups, 0, 2, 2, "[s]"),
    api(ApiKey::IncrementalAlterConfigs, 0, 1, 1, "{ b s { s b s } } b"),
    api(ApiKey::ListPartitionReassignments, 0, 0, 0, "i { s [i] }"),
    api(ApiKey::OffsetDelete, 0, 0, NEVER, "s { s { i } }"),
    api(ApiKey::DescribeUserScramCredentials, 0, 0, 0, "{ s }"),
    api(ApiKey::AlterUserScramCredentials, 0, 0, 0, "{ s b } { s b i y y }"),
    api(ApiKey::DescribeCluster, 0, 2, 0, "b 1+:b 2+:b"),
    api(ApiKey::DescribeProducers, 0, 0, 0, "{ s [i] }"),
    api(ApiKey::DescribeTransactions, 0, 0, 0, "[s]"),
    api(ApiKey::ListTransactions, 0, 2, 0, "[s] [l] 1+:l 2+:s"),
    api(ApiKey::ConsumerGroupHeartbeat, 0, 1, 0, "s s i s s i [s] 1+:s s { u [i] }"),
    api(ApiKey::ConsumerGroupDescribe, 0, 1, 0, "[s] b"),
    api(ApiKey::DescribeTopicPartitions, 0, 0, 0, "{ s } i ?(s i)"),
];

/// The API of a key, if it is served.
pub fn find(key: i16) -> Option<&'static Api> {
    APIS.iter().find(|api| api.key as i16 == key)
}

impl Api {
    /// Whether this version is served.
    pub fn serves(&self, version: i16) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }

    /// Whether requests of this version have compact lengths and tagged fields.
    pub fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }
}
