//! One process per log: the lock file, which names its holder, and taking over from a holder that is in the way.
//!
//! The lock itself is the system's advisory lock on `lock`; it ends with its process. The text in the file only says who
//! holds it. Taking over kills exactly that process: its number *and* its start time must be those in the file, and the
//! signal goes through a handle opened before they were compared, so that no other process can be hit by mistake.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Files, IoContext, IoError, Lock, Open, Platform};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::config::Holder;
use crate::error::OpenError;

/// The file below the log's directory.
pub(crate) const NAME: &str = "lock";
/// How long a killed holder may take to let go.
const WAIT_MAX: Duration = Duration::from_secs(10);
const WAIT_STEP: Duration = Duration::from_millis(10);
/// No lock file is larger.
const TEXT_BYTES_MAX: u64 = 4096;

/// Who holds a lock, as its file says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    pid: u32,
    /// Clock ticks between the machine's start and the process's, from `/proc`; 0 where there is no `/proc`.
    start: u64,
    holder: Holder,
}

impl Written {
    fn text(&self) -> String {
        let Holder { job, attempt } = &self.holder;
        format!("pid {}\nstart {}\njob {}\nattempt {}\n", self.pid, self.start, job.replace('\n', " "), attempt)
    }

    fn parse(text: &str) -> Option<Written> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let holder = Holder { job: field("job")?.to_string(), attempt: field("attempt")?.parse().ok()? };
        Some(Written { pid: field("pid")?.parse().ok()?, start: field("start")?.parse().ok()?, holder })
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { job, attempt } = &self.holder;
        write!(f, "process {} (started at tick {}), job \"{job}\", attempt {attempt}", self.pid, self.start)
    }
}

/// Takes the lock of the log in `dir`, by force if `take_over` says so.
pub(crate) fn acquire(
    platform: &Platform,
    dir: &Path,
    holder: &Holder,
    take_over: bool,
) -> Result<Box<dyn Lock>, OpenError> {
    let path = dir.join(NAME);
    let mut lock = platform.files.lock(&path).at("lock", &path)?;
    if lock.is_none() {
        let written = read(&platform.files, &path)?;
        let name = written.as_ref().map_or("somebody who hasn't said who it is".to_string(), ToString::to_string);
        if !take_over {
            return Err(OpenError::Held { dir: dir.to_path_buf(), holder: name });
        }
        let failed = |reason: String| OpenError::TakeOver { dir: dir.to_path_buf(), holder: name.clone(), reason };
        let written = written.ok_or_else(|| failed("its lock file doesn't name a process".to_string()))?;
        kill(&platform.files, &written).map_err(failed)?;
        lock = wait(platform, &path)?;
        if lock.is_none() {
            return Err(failed(format!("it was killed, but hasn't let go of the lock for {} s", WAIT_MAX.as_secs())));
        }
    }
    let lock = lock.expect("either it was free or taking over has answered");
    let pid = std::process::id();
    let start = start_time(&platform.files, pid).unwrap_or(0);
    let text = Written { pid, start, holder: holder.clone() }.text();
    lock.file().set_len(0).at("write", &path)?;
    lock.file().write_all_at(text.as_bytes(), 0).at("write", &path)?;
    Ok(lock)
}

fn wait(platform: &Platform, path: &Path) -> Result<Option<Box<dyn Lock>>, IoError> {
    for _ in 0..WAIT_MAX.as_millis() / WAIT_STEP.as_millis() {
        let lock = platform.files.lock(path).at("lock", path)?;
        if lock.is_some() {
            return Ok(lock);
        }
        platform.clock.sleep(WAIT_STEP);
    }
    Ok(None)
}

fn read(files: &Arc<dyn Files>, path: &Path) -> Result<Option<Written>, IoError> {
    let text = files.read(path, TEXT_BYTES_MAX).at("read", path)?;
    Ok(std::str::from_utf8(&text).ok().and_then(Written::parse))
}

fn kill(files: &Arc<dyn Files>, written: &Written) -> Result<(), String> {
    if written.pid == std::process::id() {
        return Err("it is this very process; close its other handle of the log".to_string());
    }
    let raw = i32::try_from(written.pid).ok().and_then(Pid::from_raw).ok_or("it names no process")?;
    let process = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(process) => process,
        // It has ended meanwhile, and its lock with it.
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(e) => return Err(format!("the process can't be reached: {e}")),
    };
    match start_time(files, written.pid) {
        Some(start) if start == written.start => {}
        _ => return Err("another process has this number now; whoever holds the lock isn't named in it".to_string()),
    }
    tracing::warn!(holder = %written, "taking over: killing the process that holds the log");
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(format!("it can't be killed: {e}")),
    }
}

/// When a process started, in clock ticks since the machine did: field 22 of its `stat`.
fn start_time(files: &Arc<dyn Files>, pid: u32) -> Option<u64> {
    let file = files.open(Path::new(&format!("/proc/{pid}/stat")), Open::Read).ok()?;
    let mut buf = [0; 1024];
    let len = file.read_at(&mut buf, 0).ok()?;
    start_field(std::str::from_utf8(buf.get(..len)?).ok()?)
}

/// The program's name stands in brackets and may hold anything, so the fields are counted from the last bracket.
fn start_field(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_lock_is_read_back_whatever_the_jobs_name_is() {
        let holder = Holder { job: "delays\nby day".to_string(), attempt: 4 };
        let written = Written { pid: 7, start: 99, holder };
        let read = Written::parse(&written.text()).expect("readable");
        assert_eq!(read.holder.job, "delays by day");
        assert_eq!((read.pid, read.start, read.holder.attempt), (7, 99, 4));
        assert_eq!(Written::parse("pid x"), None);
        assert_eq!(Written::parse(""), None);
    }

    #[test]
    fn the_start_time_is_found_behind_a_name_with_brackets() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 4711 1000 2";
        assert_eq!(start_field(stat), Some(4711));
        let own = start_time(&(Arc::new(cutwater_platform::OsFiles::new()) as Arc<dyn Files>), std::process::id());
        assert!(own.is_some_and(|ticks| ticks > 0));
    }
}
