//! Words of groups: requests, answers, members.

use std::time::Duration;

use kafka_protocol::ResponseError;

/// A request that waits for its answer.
pub(crate) type Token = u64;

/// Somebody wants to be in the group, or to stay in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Join {
    /// Empty: the group gives one.
    pub(crate) member: String,
    /// A name that outlives the process (KIP-345).
    pub(crate) instance: Option<String>,
    pub(crate) client: String,
    pub(crate) host: String,
    pub(crate) session: Duration,
    pub(crate) rebalance: Duration,
    pub(crate) protocol_type: String,
    /// Names and what goes with them, the preferred one first.
    pub(crate) protocols: Vec<(String, Vec<u8>)>,
    /// A new member is given an id first and must join again with it (KIP-394), so that an answer that is lost leaves no ghost.
    pub(crate) id_first: bool,
    /// A leader may be told that nothing has to be assigned (version 9).
    pub(crate) can_skip: bool,
}

/// What a member is told when a generation begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) member: String,
    pub(crate) skip_assignment: bool,
    /// Id, instance and metadata of all members; for the leader alone.
    pub(crate) members: Vec<(String, Option<String>, Vec<u8>)>,
}

/// What a member is told once the leader has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) assignment: Vec<u8>,
}

/// A refusal; when an id was given, with that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) error: ResponseError,
    pub(crate) member: String,
}

impl From<ResponseError> for Refusal {
    fn from(error: ResponseError) -> Refusal {
        Refusal { error, member: String::new() }
    }
}

/// The answer to a request that has waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Join(Result<Joined, Refusal>),
    Sync(Result<Synced, ResponseError>),
}

/// Who asks for something beside joining.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    pub(crate) member: &'a str,
    pub(crate) instance: Option<&'a str>,
    pub(crate) generation: i32,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) instance: Option<String>,
    pub(crate) client: String,
    pub(crate) host: String,
    pub(crate) session: Duration,
    pub(crate) rebalance: Duration,
    pub(crate) protocols: Vec<(String, Vec<u8>)>,
    pub(crate) assignment: Vec<u8>,
    /// When it is given up unless it is heard of.
    pub(crate) deadline: Duration,
    pub(crate) joining: Option<Token>,
    pub(crate) syncing: Option<Token>,
}

impl Member {
    /// What it said along with a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Vec<u8> {
        let of = self.protocols.iter().find(|(name, _)| name == protocol);
        of.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    pub(crate) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }
}
