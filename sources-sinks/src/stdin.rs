//! Lines of standard input.
//!
//! * Guarantee: at-most-once; what was read from a terminal or pipe can't be read again.
//! * Position: none.
//! * Staged at a barrier: nothing, it only reads.
//! * Commit: nothing.
//!
//! A thread of its own reads, so that waiting for a line never holds up the worker. It stays at most a few batches ahead
//! (I-9): while nobody takes them, it doesn't read on.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read as _};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};

use cutwater_engine::error::SourceError;
use cutwater_engine::graph::Job;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_platform::{Spawn, Step, Task};

use crate::text::Line;

/// Lines handed over at once, if they are there.
const BATCH_LINES: usize = 1024;
/// Batches that may wait for the worker.
const BATCHES_AHEAD: usize = 8;
/// Bytes asked for at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// The longest line.
const LINE_BYTES_MAX: usize = 16 << 20;
/// The name of the only split, and of the file in [`Line`].
const NAME: &str = "stdin";

/// A source of the lines of standard input. See [`lines`].
pub struct StdinLines {
    spawn: Arc<dyn Spawn>,
    /// Taken by the one worker that reads.
    input: Mutex<Option<Input>>,
}

type Input = BufReader<Box<dyn io::Read + Send>>;

impl fmt::Debug for StdinLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StdinLines")
    }
}

/// The lines of this process's standard input.
pub fn lines(job: &Job) -> StdinLines {
    lines_from(job, io::stdin())
}

/// The lines of another stream that can be read only once: a socket, a pipe.
pub fn lines_from(job: &Job, input: impl io::Read + Send + 'static) -> StdinLines {
    let input = BufReader::with_capacity(CHUNK_BYTES, Box::new(input) as Box<dyn io::Read + Send>);
    StdinLines { spawn: job.environment().platform.spawn.clone(), input: Mutex::new(Some(input)) }
}

impl Source for StdinLines {
    type Item = Line;

    fn replay(&self) -> Replay {
        Replay::Never("what has come through standard input can't be read again after a crash".to_string())
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        Ok(vec![NAME.to_string()])
    }

    fn open(
        &self,
        _split: &str,
        position: Option<&[u8]>,
        waker: Waker,
    ) -> Result<Box<dyn Reader<Item = Line>>, SourceError> {
        let input =
            self.input.lock().map_err(|_| SourceError::fatal(NAME, "another worker panicked while opening it"))?.take();
        let Some(input) = input.filter(|_| position.is_none()) else {
            return Err(SourceError::fatal(NAME, "it has been read before and can't be read again"));
        };
        let (send, lines) = sync_channel(BATCHES_AHEAD);
        let pump = Pump { input, line: 0, file: Arc::from(NAME), send: Some(send), waker };
        // Never joined: it may wait for a line for as long as the process lives.
        let _ = self.spawn.spawn(NAME, Box::new(pump));
        Ok(Box::new(StdinReader { lines, pending: vec![].into_iter() }))
    }
}

/// Reads on its own thread.
struct Pump {
    input: Input,
    line: u64,
    file: Arc<str>,
    send: Option<SyncSender<Result<Vec<Line>, SourceError>>>,
    waker: Waker,
}

impl Pump {
    /// Waits for one line and takes those that have come with it; empty at the end.
    fn batch(&mut self) -> Result<Vec<Line>, SourceError> {
        let mut lines = vec![];
        while lines.len() < BATCH_LINES {
            let mut bytes = vec![];
            let limit = LINE_BYTES_MAX as u64 + 2;
            let what = format!("{NAME} line {}", self.line + 1);
            match (&mut self.input).take(limit).read_until(b'\n', &mut bytes) {
                Ok(0) => break,
                Ok(n) if n as u64 == limit => {
                    return Err(SourceError::fatal(what, format!("the line has more than {LINE_BYTES_MAX} bytes")));
                }
                Ok(_) => {}
                Err(e) => return Err(SourceError::fatal(what, e)),
            }
            if bytes.ends_with(b"\n") {
                bytes.pop();
            }
            if bytes.ends_with(b"\r") {
                bytes.pop();
            }
            self.line += 1;
            lines.push(Line { file: self.file.clone(), number: self.line, bytes });
            // More only if it is here already: a line must not wait for the next one.
            if !self.input.buffer().contains(&b'\n') {
                break;
            }
        }
        Ok(lines)
    }
}

impl Task for Pump {
    fn step(&mut self) -> Step {
        let batch = self.batch();
        let last = !matches!(&batch, Ok(lines) if !lines.is_empty());
        let ended = matches!(&batch, Ok(lines) if lines.is_empty());
        let delivered = match &self.send {
            // Waits while the worker has enough; fails once it has gone.
            Some(send) if !ended => send.send(batch).is_ok(),
            _ => false,
        };
        if last || !delivered {
            self.send = None;
        }
        self.waker.wake();
        if self.send.is_some() { Step::Again } else { Step::Done }
    }
}

/// The worker's side.
struct StdinReader {
    lines: Receiver<Result<Vec<Line>, SourceError>>,
    pending: std::vec::IntoIter<Line>,
}

impl Reader for StdinReader {
    type Item = Line;

    fn read(&mut self, out: &mut Vec<Line>, max: usize) -> Result<Read, SourceError> {
        if self.pending.as_slice().is_empty() {
            match self.lines.try_recv() {
                Ok(batch) => self.pending = batch?.into_iter(),
                Err(TryRecvError::Empty) => return Ok(Read::Wait),
                Err(TryRecvError::Disconnected) => return Ok(Read::Exhausted),
            }
        }
        out.extend(self.pending.by_ref().take(max));
        Ok(Read::More)
    }

    fn position(&self) -> Vec<u8> {
        vec![]
    }
}
