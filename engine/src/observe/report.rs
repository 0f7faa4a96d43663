//! What a run came to, with its books balanced: per edge sent = received, per operator every record counted once (I-8).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::checkpoint::Counters;
use crate::config::Guarantee;
use crate::graph::{Plan, PlanNode};
use crate::id::{Attempt, CheckpointId, InstanceId, JobId, OperatorId};
use crate::observe::{CheckpointRecord, RecoveryTimes};

/// The verified report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The job's name.
    pub name: String,
    /// The job.
    pub job: JobId,
    /// The attempt that ended the run.
    pub attempt: Attempt,
    /// The guarantee that was in force (I-10).
    pub guarantee: Guarantee,
    /// Number of workers.
    pub workers: u32,
    /// True if all input was processed and its output is committed; false after a stop.
    pub finished: bool,
    /// True if an earlier run had finished the job and this one did nothing.
    pub already_finished: bool,
    /// Each operator's records since the job's first start, all workers together.
    pub operators: Vec<OperatorCount>,
    /// Each edge's records since the job's first start, all workers together.
    pub edges: Vec<EdgeCount>,
    /// The newest committed checkpoint; 0 without one.
    pub checkpoint: CheckpointId,
    /// Checkpoints committed in this run.
    pub committed: u64,
    /// Checkpoints declined in this run.
    pub declined: u64,
    /// Transactions committed in this run, those of earlier attempts that manifests list among them.
    pub transactions: u64,
    /// Transactions found committed already when they were committed again.
    pub already_committed: u64,
    /// Transactions that earlier attempts left and that were aborted.
    pub aborted: u64,
    /// Records that failed attempts of this run had read beyond the checkpoint that was gone back to, and that were read again.
    pub reread: u64,
    /// The attempt of an earlier process from which this run took over, if there was one. How far that had read beyond the checkpoint
    /// isn't written down: if it didn't end in order, nobody knows.
    pub behind: Option<Attempt>,
    /// The last checkpoints of this run, oldest first.
    pub history: Vec<CheckpointRecord>,
    /// How long each attempt of this run took to come back.
    pub recoveries: Vec<RecoveryTimes>,
    /// Why the attempts before the last one of this run ended.
    pub failures: Vec<String>,
    /// How often the run waited for room on a full disk.
    pub pauses: u32,
    /// For how long, all together.
    pub paused: Duration,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// Records counted at one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCount {
    /// The operator's name.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// The sums over its instances.
    pub counters: Counters,
}

/// Records counted at both ends of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeCount {
    /// The sender.
    pub from: String,
    /// Its output port.
    pub port: usize,
    /// The receiver.
    pub to: String,
    /// Records sent.
    pub sent: u64,
    /// Records received.
    pub received: u64,
}

/// Sums counters of the instances of each operator.
pub(crate) fn sum(counters: &[(InstanceId, Counters)]) -> BTreeMap<OperatorId, Counters> {
    let mut sums: BTreeMap<OperatorId, Counters> = BTreeMap::new();
    for (instance, counters) in counters {
        add(sums.entry(instance.operator).or_default(), counters);
    }
    sums
}

/// Adds one instance's counters to a sum.
pub(crate) fn add(sum: &mut Counters, more: &Counters) {
    let add_all = |sum: &mut Vec<u64>, more: &[u64]| {
        sum.resize(sum.len().max(more.len()), 0);
        sum.iter_mut().zip(more).for_each(|(s, m)| *s += m);
    };
    add_all(&mut sum.consumed, &more.consumed);
    add_all(&mut sum.emitted, &more.emitted);
    sum.passed += more.passed;
    sum.filtered += more.filtered;
    sum.absorbed += more.absorbed;
    sum.late += more.late;
    sum.rejected += more.rejected;
}

/// Operators and edges with their counts.
pub(crate) fn books(plan: &Plan, counters: &[(InstanceId, Counters)]) -> (Vec<OperatorCount>, Vec<EdgeCount>) {
    let sums = sum(counters);
    let of = |node: &PlanNode| sums.get(&node.id).cloned().unwrap_or_default();
    let operators = plan
        .nodes
        .iter()
        .map(|n| OperatorCount { name: n.name.clone(), kind: n.kind.clone(), counters: of(n) })
        .collect();
    let mut edges = vec![];
    for node in &plan.nodes {
        for (port, edge) in node.inputs.iter().enumerate() {
            let Some(from) = plan.node(edge.from) else { continue };
            edges.push(EdgeCount {
                from: from.name.clone(),
                port: edge.port,
                to: node.name.clone(),
                sent: of(from).emitted.get(edge.port).copied().unwrap_or(0),
                received: of(node).consumed.get(port).copied().unwrap_or(0),
            });
        }
    }
    (operators, edges)
}

impl Report {
    /// What doesn't add up, in words; empty if everything does. An operator that reads from an edge must have counted every
    /// record of it, and every record it consumed must have gone somewhere. At-least-once, more may have been received than
    /// sent: see [`Report::repeated`].
    pub fn discrepancies(&self) -> Vec<String> {
        let mut wrong = vec![];
        let may_repeat = matches!(self.guarantee, Guarantee::AtLeastOnce(_));
        for edge in self.edges.iter().filter(|e| e.sent > e.received || e.sent < e.received && !may_repeat) {
            wrong.push(format!("{} -> {}: {} sent, {} received", edge.from, edge.to, edge.sent, edge.received));
        }
        for operator in &self.operators {
            let c = &operator.counters;
            let consumed: u64 = c.consumed.iter().sum();
            let accounted = c.accounted();
            if !c.consumed.is_empty() && consumed != accounted {
                wrong.push(format!("{}: {consumed} consumed, {accounted} accounted for", operator.name));
            }
        }
        wrong
    }

    /// Records whose results may have come out more than once in this run, at most: those that were
    /// [read again](Report::reread), unless the guarantee takes their first results back. `None` if that isn't known, because an
    /// attempt of [another process](Report::behind) had shown what it had read.
    pub fn repeated_at_most(&self) -> Option<u64> {
        match self.guarantee {
            Guarantee::ExactlyOnce(_) | Guarantee::AtMostOnce => Some(0),
            Guarantee::AtLeastOnce(_) => self.behind.is_none().then_some(self.reread),
        }
    }

    /// Records that a receiver has in its state, and so in its results, more than once: those that it had taken behind a
    /// barrier that others were still waiting for, and that came again after a restart. 0 but at-least-once. What a sink showed
    /// after the last checkpoint and showed again after a restart isn't among them: see [`Report::repeated_at_most`].
    pub fn repeated(&self) -> u64 {
        self.edges.iter().map(|edge| edge.received.saturating_sub(edge.sent)).sum()
    }

    /// Panics with what doesn't add up, for tests.
    ///
    /// # Panics
    /// If the books don't balance.
    pub fn assert_balanced(&self) {
        let wrong = self.discrepancies();
        assert!(wrong.is_empty(), "records went missing or came from nowhere: {}", wrong.join("; "));
    }

    /// The counters of the operator of this name.
    pub fn operator(&self, name: &str) -> Option<&Counters> {
        self.operators.iter().find(|o| o.name == name).map(|o| &o.counters)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.already_finished, self.finished) {
            (true, _) => "had finished before; nothing was done",
            (false, true) => "finished",
            (false, false) => "stopped before its end; run it again to go on",
        };
        writeln!(f, "job {} ({}) {state}", self.name, self.job)?;
        writeln!(f, "  guarantee     {}", self.guarantee)?;
        writeln!(
            f,
            "  this run      attempt {}, {} workers, {:.3} s, {} restarts",
            self.attempt,
            self.workers,
            self.elapsed.as_secs_f64(),
            self.failures.len()
        )?;
        if self.pauses > 0 {
            writeln!(
                f,
                "  paused        {} times, {:.3} s, for lack of space",
                self.pauses,
                self.paused.as_secs_f64()
            )?;
        }
        writeln!(
            f,
            "  checkpoints   newest {}; {} committed and {} declined in this run",
            self.checkpoint, self.committed, self.declined
        )?;
        if let Some(slowest) = self.history.iter().filter(|record| record.took.is_some()).max_by_key(|r| r.took) {
            writeln!(f, "    slowest     {slowest}")?;
        }
        writeln!(
            f,
            "  transactions  {} committed, {} found committed, {} of dead attempts aborted",
            self.transactions, self.already_committed, self.aborted
        )?;
        self.tell_repeats(f)?;
        for (times, number) in self.recoveries.iter().zip(1..) {
            writeln!(f, "  start {number:<7} {}", Times(times))?;
        }
        let width = self.operators.iter().map(|o| o.name.len()).max().unwrap_or(0);
        writeln!(f, "  operators since the first start:")?;
        for operator in &self.operators {
            let c = &operator.counters;
            write!(f, "    {:width$}", operator.name)?;
            let consumed: u64 = c.consumed.iter().sum();
            for (count, what) in [
                (consumed, "in"),
                (c.filtered, "filtered"),
                (c.absorbed, "absorbed"),
                (c.late, "late"),
                (c.rejected, "rejected"),
                (c.emitted.iter().sum(), "out"),
            ] {
                if count > 0 {
                    write!(f, "  {count} {what}")?;
                }
            }
            writeln!(f)?;
        }
        let (wrong, records) = (self.discrepancies(), self.edges.iter().map(|e| e.sent).sum::<u64>());
        let edges = self.edges.len();
        if wrong.is_empty() && self.repeated() > 0 {
            let repeated = self.repeated();
            write!(
                f,
                "  books         nothing lost: {edges} edges, {records} records sent, {repeated} received once more"
            )
        } else if wrong.is_empty() {
            write!(f, "  books         balanced: {edges} edges, {records} records sent and as many received")
        } else {
            write!(f, "  books         DO NOT BALANCE: {}", wrong.join("; "))
        }
    }
}

impl Report {
    fn tell_repeats(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let may_repeat = matches!(self.guarantee, Guarantee::AtLeastOnce(_));
        if self.reread > 0 {
            let shown = if may_repeat { "may be there twice" } else { "is there once" };
            writeln!(f, "  read again    {} records after restarts; what they led to {shown}", self.reread)?;
        }
        if let Some(behind) = self.behind.filter(|_| may_repeat) {
            writeln!(
                f,
                "  not known     what attempt {behind}, another process's, had read beyond its last checkpoint: that may be there twice"
            )?;
        }
        Ok(())
    }
}

struct Times<'a>(&'a RecoveryTimes);

impl fmt::Display for Times<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let t = self.0;
        write!(
            f,
            "{:.1} ms to the first commit: claim {:.1}, fence {:.1}, facts {:.1}, settle {:.1}, load {:.1}, run {:.1}",
            ms(t.total()),
            ms(t.claim),
            ms(t.fence),
            ms(t.facts),
            ms(t.settle),
            ms(t.load),
            ms(t.first_commit)
        )
    }
}
