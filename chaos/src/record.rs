//! What clients did, as one history: of threads of this program, and of other people's clients that tell it over a socket.
//!
//! A foreign client speaks lines, so that any language will do. `S N` before call N, and it waits for `N` to come back: so its
//! call begins after its stamp. `E N PROCESS OUTCOME WHAT ..` after it (nothing comes back), OUTCOME one of `ok fail unknown`
//! and WHAT one of:
//!
//! ```text
//! send PARTITION VALUE OFFSET        OFFSET -1 if it isn't known
//! poll PARTITION FROM NEXT AT_END [OFFSET:VALUE]..
//! begin NUMBER | commit NUMBER | abort NUMBER
//! offset GROUP PARTITION OFFSET      committed;  asked GROUP PARTITION OFFSET  fetched
//! ```

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutwater_testkit::history::{Call, History, Outcome, Stamp, TxnId, Value};

use crate::Failed;

/// Hundreds of processes that are counted by themselves.
const HUNDREDS: usize = 16;

/// A history that many write, and what else is noticed while they do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    history: Arc<Mutex<History>>,
    /// What no client may see, whatever the history says: in words.
    troubles: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicU64>,
    /// The same by hundreds of processes: each foreign client has one.
    of_hundred: Arc<[AtomicU64; HUNDREDS]>,
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self) -> Stamp {
        self.lock().start()
    }

    pub(crate) fn finish(&self, started: Stamp, process: u16, call: Call, outcome: Outcome) {
        self.lock().finish(started, process, None, call, outcome);
        self.count.fetch_add(1, Ordering::SeqCst);
        if let Some(of_hundred) = self.of_hundred.get(usize::from(process / 100)) {
            of_hundred.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A call that takes no time.
    pub(crate) fn note(&self, process: u16, call: Call, outcome: Outcome) {
        let started = self.start();
        self.finish(started, process, call, outcome);
    }

    /// Something that must not happen.
    pub(crate) fn trouble(&self, what: String) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Calls so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Calls so far of one hundred of processes.
    pub(crate) fn count_of_hundred(&self, hundred: usize) -> u64 {
        self.of_hundred.get(hundred).map_or(0, |count| count.load(Ordering::SeqCst))
    }

    /// The history, which is empty afterwards, and the troubles.
    pub(crate) fn take(&self) -> (History, Vec<String>) {
        let troubles = std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner));
        (std::mem::take(&mut *self.lock()), troubles)
    }

    /// Where foreign clients can tell what they do.
    pub(crate) fn listen(&self) -> Result<SocketAddr, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| Failed::of("listen", e))?;
        let address = listener.local_addr().map_err(|e| Failed::of("listen", e))?;
        let recorder = self.clone();
        crate::go("recorder", move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let recorder = recorder.clone();
                crate::go("recorder", move || {
                    if let Err(what) = recorder.hear(stream) {
                        recorder.trouble(format!("a foreign client's report is none: {what}"));
                    }
                });
            }
        });
        Ok(address)
    }

    fn hear(&self, stream: TcpStream) -> Result<(), String> {
        let _ = stream.set_nodelay(true);
        let mut back = stream.try_clone().map_err(|e| e.to_string())?;
        let mut started: HashMap<u64, Stamp> = HashMap::new();
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut words = line.split_ascii_whitespace();
            let wrong = || format!("\"{line}\"");
            let kind = words.next().ok_or_else(wrong)?;
            let number: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
            match kind {
                "S" => {
                    started.insert(number, self.start());
                    let _ = back.write_all(format!("{number}\n").as_bytes());
                }
                "E" => {
                    let stamp = started.remove(&number).ok_or_else(wrong)?;
                    let (process, call, outcome) = parse(words).ok_or_else(wrong)?;
                    self.finish(stamp, process, call, outcome);
                }
                "T" => self.trouble(line.clone()),
                _ => return Err(wrong()),
            }
        }
        Ok(())
    }
}

/// What stands behind `E N`.
fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<(u16, Call, Outcome)> {
    let process: u16 = words.next()?.parse().ok()?;
    let outcome = match words.next()? {
        "ok" => Outcome::Ok,
        "fail" => Outcome::Fail,
        "unknown" => Outcome::Unknown,
        _ => return None,
    };
    let what = words.next()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let txn = |number: i64| Some(TxnId { process, number: u32::try_from(number).ok()? });
    let unsigned = |number: i64| u64::try_from(number).ok();
    let call = match what {
        "send" => {
            let partition = u32::try_from(number()?).ok()?;
            Call::Send { partition, value: Value(unsigned(number()?)?), offset: u64::try_from(number()?).ok() }
        }
        "poll" => {
            let partition = u32::try_from(number()?).ok()?;
            let (from, next, at_end) = (unsigned(number()?)?, unsigned(number()?)?, number()? == 1);
            let record = |word: &str| {
                let (offset, value) = word.split_once(':')?;
                Some((offset.parse().ok()?, Value(value.parse().ok()?)))
            };
            let records = words.map(record).collect::<Option<Vec<_>>>()?;
            return Some((process, Call::Poll { partition, from, next, at_end, records }, outcome));
        }
        "begin" => Call::Begin { txn: txn(number()?)? },
        "commit" => Call::Commit { txns: vec![txn(number()?)?], checkpoint: None },
        "abort" => Call::Abort { txn: txn(number()?)? },
        "offset" | "asked" => {
            let (group, partition) = (u32::try_from(number()?).ok()?, u32::try_from(number()?).ok()?);
            let offset = unsigned(number()?)?;
            match what {
                "offset" => Call::CommitOffset { group, partition, offset },
                _ => Call::FetchOffset { group, partition, offset },
            }
        }
        _ => return None,
    };
    Some((process, call, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_foreign_clients_become_calls_and_nothing_else_does() {
        let heard = |line: &str| parse(line.split_ascii_whitespace());
        let value = Value::new(3, 1, 2);
        let send = Call::Send { partition: 4, value, offset: Some(9) };
        assert_eq!(heard(&format!("3 ok send 4 {} 9", value.0)), Some((3, send, Outcome::Ok)));
        let poll = Call::Poll { partition: 0, from: 1, next: 7, at_end: true, records: vec![(5, value)] };
        assert_eq!(heard(&format!("3 ok poll 0 1 7 1 5:{}", value.0)), Some((3, poll, Outcome::Ok)));
        let commit = Call::Commit { txns: vec![TxnId { process: 3, number: 8 }], checkpoint: None };
        assert_eq!(heard("3 unknown commit 8"), Some((3, commit, Outcome::Unknown)));
        for nonsense in
            ["", "3", "3 ok", "3 ok send", "3 ok send 0 x 1", "3 maybe begin 1", "3 ok poll 0 1 2 1 5", "3 ok end 1"]
        {
            assert_eq!(heard(nonsense), None, "{nonsense}");
        }
    }
}
