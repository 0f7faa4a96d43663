//! The types of the job: a flight, what is counted per origin and day, and the row that comes out.

use std::fmt;

use cutwater::prelude::*;
use jiff::civil::{Date, DateTime, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Fields of a row.
const FIELDS: usize = 19;

/// An airport of departure, by its three letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Origin([u8; 3]);

impl Origin {
    /// The letters, as the key of a record.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn parse(text: &str) -> Result<Origin, String> {
        let letters: [u8; 3] =
            text.as_bytes().try_into().map_err(|_| format!("origin {text:?} has no three letters"))?;
        if letters.iter().all(u8::is_ascii_uppercase) {
            Ok(Origin(letters))
        } else {
            Err(format!("origin {text:?} has no three letters"))
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl CanonicalKey for Origin {
    fn canonical<S: KeySink>(&self, out: &mut S) {
        out.put(&self.0);
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Origin, D::Error> {
        let text = String::deserialize(from)?;
        Origin::parse(&text).map_err(de::Error::custom)
    }
}

/// A row of the file, as far as the job needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flight {
    /// Scheduled departure: naive local time, so a day of this stream is a day in New York.
    pub(crate) scheduled: EventTime,
    pub(crate) origin: Origin,
    pub(crate) dest: String,
    pub(crate) carrier: String,
    pub(crate) flight: u32,
    /// Minutes of departure delay, negative if early; `None` for a flight that was cancelled.
    pub(crate) delay: Option<i32>,
}

impl Flight {
    /// Reads a row; the error says what is wrong with it.
    pub(crate) fn parse(row: &[u8]) -> Result<Flight, String> {
        let row = str::from_utf8(row).map_err(|e| format!("not UTF-8: {e}"))?;
        let mut fields = [""; FIELDS];
        let mut count = 0;
        for field in row.split(',') {
            *fields.get_mut(count).ok_or_else(|| format!("more than {FIELDS} fields"))? = field;
            count += 1;
        }
        if count != FIELDS {
            return Err(format!("{count} fields instead of {FIELDS}"));
        }
        let [year, month, day, departed, scheduled, delay, _, _, _, carrier, flight, _, origin, dest, ..] = fields;
        let date = Date::new(number(year, "year")?, number(month, "month")?, number(day, "day")?);
        let date = date.map_err(|e| format!("no date: {e}"))?;
        let clock: u16 = number(scheduled, "scheduled departure")?;
        let part = |n: u16| i8::try_from(n).map_err(|_| format!("scheduled departure {clock} is no time of day"));
        let time =
            Time::new(part(clock / 100)?, part(clock % 100)?, 0, 0).map_err(|e| format!("no time of day: {e}"))?;
        let since_1970 = date.to_datetime(time).duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
        let delay = match (departed, delay) {
            ("NA", "NA") => None,
            ("NA", _) | (_, "NA") => return Err("departure time and delay contradict each other".to_string()),
            (_, delay) => Some(number(delay, "delay")?),
        };
        Ok(Flight {
            scheduled: EventTime(since_1970.as_secs() * 1000),
            origin: Origin::parse(origin)?,
            dest: dest.to_string(),
            carrier: carrier.to_string(),
            flight: number(flight, "flight number")?,
            delay,
        })
    }
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} {text:?} is no number"))
}

/// What is known of one origin and day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DayStats {
    flights: u64,
    departures: u64,
    delay_sum: i64,
    delay_max: Option<i32>,
}

impl DayStats {
    /// One more flight.
    pub(crate) fn add(&mut self, flight: &Flight) {
        self.flights += 1;
        if let Some(delay) = flight.delay {
            self.departures += 1;
            self.delay_sum += i64::from(delay);
            self.delay_max = self.delay_max.max(Some(delay));
        }
    }
}

/// A row of topic `delays`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DayRow {
    pub(crate) origin: Origin,
    /// As `2013-01-31`.
    pub(crate) day: String,
    pub(crate) flights: u64,
    pub(crate) departures: u64,
    pub(crate) cancellations: u64,
    /// Minutes of all departures.
    pub(crate) delay_sum: i64,
    /// Minutes; absent if nothing departed.
    pub(crate) delay_max: Option<i32>,
}

impl DayRow {
    /// The row of a day that is complete.
    pub(crate) fn new(origin: &Origin, day: Window, stats: DayStats) -> DayRow {
        let start =
            DateTime::constant(1970, 1, 1, 0, 0, 0, 0).saturating_add(jiff::SignedDuration::from_millis(day.start.0));
        DayRow {
            origin: *origin,
            day: start.date().to_string(),
            flights: stats.flights,
            departures: stats.departures,
            cancellations: stats.flights - stats.departures,
            delay_sum: stats.delay_sum,
            delay_max: stats.delay_max,
        }
    }
}
