//! A case: a seed and what strikes, life by life. It has a form as text, so that a failure can be replayed.

use std::fmt;
use std::str::FromStr;

use cutwater_testkit::LossPolicy;

/// What ends a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The process is killed; the operating system still has what it wrote.
    Kill,
    /// The power goes off, and the disk loses what this policy says.
    PowerOff(LossPolicy),
    /// The thread that reaches the point panics; the process lives on and starts its next attempt.
    Panic,
    /// The process is stopped in the middle of what it does, as by SIGSTOP; another one takes over, and the old one comes back while that
    /// runs or when it is over. It must find itself fenced, and nothing it does may show.
    Stop,
    /// The disk is full for a while, and the life goes on: the job waits for room. What ends the life is the next strike.
    Full,
}

/// The names of the ends, in the form of a case as text.
const ENDS: [(&str, End); 14] = [
    ("kill", End::Kill),
    ("panic", End::Panic),
    ("stop", End::Stop),
    ("full", End::Full),
    ("all-lost", End::PowerOff(LossPolicy::AllLost)),
    ("none-lost", End::PowerOff(LossPolicy::NoneLost)),
    ("random", End::PowerOff(LossPolicy::Random)),
    ("prefix", End::PowerOff(LossPolicy::Prefix)),
    ("torn-512", End::PowerOff(LossPolicy::LastTorn512)),
    ("torn-4k", End::PowerOff(LossPolicy::LastTorn4K)),
    ("reordered", End::PowerOff(LossPolicy::Reordered)),
    ("grown-zeros", End::PowerOff(LossPolicy::GrownZeros)),
    ("grown-garbage", End::PowerOff(LossPolicy::GrownGarbage)),
    ("names-lost", End::PowerOff(LossPolicy::NamesLost)),
];

impl End {
    /// Every end.
    pub const ALL: [End; 14] = {
        let mut ends = [End::Kill; 14];
        let mut i = 0;
        while i < ends.len() {
            ends[i] = ENDS[i].1;
            i += 1;
        }
        ends
    };
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = ENDS.iter().find(|(_, end)| end == self).expect("every end has a name");
        f.write_str(name)
    }
}

/// What strikes in one life, where, and what that does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strike {
    /// The name of a crash point, or [`Strike::DISK`], or [`Strike::TURN`].
    pub point: String,
    /// At its how manieth visit in this life; for [`Strike::DISK`], at which step of the disk, for [`Strike::TURN`], at which turn.
    pub nth: u64,
    /// What it does.
    pub end: End,
}

impl Strike {
    /// Stands for any step of the disk instead of a named point.
    pub const DISK: &str = "disk";
    /// Stands for any turn of a worker, at which a life can be stopped ([`End::Stop`]).
    pub const TURN: &str = "turn";
}

/// A seed and the strikes of successive lives; the life after the last strike is let be.
///
/// ```
/// use cutwater_simulate::{Case, End};
///
/// let case: Case = "7/group.committed#2:kill/recovery.fenced#1:random".parse()?;
/// assert_eq!((case.seed, case.strikes.len(), case.strikes[0].end), (7, 2, End::Kill));
/// assert_eq!(case.to_string(), "7/group.committed#2:kill/recovery.fenced#1:random");
/// assert!("7/group.committed:kill".parse::<Case>().is_err());
/// # Ok::<(), cutwater_simulate::NoCase>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Case {
    /// Decides the order of everything, the number of workers, the sizes of batches and what a disk loses.
    pub seed: u64,
    /// One per life that is struck; those that a life goes on after ([`End::Full`]) stand before the one that ends it.
    pub strikes: Vec<Strike>,
}

/// What strikes a life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Struck {
    /// What it goes on after.
    pub(crate) full: Vec<Strike>,
    /// What ends or stops it.
    pub(crate) end: Option<Strike>,
}

impl Case {
    /// A seed without a strike.
    pub fn of(seed: u64) -> Case {
        Case { seed, strikes: vec![] }
    }

    /// What strikes each life, in their order; the last one isn't ended by anything.
    pub(crate) fn by_life(&self) -> Vec<Struck> {
        let mut lives = vec![Struck::default()];
        for strike in &self.strikes {
            let life = lives.last_mut().expect("one at least");
            if strike.end == End::Full {
                life.full.push(strike.clone());
            } else {
                life.end = Some(strike.clone());
                lives.push(Struck::default());
            }
        }
        lives
    }

    /// This case with one more strike.
    #[must_use]
    pub fn and(&self, point: impl Into<String>, nth: u64, end: End) -> Case {
        let mut case = self.clone();
        case.strikes.push(Strike { point: point.into(), nth, end });
        case
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        self.strikes.iter().try_for_each(|s| write!(f, "/{}#{}:{}", s.point, s.nth, s.end))
    }
}

/// A text that is no case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is no part of a case; expected a seed and strikes, as in 7/group.committed#2:kill")]
pub struct NoCase {
    /// What couldn't be understood.
    pub part: String,
}

impl FromStr for Case {
    type Err = NoCase;

    fn from_str(text: &str) -> Result<Case, NoCase> {
        let mut parts = text.trim().split('/');
        let seed = parts.next().unwrap_or_default();
        let seed = seed.parse().map_err(|_| NoCase { part: seed.to_string() })?;
        let strike = |part: &str| -> Option<Strike> {
            let (point, rest) = part.split_once('#')?;
            let (nth, end) = rest.split_once(':')?;
            let (_, end) = ENDS.iter().find(|(name, _)| *name == end)?;
            let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
            // A life is stopped, and a disk filled, between its steps; and what a life ends at is something that it does in a turn.
            let fits = match point {
                Strike::DISK => !matches!(end, End::Stop | End::Full),
                Strike::TURN => *end == End::Stop,
                _ => true,
            };
            fits.then(|| Strike { point: point.to_string(), nth, end: *end })
        };
        let strikes = parts.map(|part| strike(part).ok_or_else(|| NoCase { part: part.to_string() }));
        Ok(Case { seed, strikes: strikes.collect::<Result<_, _>>()? })
    }
}
