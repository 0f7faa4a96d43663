//! What each request of a job in another process needs, where rights are asked for. Pure but for the look at topics' names.
//!
//! A job's transactions are a transactional id to rules: [`PREFIX`] and its owner in 32 hexadecimal digits, so that a rule with the
//! prefix is about all jobs, and a literal one about one. What is read is asked of `Fetch`, as of everybody. ClusterAction on the
//! cluster stands for all of it, as it does among Kafka's servers.

use std::collections::BTreeSet;
use std::fmt::Display;

use cutwater_partition_log::remote::{Ask, AttemptOf, Refusal, Request, Why};
use cutwater_partition_log::{GroupProgress, OwnerId, TopicId};

use crate::access::acl::{CLUSTER, Kind, Operation, Who};
use crate::service::{Caller, Service};

/// How the transactional id of a job begins.
pub(super) const PREFIX: &str = "cutwater-job-";

/// Whether the caller may ask that.
///
/// # Errors
/// The first right that is missing, in words.
pub(super) fn check(service: &Service, caller: &Caller, request: &Request) -> Result<(), Refusal> {
    if !service.access.authorizes() {
        return Ok(());
    }
    let asker = Asker { service, who: caller.who() };
    if asker.may(Operation::ClusterAction, Kind::Cluster, CLUSTER) {
        return Ok(());
    }
    match request {
        Request::Topic { name } => asker.topic(Operation::Describe, name),
        Request::TopicOrNew { name, .. } => {
            asker.topic(Operation::Describe, name)?;
            let made = service.log.topic(name).is_some() || asker.may(Operation::Create, Kind::Cluster, CLUSTER);
            if made { Ok(()) } else { asker.topic(Operation::Create, name) }
        }
        Request::Attempt { of, ask } => asker.attempt(*of, ask),
    }
}

struct Asker<'a> {
    service: &'a Service,
    who: Who<'a>,
}

impl Asker<'_> {
    fn may(&self, operation: Operation, kind: Kind, name: &str) -> bool {
        self.service.access.allowed(&self.who, operation, kind, name)
    }

    fn topic(&self, operation: Operation, name: &str) -> Result<(), Refusal> {
        match self.may(operation, Kind::Topic, name) {
            true => Ok(()),
            false => Err(self.lacks(operation, &format_args!("the topic {name:?}"), &format_args!("--topic {name}"))),
        }
    }

    fn attempt(&self, of: AttemptOf, ask: &Ask) -> Result<(), Refusal> {
        let nobody = of.owner == OwnerId(0) && of.attempt == 0;
        match ask {
            Ask::Producer | Ask::Append { .. } if nobody => {}
            Ask::Live | Ask::Outcomes { .. } => self.transactions(Operation::Describe, of.owner)?,
            _ => self.transactions(Operation::Write, of.owner)?,
        }
        match ask {
            Ask::Append { topic, .. } => match self.service.log.topic_by_id(*topic) {
                Some(topic) => self.topic(Operation::Write, &topic.name),
                // There may have been one: who may write to no topic learns nothing, and others hear it from the log.
                None => self.somewhere(),
            },
            Ask::Producer if nobody => self.somewhere(),
            Ask::CommitWith { progress, .. } => progress.iter().try_for_each(|of| self.group(of)),
            _ => Ok(()),
        }
    }

    /// As a commit of offsets needs it.
    fn group(&self, GroupProgress { group, offsets }: &GroupProgress) -> Result<(), Refusal> {
        if !self.may(Operation::Read, Kind::Group, group) {
            let flags = format_args!("--group {group}");
            return Err(self.lacks(Operation::Read, &format_args!("the group {group:?}"), &flags));
        }
        let topics: BTreeSet<TopicId> = offsets.iter().map(|offset| offset.at.topic).collect();
        let named = topics.into_iter().filter_map(|topic| self.service.log.topic_by_id(topic));
        named.into_iter().try_for_each(|topic| self.topic(Operation::Read, &topic.name))
    }

    /// Whether there is a topic that may be written to, or might be (KIP-679).
    fn somewhere(&self) -> Result<(), Refusal> {
        let writes = self.service.access.allowed_somewhere(&self.who, Operation::Write, Kind::Topic);
        match writes || self.may(Operation::IdempotentWrite, Kind::Cluster, CLUSTER) {
            true => Ok(()),
            false => Err(self.lacks(Operation::Write, &"some topic", &"--topic NAME")),
        }
    }

    fn transactions(&self, operation: Operation, owner: OwnerId) -> Result<(), Refusal> {
        let id = format!("{PREFIX}{owner}");
        match self.may(operation, Kind::TransactionalId, &id) {
            true => Ok(()),
            false => {
                let flags = format!("--transactional-id {PREFIX} --resource-pattern-type prefixed");
                Err(self.lacks(operation, &format_args!("the transactional id {id}"), &flags))
            }
        }
    }

    fn lacks(&self, operation: Operation, what: &dyn Display, flags: &dyn Display) -> Refusal {
        let Who { user, address } = self.who;
        tracing::debug!(user, address, ?operation, %what, "denied to a job");
        let said = format!(
            "User:{user} may not: that needs the right {operation:?} on {what} (kafka-acls --add --allow-principal User:{user} --operation \
             {operation:?} {flags})"
        );
        Refusal::new(Why::NotAllowed, &said)
    }
}
