//! The checker under test: each kind of anomaly is planted in valid histories, and must be found, alone.
//!
//! A planter takes a valid history and its index and damages it in one way, or says that this history offers no place
//! for it. Each runs until it has planted a few hundred times. With the pass that owns the kind left out, nothing may be
//! found: so the same test fails if that pass is deleted.

use cutwater_platform::SplitMix;

use super::generate::{Plan, valid};
use super::index::{NEVER, Txn};
use super::planting::*;
use super::*;
use crate::history::{Attempt, Call, Checkpoint, Op, Outcome, TxnId};

const PLANTS: u64 = 250;

fn plan(seed: u64) -> Plan {
    Plan { steps: 40 + seed % 160, partitions: 1 + (seed % 4) as u32 }
}

type Planter = fn(&Index<'_>, &mut SplitMix) -> Option<History>;

/// Plants again and again; the damage must be seen as `kind` alone, and by `pass` alone.
fn prove(kind: AnomalyKind, pass: &str, planters: &[(&str, Planter)]) {
    for (name, planter) in planters {
        let mut planted = 0;
        for seed in 0..50_000 {
            let history = valid(seed, plan(seed));
            let mut random = SplitMix::new(seed ^ 0xBAD);
            let Some(bad) = planter(&Index::new(&history), &mut random) else { continue };
            let report = check(&bad);
            let found: Vec<AnomalyKind> = report.kinds().into_iter().collect();
            assert_eq!(
                found,
                [kind],
                "{name}, seed {seed}: {report}\nvalid:\n{}\nbad:\n{}",
                history.text(),
                bad.text()
            );
            assert!(!report.anomalies[0].story.is_empty());
            assert!(check_without(&bad, pass).is_clean(), "{name}, seed {seed}: another pass finds it too");
            planted += 1;
            if planted == PLANTS {
                break;
            }
        }
        assert_eq!(planted, PLANTS, "{name}: too few histories offer a place for it");
    }
}

// Planters, by kind.

#[test]
fn valid_histories_raise_no_alarm() {
    let mut judged = 0;
    for seed in 0..3_000 {
        let history = valid(seed, plan(seed));
        let report = check(&history);
        assert!(report.is_clean(), "seed {seed}: {report}\n{}", history.text());
        judged += report.acknowledged - report.unjudged;
    }
    assert!(judged > 50_000, "{judged} values judged: too few to prove anything");
}

#[test]
fn a_lost_value_is_found() {
    let value: Planter = |index, random| {
        let v = pick(random, seen_values(index).into_iter().filter(|v| plain(index, *v)))?;
        (index.sent[&v].outcome == Outcome::Ok).then(|| strip(index, &[v]))
    };
    let txn: Planter = |index, random| {
        let own = |t: &&Txn| t.checkpoint.is_none() && t.commit_end != NEVER && all_seen(index, &t.parts);
        Some(strip(index, &pick(random, index.txns.values().filter(own))?.parts))
    };
    prove(AnomalyKind::Lost, "lost", &[("a value", value), ("a whole transaction", txn)]);
}

#[test]
fn a_value_unseen_at_the_end_is_found() {
    let tail: Planter = |index, random| {
        let last = |v: &Value| {
            let (partition, offset) = place(index, *v);
            let whole = &index.partitions[&partition];
            let acknowledged = index.sent[v].end;
            let last_decision = index.txns.values().map(|t| t.commit_end.min(t.abort_end)).max().unwrap_or(0);
            plain(index, *v)
                && whole.known.iter().all(|(o, other)| *o <= offset || !index.seen.contains_key(other))
                && whole
                    .known
                    .iter()
                    .all(|(o, other)| *o <= offset || index.txns.get(&other.txn()).is_some_and(Txn::aborted))
                && whole.end_polls.last().is_some_and(|p| p.op.start > acknowledged.max(last_decision))
        };
        let v = pick(random, seen_values(index).into_iter().filter(last))?;
        let (partition, offset) = place(index, v);
        Some(edit(index, |op| {
            if let Call::Poll { partition: p, from, next, records, .. } = &mut op.call
                && *p == partition
            {
                records.retain(|(o, _)| *o < offset);
                (*from, *next) = ((*from).min(offset), (*next).min(offset));
            }
        }))
    };
    prove(AnomalyKind::Unseen, "lost", &[("the last value", tail)]);
}

#[test]
fn a_duplicate_is_found() {
    let again: Planter = |index, random| {
        let (partition, hole) = pick(random, holes(index))?;
        let v = pick(random, seen_values(index))?;
        polls_over(index, partition, hole)
            .all(|op| index.by_rights(v, op.end))
            .then(|| insert(index, partition, hole, v, false))
    };
    let acknowledged_elsewhere: Planter = |index, random| {
        let (partition, hole) = pick(random, holes(index))?;
        let value = pick(random, seen_values(index).into_iter().filter(|v| index.sent[v].partition == partition))?;
        let at = index.sent[&value].end;
        let call = Call::Send { partition, value, offset: Some(hole) };
        (at != NEVER).then(|| with(index, [op(value.process(), call, at + 1, at + 2)]))
    };
    let planters = [("read again", again), ("a retry got another offset", acknowledged_elsewhere)];
    prove(AnomalyKind::Duplicated, "offsets", &planters);
}

#[test]
fn two_values_at_one_offset_are_found() {
    let acknowledged: Planter = |index, random| {
        let (partition, offset) = place(index, pick(random, seen_values(index))?);
        let call = Call::Send { partition, value: Value::new(50_000, 1, 1), offset: Some(offset) };
        let now = index.history.ops.last()?.end;
        Some(with(index, [op(50_000, call, now + 1, now + 2)]))
    };
    let read: Planter = |index, random| {
        let perhaps =
            |v: &Value| plain(index, *v) && index.sent[v].outcome == Outcome::Unknown && !index.seen.contains_key(v);
        let w = pick(random, index.values.iter().copied().filter(perhaps))?;
        let v = pick(
            random,
            seen_values(index).into_iter().filter(|v| index.sent[v].partition == index.sent[&w].partition),
        )?;
        let (partition, offset) = place(index, v);
        let readers: Vec<&Op> = polls_over(index, partition, offset).collect();
        let changed = (*readers.iter().find(|op| index.by_rights(w, op.end))?).clone();
        (readers.len() > 1).then(|| {
            edit(index, |op| {
                if *op == changed
                    && let Call::Poll { records, .. } = &mut op.call
                {
                    records.iter_mut().filter(|r| r.0 == offset).for_each(|r| r.1 = w);
                }
            })
        })
    };
    let planters = [("acknowledged", acknowledged), ("read", read)];
    prove(AnomalyKind::InconsistentOffset, "offsets", &planters);
}

#[test]
fn values_out_of_order_are_found() {
    let swapped: Planter = |index, random| {
        let a = pick(random, seen_values(index).into_iter().filter(|v| plain(index, *v)))?;
        let later = |b: &Value| {
            plain(index, *b) && b.process() == a.process() && *b > a && place(index, *b).0 == place(index, a).0
        };
        let b = pick(random, seen_values(index).into_iter().filter(later))?;
        let (partition, o1) = place(index, a);
        let o2 = place(index, b).1;
        let other = |v: Value| {
            if v == a {
                b
            } else if v == b {
                a
            } else {
                v
            }
        };
        let sent_in_time = polls_over(index, partition, o1).all(|op| index.by_rights(b, op.end));
        sent_in_time.then(|| {
            edit(index, |op| match &mut op.call {
                Call::Send { value, offset: Some(offset), .. } if *value == a || *value == b => {
                    *offset = if *offset == o1 { o2 } else { o1 };
                }
                Call::Poll { records, .. } => records.iter_mut().for_each(|r| r.1 = other(r.1)),
                _ => {}
            })
        })
    };
    let within_poll: Planter = |index, random| {
        let many = |op: &&Op| matches!(&op.call, Call::Poll { records, .. } if records.len() > 1);
        let victim = pick(random, index.history.ops.iter().filter(many))?.clone();
        Some(edit(index, |op| {
            if *op == victim
                && let Call::Poll { records, .. } = &mut op.call
            {
                records.swap(0, 1);
            }
        }))
    };
    prove(AnomalyKind::Reordered, "order", &[("in the partition", swapped), ("in one poll", within_poll)]);
}

#[test]
fn a_read_of_what_was_aborted_is_found() {
    fn aborted(index: &Index<'_>, random: &mut SplitMix, one: bool) -> Option<History> {
        let txn = pick(random, index.txns.values().filter(|t| t.aborted()))?;
        let v = pick(random, txn.parts.iter().copied())?;
        let (partition, offset) = place(index, v);
        let mut readers = polls_over(index, partition, offset).peekable();
        readers.peek()?;
        readers.all(|op| op.end >= index.sent[&v].start).then(|| insert(index, partition, offset, v, one))
    }
    let failed: Planter = |index, random| {
        let (partition, hole) = pick(random, holes(index))?;
        let refused = |v: &Value| index.sent[v].outcome == Outcome::Fail && index.sent[v].partition == partition;
        let v = pick(random, index.values.iter().copied().filter(refused))?;
        polls_over(index, partition, hole)
            .all(|op| op.end >= index.sent[&v].start)
            .then(|| insert(index, partition, hole, v, true))
    };
    let planters: [(&str, Planter); 3] = [
        ("by all", |index, random| aborted(index, random, false)),
        ("by one", |index, random| aborted(index, random, true)),
        ("a refused value", failed),
    ];
    prove(AnomalyKind::AbortedRead, "writers", &planters);
}

#[test]
fn a_read_before_the_commit_is_found() {
    let early: Planter = |index, random| {
        let txn = pick(random, index.txns.values().filter(|t| t.commit_start != NEVER && !t.aborted()))?;
        let v = pick(random, txn.parts.iter().copied())?;
        let (partition, offset) = place(index, v);
        let call = Call::Poll { partition, from: offset, next: offset + 1, at_end: false, records: vec![(offset, v)] };
        let end = txn.commit_start - 1;
        (index.sent[&v].start < end).then(|| with(index, [op(60, call, end - 1, end)]))
    };
    prove(AnomalyKind::UncommittedRead, "writers", &[("too early", early)]);
}

#[test]
fn an_invented_value_is_found() {
    let unknown: Planter = |index, random| {
        let (partition, hole) = pick(random, holes(index))?;
        Some(insert(index, partition, hole, Value::new(60_000, 1, 1), random.below(2) == 0))
    };
    let before_sent: Planter = |index, random| {
        let v = pick(random, seen_values(index).into_iter().filter(|v| plain(index, *v)))?;
        let read = index.seen[&v].first_end;
        Some(edit(index, |op| {
            if matches!(&op.call, Call::Send { value, .. } if *value == v) {
                (op.start, op.end) = (read + 1, read + 2);
            }
        }))
    };
    prove(AnomalyKind::Invented, "writers", &[("out of nowhere", unknown), ("read before it was sent", before_sent)]);
}

#[test]
fn a_torn_transaction_is_found() {
    let for_ever: Planter = |index, random| {
        let whole = |t: &&Txn| t.parts.len() > 1 && all_seen(index, &t.parts);
        let txn = pick(random, index.txns.values().filter(whole))?;
        let count = 1 + random.below(txn.parts.len() as u64 - 1) as usize;
        Some(strip(index, &txn.parts[..count]))
    };
    let for_a_while: Planter = |index, random| {
        let late = |v: &Value| index.txns.get(&v.txn()).is_some_and(|t| index.seen[v].first_end > t.seen + 2);
        let v = pick(random, seen_values(index).into_iter().filter(late))?;
        Some(with(index, [end_poll_before(index, AnomalyKind::TornTransaction, v, index.txns[&v.txn()].seen + 1)?]))
    };
    let planters = [("for ever", for_ever), ("for a while", for_a_while)];
    prove(AnomalyKind::TornTransaction, "atomic", &planters);
}

#[test]
fn a_torn_checkpoint_is_found() {
    fn victim(index: &Index<'_>, random: &mut SplitMix) -> Option<(TxnId, Txn)> {
        let others_seen = |id: &TxnId, txn: &Txn| {
            let txns = &index.checkpoints[&txn.checkpoint.expect("of a job")];
            txns.iter().any(|other| other != id && index.txns[other].seen != NEVER)
        };
        let whole =
            checkpoint_txns(index).into_iter().filter(|(id, t)| all_seen(index, &t.parts) && others_seen(id, t));
        pick(random, whole)
    }
    let missing: Planter = |index, random| Some(strip(index, &victim(index, random)?.1.parts));
    let aborted: Planter = |index, random| {
        let (id, txn) = victim(index, random)?;
        let without = edit(index, |op| match &mut op.call {
            Call::Poll { records, .. } => records.retain(|(_, value)| value.txn() != id),
            Call::Commit { txns, .. } => txns.retain(|other| *other != id),
            _ => {}
        });
        let abort = op(10, Call::Abort { txn: id }, txn.commit_start, txn.commit_start + 1);
        Some(with(&Index::new(&without), [abort]))
    };
    let for_a_while: Planter = |index, random| {
        let late = |v: &Value| {
            let checkpoint = index.txns.get(&v.txn()).and_then(|t| t.checkpoint);
            checkpoint.is_some_and(|c| index.txns[&v.txn()].seen > index.checkpoint_seen[&c] + 2)
        };
        let v = pick(random, seen_values(index).into_iter().filter(late))?;
        let seen = index.checkpoint_seen[&index.txns[&v.txn()].checkpoint?];
        Some(with(index, [end_poll_before(index, AnomalyKind::TornCheckpoint, v, seen + 1)?]))
    };
    let planters = [("a part missing", missing), ("a part aborted", aborted), ("for a while", for_a_while)];
    prove(AnomalyKind::TornCheckpoint, "atomic", &planters);
}

#[test]
fn a_checkpoint_visible_before_an_earlier_one_is_found() {
    let missing: Planter = |index, random| {
        let passed_over = |c: &&Checkpoint| {
            let parts: Vec<Value> = index.checkpoints[c].iter().flat_map(|id| index.txns[id].parts.clone()).collect();
            all_seen(index, &parts) && index.first_seen_behind(**c).is_some()
        };
        let checkpoint = pick(random, index.checkpoints.keys().filter(passed_over))?;
        let gone: Vec<Value> =
            index.checkpoints[checkpoint].iter().flat_map(|id| index.txns[id].parts.clone()).collect();
        Some(strip(index, &gone))
    };
    let for_a_while: Planter = |index, random| {
        let late = |v: &Value| {
            let checkpoint = index.txns.get(&v.txn()).and_then(|t| t.checkpoint);
            let behind = checkpoint.and_then(|c| index.first_seen_behind(c));
            behind.is_some_and(|(_, seen)| index.checkpoint_seen[&checkpoint.expect("checked")] > seen + 2)
        };
        let v = pick(random, seen_values(index).into_iter().filter(late))?;
        let (_, seen) = index.first_seen_behind(index.txns[&v.txn()].checkpoint?)?;
        Some(with(index, [end_poll_before(index, AnomalyKind::CheckpointOrder, v, seen + 1)?]))
    };
    let planters = [("never visible", missing), ("for a while", for_a_while)];
    prove(AnomalyKind::CheckpointOrder, "atomic", &planters);
}

#[test]
fn a_write_of_a_fenced_attempt_is_found() {
    fn refused(index: &Index<'_>, random: &mut SplitMix) -> Option<Op> {
        let zombie = |op: &&Op| op.process >= 40_000 && op.outcome == Outcome::Fail;
        let fenced = |op: &&Op| op.by.and_then(|by| index.fenced(by, op.start)).is_some();
        pick(random, index.history.ops.iter().filter(zombie).filter(fenced)).cloned()
    }
    let read: Planter = |index, random| {
        let victim = refused(index, random)?;
        let Call::Send { partition, value, .. } = victim.call else { return None };
        let (_, hole) = pick(random, holes(index).into_iter().filter(|(p, _)| *p == partition))?;
        let in_time = polls_over(index, partition, hole).all(|op| op.end >= victim.start);
        let done = edit(index, |op| {
            if *op == victim {
                op.outcome = Outcome::Unknown;
            }
        });
        in_time.then(|| insert(&Index::new(&done), partition, hole, value, false))
    };
    let begun: Planter = |index, random| {
        let victim = refused(index, random)?;
        Some(edit(index, |op| {
            if *op == victim {
                op.call = Call::Begin { txn: TxnId { process: op.process, number: 9_999 } };
                op.outcome = Outcome::Ok;
            }
        }))
    };
    let late_send: Planter = |index, random| {
        let older = |op: &Op| op.by.map(|by| Attempt { number: by.number - 1, ..by });
        let send = |op: &&Op| {
            matches!(op.call, Call::Send { .. })
                && op.outcome == Outcome::Ok
                && older(op).is_some_and(|by| index.fenced(by, op.start).is_some())
        };
        let victim = pick(random, index.history.ops.iter().filter(send))?.clone();
        Some(edit(index, |op| {
            if *op == victim {
                op.by = older(op);
            }
        }))
    };
    let late_commit: Planter = |index, random| {
        let (id, _) = pick(random, checkpoint_txns(index))?;
        let commits = |op: &Op| matches!(&op.call, Call::Commit { txns, .. } if txns.contains(&id));
        let older = |op: &Op| op.by.map(|by| Attempt { number: by.number - 1, ..by });
        let all_fenced = index
            .history
            .ops
            .iter()
            .filter(|op| commits(op))
            .all(|op| older(op).is_some_and(|by| index.fenced(by, op.start).is_some()));
        all_fenced.then(|| {
            edit(index, |op| {
                if commits(op) {
                    (op.by, op.outcome) = (older(op), Outcome::Unknown);
                }
            })
        })
    };
    let planters = [("read", read), ("begun", begun), ("sent late", late_send), ("committed late", late_commit)];
    prove(AnomalyKind::ZombieWrite, "fencing", &planters);
}

#[test]
fn a_phantom_is_found() {
    let one_poll: Planter = |index, random| {
        let v = pick(random, seen_values(index))?;
        let (partition, offset) = place(index, v);
        let first = index.seen[&v].first_end;
        let victim = pick(random, polls_over(index, partition, offset).filter(|op| op.start > first))?.clone();
        Some(edit(index, |op| {
            if *op == victim
                && let Call::Poll { records, .. } = &mut op.call
            {
                records.retain(|(_, value)| *value != v);
            }
        }))
    };
    let after_a_crash: Planter = |index, random| {
        let v = pick(random, seen_values(index))?;
        let (partition, offset) = place(index, v);
        let now = index.history.ops.last()?.end;
        let records = index.partitions[&partition].seen.iter().filter(|(o, ..)| *o < offset);
        let records = records.map(|(o, v, _)| (*o, *v)).collect();
        let poll = Call::Poll { partition, from: 0, next: offset, at_end: true, records };
        drained(index).then(|| with(index, [op(0, Call::Crash, now + 1, now + 2), op(62, poll, now + 3, now + 4)]))
    };
    prove(AnomalyKind::Phantom, "stable", &[("in one poll", one_poll), ("behind the end", after_a_crash)]);
}

#[test]
fn a_record_that_appears_behind_a_reader_is_found() {
    let first_readers: Planter = |index, random| {
        let v = pick(random, seen_values(index))?;
        let (partition, offset) = place(index, v);
        let mut readers: Vec<&Op> = polls_over(index, partition, offset).collect();
        readers.sort_by_key(|op| op.end);
        let (victim, rest) = readers.split_first()?;
        let victim = (*victim).clone();
        (rest.first()?.end >= victim.start).then(|| {
            edit(index, |op| {
                if *op == victim
                    && let Call::Poll { records, .. } = &mut op.call
                {
                    records.retain(|(_, value)| *value != v);
                }
            })
        })
    };
    prove(AnomalyKind::Skipped, "stable", &[("the first reader missed it", first_readers)]);
}

#[test]
fn a_position_that_moves_back_is_found() {
    let fetched: Planter = |index, random| {
        let victim = pick(
            random,
            index.history.ops.iter().filter(|op| matches!(op.call, Call::CommitOffset { offset: 1.., .. })),
        )?;
        let Call::CommitOffset { group, partition, offset } = victim.call else { return None };
        let now = index.history.ops.last()?.end;
        let call = Call::FetchOffset { group, partition, offset: random.below(offset) };
        Some(with(index, [op(26, call, now + 1, now + 2)]))
    };
    let committed: Planter = |index, random| {
        let victim = pick(
            random,
            index.history.ops.iter().filter(|op| matches!(op.call, Call::CommitOffset { offset: 1.., .. })),
        )?;
        let Call::CommitOffset { group, partition, offset } = victim.call else { return None };
        let call = Call::CommitOffset { group, partition, offset: offset - 1 };
        Some(with(index, [op(25, call, victim.end + 1, victim.end + 2)]))
    };
    prove(AnomalyKind::OffsetRegress, "groups", &[("fetched", fetched), ("committed", committed)]);
}

// The rest.

#[test]
fn the_passes_named_here_are_all_there_are() {
    let names: Vec<&str> = PASSES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["offsets", "writers", "atomic", "lost", "stable", "order", "fencing", "groups"]);
}

#[test]
fn a_long_history_is_judged_in_near_linear_time() {
    // A hundred times the calls must not take much more than a hundred times the work; a quadratic pass would hang here.
    let history = valid(1, Plan { steps: 30_000, partitions: 4 });
    let report = check(&history);
    assert!(report.is_clean(), "{report}");
    assert!(report.acknowledged > 5_000, "{report}");
}

#[test]
fn what_no_reader_got_to_is_counted_as_unjudged() {
    let mut history = History::new();
    let value = Value::new(1, 1, 0);
    history.record(1, None, Call::Send { partition: 0, value, offset: Some(0) }, Outcome::Ok);
    let report = check(&history);
    assert_eq!((report.is_clean(), report.acknowledged, report.unjudged), (true, 1, 1));
}

#[test]
fn the_own_checkpoint_is_no_excuse_for_an_end_that_comes_too_early() {
    // B and C stand one behind the other; A of the same checkpoint is visible, so B may not hold C back.
    let txns: Vec<TxnId> = (1..4).map(|process| TxnId { process, number: 1 }).collect();
    let checkpoint = Some(Checkpoint { owner: 1, number: 1 });
    let value = |process| Value::new(process, 1, 0);
    let mut history = History::new();
    for (txn, (partition, offset)) in txns.iter().zip([(0, 0), (1, 0), (1, 1)]) {
        let send = Call::Send { partition, value: value(txn.process), offset: Some(offset) };
        for call in [Call::Begin { txn: *txn }, send, Call::Prepare { txn: *txn, checkpoint }] {
            history.record(txn.process, None, call, Outcome::Ok);
        }
    }
    history.record(1, None, Call::Commit { txns, checkpoint }, Outcome::Unknown);
    let poll = |partition, next, records| Call::Poll { partition, from: 0, next, at_end: true, records };
    history.record(9, None, poll(0, 1, vec![(0, value(1))]), Outcome::Ok);
    history.record(9, None, poll(1, 0, vec![]), Outcome::Ok);
    let report = check(&history);
    assert_eq!(report.counts, BTreeMap::from([(AnomalyKind::TornCheckpoint, 2)]), "{report}");
}

#[test]
fn a_transaction_of_unknown_outcome_counts_as_committed_once_a_part_was_read() {
    let txn = TxnId { process: 1, number: 1 };
    let (a, b) = (Value::new(1, 1, 0), Value::new(1, 1, 1));
    let mut history = History::new();
    history.record(1, None, Call::Begin { txn }, Outcome::Ok);
    history.record(1, None, Call::Send { partition: 0, value: a, offset: Some(0) }, Outcome::Ok);
    history.record(1, None, Call::Send { partition: 1, value: b, offset: Some(0) }, Outcome::Ok);
    history.record(1, None, Call::Commit { txns: vec![txn], checkpoint: None }, Outcome::Unknown);
    let poll = |partition, next, records| Call::Poll { partition, from: 0, next, at_end: true, records };
    history.record(2, None, poll(1, 0, vec![]), Outcome::Ok);
    assert!(check(&history).is_clean(), "perhaps it was never done");
    history.record(2, None, poll(0, 2, vec![(0, a)]), Outcome::Ok);
    assert!(check(&history).is_clean(), "the poll of the other partition came before");
    history.record(2, None, poll(1, 0, vec![]), Outcome::Ok);
    assert_eq!(check(&history).kinds(), BTreeSet::from([AnomalyKind::TornTransaction]));
}
