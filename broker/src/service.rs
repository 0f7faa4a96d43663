//! What all connections share, and what one of them is known by.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use cutwater_partition_log::Log;
use cutwater_platform::{Platform, WallTime};
use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;

use crate::access::Access;
use crate::access::session::Session;
use crate::errors::text;
use crate::fences::Fences;
use crate::fetch_sessions::FetchSessions;
use crate::frames::Frames;
use crate::group::coordinator::Coordinator;
use crate::metrics::counters::Counters;
use crate::options::BrokerOptions;
use crate::pool::{Pool, Share};
use crate::producers::Producers;
use crate::server::certificates::Certificates;
use crate::server::peer::Peer;
use crate::topic_ids::TopicIds;

/// This server's number: there is one.
pub(crate) const NODE: BrokerId = BrokerId(1);
/// The epoch of every partition's leader: nobody else ever was.
pub(crate) const LEADER_EPOCH: i32 = 0;
/// Nobody waits longer than this without looking whether the server stops.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// How often it is looked for transactions that take too long.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// How often it is said that transactions are late.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// An open transaction of this age, in milliseconds, is late: readers have waited for it for that long.
pub(crate) const LATE_MS: i64 = 15 * 60 * 1000;

/// So few fences aren't worth a look.
const FENCES: usize = 1000;

/// The log and what is kept beside it.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) log: Log,
    pub(crate) platform: Platform,
    pub(crate) options: BrokerOptions,
    /// Users and rights.
    pub(crate) access: Access,
    /// Of listeners with TLS.
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) topic_ids: TopicIds,
    pub(crate) groups: Coordinator,
    pub(crate) fences: Fences,
    pub(crate) producers: Producers,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) counters: Counters,
    /// What requests are read into.
    pub(crate) frames: Arc<Frames>,
    /// Memory for requests that are being read or carried out.
    pub(crate) requests: Arc<Pool>,
    /// Memory for batches on their way to clients.
    pub(crate) answers: Arc<Pool>,
    stopping: AtomicBool,
    /// When it was last looked for transactions that took too long.
    looked: Mutex<Duration>,
    /// When it was last said which transactions are late.
    warned: Mutex<Duration>,
    /// With so many fences it is looked which of them are still needed.
    fence_limit: AtomicUsize,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Rises with every accepted connection.
    pub(crate) connection: u64,
    /// Where it comes from.
    pub(crate) address: String,
    /// The listener it came in by, as it is written.
    pub(crate) listener: Arc<str>,
    /// Whether it is still there.
    pub(crate) peer: Peer,
    /// Where it came in, and finds this server again.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Who it has proved to be.
    pub(crate) user: Option<String>,
    /// Its way there.
    pub(crate) session: Arc<Mutex<Session>>,
}

impl Caller {
    pub(crate) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().expect("no panic under the session's lock")
    }
}

/// An answer that waits for something to be durable.
pub(crate) trait Later: Send {
    /// Whether [`answer`](Later::answer) wouldn't wait. Who doesn't know says no.
    fn is_ready(&self) -> bool {
        false
    }
    /// Waits, and answers.
    fn answer(self: Box<Self>) -> Reply;
}

impl<Then: FnOnce() -> Reply + Send> Later for Then {
    fn answer(self: Box<Self>) -> Reply {
        self()
    }
}

/// What a request gets.
pub(crate) enum Reply {
    /// This frame.
    Now(Bytes),
    /// A frame in pieces, and the room that it has in the pool of answers.
    Large(Vec<Bytes>, Share),
    /// This frame, once something is durable; in its turn.
    Later(Box<dyn Later>),
    /// None: the client doesn't want one.
    Nothing,
    /// None, and the connection is closed.
    Close(String),
}

impl Service {
    pub(crate) fn new(
        platform: &Platform,
        log: Log,
        options: BrokerOptions,
        access: Access,
        certificates: Option<Arc<Certificates>>,
    ) -> Service {
        let answers = Pool::new(options.limits.answer_bytes, options.limits.fetch_bytes);
        let fetch_sessions = FetchSessions::new(platform, &options.limits);
        let requests = Pool::new(options.limits.request_bytes, options.limits.frame_bytes);
        let groups = Coordinator::new(platform, log.clone(), &options);
        Service {
            log,
            platform: platform.clone(),
            options,
            access,
            certificates,
            topic_ids: TopicIds::default(),
            groups,
            fences: Fences::default(),
            producers: Producers::default(),
            fetch_sessions,
            counters: Counters::new(),
            frames: Arc::default(),
            requests,
            answers,
            looked: Mutex::new(platform.clock.monotonic()),
            warned: Mutex::new(platform.clock.monotonic()),
            fence_limit: AtomicUsize::new(FENCES),
            stopping: AtomicBool::new(false),
        }
    }

    /// The name of the cluster that clients see.
    pub(crate) fn cluster_id(&self) -> StrBytes {
        text("cutwater")
    }

    pub(crate) fn now(&self) -> Duration {
        self.platform.clock.monotonic()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.groups.stop();
    }

    /// Says, every minute, which transactions hold readers up for long; prepared ones the log names itself.
    fn warn_of_late(&self) {
        {
            let mut warned = self.warned.lock().expect("no panic while warning");
            if self.now() < *warned + WARN_EVERY {
                return;
            }
            *warned = self.now();
        }
        let now = self.platform.clock.wall().0;
        let late = self.log.open_since_before(WallTime(now.saturating_sub(LATE_MS)));
        if let Some((whose, since)) = late.iter().min_by_key(|(_, since)| *since) {
            let (late, age_seconds) = (late.len(), now.saturating_sub(since.0) / 1000);
            tracing::warn!(
                late,
                oldest = whose,
                age_seconds,
                "transactions have been open for more than 15 minutes; readers of committed records wait for them"
            );
        }
    }

    /// Ends, every second, what has been open for too long, and takes over what others have changed.
    pub(crate) fn expire(&self) {
        {
            let mut looked = self.looked.lock().expect("no panic while looking");
            if self.now() < *looked + EXPIRE_EVERY {
                return;
            }
            *looked = self.now();
        }
        self.access.refresh();
        if let Some(certificates) = &self.certificates {
            certificates.look();
        }
        match self.log.expire_clients(self.platform.clock.wall()) {
            Ok(0) | Err(_) => {}
            Ok(late) => {
                tracing::warn!(late, "transactions have taken longer than their clients asked for and were aborted");
            }
        }
        self.warn_of_late();
        // Ids that the log has forgotten are forgotten here, too; seldom, because it means a walk over all of them.
        if self.fences.len() > self.fence_limit.load(Ordering::SeqCst) {
            let known: BTreeSet<String> = self.log.clients().into_iter().map(|client| client.id).collect();
            self.fences.retain(|id| known.contains(id));
            self.fence_limit.store((2 * self.fences.len()).max(FENCES), Ordering::SeqCst);
        }
    }
}
