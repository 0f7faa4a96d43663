//! Topics by the UUIDs that newer clients name them with.
//!
//! A topic's UUID follows from its name and its number, which the log never uses again: a topic that was deleted and
//! created anew has another one. So nothing has to be stored.

use std::collections::HashMap;
use std::sync::Mutex;

use cutwater_partition_log::{Log, Topic, TopicId};
use kafka_protocol::messages::TopicName;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use crate::errors::text;

/// The UUID of a topic.
pub(crate) fn uuid(id: TopicId, name: &str) -> Uuid {
    let mut bytes = id.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    uuid::Builder::from_random_bytes(xxh3_128(&bytes).to_be_bytes()).into_uuid()
}

/// The topics seen so far, by UUID.
#[derive(Debug, Default)]
pub(crate) struct TopicIds {
    known: Mutex<HashMap<Uuid, String>>,
}

impl TopicIds {
    /// The topic of a UUID, if there is one.
    pub(crate) fn find(&self, log: &Log, id: Uuid) -> Option<Topic> {
        let known = self.known.lock().expect("no panic while looking up").get(&id).cloned();
        let name = known.or_else(|| {
            let all = log.topics().into_iter().map(|topic| (uuid(topic.id, &topic.name), topic.name)).collect();
            let mut known = self.known.lock().expect("no panic while looking up");
            *known = all;
            known.get(&id).cloned()
        });
        log.topic(&name?).filter(|topic| uuid(topic.id, &topic.name) == id)
    }

    /// The topic that a request names, by UUID or else by name.
    pub(crate) fn named(&self, log: &Log, name: &TopicName, id: Uuid) -> Option<Topic> {
        if id.is_nil() { log.topic(name.as_str()) } else { self.find(log, id) }
    }
}

/// A topic's name for a response.
pub(crate) fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}
