//! What requests touch: additions without a lock, one handful per request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cutwater_partition_log::meter::{Measured, Meter};

use kafka_protocol::messages::ApiKey;

use crate::wire::apis::APIS;

/// Codes from -1 on are counted by themselves; larger ones than any known together, as the last.
const FIRST_CODE: i16 = -1;
const CODES: usize = 160;

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// From what is answered out of memory to what waits for a rebalance.
const BOUNDS: &[Duration] = &[
    micros(100),
    micros(250),
    micros(500),
    micros(1_000),
    micros(2_500),
    micros(5_000),
    micros(10_000),
    micros(25_000),
    micros(50_000),
    micros(100_000),
    micros(250_000),
    micros(500_000),
    micros(1_000_000),
    micros(2_500_000),
    micros(5_000_000),
    micros(30_000_000),
];

/// A request on its way: which API it is of, and when its last byte had come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Underway {
    api: usize,
    begun: Duration,
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    apis: Vec<OfApi>,
    /// Connections that were accepted, that were refused, and that are over.
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) over: AtomicU64,
    /// Connections that were closed because what came was no request.
    pub(crate) malformed: AtomicU64,
}

#[derive(Debug)]
struct OfApi {
    requests: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    times: Meter,
    errors: Box<[AtomicU64]>,
}

/// What was counted of one API.
pub(crate) struct Counted {
    pub(crate) name: String,
    pub(crate) requests: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) times: Measured,
    /// Codes that were answered, and how often.
    pub(crate) errors: Vec<(i16, u64)>,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let zeros = || (0..CODES).map(|_| AtomicU64::new(0)).collect();
        let of_api = |_: usize| OfApi {
            requests: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            times: Meter::new(BOUNDS),
            errors: zeros(),
        };
        Counters {
            // The last is that of jobs.
            apis: (0..=APIS.len()).map(of_api).collect(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            over: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        }
    }

    /// A request has come, so many bytes with its size.
    pub(crate) fn received(&self, api: ApiKey, bytes: usize, now: Duration) -> Underway {
        self.received_of(APIS.iter().position(|known| known.key == api).unwrap_or(0), bytes, now)
    }

    /// The same of the API that jobs use, which isn't one of Kafka's.
    pub(crate) fn received_of_owner(&self, bytes: usize, now: Duration) -> Underway {
        self.received_of(APIS.len(), bytes, now)
    }

    fn received_of(&self, api: usize, bytes: usize, now: Duration) -> Underway {
        if let Some(of) = self.apis.get(api) {
            count(&of.requests);
            of.received.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Underway { api, begun: now }
    }

    /// Its answer has gone, or it has none.
    pub(crate) fn answered(&self, request: Underway, bytes: usize, now: Duration) {
        if let Some(of) = self.apis.get(request.api) {
            of.sent.fetch_add(bytes as u64, Ordering::Relaxed);
            of.times.record(now.saturating_sub(request.begun));
        }
    }

    /// An answer has this error code; 0 isn't one.
    pub(crate) fn failed(&self, api: ApiKey, code: i16) {
        if code == 0 {
            return;
        }
        let at = usize::try_from(i32::from(code) - i32::from(FIRST_CODE)).unwrap_or(CODES).min(CODES - 1);
        let of = APIS.iter().position(|known| known.key == api).and_then(|api| self.apis.get(api));
        if let Some(counter) = of.and_then(|of| of.errors.get(at)) {
            count(counter);
        }
    }

    /// What was counted of the APIs that were asked for.
    pub(crate) fn read(&self) -> Vec<Counted> {
        let names = APIS.iter().map(|api| format!("{:?}", api.key)).chain(["Owner".to_string()]);
        let read = names.zip(&self.apis).map(|(name, of)| {
            let errors = of.errors.iter().zip(FIRST_CODE..);
            let errors = errors.map(|(counter, code)| (code, counter.load(Ordering::Relaxed)));
            Counted {
                name,
                requests: of.requests.load(Ordering::Relaxed),
                received: of.received.load(Ordering::Relaxed),
                sent: of.sent.load(Ordering::Relaxed),
                times: of.times.read(),
                errors: errors.filter(|(_, times)| *times > 0).collect(),
            }
        });
        read.filter(|counted| counted.requests > 0).collect()
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> u64 {
        let over = self.over.load(Ordering::Relaxed);
        self.accepted.load(Ordering::Relaxed).saturating_sub(over)
    }
}
