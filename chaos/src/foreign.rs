//! Other people's clients in a round: programs that work against the broker and tell the recorder what they do.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cutwater_platform::Platform;

use crate::Failed;
use crate::server::rest;

/// One such program: a command line. It is started with the broker's address, the recorder's, the seed, and a number of its own
/// from which its processes count, as its arguments; it works until its standard input ends, comes to an end, and leaves with 0.
#[derive(Clone, Debug)]
pub(crate) struct Foreign(pub(crate) String);

/// Processes of the first foreign client; each has a hundred.
const FIRST: usize = 100;

/// The hundred of processes that the `n`-th foreign client has.
pub(crate) fn hundred(n: usize) -> usize {
    FIRST / 100 + n
}

/// Those that run.
#[derive(Debug)]
pub(crate) struct Running(Vec<(String, Child)>);

impl Running {
    pub(crate) fn start(
        all: &[Foreign],
        broker: SocketAddr,
        recorder: SocketAddr,
        seed: u64,
    ) -> Result<Running, Failed> {
        let mut running = Running(vec![]);
        for (n, Foreign(line)) in all.iter().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let program = words.next().ok_or_else(|| Failed::new("an empty command line".to_string()))?;
            let child = Command::new(program)
                .args(words)
                .args([broker.to_string(), recorder.to_string(), seed.to_string(), (FIRST * (n + 1)).to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .map_err(|e| Failed::of("start a foreign client", e))?;
            running.0.push((line.clone(), child));
        }
        Ok(running)
    }

    /// Asks all to come to an end, and waits; what is wrong with those that don't.
    pub(crate) fn end(&mut self, within: Duration) -> Vec<String> {
        let clock = Platform::real().clock;
        for (_, child) in &mut self.0 {
            drop(child.stdin.take());
        }
        let until = clock.monotonic() + within;
        let mut wrong = vec![];
        for (line, child) in &mut self.0 {
            let code = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break status.code(),
                    _ if clock.monotonic() > until => {
                        let _ = child.kill();
                        let _ = child.wait();
                        break None;
                    }
                    _ => rest(Duration::from_millis(20)),
                }
            };
            match code {
                Some(0) => {}
                Some(code) => wrong.push(format!("{line}: ended with {code}")),
                None => wrong.push(format!("{line}: didn't come to an end, or was killed")),
            }
        }
        self.0.clear();
        wrong
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
