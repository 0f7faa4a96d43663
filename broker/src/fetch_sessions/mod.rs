//! Fetch sessions: what each client's fetches are about, remembered between them (KIP-227).
//!
//! [`machine`] decides and is pure; here is its lock, and where its numbers come from. The lock is held while a request is
//! taken in and while its answer is judged, never while the log is read.

pub(crate) mod machine;

#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use cutwater_platform::Platform;
use kafka_protocol::ResponseError;

use self::machine::{Begun, Ended, Limits, News, Request, Sessions};
use crate::options::BrokerLimits;

/// A session that was silent for so long gives way to a new one, as Kafka's do.
const IDLE: Duration = Duration::from_secs(120);

/// All sessions, shared by all connections.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    sessions: Mutex<Sessions>,
    platform: Platform,
}

impl FetchSessions {
    pub(crate) fn new(platform: &Platform, limits: &BrokerLimits) -> FetchSessions {
        let limits =
            Limits { sessions: limits.fetch_sessions, partitions: limits.fetch_session_partitions, idle: IDLE };
        FetchSessions { sessions: Mutex::new(Sessions::new(limits)), platform: platform.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().expect("no panic under the sessions' lock")
    }

    /// A fetch begins: what is to be read.
    pub(crate) fn begin(&self, now: Duration, request: Request) -> Result<Begun, ResponseError> {
        self.lock().begin(now, request)
    }

    /// A fetch ends: what is answered.
    pub(crate) fn end(&self, now: Duration, begun: &Begun, news: &[News]) -> Result<Ended, ResponseError> {
        // 31 bits: a number above 0, or 0, which the machine doesn't take.
        let fresh = || (self.platform.random.next_u64() >> 33) as i32;
        self.lock().end(now, begun, news, fresh)
    }

    /// How many sessions there are, and the partitions of all of them.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.lock().size()
    }
}
