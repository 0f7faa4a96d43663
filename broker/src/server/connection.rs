//! One connection: a thread that reads frames and carries requests out in their order, and one that answers in that order.
//!
//! The second thread exists for the sake of writes: while it waits for the disk, the first one accepts the next batches, so
//! that many requests of one connection become durable with one write. Everything else is carried out before the next
//! frame is looked at, as in Kafka.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bytes::Bytes;
use cutwater_platform::{Step, Task};
use kafka_protocol::messages::ApiKey;

use super::arrival::SIZE_BYTES;
use super::listener::Permit;
use super::pace::{Pace, Slow, Windows};
use super::stream::{ReadHalf, WriteHalf};
use crate::access::{certificate, failures};
use crate::api;
use crate::metrics::counters::{Underway, count};
use crate::pool::{Pool, Share};
use crate::service::{Caller, Reply, Service};
use crate::wire::codec::{self, Refused};

/// Answers go out together up to about so many bytes.
const GATHERED_BYTES: usize = 8 << 10;

/// Reads and carries out.
pub(super) struct Reader {
    pub(super) service: Arc<Service>,
    pub(super) caller: Caller,
    pub(super) stream: ReadHalf,
    /// Held while it isn't clear yet who connects.
    pub(super) permit: Option<Permit>,
    pub(super) pool: Arc<Pool>,
    pub(super) answers: SyncSender<(Reply, Share, Underway)>,
}

/// Answers.
pub(super) struct Writer {
    service: Arc<Service>,
    stream: WriteHalf,
    answers: Receiver<(Reply, Share, Underway)>,
    /// Called when the connection is over: when the last answer has been sent, or can't be.
    over: Option<Box<dyn FnOnce() + Send>>,
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// The client has closed it, or the server stops.
    Closed,
    /// The client has done what it may not.
    Refused(String),
}

impl Writer {
    /// The writer of a stream, and how its reader hands answers over.
    pub(super) fn new(
        service: Arc<Service>,
        stream: WriteHalf,
        in_flight: usize,
        over: Box<dyn FnOnce() + Send>,
    ) -> (Writer, SyncSender<(Reply, Share, Underway)>) {
        let (sender, answers) = sync_channel(in_flight);
        (Writer { service, stream, answers, over: Some(over) }, sender)
    }
}

impl Writer {
    /// Sends answers in their order until no more will come, or one can't be sent; whether all were sent. Small ones that are there
    /// at the same time go out together, as those of batches that one write has made durable; none waits for one that isn't there.
    fn run(&mut self) -> bool {
        let mut gathered = Vec::new();
        loop {
            let next = match self.answers.try_recv() {
                Ok(next) => next,
                Err(_) => {
                    if !self.flush(&mut gathered) {
                        return false;
                    }
                    let Ok(next) = self.answers.recv() else { return true };
                    next
                }
            };
            let (mut reply, share, request) = next;
            while let Reply::Later(later) = reply {
                if !later.is_ready() && !self.flush(&mut gathered) {
                    return false;
                }
                reply = later.answer();
            }
            let bytes = match &reply {
                Reply::Now(frame) => frame.len(),
                Reply::Large(pieces, _) => pieces.iter().map(Bytes::len).sum(),
                _ => 0,
            };
            let sent = match reply {
                Reply::Now(frame) if bytes <= GATHERED_BYTES => {
                    gathered.extend_from_slice(&frame);
                    gathered.len() <= GATHERED_BYTES || self.flush(&mut gathered)
                }
                Reply::Now(frame) => self.flush(&mut gathered) && self.write(&[frame]),
                Reply::Large(pieces, room) => {
                    let sent = self.flush(&mut gathered) && self.write(&pieces);
                    drop((pieces, room));
                    sent
                }
                Reply::Nothing | Reply::Later(_) => true,
                Reply::Close(why) => {
                    tracing::debug!(why, "a connection is closed");
                    let _ = self.flush(&mut gathered);
                    false
                }
            };
            self.service.counters.answered(request, bytes, self.service.now());
            drop(share);
            if !sent {
                return false;
            }
        }
    }

    /// Sends what has gathered; whether it was sent.
    fn flush(&mut self, gathered: &mut Vec<u8>) -> bool {
        let sent = gathered.is_empty() || {
            let mut pace = self.pace();
            self.stream.write_all(gathered, &mut |bytes| goes_on(&self.service, &mut pace, bytes)).is_ok()
        };
        gathered.clear();
        sent
    }

    /// Sends pieces; whether they were sent. A client that doesn't read, or by drops, is given up.
    fn write(&mut self, pieces: &[Bytes]) -> bool {
        let mut pace = self.pace();
        self.stream.write_pieces(pieces, &mut |bytes| goes_on(&self.service, &mut pace, bytes)).is_ok()
    }

    fn pace(&self) -> Pace {
        let limits = &self.service.options.limits;
        let windows = Windows { long: limits.frame, short: limits.in_the_way };
        Pace::begin(windows, self.service.now(), &self.service.answers)
    }
}

/// Whether writing goes on after so many bytes.
fn goes_on(service: &Service, pace: &mut Pace, bytes: usize) -> bool {
    pace.moved(bytes);
    match pace.judge(service.now(), Some(&service.answers)) {
        Ok(()) => true,
        Err(Slow::Idle) => false,
        Err(Slow::InTheWay) => {
            tracing::warn!("a connection is closed: its answers were read too slowly while others waited for memory");
            false
        }
    }
}

impl Task for Writer {
    fn step(&mut self) -> Step {
        let politely = self.run();
        self.stream.close(politely);
        Step::Done
    }
}

impl Task for Reader {
    fn step(&mut self) -> Step {
        let ending = self.run().expect_err("a connection goes on until it ends");
        if let Ending::Refused(why) = ending {
            tracing::warn!(address = self.caller.address, why, "a client was refused and its connection closed");
        }
        Step::Done
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(over) = self.over.take() {
            over();
        }
    }
}

impl Reader {
    fn run(&mut self) -> Result<std::convert::Infallible, Ending> {
        let limits = self.service.options.limits.clone();
        let _ = self.stream.tcp().set_nodelay(true);
        // Often enough to see whether it reads at all.
        let _ = self.stream.tcp().set_write_timeout(Some(limits.in_the_way.min(limits.frame)));
        let clock = &*self.service.platform.clock;
        if let Err(error) = self.stream.handshake(clock, self.service.now() + limits.handshake) {
            let ending = not_tls(&error);
            if let Ending::Refused(_) = &ending {
                self.unproved(failures::TLS, cause_of(&error));
            }
            return Err(ending);
        }
        self.named()?;
        let proved = self.service.now() + limits.authentication;
        let mut patience = limits.first_byte;
        let mut known = false;
        let mut version = self.service.access.version();
        loop {
            known = known || self.look();
            let (patience, limit) = match known {
                true => (std::mem::replace(&mut patience, limits.idle), limits.frame_bytes),
                // One time for all of it.
                false => {
                    (proved.saturating_sub(self.service.now()), limits.frame_bytes.min(limits.unknown_frame_bytes))
                }
            };
            let end = if known { None } else { Some(proved) };
            let framed = self.frame(patience, limit, end);
            if framed.is_err() && !known && self.service.now() >= proved {
                self.unproved(failures::SASL, "late");
            }
            let (frame, share) = framed?;
            if known && self.service.access.version() != version {
                version = self.service.access.version();
                if !self.caller.session().still_holds(&self.service.access.book()) {
                    return Err(Ending::Refused("its user was removed, or has another password now".to_string()));
                }
            }
            let (bytes, now) = (SIZE_BYTES + frame.len(), self.service.now());
            let counters = &self.service.counters;
            if !known && self.caller.session().expects_bare() {
                let request = counters.received(ApiKey::SaslAuthenticate, bytes, now);
                let Some(answer) = api::bare(&self.service, &self.caller, &frame) else { return Err(Ending::Closed) };
                self.hand_over(Reply::Now(answer), share, request)?;
                continue;
            }
            if let Some(ours) = api::owners::read(&frame) {
                let request = counters.received_of_owner(bytes, now);
                let reply = api::owners::call(&self.service, &self.caller, ours.map_err(Ending::Refused)?);
                self.hand_over(reply, share, request)?;
                continue;
            }
            let (reply, request) = match codec::read(frame) {
                Ok(head) => {
                    let request = counters.received(head.api.key, bytes, now);
                    (api::call(&self.service, &self.caller, &head), request)
                }
                Err(Refused::NewerApiVersions { correlation }) => {
                    let request = counters.received(ApiKey::ApiVersions, bytes, now);
                    (api::newest_versions(correlation), request)
                }
                Err(refused) => {
                    count(&counters.malformed);
                    return Err(Ending::Refused(refused.to_string()));
                }
            };
            self.hand_over(reply, share, request)?;
            if !known && self.caller.session().has_failed() {
                return Err(Ending::Closed);
            }
        }
    }

    /// Takes the client's name out of its certificate, if that is what certificates are for here.
    fn named(&mut self) -> Result<(), Ending> {
        let Some((by, certificate)) = self.service.options.security.certificate_names.zip(self.stream.certificate())
        else {
            return Ok(());
        };
        self.caller.user = certificate::user(&certificate, by);
        if self.caller.user.is_none() {
            self.unproved(failures::TLS, "certificate");
            return Err(Ending::Refused("its certificate names nobody".to_string()));
        }
        Ok(())
    }

    /// Counts that it wasn't proved who connects.
    fn unproved(&self, mechanism: &'static str, cause: &'static str) {
        self.service.access.failures.count(&self.caller.listener, mechanism, cause);
    }

    /// Leaves an answer to the writer.
    fn hand_over(&self, reply: Reply, share: Share, request: Underway) -> Result<(), Ending> {
        if self.answers.send((reply, share, request)).is_err() || self.service.is_stopping() {
            return Err(Ending::Closed);
        }
        Ok(())
    }

    /// Whether nothing is left to be proved; then takes note of who it is.
    fn look(&mut self) -> bool {
        let (through, user) = {
            let session = self.caller.session();
            (session.is_through(), session.user().map(String::from))
        };
        if through {
            // Who has proved it by a password is that, whatever certificate came with it.
            (self.caller.user, self.permit) = (user.or_else(|| self.caller.user.take()), None);
        }
        through
    }
}

/// Why a handshake failed, for the counters.
fn cause_of(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => "not-tls",
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => "certificate",
        Some(_) => "handshake",
        None => "late",
    }
}

/// Why a handshake failed, for the log.
fn not_tls(error: &io::Error) -> Ending {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => Ending::Refused(
            "it doesn't speak TLS, and this listener does: it must be told to (SSL or SASL_SSL)".to_string(),
        ),
        _ if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
            Ending::Refused("the TLS handshake took too long".to_string())
        }
        _ if error.kind() == io::ErrorKind::InvalidData => {
            Ending::Refused(format!("the TLS handshake failed: {error}"))
        }
        _ => Ending::Closed,
    }
}
