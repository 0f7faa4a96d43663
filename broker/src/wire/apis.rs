//! The one table of what this server speaks: key, versions, and the shape of every request.
//!
//! `ApiVersions` answers from it, the guard reads requests by it, `docs/broker.md` is generated from it.
//!
//! A shape is Kafka's message schema in short. Fields stand one behind the other: `b` one byte, `h` `i` `l` integers of 2, 4
//! and 8 bytes, `u` a UUID, `s` a string, `y` bytes, `[x]` an array of plain `x`, `{ ... }` an array of structs. `3+:`,
//! `0-2:` and `13:` before a field say in which versions it is there. Whether strings are compact, and whether structs end
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
        "0-14:i i i i b 7+:i 7+:i { 0-12:s 13+:u { i 9+:i l 12+:i 5+:l i } } 7+:{ 0-12:s 13+:u [i] } 11+:s",
    ),
    api(ApiKey::ListOffsets, 1, 10, 6, "i 2+:b { s { i 4+:i l } } 10+:i"),
    api(ApiKey::Metadata, 0, 13, 9, "{ 10+:u s } 4+:b 8-10:b 8+:b"),
    api(ApiKey::FindCoordinator, 0, 6, 3, "0-3:s 1+:b 4+:[s]"),
    api(ApiKey::ApiVersions, 0, 4, 3, "3+:s 3+:s"),
    api(ApiKey::CreateTopics, 2, 7, 5, "{ s i h { i [i] } { s s } } i b"),
    api(ApiKey::InitProducerId, 0, 5, 2, "s i 3+:l 3+:h"),
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
