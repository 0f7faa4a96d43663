//! An instance's outputs as timely knows them: one builder and one capability per data port, and the ack port.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cutwater_platform::CrashPoints;
use timely::container::{CapacityContainerBuilder, NoopBuilder};
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;

use crate::checkpoint::{PartTimes, SnapshotReport};
use crate::element::{Batch, Body};
use crate::exchange::Signals;
use crate::id::{CheckpointId, InstanceId};
use crate::worker::edge::OutEdge;
use crate::worker::frame::Frame;

/// What goes from an instance to the coordinator.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Ack {
    /// About one checkpoint, and when what was done for it. Boxed, so that the other kind is as small as it looks.
    Report(Box<(CheckpointId, SnapshotReport, PartTimes)>),
    /// A source has nothing left to read.
    Ready(InstanceId),
}

pub(crate) type DataOutput = OutputBuilder<u64, NoopBuilder<Frame>>;
pub(crate) type AckOutput = OutputBuilder<u64, CapacityContainerBuilder<Vec<Ack>>>;
/// A data output and its edge; `None` for one that nobody reads.
pub(crate) type EdgeOutput = Option<(DataOutput, Rc<RefCell<OutEdge>>)>;

/// A data output that somebody reads.
struct DataPort {
    output: DataOutput,
    edge: Rc<RefCell<OutEdge>>,
    /// At the number of the checkpoint whose barrier leaves next.
    capability: Capability<u64>,
}

/// The outputs of one instance, with the capabilities that go with them.
///
/// I-11: the data capability moves past n when Barrier(n) has left; a capability for n on the ack port is given up when the
/// report for n has left. Both stay where they are when the attempt fails.
pub(crate) struct Ports {
    from: u32,
    data: Vec<Option<DataPort>>,
    ack: AckOutput,
    /// At the checkpoint whose barrier leaves next.
    ack_capability: Option<Capability<u64>>,
    /// One per cut that hasn't been reported.
    held: BTreeMap<CheckpointId, Capability<u64>>,
}

impl Ports {
    /// `capabilities`: one per data output in order, then the one of the ack output, all at the beginning of time.
    pub(crate) fn new(
        from: u32,
        data: Vec<EdgeOutput>,
        ack: AckOutput,
        mut capabilities: Vec<Capability<u64>>,
        first: CheckpointId,
    ) -> Ports {
        let mut ack_capability = capabilities.pop().expect("timely mints one capability per output");
        ack_capability.downgrade(&first.0);
        let port = |(port, mut capability): (EdgeOutput, Capability<u64>)| {
            port.map(|(output, edge)| {
                capability.downgrade(&first.0);
                DataPort { output, edge, capability }
            })
        };
        let data = data.into_iter().zip(capabilities).map(port).collect();
        Ports { from, data, ack, ack_capability: Some(ack_capability), held: BTreeMap::new() }
    }

    /// Records that may be sent on every port; takes in credit that has come back.
    pub(crate) fn room(&mut self) -> usize {
        self.data.iter().flatten().map(|port| port.edge.borrow_mut().room()).min().unwrap_or(usize::MAX)
    }

    pub(crate) fn records(&mut self, port: usize, batch: Batch) {
        let Some(port) = self.data.get_mut(port).and_then(Option::as_mut) else { return };
        let signals = port.edge.borrow_mut().draw_signals();
        port.signals(self.from, signals);
        port.send(Frame::records(self.from, batch));
    }

    /// A watermark, `Idle` or `Active`, on every port.
    pub(crate) fn signal(&mut self, body: &Body) {
        for port in self.data.iter_mut().flatten() {
            let signals = port.edge.borrow_mut().signal(body);
            port.signals(self.from, signals);
        }
    }

    /// What was held back for want of credit and may leave now.
    pub(crate) fn flush_signals(&mut self) {
        for port in self.data.iter_mut().flatten() {
            let signals = {
                let mut edge = port.edge.borrow_mut();
                if edge.room() > 0 { edge.draw_signals() } else { Signals::default() }
            };
            port.signals(self.from, signals);
        }
    }

    /// Barrier(n) on every port in one step; everything after it belongs to n + 1.
    pub(crate) fn barrier(&mut self, n: CheckpointId, crash: &CrashPoints) {
        let ports = if crash.is_planted("barrier.one-output") { 1 } else { self.data.len() };
        self.control(&Body::Barrier(n), ports);
        for port in self.data.iter_mut().flatten() {
            assert_eq!(*port.capability.time(), n.0, "a barrier leaves at its own time");
            port.capability.downgrade(&n.next().0);
        }
        let ack = self.ack_capability.as_mut().expect("no barrier follows the end");
        self.held.insert(n, ack.clone());
        ack.downgrade(&n.next().0);
    }

    /// The barrier that closes the checkpoint that was gone back to. It carries no cut: the capabilities stay.
    pub(crate) fn closing_barrier(&mut self, n: CheckpointId) {
        self.control(&Body::Barrier(n), self.data.len());
    }

    /// `End` on every port; gives up the right to send more. Reports that are still due keep theirs.
    pub(crate) fn end(&mut self) {
        self.control(&Body::End, self.data.len());
        self.data.iter_mut().for_each(|port| *port = None);
        self.ack_capability = None;
    }

    /// Reports about a checkpoint that was cut, and gives up the capability that stood for it.
    pub(crate) fn report(&mut self, n: CheckpointId, report: SnapshotReport, times: PartTimes) {
        let capability = self.held.remove(&n).expect("one report per cut");
        self.ack.activate().session(&capability).give(Ack::Report(Box::new((n, report, times))));
    }

    /// Says that a source has nothing left.
    pub(crate) fn ready(&mut self, instance: InstanceId) {
        if let Some(capability) = &self.ack_capability {
            self.ack.activate().session(capability).give(Ack::Ready(instance));
        }
    }

    fn control(&mut self, body: &Body, ports: usize) {
        for port in self.data.iter_mut().take(ports).flatten() {
            let signals = port.edge.borrow_mut().draw_signals();
            port.signals(self.from, signals);
            port.control(self.from, body);
        }
    }
}

impl DataPort {
    fn signals(&mut self, from: u32, signals: Signals) {
        if let Some(t) = signals.watermark {
            self.control(from, &Body::Watermark(t));
        }
        if let Some(idle) = signals.idle {
            self.control(from, if idle { &Body::Idle } else { &Body::Active });
        }
    }

    fn control(&mut self, from: u32, body: &Body) {
        let weight = u32::try_from(self.edge.borrow().receivers()).expect("fewer than 2^32 workers");
        self.send(Frame { from, weight, body: body.control_copy().expect("a control frame") });
    }

    fn send(&mut self, mut frame: Frame) {
        self.output.activate().session_with_builder(&self.capability).give_container(&mut frame);
    }
}
