//! Reads partitions ahead for all readers of one log: one connection, one thread, one fetch for all that have room.
//!
//! Promises:
//! * A reader gets the committed records of its partition in the order of their offsets, each once, whatever happens to the
//!   connection: a fetch names the offset that it begins at, and what was asked for an offset that has been passed is thrown away.
//! * What is read ahead is bounded (I-9): a partition isn't asked for while its reader holds [`READER_BYTES`].
//! * A server that is away is waited for, for as long as the options say; then every reader hears of it, once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cutwater_platform::{Step, Task, TaskHandle};

use super::committed::committed;
use super::error::RemoteError;
use super::kafka::{Came, Wish};
use super::link::{Broken, FRAME_BYTES_MAX, Link};
use super::log::{Dial, Pauses, Shared};
use crate::embedded::consumer::Fetched;
use crate::offset::Offset;
use crate::topic::TopicPartition;
use crate::view::Callback;

/// A reader that holds so much isn't fetched for.
const READER_BYTES: usize = 512 << 10;
/// Bytes asked of one partition, and of all together.
const PARTITION_BYTES: i32 = 256 << 10;
const MOST_BYTES: i32 = 8 << 20;
/// Partitions in one fetch; the others are in the next ones.
const PARTITIONS_MAX: usize = 500;
/// How long a fetch waits for news if nobody is full, and if somebody is who may have room soon.
const WAIT: Duration = Duration::from_millis(100);
const WAIT_SHORT: Duration = Duration::from_millis(4);

/// Kafka's errors of a partition.
const OFFSET_OUT_OF_RANGE: i16 = 1;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const TOPIC_NOT_ALLOWED: i16 = 29;
const STORAGE: i16 = 56;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// Where readers leave their wishes and find what came.
pub(super) struct Desk {
    dial: Dial,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    readers: BTreeMap<u64, Reading>,
    /// Numbers of readers.
    next: u64,
    /// The reader that the next fetch begins with, so that all get their turn.
    turn: u64,
    fetcher: Option<TaskHandle>,
    stop: bool,
}

/// One reader's partition.
struct Reading {
    at: TopicPartition,
    topic: u128,
    /// Where the next fetch begins.
    next: u64,
    /// What came, each with the offset behind it.
    came: VecDeque<(Fetched, u64)>,
    bytes: usize,
    news: Callback,
    failed: Option<RemoteError>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Desk({:?})", self.dial.options)
    }
}

impl Desk {
    pub(super) fn new(dial: Dial) -> Arc<Desk> {
        Arc::new(Desk { dial, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic under the desk's lock")
    }

    /// The fetcher ends when it next looks.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stop = true;
        if let Some(fetcher) = &inner.fetcher {
            fetcher.wake();
        }
    }

    fn join(self: &Arc<Desk>, reading: Reading) -> u64 {
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.readers.insert(number, reading);
        match &inner.fetcher {
            Some(fetcher) => fetcher.wake(),
            None => {
                let fetcher = Fetcher { desk: self.clone(), link: None, away: None };
                inner.fetcher = Some(self.dial.platform.spawn.spawn("log-fetch", Box::new(fetcher)));
            }
        }
        number
    }
}

/// A reader of one partition of a log in another process, with a position. Never blocks.
#[derive(Debug)]
pub struct RemoteReader {
    /// Keeps the log's fetcher running.
    _shared: Arc<Shared>,
    desk: Arc<Desk>,
    number: u64,
    position: Offset,
}

impl RemoteReader {
    pub(super) fn new(
        shared: Arc<Shared>,
        desk: Arc<Desk>,
        at: TopicPartition,
        topic: u128,
        from: Offset,
        news: Callback,
    ) -> RemoteReader {
        let came = VecDeque::new();
        let number = desk.join(Reading { at, topic, next: from.0, came, bytes: 0, news, failed: None });
        RemoteReader { _shared: shared, desk, number, position: from }
    }

    /// The offset that the next poll begins at. Moves past markers and past what isn't shown.
    pub fn position(&self) -> Offset {
        self.position
    }

    /// Takes what has come, without waiting. An empty answer doesn't mean that the position hasn't moved: markers and aborted batches
    /// are passed.
    ///
    /// # Errors
    /// The broker has been away for longer than the patience, the partition can't be read there, or what came is damaged.
    pub fn poll(&mut self) -> Result<Fetched, RemoteError> {
        let mut inner = self.desk.lock();
        let inner = &mut *inner;
        let reading = inner.readers.get_mut(&self.number).expect("a reader stays until it is dropped");
        let Some((fetched, behind)) = reading.came.pop_front() else {
            return reading.failed.take().map_or(Ok(Fetched::default()), Err);
        };
        let full = reading.bytes >= READER_BYTES;
        reading.bytes -= fetched.bytes();
        self.position = Offset(behind);
        if full && let Some(fetcher) = &inner.fetcher {
            fetcher.wake();
        }
        Ok(fetched)
    }
}

impl Drop for RemoteReader {
    fn drop(&mut self) {
        self.desk.lock().readers.remove(&self.number);
    }
}

/// The thread that fetches.
struct Fetcher {
    desk: Arc<Desk>,
    link: Option<Link>,
    /// Since when the server has been away, and the pauses between tries.
    away: Option<(Duration, Pauses)>,
}

/// Who is fetched for, and what is asked.
type Asked = Vec<(u64, Wish)>;

impl Task for Fetcher {
    fn step(&mut self) -> Step {
        let (asked, somebody_is_full) = match self.choose() {
            Some(chosen) => chosen,
            None => return Step::Done,
        };
        if asked.is_empty() {
            return Step::Idle;
        }
        let wait = if somebody_is_full { WAIT_SHORT } else { WAIT };
        let done = self.fetch(&asked, wait);
        match done {
            Ok(()) => {
                self.away = None;
                Step::Again
            }
            Err(Trouble::Broken(broken)) => {
                self.link = None;
                self.wait_or_give_up(&broken)
            }
            Err(Trouble::Final(error)) => {
                self.link = None;
                self.fail_all(&error);
                Step::Wait(Pauses::new().next())
            }
        }
    }
}

/// Why a fetch brought nothing.
enum Trouble {
    /// It may go better later.
    Broken(Broken),
    /// It won't.
    Final(RemoteError),
}

impl Fetcher {
    /// Partitions whose readers have room, and whether some haven't. `None`: nobody will ever ask again.
    fn choose(&self) -> Option<(Asked, bool)> {
        let mut inner = self.desk.lock();
        if inner.stop {
            return None;
        }
        let turn = inner.turn;
        let in_turn = inner.readers.range(turn..).chain(inner.readers.range(..turn));
        let (mut asked, mut full) = (Vec::new(), false);
        for (number, reading) in in_turn {
            if reading.bytes >= READER_BYTES {
                full = true;
            } else if reading.failed.is_none() && asked.len() < PARTITIONS_MAX {
                let wish = Wish { topic: reading.topic, partition: reading.at.partition, from: reading.next };
                asked.push((*number, wish));
            }
        }
        inner.turn = asked.first().map_or(0, |(number, _)| number + 1);
        Some((asked, full))
    }

    fn fetch(&mut self, asked: &Asked, wait: Duration) -> Result<(), Trouble> {
        let dial = &self.desk.dial;
        if self.link.is_none() {
            let opened = Link::open(&dial.platform, &dial.options).map_err(Trouble::Final)?;
            self.link = Some(opened.map_err(Trouble::Broken)?);
        }
        let Some(link) = &mut self.link else { return Ok(()) };
        let wishes: Vec<Wish> = asked.iter().map(|(_, wish)| *wish).collect();
        let fetched = link.fetch(&wishes, wait, PARTITION_BYTES, MOST_BYTES);
        let (error, came) = fetched.map_err(Trouble::Broken)?;
        if error != 0 {
            return Err(Trouble::Broken(Broken::Nonsense(format!("it answers a fetch with Kafka's error {error}"))));
        }
        let fits = came.len() == asked.len()
            && came.iter().zip(&wishes).all(|(c, w)| (c.topic, c.partition) == (w.topic, w.partition));
        if !fits {
            let what = "it answers a fetch with other partitions than were asked for".to_string();
            return Err(Trouble::Broken(Broken::Nonsense(what)));
        }
        let mut storage = None;
        for ((number, wish), came) in asked.iter().zip(came) {
            if came.error == STORAGE {
                storage = Some(Broken::Nonsense("its log takes no requests".to_string()));
            } else {
                self.hand_out(*number, *wish, came);
            }
        }
        storage.map_or(Ok(()), |broken| Err(Trouble::Broken(broken)))
    }

    /// Gives a reader what came for it.
    fn hand_out(&self, number: u64, wish: Wish, came: Came) {
        let aborted = came.aborted;
        let bytes_came = !came.records.is_empty();
        let judged = match came.error {
            0 if !bytes_came => return,
            0 => committed(came.records, wish.from, &aborted, FRAME_BYTES_MAX).map_err(|e| e.to_string()),
            code => {
                self.refuse(number, wish, code);
                return;
            }
        };
        let mut inner = self.desk.lock();
        // Dropped meanwhile, or not where it was.
        let Some(reading) = inner.readers.get_mut(&number).filter(|reading| reading.next == wish.from) else { return };
        match judged {
            Ok((fetched, next)) => {
                reading.next = next;
                reading.bytes += fetched.bytes();
                reading.came.push_back((fetched, next));
            }
            Err(what) => {
                reading.failed = Some(RemoteError::Damaged { at: reading.at, offset: wish.from, what });
            }
        }
        let news = reading.news.clone();
        drop(inner);
        news();
    }

    fn refuse(&self, number: u64, wish: Wish, code: i16) {
        let what = match code {
            OFFSET_OUT_OF_RANGE => "its oldest record is newer, or the log ends before",
            UNKNOWN_TOPIC_OR_PARTITION | UNKNOWN_TOPIC_ID => "the topic is gone, or was made anew",
            TOPIC_NOT_ALLOWED => "its user may not: that needs the right Read on the topic",
            _ => "the broker can't read it",
        };
        let mut inner = self.desk.lock();
        let Some(reading) = inner.readers.get_mut(&number) else { return };
        reading.failed = Some(RemoteError::Unreadable { at: reading.at, offset: wish.from, what, code });
        let news = reading.news.clone();
        drop(inner);
        news();
    }

    fn wait_or_give_up(&mut self, broken: &Broken) -> Step {
        let dial = &self.desk.dial;
        let now = dial.now();
        let (since, pauses) = self.away.get_or_insert_with(|| (now, Pauses::new()));
        let (since, pause) = (*since, pauses.next());
        tracing::debug!(address = dial.options.address, %broken, "no records can be fetched");
        if now >= since + dial.options.patience {
            self.away = None;
            self.fail_all(&dial.away(since, broken));
        }
        Step::Wait(pause)
    }

    fn fail_all(&self, error: &RemoteError) {
        let mut inner = self.desk.lock();
        let waiting = inner.readers.values_mut().filter(|reading| reading.failed.is_none());
        let news: Vec<Callback> = waiting
            .map(|reading| {
                reading.failed = Some(error.clone());
                reading.news.clone()
            })
            .collect();
        drop(inner);
        news.iter().for_each(|news| news());
    }
}
