//! What must come out, computed in plain Rust from the file: no stream, no engine, no log.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::delivery::Delivered;
use crate::table::{Row, Table};

/// Flights of one origin, on one day or over all days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) flights: u64,
    pub(crate) departures: u64,
    pub(crate) cancellations: u64,
    /// Minutes of all departures.
    pub(crate) delay_sum: i64,
    /// Minutes; `None` if nothing departed.
    pub(crate) delay_max: Option<i32>,
}

impl Count {
    fn add(&mut self, row: &Row) {
        self.flights += 1;
        match row.delay {
            Some(delay) => {
                self.departures += 1;
                self.delay_sum += i64::from(delay);
                self.delay_max = self.delay_max.max(Some(delay));
            }
            None => self.cancellations += 1,
        }
    }
}

/// The three topics, as they must be.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Rows of `delays`, for each origin in the order of the days.
    pub(crate) delays: BTreeMap<String, Vec<Value>>,
    /// Rows of `flights.late`, for each origin in the order of the stream.
    pub(crate) late: BTreeMap<String, Vec<Value>>,
    /// Bytes that end in `flights.dead-letter`, in the order of the stream.
    pub(crate) dead: Vec<Vec<u8>>,
    /// Per origin over all days.
    pub(crate) totals: BTreeMap<String, Count>,
}

impl Expected {
    /// What must come of this stream.
    pub(crate) fn of(table: &Table, stream: &[Delivered]) -> Expected {
        let mut days: BTreeMap<(&str, i32, u32, u32), Count> = BTreeMap::new();
        let mut expected =
            Expected { delays: BTreeMap::new(), late: BTreeMap::new(), dead: Vec::new(), totals: BTreeMap::new() };
        for row in &table.rows {
            days.entry((&row.origin, row.year, row.month, row.day)).or_default().add(row);
            expected.totals.entry(row.origin.clone()).or_default().add(row);
        }
        for ((origin, year, month, day), count) in days {
            expected.delays.entry(origin.to_string()).or_default().push(json!({
                "origin": origin,
                "day": format!("{year:04}-{month:02}-{day:02}"),
                "flights": count.flights,
                "departures": count.departures,
                "cancellations": count.cancellations,
                "delay_sum": count.delay_sum,
                "delay_max": count.delay_max,
            }));
        }
        for record in stream {
            match record {
                Delivered::Clean(_) => {}
                Delivered::Straggler(row) => {
                    let row = &table.rows[*row];
                    expected.late.entry(row.origin.clone()).or_default().push(late_row(row));
                }
                Delivered::Mangled(bytes) => expected.dead.push(bytes.clone()),
            }
        }
        expected
    }
}

type PublishedTotals = (&'static str, [(&'static str, u64, i64); 3], u64, u64);

/// Totals that are known from elsewhere, by the hash of the unpacked file: origin, departures, minutes of delay; then rows and
/// cancellations.
const PUBLISHED: [PublishedTotals; 2] = [
    (
        "ec5bcc9564ee81c54dabf0da5f45e3cc",
        [("EWR", 9655, 143_915), ("JFK", 9061, 78_068), ("LGA", 7767, 43_818)],
        27_004,
        521,
    ),
    (
        "50eff2bf03d82f2ac5901de30a49818f",
        [("EWR", 117_596, 1_776_635), ("JFK", 109_416, 1_325_264), ("LGA", 101_509, 1_050_301)],
        336_776,
        8255,
    ),
];

impl Expected {
    /// Compares the totals with the published ones, if the file is one of which there are any; true if so.
    pub(crate) fn check_published(&self, table: &Table) -> Result<bool, String> {
        let Some((_, origins, rows, cancelled)) = PUBLISHED.iter().find(|(hash, ..)| *hash == table.hash) else {
            return Ok(false);
        };
        let sum = |of: fn(&Count) -> u64| self.totals.values().map(of).sum::<u64>();
        let found: Vec<_> = self.totals.iter().map(|(o, c)| (o.as_str(), c.departures, c.delay_sum)).collect();
        let (flights, cancellations) = (sum(|c| c.flights), sum(|c| c.cancellations));
        if found == origins && flights == *rows && cancellations == *cancelled {
            return Ok(true);
        }
        Err(format!(
            "the totals of the file are {found:?}, {flights} flights, {cancellations} cancelled; published are {origins:?}, {rows}, {cancelled}"
        ))
    }
}

/// A flight as it stands in `flights.late`.
fn late_row(row: &Row) -> Value {
    json!({
        "scheduled": row.minutes() * 60_000,
        "origin": row.origin,
        "dest": row.dest,
        "carrier": row.carrier,
        "flight": row.flight,
        "delay": row.delay,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// The file in the repository.
    pub(crate) fn january() -> Table {
        Table::read(Path::new(crate::args::JANUARY)).unwrap()
    }

    #[test]
    fn january_has_the_published_totals() {
        let mut table = january();
        let expected = Expected::of(&table, &[]);
        assert_eq!(expected.check_published(&table), Ok(true));
        let row = table.rows.iter().position(|row| row.delay.is_some()).unwrap();
        table.rows[row].delay = None;
        assert!(Expected::of(&table, &[]).check_published(&table).is_err());
    }

    #[test]
    fn every_origin_has_one_row_for_each_day_of_january_in_order() {
        let expected = Expected::of(&january(), &[]);
        for (origin, rows) in &expected.delays {
            let days: Vec<&str> = rows.iter().map(|row| row["day"].as_str().unwrap()).collect();
            let all: Vec<String> = (1..=31).map(|day| format!("2013-01-{day:02}")).collect();
            assert_eq!(days, all, "{origin}");
        }
    }
}
