//! An administrator who aborts transactions of others while they go on, as `kafka-transactions abort` does: it lists what is open,
//! asks whose it is, and has it aborted by producer id and epoch.
//!
//! An abort that is answered shuts that producer id and epoch out for good. So the transaction that it hit is the last one that
//! was begun with them, and the history gets its abort: readers then may see nothing of it, and its client can't have been told
//! that it was committed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cutwater_platform::SplitMix;
use cutwater_testkit::history::{Call, History, Outcome, TxnId};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, ListTransactionsRequest, ProducerId, WriteTxnMarkersRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::record::Recorder;
use crate::round::Stage;
use crate::server::rest;
use crate::wire::{Client, is_passing};

/// The administrator's number among the processes.
pub(crate) const PROCESS: u16 = 50;

/// How transactional ids of our own clients begin.
pub(crate) const OURS: &str = "chaos-";

/// The newest transaction of each producer id and epoch of our own clients.
#[derive(Debug, Default)]
pub(crate) struct Begun(Mutex<BTreeMap<(i64, i16), TxnId>>);

impl Begun {
    /// Told before anything of the transaction is sent.
    pub(crate) fn begins(&self, producer: (i64, i16), txn: TxnId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(producer, txn);
    }

    fn newest(&self, producer: (i64, i16)) -> Option<TxnId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&producer).copied()
    }
}

/// Aborts whatever is open, now and then.
pub(crate) struct Administrator<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) recorder: &'a Recorder,
    pub(crate) stage: &'a Stage,
    pub(crate) random: SplitMix,
    pub(crate) begun: &'a Begun,
}

impl Administrator<'_> {
    /// Until the stage is over; how many transactions it has aborted.
    pub(crate) fn run(mut self) -> u64 {
        let (mut client, mut aborted) = (None, 0);
        while !self.stage.is_over() {
            rest(Duration::from_millis(20 + self.random.next() % 200));
            match self.abort_one(&mut client) {
                Ok(done) => aborted += u64::from(done),
                Err(_) => client = None,
            }
        }
        aborted
    }

    /// Whether it was surely aborted.
    fn abort_one(&mut self, client: &mut Option<Client>) -> io::Result<bool> {
        let client = match client {
            Some(client) => client,
            none => none.insert(Client::connect(self.address)?),
        };
        let open = vec![StrBytes::from_static_str("Ongoing")];
        let listed = client.ask(0, &ListTransactionsRequest::default().with_state_filters(open))?;
        let choice = self.random.next() as usize % listed.transaction_states.len().max(1);
        let Some(found) = listed.transaction_states.get(choice) else { return Ok(false) };
        let id = found.transactional_id.clone();
        // Java's as well, but less often: it begins anew for seconds. librdkafka isn't put to it: once in a while its producer
        // doesn't come to an end afterwards.
        if !id.starts_with(OURS) && (id.starts_with("librdkafka") || !self.random.next().is_multiple_of(4)) {
            return Ok(false);
        }
        let told = client.ask(0, &DescribeTransactionsRequest::default().with_transactional_ids(vec![id]))?;
        let Some(state) = told.transaction_states.first().filter(|state| !state.topics.is_empty()) else {
            return Ok(false);
        };
        let producer = (state.producer_id.0, state.producer_epoch);
        let started = self.recorder.start();
        let answer = client.ask(1, &markers(state))?;
        let results = answer.markers.iter().flat_map(|marker| &marker.topics).flat_map(|topic| &topic.partitions);
        let code = results.map(|result| result.error_code).max_by_key(|code| *code != 0).unwrap_or(-1);
        // It has ended meanwhile, or speaks with another epoch.
        let elsewhere = [ResponseError::InvalidProducerEpoch, ResponseError::InvalidTxnState];
        if code == 0 {
            if let Some(txn) = self.begun.newest(producer) {
                self.recorder.finish(started, PROCESS, Call::Abort { txn }, Outcome::Ok);
            }
        } else if !is_passing(code) && !elsewhere.iter().any(|error| error.code() == code) {
            self.recorder.trouble(format!("the administrator's abort of {producer:?} is answered with {code}"));
        }
        Ok(code == 0)
    }
}

fn markers(state: &TransactionState) -> WriteTxnMarkersRequest {
    let topics = state.topics.iter().map(|topic| {
        let topic_name = topic.topic.clone();
        WritableTxnMarkerTopic::default().with_name(topic_name).with_partition_indexes(topic.partitions.clone())
    });
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(state.producer_id.0))
        .with_producer_epoch(state.producer_epoch)
        .with_transaction_result(false)
        .with_topics(topics.collect());
    WriteTxnMarkersRequest::default().with_markers(vec![marker])
}

/// Transactions whose abort the administrator was told of, and whose client was told that they are committed.
pub(crate) fn committed_nevertheless(history: &History) -> Vec<String> {
    let done = history.ops.iter().filter(|op| op.outcome == Outcome::Ok);
    let committed: BTreeSet<TxnId> = done
        .clone()
        .filter_map(|op| match &op.call {
            Call::Commit { txns, .. } => Some(txns),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    let both = done.filter_map(|op| match op.call {
        Call::Abort { txn } if op.process == PROCESS && committed.contains(&txn) => Some(txn),
        _ => None,
    });
    both.map(|txn| {
        format!("transaction {txn} was aborted by the administrator, and its client told that it is committed")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutwater_testkit::history::Value;

    #[test]
    fn only_what_both_the_administrator_and_its_client_were_told_done_is_wrong() {
        let txn = |number| Value::new(3, number, 0).txn();
        let (commit, abort) = (
            |number| Call::Commit { txns: vec![txn(number)], checkpoint: None },
            |number| Call::Abort { txn: txn(number) },
        );
        let mut history = History::new();
        for (process, call, outcome) in [
            (PROCESS, abort(1), Outcome::Ok),
            (3, commit(1), Outcome::Unknown),
            (3, abort(2), Outcome::Ok),
            (3, commit(2), Outcome::Ok),
            (PROCESS, abort(3), Outcome::Unknown),
            (3, commit(3), Outcome::Ok),
        ] {
            history.record(process, None, call, outcome);
        }
        assert_eq!(committed_nevertheless(&history), Vec::<String>::new());
        history.record(PROCESS, None, abort(3), Outcome::Ok);
        let wrong = committed_nevertheless(&history);
        assert!(wrong.len() == 1 && wrong[0].contains("3.3"), "{wrong:?}");
    }
}
