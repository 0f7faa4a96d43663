//! Event time and the watermark; and [`WallTime`], the platform's processing time, for those who wait for it.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cutwater_platform::WallTime;

/// When something happened, in milliseconds since 1970-01-01T00:00 of whatever calendar the job uses (UTC or naive local
/// time: the engine only compares). Handled time is never mixed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventTime(pub i64);

impl EventTime {
    /// Before everything: the watermark of a channel that has promised nothing yet.
    pub const MIN: EventTime = EventTime(i64::MIN);
    /// After everything: the watermark of an exhausted source.
    pub const MAX: EventTime = EventTime(i64::MAX);

    /// This much later; stops at the ends of the range.
    #[must_use]
    pub fn saturating_add_ms(self, ms: i64) -> EventTime {
        EventTime(self.0.saturating_add(ms))
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EventTime::MIN => f.write_str("-inf"),
            EventTime::MAX => f.write_str("+inf"),
            EventTime(ms) => write!(f, "{ms} ms"),
        }
    }
}

/// A promise on a channel: no record with an event time *below* it is still to come.
pub type Watermark = EventTime;
