//! Edges: how frames get from an output port to the workers that read it, and how credit comes back.
//!
//! An output port has exactly one reader (forks are operators), so an edge and its port are one thing. The sending side is
//! [`OutEdge`], shared by the sending operator (which asks it for room) and the pusher in timely's channel (which counts what
//! leaves). The receiving side is [`InEdge`]. Two parallelization contracts join them: [`LocalPact`] within a worker and
//! [`KeyedPact`] between all workers, with a raw channel of credits the other way.
//!
//! Timely's promise that is relied on: frames from one sender to one receiver stay in order.

use std::cell::RefCell;
use std::rc::Rc;

use timely::communication::allocator::thread::{ThreadPuller, ThreadPusher};
use timely::communication::{Bytesable, Pull, Push};
use timely::dataflow::channels::Message;
use timely::dataflow::channels::pact::{LogPuller, LogPusher, ParallelizationContract};
use timely::logging::TimelyLogger;
use timely::progress::Stamp;
use timely::scheduling::Activator;
use timely::worker::Worker;

use crate::element::{Batch, Body};
use crate::exchange::{EdgeCredit, Processed, SignalCoalescer, Signals};
use crate::graph::node::Splitter;
use crate::worker::frame::Frame;

type FrameMessage = Message<u64, Frame>;

/// Credit on its way from a receiver to a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditNote {
    from: u32,
    processed: Processed,
}

impl Bytesable for CreditNote {
    fn from_bytes(bytes: timely::bytes::arc::Bytes) -> Self {
        let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("three words"));
        let narrow = |word: u64| u32::try_from(word).expect("the sender wrote 32 bits");
        CreditNote { from: narrow(word(0)), processed: Processed { units: word(1), barriers: narrow(word(2)) } }
    }

    fn length_in_bytes(&self) -> usize {
        24
    }

    fn into_bytes<W: std::io::Write>(&self, writer: &mut W) {
        for word in [u64::from(self.from), self.processed.units, u64::from(self.processed.barriers)] {
            writer.write_all(&word.to_le_bytes()).expect("timely gave a buffer of the length asked for");
        }
    }
}

/// The sending side of an edge.
pub(crate) struct OutEdge {
    credit: EdgeCredit,
    signals: SignalCoalescer,
    notes: Option<Box<dyn Pull<CreditNote>>>,
    /// Wakes the sending operator.
    activator: Activator,
    /// Records sent to each receiver (I-8).
    pub(crate) sent: Vec<u64>,
}

impl OutEdge {
    pub(crate) fn new(receivers: usize, limit: usize, checkpoints: u32, activator: Activator) -> Rc<RefCell<OutEdge>> {
        Rc::new(RefCell::new(OutEdge {
            credit: EdgeCredit::new(receivers, limit as u64, checkpoints),
            signals: SignalCoalescer::default(),
            notes: None,
            activator,
            sent: vec![0; receivers],
        }))
    }

    /// Records that may be sent now; takes in the credit that has come back.
    pub(crate) fn room(&mut self) -> usize {
        if let Some(notes) = &mut self.notes {
            while let Some(note) = notes.recv() {
                self.credit.give_back(note.from as usize, note.processed).expect("a receiver returns what it got");
            }
        }
        usize::try_from(self.credit.room()).unwrap_or(usize::MAX)
    }

    /// Takes a signal; it leaves at once if the edge is open, else with the next records, barrier or end.
    pub(crate) fn signal(&mut self, body: &Body) -> Signals {
        use crate::barrier::Merged;
        self.signals.take(match *body {
            Body::Watermark(t) => Merged::Advance(t),
            Body::Idle => Merged::Idle,
            Body::Active => Merged::Active,
            _ => Merged::Unchanged,
        });
        if self.credit.open() { self.draw_signals() } else { Signals::default() }
    }

    /// What is to be said before anything else leaves.
    pub(crate) fn draw_signals(&mut self) -> Signals {
        if self.signals.pending() { self.signals.draw() } else { Signals::default() }
    }

    pub(crate) fn receivers(&self) -> usize {
        self.sent.len()
    }

    fn count_records(&mut self, receiver: usize, records: u64) {
        self.sent[receiver] += records;
        self.credit.send_more(receiver, records).expect("nothing is sent after End");
    }

    fn count_control(&mut self, body: &Body) {
        let counted = match body {
            Body::Barrier(_) => self.credit.send_barrier(),
            Body::End => self.credit.send_end(),
            _ => self.credit.send_signals(1),
        };
        counted.expect("barriers keep to their allowance, and nothing follows End");
    }
}

/// The receiving side of an edge: where credit goes back to.
pub(crate) enum InEdge {
    Local(Rc<RefCell<OutEdge>>),
    Keyed { me: u32, back: Rc<RefCell<Vec<Box<dyn Push<CreditNote>>>>>, channels: usize },
}

impl InEdge {
    /// Channels of this edge into one instance: one per sending worker that can reach it.
    pub(crate) fn channels(&self) -> usize {
        match self {
            InEdge::Local(_) => 1,
            InEdge::Keyed { channels, .. } => *channels,
        }
    }

    /// Says that frames of a channel have been handled.
    pub(crate) fn give_back(&mut self, channel: usize, processed: Processed) {
        match self {
            InEdge::Local(edge) => {
                let mut edge = edge.borrow_mut();
                if edge.credit.give_back(0, processed).expect("a receiver returns what it got") {
                    edge.activator.activate();
                }
            }
            InEdge::Keyed { me, back, .. } => {
                let mut back = back.borrow_mut();
                back[channel].send(CreditNote { from: *me, processed });
                back[channel].done();
            }
        }
    }
}

/// An edge within one worker.
pub(crate) struct LocalPact {
    pub(crate) edge: Rc<RefCell<OutEdge>>,
}

pub(crate) struct LocalPusher {
    inner: LogPusher<ThreadPusher<FrameMessage>>,
    edge: Rc<RefCell<OutEdge>>,
}

impl ParallelizationContract<u64, Frame> for LocalPact {
    type Pusher = LocalPusher;
    type Puller = LogPuller<ThreadPuller<FrameMessage>>;

    fn connect(
        self,
        worker: &Worker,
        identifier: usize,
        address: Rc<[usize]>,
        logging: Option<TimelyLogger>,
    ) -> (LocalPusher, Self::Puller) {
        let (pusher, puller) = worker.pipeline::<FrameMessage>(identifier, address);
        let me = worker.index();
        let inner = LogPusher::new(pusher, me, me, identifier, logging.clone());
        (LocalPusher { inner, edge: self.edge }, LogPuller::new(puller, me, identifier, logging))
    }
}

impl Push<FrameMessage> for LocalPusher {
    fn push(&mut self, message: &mut Option<FrameMessage>) {
        if let Some(message) = message {
            message.data.from = 0;
            let mut edge = self.edge.borrow_mut();
            match &message.data.body {
                Body::Empty => {}
                Body::Records(batch) => edge.count_records(0, batch.len() as u64),
                control => edge.count_control(control),
            }
        }
        self.inner.push(message);
    }
}

/// An edge between all workers, divided by key group.
pub(crate) struct KeyedPact {
    pub(crate) edge: Rc<RefCell<OutEdge>>,
    pub(crate) splitter: Box<dyn Splitter>,
    /// The sending operator, which arriving credit activates.
    pub(crate) sender_address: Rc<[usize]>,
    /// Filled for the receiving side.
    pub(crate) back: Rc<RefCell<Vec<Box<dyn Push<CreditNote>>>>>,
}

pub(crate) struct KeyedPusher {
    me: u32,
    senders: Vec<LogPusher<Box<dyn Push<FrameMessage>>>>,
    splitter: Box<dyn Splitter>,
    edge: Rc<RefCell<OutEdge>>,
    /// The time of what stands in the splitter's open batches.
    stamp: Option<Stamp<u64>>,
}

impl ParallelizationContract<u64, Frame> for KeyedPact {
    type Pusher = KeyedPusher;
    type Puller = LogPuller<Box<dyn Pull<FrameMessage>>>;

    fn connect(
        self,
        worker: &Worker,
        identifier: usize,
        address: Rc<[usize]>,
        logging: Option<TimelyLogger>,
    ) -> (KeyedPusher, Self::Puller) {
        let me = worker.index();
        let (senders, receiver) = worker.allocate::<FrameMessage>(identifier, address);
        let sender = |(i, pusher)| LogPusher::new(pusher, me, i, identifier, logging.clone());
        let senders = senders.into_iter().enumerate().map(sender).collect();
        // After the data channel: timely's TCP allocator asserts that identifiers rise.
        let (back, notes) = worker.allocate::<CreditNote>(worker.new_identifier(), self.sender_address);
        self.edge.borrow_mut().notes = Some(notes);
        *self.back.borrow_mut() = back;
        let from = u32::try_from(me).expect("fewer than 2^32 workers");
        let pusher = KeyedPusher { me: from, senders, splitter: self.splitter, edge: self.edge, stamp: None };
        (pusher, LogPuller::new(receiver, me, identifier, logging))
    }
}

impl KeyedPusher {
    fn flush(&mut self) {
        let KeyedPusher { me, senders, splitter, edge, stamp } = self;
        let Some(stamp) = stamp else { return };
        splitter.flush(&mut |to, batch| ship(*me, senders, edge, stamp, to, batch));
    }
}

fn ship(
    me: u32,
    senders: &mut [LogPusher<Box<dyn Push<FrameMessage>>>],
    edge: &RefCell<OutEdge>,
    stamp: &Stamp<u64>,
    to: usize,
    batch: Batch,
) {
    edge.borrow_mut().count_records(to, batch.len() as u64);
    senders[to].push(&mut Some(Message::new(stamp.clone(), Frame::records(me, batch))));
}

impl Push<FrameMessage> for KeyedPusher {
    fn push(&mut self, message: &mut Option<FrameMessage>) {
        let Some(message) = message.take() else {
            self.flush();
            self.senders.iter_mut().for_each(Push::done);
            return;
        };
        if self.stamp.as_ref() != Some(&message.stamp) {
            self.flush();
            self.stamp = Some(message.stamp.clone());
        }
        match message.data.body {
            Body::Empty => {}
            Body::Records(batch) => {
                let KeyedPusher { me, senders, splitter, edge, .. } = self;
                splitter.split(batch, &mut |to, batch| ship(*me, senders, edge, &message.stamp, to, batch));
            }
            control => {
                // A control frame stands behind all records that came before it, on every channel.
                self.flush();
                self.edge.borrow_mut().count_control(&control);
                for sender in &mut self.senders {
                    let body = control.control_copy().expect("not records");
                    sender
                        .push(&mut Some(Message::new(message.stamp.clone(), Frame { from: self.me, weight: 1, body })));
                }
            }
        }
    }
}
