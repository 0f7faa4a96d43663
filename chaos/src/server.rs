//! The broker as a process of its own, so that it can be killed, stopped, and kept from writing.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutwater_broker::{Broker, BrokerLimits, BrokerOptions, Listen};
use cutwater_partition_log::{Log, LogLimits, LogOptions};
use cutwater_platform::Platform;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::Failed;

/// SIGXFSZ, which would end a process that writes beyond its limit: it shall get an error instead, as from a full disk.
const SIGXFSZ: i32 = 25;

/// The broker's process: the command `serve` of this program.
#[derive(Debug)]
pub(crate) struct Server {
    data: PathBuf,
    address: SocketAddr,
    /// Where it tells clients to connect to.
    told: SocketAddr,
    child: Option<Child>,
}

impl Server {
    /// A broker over `data` on a port that stays the same over restarts; not started yet.
    pub(crate) fn new(data: &Path) -> Result<Server, Failed> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(|e| Failed::of("find a free port", e))?;
        Ok(Server { data: data.to_path_buf(), address, told: address, child: None })
    }

    /// Has clients that ask it connect to this address, from its next start on.
    pub(crate) fn tell(&mut self, address: SocketAddr) {
        self.told = address;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.as_ref()?.id()).ok()?)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }

    /// Starts it again; returns when clients can connect.
    pub(crate) fn again(&mut self) -> Result<(), Failed> {
        self.kill();
        let program = std::env::current_exe().map_err(|e| Failed::of("find this program", e))?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", &format!("{}={}", self.address, self.told), "--data"])
            .arg(&self.data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failed::of("start the broker", e))?;
        let mut line = String::new();
        let said = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        self.child = Some(child);
        match said {
            Some(Ok(1..)) => Ok(()),
            _ => Err(Failed::new(format!("the broker over {} didn't start", self.data.display()))),
        }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Holds it still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// From now on it can't write beyond so many bytes of a file: every write there fails, as on a full disk.
    pub(crate) fn let_no_file_grow_beyond(&self, bytes: u64) -> Result<(), Failed> {
        let limit = Rlimit { current: Some(bytes), maximum: None };
        prlimit(self.pid(), Resource::Fsize, limit)
            .map(drop)
            .map_err(|e| Failed::of("limit the broker's files", e.into()))
    }

    /// Its memory in KiB.
    #[expect(clippy::disallowed_methods, reason = "the system tells it in a file")]
    pub(crate) fn resident(&self) -> u64 {
        let Some(child) = &self.child else { return 0 };
        let status = std::fs::read(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let status = String::from_utf8_lossy(&status).into_owned();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0)
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command `serve`: the log in `data` on `listen` until standard input ends, which it does with the process that started
/// this one, however that ends.
pub(crate) fn serve(data: &Path, listen: &Listen) -> Result<(), Failed> {
    let ignored = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, ignored.clone()).map_err(|e| Failed::of("listen to a signal", e))?;
    let platform = Platform::real();
    // Often enough that a round of seconds sees it at work.
    let limits = LogLimits { janitor_every: Duration::from_millis(400), ..LogLimits::default() };
    let log = Log::open(&platform, data, LogOptions { limits, ..LogOptions::default() })
        .map_err(|e| Failed::new(e.to_string()))?;
    let limits =
        BrokerLimits { connections_per_second: 100_000, connections_per_address: 900, ..BrokerLimits::default() };
    let options = BrokerOptions { auto_create_topics: false, limits, ..BrokerOptions::default() };
    let broker =
        Broker::serve(&platform, log, std::slice::from_ref(listen), options).map_err(|e| Failed::new(e.to_string()))?;
    crate::say(&broker.address().to_string());
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {}
    let _ = ignored.load(Ordering::SeqCst);
    Ok(())
}

/// Waits.
pub(crate) fn rest(time: Duration) {
    Platform::real().clock.sleep(time);
}
