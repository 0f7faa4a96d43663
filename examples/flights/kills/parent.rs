//! Runs the job as a child, kills it where the plan says, starts it again, and tells what each start found.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::args::Args;
use crate::kills::plan::{Strike, plan};
use crate::kills::result::Summary;
use crate::kills::status::{Recovered, Status};
use crate::problem::{Kind, Problem};
use crate::talk::{Talk, complain};

/// A child that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// `SIGKILL`, in an exit status.
const SIGKILL: i32 = 9;
/// The environment variable that arms a crash point.
const ARM: &str = "CUTWATER_CRASH_AT";

/// A kill that happened.
#[derive(Debug)]
struct Landed {
    number: usize,
    strike: Strike,
    /// The killed life, if it got as far as to say so.
    attempt: Option<u64>,
    /// Records of the stream it had read.
    read: u64,
}

impl Landed {
    /// Where the killed life was, in words.
    fn place(&self) -> String {
        match self.attempt {
            Some(attempt) => format!("attempt {attempt} at {} rows", self.read),
            None => "in recovery".to_string(),
        }
    }
}

/// Runs the job to its end through all kills. Answers the final child's report, and what was counted.
pub(crate) fn run(args: &Args, dir: &Path, records: usize) -> Result<(String, Summary), Problem> {
    let since = Instant::now();
    let strikes = plan(args.seed, args.kills, records as u64);
    let rate = args.pace(records).unwrap_or(u64::MAX);
    let talk = args.talk();
    talk.say(format_args!(
        "{} kills, drawn from seed {}; {rate} rows per second, a checkpoint every {:?}",
        strikes.len(),
        args.seed,
        args.checkpoint_interval()
    ))?;
    let mut tally = Tally { talk, pending: Vec::new(), between_prepare_and_commit: 0, zombies: 0 };
    let mut stopped: Vec<Running> = Vec::new();
    for (number, strike) in (1..).zip(&strikes) {
        let mut child = Running::start(args, dir, rate, Some(*strike), !stopped.is_empty())?;
        child.stops = args.zombies;
        let Some(landed) = child.until_killed(number, *strike, &mut tally)? else {
            let what = format!("kill {number} of {} ({strike}) did not land: the job finished before", strikes.len());
            return Err(Problem::new(Kind::Verification, what, "run with a lower --rate, or with a new directory"));
        };
        tally.pending.push(landed);
        // Whoever came after the stopped ones has taken their place, as far as it got.
        tally.let_go_on(&mut stopped)?;
        if child.is_stopped {
            stopped.push(child);
        }
    }
    let report = Running::start(args, dir, rate, None, !stopped.is_empty())?.until_finished(&mut tally)?;
    tally.let_go_on(&mut stopped)?;
    if tally.between_prepare_and_commit == 0 {
        let what = "no kill landed between prepare and commit, which is what the kills are for";
        return Err(Problem::new(Kind::Verification, what, "run with more --kills or another --seed"));
    }
    let between = tally.between_prepare_and_commit;
    talk.say(format_args!("{} kills landed, {between} of them between prepare and commit", strikes.len()))?;
    if args.zombies {
        talk.say(format_args!(
            "{} processes were stopped, and each was killed by the one that took its place",
            tally.zombies
        ))?;
    }
    let (kills, zombies, elapsed) = (strikes.len(), tally.zombies, since.elapsed());
    Ok((report, Summary { kills, between_prepare_and_commit: between, zombies, elapsed }))
}

/// What came of the kills so far.
struct Tally {
    talk: Talk,
    /// Kills since the last start that recovered, in their order: more than one if a start was killed while it recovered.
    pending: Vec<Landed>,
    between_prepare_and_commit: usize,
    zombies: usize,
}

impl Tally {
    /// Lets stopped processes go on: they must be dead, killed by the one that took their place.
    fn let_go_on(&mut self, stopped: &mut Vec<Running>) -> Result<(), Problem> {
        for mut zombie in stopped.drain(..) {
            zombie.signal(Signal::CONT)?;
            let status = zombie.wait()?;
            if status.signal() != Some(SIGKILL) {
                let what = format!("a process that was stopped and overtaken came back and ended by itself ({status})");
                return Err(Problem::new(
                    Kind::Verification,
                    what,
                    "this is a mistake in Cutwater: please report it with the directory",
                ));
            }
            self.zombies += 1;
        }
        Ok(())
    }

    /// The start after the pending kills has recovered, and tells what they left.
    fn recovered(&mut self, found: &Recovered) -> Result<(), Problem> {
        if found.prepared > 0 && !self.pending.is_empty() {
            self.between_prepare_and_commit += 1;
        }
        let phases: Vec<String> = found.phases.iter().map(|(phase, us)| format!("{phase} {}", Ms(*us))).collect();
        let total = Ms(found.phases.iter().map(|(_, us)| us).sum());
        let from = found.checkpoint.map_or("the start".to_string(), |n| format!("checkpoint {n}"));
        for killed in self.pending.drain(..) {
            self.talk.say(format_args!(
                "kill {:>3}  {:<28}  {:<25}  {:<52}  attempt {} goes on from {from}; {total} ms: {}",
                killed.number,
                killed.strike.to_string(),
                killed.place(),
                phase(found),
                found.attempt,
                phases.join(", "),
            ))?;
        }
        Ok(())
    }
}

/// Microseconds, shown as milliseconds.
struct Ms(u64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0 as f64 / 1e3)
    }
}

/// Where the killed life was, from what is left of it.
fn phase(found: &Recovered) -> String {
    let Recovered { prepared, committed, aborted, .. } = found;
    match (prepared, committed) {
        (0, _) => "nothing prepared".to_string(),
        (_, 0) => format!("{prepared} prepared, no manifest yet: {aborted} aborted"),
        _ => format!("{prepared} prepared, manifest there: {committed} committed, {aborted} aborted"),
    }
}

/// A child and the lines it says.
struct Running {
    child: Child,
    lines: Receiver<Status>,
    attempt: Option<u64>,
    read: u64,
    /// Strikes at record counts stop it instead of killing it.
    stops: bool,
    is_stopped: bool,
}

impl Running {
    fn start(args: &Args, dir: &Path, rate: u64, strike: Option<Strike>, take_over: bool) -> Result<Running, Problem> {
        let failed = |e: std::io::Error| Problem::new(Kind::Failed, format!("the job could not be started: {e}"), "");
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("--dir").arg(dir).arg("--data").arg(args.data());
        for (flag, value) in [
            ("--child-of", u64::from(std::process::id())),
            ("--rate", rate),
            ("--workers", u64::from(args.workers)),
            ("--checkpoint-every", args.checkpoint_interval().as_millis() as u64),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        if take_over {
            command.arg("--take-over");
        }
        command.env_remove(ARM);
        if let Some(Strike::Point { name, nth }) = strike {
            command.env(ARM, format!("{name}#{nth}"));
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let out = child.stdout.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        let (say, lines) = channel();
        // Ends with the child: its end of the pipe closes.
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Ok(status) = serde_json::from_str(&line) else {
                    complain(line);
                    continue;
                };
                if say.send(status).is_err() {
                    return;
                }
            }
        });
        Ok(Running { child, lines, attempt: None, read: 0, stops: false, is_stopped: false })
    }

    /// The next line; `None` when the child has closed its output.
    fn next(&mut self, tally: &mut Tally) -> Result<Option<Status>, Problem> {
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(status) => {
                match &status {
                    Status::Recovered(found) => {
                        self.attempt = Some(found.attempt);
                        tally.recovered(found)?;
                    }
                    Status::Read { records } => self.read = *records,
                    Status::Finished { .. } => {}
                }
                Ok(Some(status))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                let what = format!("the job has said nothing for {SILENCE_MAX:?}; it was killed");
                Err(Problem::new(
                    Kind::Failed,
                    what,
                    "this is a mistake in Cutwater: please report it with the directory",
                ))
            }
        }
    }

    /// Waits for a strike to land; `None` if the job finished before.
    fn until_killed(&mut self, number: usize, strike: Strike, tally: &mut Tally) -> Result<Option<Landed>, Problem> {
        let mut struck = false;
        while self.next(tally)?.is_some() {
            if matches!(strike, Strike::Records { at } if self.read >= at) && !struck {
                struck = true;
                if self.stops {
                    self.signal(Signal::STOP)?;
                    self.is_stopped = true;
                    return Ok(Some(Landed { number, strike, attempt: self.attempt, read: self.read }));
                }
                self.kill()?;
            }
        }
        let status = self.wait()?;
        if status.signal() == Some(SIGKILL) {
            return Ok(Some(Landed { number, strike, attempt: self.attempt, read: self.read }));
        }
        if status.success() { Ok(None) } else { Err(broken(status)) }
    }

    fn until_finished(&mut self, tally: &mut Tally) -> Result<String, Problem> {
        let mut finished = None;
        while let Some(status) = self.next(tally)? {
            if let Status::Finished { report } = status {
                finished = Some(report);
            }
        }
        let status = self.wait()?;
        finished.filter(|_| status.success()).ok_or_else(|| broken(status))
    }

    fn kill(&mut self) -> Result<(), Problem> {
        self.child.kill().map_err(|e| Problem::new(Kind::Failed, format!("the job could not be killed: {e}"), ""))
    }

    fn signal(&self, signal: Signal) -> Result<(), Problem> {
        let failed =
            |what: &str| Problem::new(Kind::Failed, format!("the job could not be stopped or let go on: {what}"), "");
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| failed("no process id"))?;
        kill_process(pid, signal).map_err(|e| failed(&e.to_string()))
    }

    fn wait(&mut self) -> Result<ExitStatus, Problem> {
        self.child
            .wait()
            .map_err(|e| Problem::new(Kind::Failed, format!("the job's end could not be awaited: {e}"), ""))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dead already, unless an error left it running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn broken(status: ExitStatus) -> Problem {
    Problem::new(Kind::Failed, format!("the job ended by itself ({status}); its message stands above"), "")
}
