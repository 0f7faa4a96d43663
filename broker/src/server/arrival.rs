//! One frame comes in: its memory taken as its bytes come, its kind looked at before it is large, its pace kept an eye on.
//!
//! * What a frame announces takes nothing from anybody: its first piece comes into memory that each connection may have, later ones
//!   once the pool has given their bytes (I-9).
//! * A frame that may not be large isn't read on when its first bytes say so.
//! * Who sends by drops is given up, and soon while others wait for memory.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use cutwater_partition_log::remote;

use super::connection::{Ending, Reader};
use super::pace::{Pace, Slow, Windows};
use crate::options::BrokerLimits;
use crate::pool::{Claim, Share};
use crate::wire::apis::{self, SMALL_FRAME_BYTES};

/// Bytes of a frame's size.
pub(super) const SIZE_BYTES: usize = 4;
/// Bytes of the key that a frame begins with.
const KEY_BYTES: usize = 2;
/// Frames of at most so many bytes are read without asking the pool first: a connection reads one at a time.
const FREE_BYTES: usize = 64 << 10;

impl Reader {
    /// The next frame without its size, by `until` at the latest.
    pub(super) fn frame(
        &mut self,
        patience: Duration,
        limit: usize,
        until: Option<Duration>,
    ) -> Result<(Bytes, Share), Ending> {
        let mut size = [0; SIZE_BYTES];
        self.fill(&mut size, self.service.now() + patience)?;
        if let [0x16, 0x03, ..] = size {
            let why = "it speaks TLS, and this listener doesn't: it must connect to one with tls://";
            return Err(Ending::Refused(why.to_string()));
        }
        let size = i32::from_be_bytes(size);
        let bytes = usize::try_from(size).ok().filter(|bytes| (1..=limit).contains(bytes));
        let bytes =
            bytes.ok_or_else(|| Ending::Refused(format!("no frame has {size} bytes (at most {limit} are allowed)")))?;
        let BrokerLimits { frame: long, in_the_way: short, .. } = self.service.options.limits;
        let windows = Windows { long, short };
        let mut pace = Pace::begin(windows, self.service.now(), &self.pool);
        let mut frame = self.service.frames.take(bytes);
        let mut claim = None;
        let mut come = 0;
        if bytes > SMALL_FRAME_BYTES {
            let key = &mut frame.behind(0)[..KEY_BYTES];
            self.receive(key, &mut pace, false, until)?;
            check_size([key[0], key[1]], bytes)?;
            come = KEY_BYTES;
        }
        while come < bytes {
            let mut room = frame.behind(come);
            match come {
                ..FREE_BYTES => {
                    room = {
                        let most = room.len().min(FREE_BYTES - come);
                        &mut room[..most]
                    }
                }
                _ => self.grow(&mut claim, bytes, come + room.len(), &mut pace)?,
            }
            let piece = room.len();
            self.receive(room, &mut pace, claim.is_some(), until)?;
            come += piece;
        }
        let share = match claim {
            Some(claim) => claim.into_share(),
            None => self.pool.take(bytes, long).ok_or_else(no_memory)?,
        };
        Ok((frame.into_bytes(), share))
    }

    /// Has the pool give a frame of `announced` bytes so many in all.
    fn grow(&self, claim: &mut Option<Claim>, announced: usize, bytes: usize, pace: &mut Pace) -> Result<(), Ending> {
        let claim = claim.get_or_insert_with(|| self.pool.claim(announced));
        let before = self.service.now();
        let given = claim.grow(bytes, self.service.options.limits.frame);
        // The client can do nothing for that.
        pace.excuse(self.service.now().saturating_sub(before));
        if given { Ok(()) } else { Err(no_memory()) }
    }

    /// Fills the whole buffer while the client keeps pace.
    fn receive(
        &mut self,
        mut buffer: &mut [u8],
        pace: &mut Pace,
        holds: bool,
        until: Option<Duration>,
    ) -> Result<(), Ending> {
        let service = self.service.clone();
        while !buffer.is_empty() {
            let next = pace.next(holds);
            let end = until.map_or(next, |until| until.min(next));
            match self.stream.read(buffer, &*service.platform.clock, end) {
                Ok(0) => return Err(Ending::Closed),
                Ok(bytes) => {
                    buffer = &mut buffer[bytes..];
                    pace.moved(bytes);
                    continue;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::TimedOut => {}
                    io::ErrorKind::InvalidData => return Err(Ending::Refused(error.to_string())),
                    _ => return Err(Ending::Closed),
                },
            }
            let now = service.now();
            if until.is_some_and(|until| now >= until) {
                return Err(Ending::Closed);
            }
            match pace.judge(now, holds.then_some(&*self.pool)) {
                Ok(()) => {}
                Err(Slow::Idle) => return Err(Ending::Closed),
                Err(Slow::InTheWay) => {
                    return Err(Ending::Refused(
                        "its request came too slowly while others waited for memory".to_string(),
                    ));
                }
            }
        }
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8], end: Duration) -> Result<(), Ending> {
        self.stream.fill(buffer, &*self.service.platform.clock, end).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => Ending::Refused(e.to_string()),
            _ => Ending::Closed,
        })
    }
}

/// Whether a frame that begins with this key may have so many bytes.
fn check_size(key: [u8; KEY_BYTES], bytes: usize) -> Result<(), Ending> {
    let key = i16::from_be_bytes(key);
    let large = key == remote::API_KEY || apis::find(key).is_some_and(|api| api.large);
    if large { Ok(()) } else { Err(Ending::Refused(format!("{bytes} bytes are too much for a request of API {key}"))) }
}

fn no_memory() -> Ending {
    Ending::Refused("memory for its request didn't come free in time".to_string())
}
