//! Lines on standard output.
//!
//! * Guarantee: at-most-once and at-least-once; what was printed can't be taken back. At-least-once holds against the end of
//!   this process, not against that of the terminal or of whoever reads the pipe.
//! * Position: none.
//! * Staged at a barrier: nothing; lines are visible at once.
//! * Commit: nothing.
//! * A reader that goes away (`| head`) wants no more: the job ends, quietly if it has no other sink.
//!
//! A batch is turned into text first and written under one lock, so that lines of several workers don't mix. A program that draws
//! on the same terminal can have itself called around each write: [`around_writes`].

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::SinkError;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::sink::{CommitGroup, Honours, Prepare, Sink, SinkWriter, WriterId};

/// What is called with each write to standard output, and must call it once.
type Around = Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Standard output is one for the whole process, and so is this.
static AROUND: OnceLock<Around> = OnceLock::new();

/// Has `around` called with each write to standard output, for the rest of the process: it must call the write once, and can take
/// away before and bring back behind it what it has drawn there. Answers false, and changes nothing, if there is one already.
pub fn around_writes(around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> bool {
    AROUND.set(Box::new(around)).is_ok()
}

/// Writes to standard output, to its end: what is left in its buffer would come out in the middle of something else.
fn write_out(text: &[u8]) -> io::Result<()> {
    let mut result = Ok(());
    let mut write = || {
        let mut out = io::stdout().lock();
        result = out.write_all(text).and_then(|()| out.flush());
    };
    match AROUND.get() {
        Some(around) => around(&mut write),
        None => write(),
    }
    result
}

/// How a record becomes text.
type Show<T> = Rc<dyn Fn(&T, &mut Vec<u8>) -> io::Result<()>>;

/// A sink that prints one line per record. See [`print()`] and [`print_with`].
pub struct Print<T> {
    show: Show<T>,
    /// Standard output, or what stands for it.
    out: Option<Arc<std::sync::Mutex<dyn Write + Send>>>,
    _takes: PhantomData<fn(T)>,
}

/// Prints each record as it displays.
pub fn print<T: Display>() -> Print<T> {
    Print { show: Rc::new(|record, out| writeln!(out, "{record}")), out: None, _takes: PhantomData }
}

/// Prints each record as `show` says.
pub fn print_with<T, S: Display>(show: impl Fn(&T) -> S + 'static) -> Print<T> {
    Print { show: Rc::new(move |record, out| writeln!(out, "{}", show(record))), out: None, _takes: PhantomData }
}

impl<T> Print<T> {
    /// Writes to `out` instead of standard output.
    #[must_use]
    pub fn to(self, out: Arc<std::sync::Mutex<dyn Write + Send>>) -> Print<T> {
        Print { out: Some(out), ..self }
    }
}

impl<T> fmt::Debug for Print<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Print")
    }
}

impl<T: Send + 'static> Sink for Print<T> {
    type Item = T;

    fn honours(&self) -> Honours {
        let reason = "what was printed can't be taken back when the job goes back to a checkpoint";
        Honours { guarantees: vec![GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce], reason: reason.to_string() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        None
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = T>>, SinkError> {
        let (show, out) = (self.show.clone(), self.out.clone());
        Ok(Box::new(PrintWriter { show, out, text: vec![], sink: writer.sink.clone() }))
    }
}

struct PrintWriter<T> {
    show: Show<T>,
    out: Option<Arc<std::sync::Mutex<dyn Write + Send>>>,
    text: Vec<u8>,
    sink: String,
}

impl<T> PrintWriter<T> {
    fn failed(&self, error: &io::Error) -> SinkError {
        let what = self.sink.clone();
        match error.kind() {
            // A reader that has gone away (`| head`) stays away.
            io::ErrorKind::BrokenPipe => SinkError::Unwanted { what },
            _ => SinkError::Fatal { what, reason: error.to_string() },
        }
    }
}

impl<T> SinkWriter for PrintWriter<T> {
    type Item = T;

    fn write(&mut self, batch: Vec<T>) -> Result<(), SinkError> {
        self.text.clear();
        let show = batch.iter().try_for_each(|record| (self.show)(record, &mut self.text));
        let written = show.and_then(|()| match &self.out {
            None => write_out(&self.text),
            Some(out) => match out.lock() {
                Ok(mut out) => out.write_all(&self.text),
                Err(_) => Err(io::Error::other("another writer panicked")),
            },
        });
        written.map_err(|e| self.failed(&e))
    }

    fn seal(&mut self, _checkpoint: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        // What stands before the barrier must have left this process before the checkpoint says so.
        self.finish().map(|()| None)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        match &self.out {
            None => io::stdout().flush().map_err(|e| self.failed(&e)),
            Some(_) => Ok(()),
        }
    }
}
