//! Orders to a running job, through files in its data directory: a savepoint, a stop, a drain.
//!
//! ```text
//!   DIR/control/<number>.order    verb, folder of the savepoint (may be empty), when it was given, checksum; published whole, never changed
//!   DIR/control/<number>.taken    the job has read it
//!   DIR/control/<number>.answer   "done" or "failed", and what there is to say; then order and taken are removed
//! ```
//!
//! * The giver is another process of the same program (`--savepoint`, `--stop`, `--drain`), or anything that can write a file.
//! * An order that was taken and not answered is taken again by the next run in this directory: it survives a crash.
//! * One that nobody took for a minute is refused: a job that is started much later shall not stop because of it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::Options;
use cutwater_engine::error::RunError;
use cutwater_engine::observe::Control;
use cutwater_engine::snapshot::{SavepointState, SavepointTicket};
use cutwater_platform::{Clock, CrashPoints, Files, IoContext, Platform};
use xxhash_rust::xxh3::xxh3_64;

use super::console::Console;
use super::exit::Exit;
use super::flags::Flags;

/// The directory of orders, in the data directory.
const CONTROL: &str = "control";
/// The directory of savepoints that are given a plain name, in the data directory.
const SAVEPOINTS: &str = "savepoints";
const ORDER_MAX_BYTES: u64 = 16 * 1024;
/// An order that nobody took for so long is refused.
const STALE_AFTER_MS: i64 = 60_000;
/// So long the giver waits for a job to take an order.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Savepoint,
    Stop,
    Drain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    verb: Verb,
    savepoint: Option<PathBuf>,
    given_ms: i64,
}

impl Order {
    fn to_text(&self) -> String {
        let verb = match self.verb {
            Verb::Savepoint => "savepoint",
            Verb::Stop => "stop",
            Verb::Drain => "drain",
        };
        let folder = self.savepoint.as_deref().unwrap_or(Path::new(""));
        let text = format!("{verb}\n{}\n{}\n", folder.display(), self.given_ms);
        let sum = checksum(&text);
        text + &sum
    }

    fn parse(text: &str) -> Result<Order, String> {
        // Whoever writes an order by hand needs none.
        let sum_at = text.match_indices('\n').nth(2).map_or(text.len(), |(at, _)| at + 1);
        let (text, sum) = text.split_at(sum_at);
        if !sum.is_empty() && sum != checksum(text) {
            return Err(
                "the order was changed since it was written: its checksum is another. Give it again".to_string()
            );
        }
        let mut lines = text.lines();
        let verb = match lines.next() {
            Some("savepoint") => Verb::Savepoint,
            Some("stop") => Verb::Stop,
            Some("drain") => Verb::Drain,
            other => return Err(format!("{:?} is no order; say savepoint, stop or drain", other.unwrap_or_default())),
        };
        let savepoint = lines.next().filter(|line| !line.is_empty()).map(PathBuf::from);
        let given_ms = lines.next().and_then(|line| line.parse().ok());
        let given_ms = given_ms.ok_or("the third line must say when it was given, in milliseconds since 1970")?;
        match (verb, &savepoint) {
            (Verb::Savepoint, None) => Err("the second line must name the savepoint's folder".to_string()),
            (_, Some(folder)) if !folder.is_absolute() => Err(format!("{} isn't absolute", folder.display())),
            _ => Ok(Order { verb, savepoint, given_ms }),
        }
    }
}

/// The line behind an order that says what was written.
fn checksum(text: &str) -> String {
    format!("xxh3 {:016x}\n", xxh3_64(text.as_bytes()))
}

/// The job's side: takes orders and answers them.
pub(super) struct Desk {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    crash: CrashPoints,
    dir: PathBuf,
    /// Orders taken and not answered; without a ticket those that need none.
    open: BTreeMap<String, Option<SavepointTicket>>,
}

impl Desk {
    pub(super) fn new(options: &Options) -> Desk {
        let Platform { files, clock, crash, .. } = options.platform.clone();
        Desk { files, clock, crash, dir: options.dir.join(CONTROL), open: BTreeMap::new() }
    }

    /// Takes what has come, unless the run is over, and answers what is settled.
    ///
    /// # Errors
    /// The directory can't be read or written; the orders stay.
    pub(super) fn look(&mut self, control: &Control, over: bool) -> io::Result<()> {
        if !over && self.files.kind(&self.dir)? == Some(true) {
            for entry in self.files.read_dir(&self.dir)? {
                let Some(number) = entry.name.strip_suffix(".order") else { continue };
                if !self.open.contains_key(number) {
                    self.take(number, control)?;
                }
            }
        }
        self.answer_settled()
    }

    fn take(&mut self, number: &str, control: &Control) -> io::Result<()> {
        if self.files.exists(&self.path(number, "answer"))? {
            // An earlier run answered it and died before it was put away.
            return self.put_away(number);
        }
        let bytes = match self.files.read(&self.path(number, "order"), ORDER_MAX_BYTES) {
            // Its giver took it back.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let parsed = Order::parse(&String::from_utf8_lossy(&bytes));
        let taken = self.path(number, "taken");
        let fresh = !self.files.exists(&taken)?;
        let order = match (parsed, u64::from_str_radix(number, 16)) {
            (Ok(order), Ok(number)) => Ok((order, number)),
            (Err(why), _) => Err(why),
            (_, Err(_)) => Err("an order's name must be a number of up to 16 hexadecimal digits".to_string()),
        };
        let (order, id) = match order {
            Ok((order, _)) if fresh && self.clock.wall().0.saturating_sub(order.given_ms) > STALE_AFTER_MS => {
                return self.answer(number, false, "it is older than a minute, and nobody had taken it");
            }
            Ok(order) => order,
            Err(why) => return self.answer(number, false, &why),
        };
        if fresh {
            self.files.publish_bytes(&taken, b"")?;
            self.crash.reach("control.taken");
        }
        let ticket = match (order.verb, order.savepoint) {
            (Verb::Savepoint, Some(folder)) => Some(control.savepoint(folder, id)),
            (Verb::Stop, Some(folder)) => Some(control.stop_with_savepoint(folder, id)),
            (Verb::Drain, Some(folder)) => Some(control.drain_with_savepoint(folder, id)),
            (Verb::Drain, None) => {
                control.drain();
                None
            }
            (Verb::Stop | Verb::Savepoint, None) => {
                control.stop();
                None
            }
        };
        self.open.insert(number.to_string(), ticket);
        Ok(())
    }

    fn answer_settled(&mut self) -> io::Result<()> {
        let settled = |ticket: &Option<SavepointTicket>| match ticket.as_ref().map(SavepointTicket::state) {
            None => Some((true, String::new())),
            Some(SavepointState::Taken(record)) => {
                let (n, files, bytes) = (record.checkpoint, record.files, record.bytes);
                Some((true, format!("savepoint of checkpoint {n}, {files} state files, {bytes} bytes")))
            }
            Some(SavepointState::Failed(why)) => Some((false, why)),
            Some(SavepointState::Waiting | SavepointState::Writing(_)) => None,
        };
        let answers: Vec<(String, bool, String)> = self
            .open
            .iter()
            .filter_map(|(number, ticket)| settled(ticket).map(|(done, text)| (number.clone(), done, text)))
            .collect();
        for (number, done, text) in answers {
            self.answer(&number, done, &text)?;
            self.open.remove(&number);
        }
        Ok(())
    }

    fn answer(&self, number: &str, done: bool, text: &str) -> io::Result<()> {
        let text = format!("{}\n{text}\n", if done { "done" } else { "failed" });
        match self.files.publish_bytes(&self.path(number, "answer"), text.as_bytes()) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => self.crash.reach("control.answered"),
        }
        self.put_away(number)
    }

    fn put_away(&self, number: &str) -> io::Result<()> {
        for kind in ["order", "taken"] {
            match self.files.remove_file(&self.path(number, kind)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        self.files.sync_dir(&self.dir)
    }

    fn path(&self, number: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("{number}.{kind}"))
    }
}

/// Where a savepoint of this name is: below the data directory, or where a path says.
pub(super) fn place_of(dir: &Path, name: &Path) -> Result<PathBuf, RunError> {
    if name.components().count() == 1 && !name.is_absolute() && name != Path::new("..") && name != Path::new(".") {
        return absolute(&dir.join(SAVEPOINTS).join(name));
    }
    absolute(name)
}

fn absolute(path: &Path) -> Result<PathBuf, RunError> {
    std::path::absolute(path).map_err(|e| RunError::Options(format!("{}: {e}", path.display())))
}

/// The giver's side: gives the order that the flags ask for, and waits for its answer.
pub(super) fn give(console: &Console, options: &Options, flags: &Flags) -> Exit {
    match try_to_give(console, options, flags) {
        Ok(exit) => exit,
        Err(error) => console.failed(&error),
    }
}

fn try_to_give(console: &Console, options: &Options, flags: &Flags) -> Result<Exit, RunError> {
    let Platform { files, clock, random, .. } = &options.platform;
    let verb = match (flags.stop, flags.drain) {
        (true, true) => return Err(RunError::Options("--stop and --drain contradict each other".to_string())),
        (true, false) => Verb::Stop,
        (false, true) => Verb::Drain,
        (false, false) => Verb::Savepoint,
    };
    if files.kind(&options.dir).at("look for", &options.dir)? != Some(true) {
        return Err(RunError::Refused(format!("there is no data directory {}", options.dir.display())));
    }
    let savepoint = flags.savepoint.as_deref().map(|name| place_of(&options.dir, name)).transpose()?;
    let order = Order { verb, savepoint, given_ms: clock.wall().0 };
    let dir = options.dir.join(CONTROL);
    files.create_dir_all(&dir).at("create the directory", &dir)?;
    let path = |kind: &str, number: u64| dir.join(format!("{number:016x}.{kind}"));
    let number = random.next_u64();
    let written = path("order", number);
    files.publish_bytes(&written, order.to_text().as_bytes()).at("write", &written)?;

    let (taken, answer, began) = (path("taken", number), path("answer", number), clock.monotonic());
    let mut is_taken = false;
    while !files.exists(&answer).at("look for", &answer)? {
        is_taken = is_taken || files.exists(&taken).at("look for", &taken)?;
        if !is_taken && clock.monotonic().saturating_sub(began) > TAKEN_WITHIN {
            files.remove_file(&written).at("take back", &written)?;
            let text = format!(
                "no job took the order within {TAKEN_WITHIN:?}, and it was taken back: does one run in {}?",
                options.dir.display()
            );
            return Err(RunError::Refused(text));
        }
        clock.sleep(LOOK_EVERY);
    }
    let text = files.read(&answer, ORDER_MAX_BYTES).at("read", &answer)?;
    // Also if the job died before it came to that: without its answer the order would be taken again.
    for path in [&written, &taken] {
        match files.remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).at("put away", path)?,
            _ => {}
        }
    }
    files.remove_file(&answer).at("remove", &answer)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (word, rest) = text.split_once('\n').unwrap_or((&text, ""));
    match (word, order.savepoint) {
        ("done", Some(folder)) => Ok(console.answer(&format!("{}: {}", folder.display(), rest.trim_end()))),
        ("done", None) => Ok(Exit::Done),
        _ => Err(RunError::Fatal(format!("the job couldn't do it: {}", rest.trim_end()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_back_as_it_was_written_and_nothing_else_is_one() {
        for verb in [Verb::Savepoint, Verb::Stop, Verb::Drain] {
            let order = Order { verb, savepoint: Some("/a/b c".into()), given_ms: 7 };
            assert_eq!(Order::parse(&order.to_text()), Ok(order));
        }
        let stop = Order { verb: Verb::Stop, savepoint: None, given_ms: 7 };
        assert_eq!(Order::parse(&stop.to_text()), Ok(stop));
        for text in ["", "die\n\n7\n", "savepoint\n\n7\n", "savepoint\nrelative\n7\n", "stop\n", "stop\n\nsoon\n"] {
            assert!(Order::parse(text).is_err(), "{text:?}");
        }
        let by_hand = Order::parse("stop\n/a\n7\n");
        assert_eq!(by_hand, Ok(Order { verb: Verb::Stop, savepoint: Some("/a".into()), given_ms: 7 }));
    }

    #[test]
    fn a_bit_that_flips_in_an_order_changes_no_folder_but_has_it_refused() {
        let text = Order { verb: Verb::Savepoint, savepoint: Some("/a/b c".into()), given_ms: 1_700_000 }.to_text();
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped = String::from_utf8_lossy(&bytes);
            assert!(Order::parse(&flipped).is_err(), "{flipped:?}");
        }
    }

    #[test]
    fn a_plain_name_is_a_savepoint_of_the_data_directory_and_a_path_is_itself() {
        let place = |name: &str| place_of(Path::new("/data"), Path::new(name)).expect("absolute");
        assert_eq!(place("before-upgrade"), Path::new("/data/savepoints/before-upgrade"));
        assert_eq!(place("/backup/one"), Path::new("/backup/one"));
        assert!(place("./one").is_absolute() && !place("./one").starts_with("/data"));
    }
}
