//! The API of our own: what the attempts of jobs in other processes ask of the log (`docs/formats/owner-requests.md`).
//!
//! The promise is the log's own: each request is judged by the newest attempt of its owner (I-7), all transactions of one commit end in
//! one write (I-1, I-6), and whatever is asked again, because its answer was missed, is answered as what it is: done already. An
//! append is answered when the log has accepted it; what is lost of it in a crash is noticed at the prepare.
//!
//! It stands beside Kafka's APIs, not among them: its requests have one byte that says what they are, so they have no shape for the
//! guard, and `cutwater_partition_log::remote` reads them with the guard's own care. It is listed to our own clients alone.

use std::sync::Arc;

use bytes::Bytes;
use cutwater_partition_log::remote::{
    API_KEY, API_VERSION, API_VERSION_MIN, Answer, Ask, AttemptOf, PAGE, Refusal, RemoteTopic, Request, Why,
};
use cutwater_partition_log::{GroupProgress, Topic, TxnName};
use kafka_protocol::protocol::StrBytes;

use super::owner_rights;
use crate::service::{Caller, Reply, Service};
use crate::topic_ids;
use crate::wire::guard::{self, Malformed};

/// Key, version and correlation id.
const HEAD_BYTES: usize = 2 + 2 + 4;

/// A request of ours, its header read.
pub(crate) struct OwnersFrame {
    correlation: i32,
    body: Bytes,
}

/// Whether a frame is a request of this API, and what it is then.
///
/// # Errors
/// Its header is cut short or names a version that isn't served.
pub(crate) fn read(frame: &Bytes) -> Option<Result<OwnersFrame, String>> {
    let head = frame.get(..HEAD_BYTES)?;
    let int16 = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
    if int16(0) != API_KEY {
        return None;
    }
    if !(API_VERSION_MIN..=API_VERSION).contains(&int16(2)) {
        return Some(Err(format!("the API of owners is not served in version {}", int16(2))));
    }
    let correlation = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let header = guard::skip_header_end(false, &frame[HEAD_BYTES..]).map_err(|e: Malformed| e.to_string());
    Some(header.map(|skipped| OwnersFrame { correlation, body: frame.slice(HEAD_BYTES + skipped..) }))
}

/// Carries a request out.
pub(crate) fn call(service: &Arc<Service>, caller: &Caller, frame: OwnersFrame) -> Reply {
    let OwnersFrame { correlation, body } = frame;
    if !caller.session().is_through() {
        return Reply::Close("the log of a job was asked for by somebody who hasn't proved who it is".to_string());
    }
    match Request::decode(&body) {
        Ok(request) => match owner_rights::check(service, caller, &request) {
            Ok(()) => carry_out(service, caller, correlation, request),
            Err(refusal) => frame_of(correlation, Err(refusal)),
        },
        Err(refused) => Reply::Close(refused.to_string()),
    }
}

fn carry_out(service: &Arc<Service>, caller: &Caller, correlation: i32, request: Request) -> Reply {
    let answered = match request {
        Request::Topic { name } => topic(service, &name),
        Request::TopicOrNew { name, partitions } => topic_or_new(service, &name, partitions),
        Request::Attempt { of, ask: Ask::Append { topic, partition, durable: true, batch } } => {
            match service.log.attempt(of.owner, of.attempt).append_durably(topic, partition, batch) {
                Ok(ticket) => {
                    // The connection reads on meanwhile, so that several batches share one write.
                    return Reply::Later(Box::new(move || {
                        let answered = ticket.wait().map(Answer::Appended).map_err(Refusal::from);
                        frame_of(correlation, answered)
                    }));
                }
                Err(error) => Err(error.into()),
            }
        }
        Request::Attempt { of, ask } => {
            if ask == Ask::Claim {
                tracing::info!(owner = %of.owner, attempt = of.attempt, from = caller.address, "a job claims the log");
            }
            attempt(service, of, ask)
        }
    };
    frame_of(correlation, answered)
}

fn frame_of(correlation: i32, answered: Result<Answer, Refusal>) -> Reply {
    let answer = answered.unwrap_or_else(Answer::Refused);
    let mut frame = vec![0; 4];
    frame.extend_from_slice(&correlation.to_be_bytes());
    answer.encode(&mut frame);
    match i32::try_from(frame.len() - 4) {
        Ok(length) => {
            frame[..4].copy_from_slice(&length.to_be_bytes());
            Reply::Now(frame.into())
        }
        Err(_) => Reply::Close("an answer to an owner is larger than a frame can be".to_string()),
    }
}

fn topic(service: &Service, name: &str) -> Result<Answer, Refusal> {
    Ok(Answer::Topic(service.log.topic(name).and_then(|topic| place(service, topic))))
}

fn topic_or_new(service: &Service, name: &str, partitions: u32) -> Result<Answer, Refusal> {
    service.log.create_topic_if_absent(name, partitions)?;
    match topic(service, name)? {
        Answer::Topic(None) => {
            Err(Refusal::new(Why::Invalid, &format!("topic {name:?} was deleted as soon as it was made")))
        }
        there => Ok(there),
    }
}

/// A topic that somebody creates at this moment isn't there before it is durable; one that is being deleted isn't any more.
fn place(service: &Service, topic: Topic) -> Option<RemoteTopic> {
    let offsets = |partition| service.log.offsets(topic.id, partition).ok();
    let partitions = (0..topic.partitions).map(offsets).collect::<Option<_>>()?;
    Some(RemoteTopic { id: topic.id, uuid: topic_ids::uuid(topic.id, &topic.name).as_u128(), partitions })
}

fn attempt(service: &Service, of: AttemptOf, ask: Ask) -> Result<Answer, Refusal> {
    let log = &service.log;
    let owner = log.attempt(of.owner, of.attempt);
    Ok(match ask {
        Ask::Claim => {
            log.claim(&of.owner, of.attempt)?;
            Answer::Done
        }
        Ask::Producer => Answer::Producer { id: log.allocate_producer()?, epoch: 0 },
        Ask::Begin { checkpoint, sink, writer } => {
            let (id, epoch) = owner.begin_for_writer(TxnName { checkpoint, sink, writer })?;
            Answer::Producer { id, epoch }
        }
        Ask::Append { topic, partition, batch, .. } => Answer::Appended(owner.append_stamped(topic, partition, batch)?),
        Ask::Prepare { id, sent } => {
            owner.prepare_for_writer(&id, sent)?;
            Answer::Done
        }
        Ask::Commit { ids } => {
            let outcome = owner.commit(&ids)?;
            Answer::Ended { now: outcome.committed, already: outcome.already }
        }
        Ask::CommitWith { ids, progress } => {
            let outcome = owner.commit_with_progress(&ids, &without_members(service, progress))?;
            Answer::Ended { now: outcome.committed, already: outcome.already }
        }
        Ask::Abort { ids } => {
            let outcome = owner.abort(&ids)?;
            Answer::Ended { now: outcome.aborted, already: outcome.already }
        }
        Ask::Live => Answer::Live(owner.transactions()?.into_iter().map(|txn| (txn.id, txn.state)).collect()),
        Ask::Outcomes { after } => {
            let all = owner.outcomes()?;
            let from = after.map_or(0, |after| all.partition_point(|(id, _)| *id <= after));
            let page: Vec<_> = all.iter().skip(from).take(PAGE).cloned().collect();
            Answer::Outcomes { more: from + page.len() < all.len(), outcomes: page }
        }
        Ask::Forget { ids } => {
            owner.forget(&ids)?;
            Answer::Done
        }
    })
}

/// Groups with members are theirs: a job that has the name of one must not move them.
fn without_members(service: &Service, mut progress: Vec<GroupProgress>) -> Vec<GroupProgress> {
    progress.retain(|GroupProgress { group, .. }| {
        let members = service.groups.summary(group).members;
        if members > 0 {
            tracing::warn!(
                group,
                members,
                "a job says how far it has come as a group that has members: give it a name of its own"
            );
        }
        members == 0
    });
    progress
}

/// Whether a client that calls its software so is told of this API: foreign ones needn't wonder about a key that Kafka doesn't have, and
/// one that must prove first who it is learns of it then. What it may do is asked for each request.
pub(super) fn is_listed_to(caller: &Caller, software: &StrBytes) -> bool {
    software.as_str() == cutwater_partition_log::remote::SOFTWARE && caller.session().is_through()
}
