//! What is delivered to the job: the clean rows in their order, broken rows, and stragglers, all drawn from a seed.
//!
//! * A *broken* row is a copy of a clean one, damaged in one of ten ways; it stands anywhere.
//! * A *straggler* is a copy of a clean row that stands where the stream has gone on for at least seven days of event time. The
//!   watermark follows 24 hours behind, so its day has been closed for more than four days when it comes: it is late
//!   whatever the size of batches, and the clean row that it copies is not.

use cutwater_platform::SplitMix;

use crate::problem::{Kind, Problem};
use crate::table::{Row, Table};

/// How far the stream has gone on when a straggler comes, at least.
const STRAGGLER_MINUTES: i64 = 7 * 24 * 60;

/// What is drawn besides the clean rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) seed: u64,
    pub(crate) mangled: usize,
    pub(crate) stragglers: usize,
}

/// One record of topic `flights`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Row `.0` of the table.
    Clean(usize),
    /// Bytes that are no flight.
    Mangled(Vec<u8>),
    /// Row `.0` of the table for a second time, too late.
    Straggler(usize),
}

impl Delivered {
    /// The record's bytes.
    pub(crate) fn bytes<'a>(&'a self, table: &'a Table) -> &'a [u8] {
        match self {
            Delivered::Clean(row) | Delivered::Straggler(row) => table.rows[*row].line.as_bytes(),
            Delivered::Mangled(bytes) => bytes,
        }
    }
}

/// The stream for a table and a seed, always the same.
pub(crate) fn deliver(table: &Table, draw: Draw) -> Result<Vec<Delivered>, Problem> {
    let rows = &table.rows;
    let mut random = SplitMix::new(draw.seed);
    // (after which clean row, what); equal places keep the order in which they were drawn.
    let mut extra: Vec<(usize, Delivered)> = Vec::with_capacity(draw.mangled + draw.stragglers);
    for way in 0..draw.mangled {
        let (row, place) = (below(&mut random, rows.len()), below(&mut random, rows.len()));
        extra.push((place, Delivered::Mangled(mangle(&rows[row], way))));
    }
    let reached: Vec<i64> = rows
        .iter()
        .scan(i64::MIN, |newest, row| {
            *newest = row.minutes().max(*newest);
            Some(*newest)
        })
        .collect();
    let first_late = |row: &Row| reached.partition_point(|newest| *newest < row.minutes() + STRAGGLER_MINUTES);
    let eligible: Vec<usize> = (0..rows.len()).filter(|row| first_late(&rows[*row]) < rows.len()).collect();
    if eligible.is_empty() && draw.stragglers > 0 {
        let what = "the flights span less than 7 days, so no copy can be delivered 7 days late";
        return Err(Problem::new(Kind::Data, what, "run with --stragglers 0, or with more flights"));
    }
    for _ in 0..draw.stragglers {
        let row = eligible[below(&mut random, eligible.len())];
        let first = first_late(&rows[row]);
        extra.push((first + below(&mut random, rows.len() - first), Delivered::Straggler(row)));
    }
    extra.sort_by_key(|(place, _)| *place);
    let mut extra = extra.into_iter().peekable();
    let mut stream = Vec::with_capacity(rows.len() + extra.len());
    for row in 0..rows.len() {
        stream.push(Delivered::Clean(row));
        while let Some((_, record)) = extra.next_if(|(place, _)| *place == row) {
            stream.push(record);
        }
    }
    Ok(stream)
}

fn below(random: &mut SplitMix, bound: usize) -> usize {
    random.below(bound as u64) as usize
}

/// The ways in which a row can be damaged.
const WAYS: usize = 10;

/// A copy of the row, damaged.
fn mangle(row: &Row, way: usize) -> Vec<u8> {
    let fields: Vec<&str> = row.line.split(',').collect();
    let with = |field: usize, text: &str| {
        let mut fields = fields.clone();
        fields[field] = text;
        fields.join(",").into_bytes()
    };
    match way % WAYS {
        0 => fields[..7].join(",").into_bytes(),
        1 => with(4, "5x5"),
        2 => with(1, "13"),
        3 => with(2, "32"),
        4 => with(4, "2575"),
        5 => with(12, ""),
        6 => format!("{},one too many", row.line).into_bytes(),
        7 => [row.line.as_bytes(), b"\xff\xfe"].concat(),
        8 => Vec::new(),
        // Departed, but nobody says when.
        _ => with(3, if row.delay.is_some() { "NA" } else { "1200" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::tests::january;
    use crate::flight::Flight;

    const DRAW: Draw = Draw { seed: 7, mangled: 20, stragglers: 200 };

    #[test]
    fn the_same_seed_delivers_the_same_stream_and_another_seed_another() {
        let table = january();
        let stream = deliver(&table, DRAW).unwrap();
        assert_eq!(stream.len(), table.rows.len() + 220);
        assert_eq!(stream, deliver(&table, DRAW).unwrap());
        assert_ne!(stream, deliver(&table, Draw { seed: 8, ..DRAW }).unwrap());
        let clean: Vec<usize> =
            stream.iter().filter_map(|r| if let Delivered::Clean(i) = r { Some(*i) } else { None }).collect();
        assert_eq!(clean, (0..table.rows.len()).collect::<Vec<_>>());
    }

    #[test]
    fn every_straggler_comes_seven_days_behind_the_stream_and_no_clean_row_a_day_behind() {
        let table = january();
        let (mut newest, mut worst) = (i64::MIN, 0);
        for record in deliver(&table, DRAW).unwrap() {
            match record {
                Delivered::Clean(row) => {
                    let at = table.rows[row].minutes();
                    newest = newest.max(at);
                    worst = worst.max(newest - at);
                }
                Delivered::Straggler(row) => assert!(newest - table.rows[row].minutes() >= STRAGGLER_MINUTES),
                Delivered::Mangled(_) => {}
            }
        }
        assert!(worst < 24 * 60, "{worst} minutes");
    }

    #[test]
    fn every_way_of_damage_is_refused_by_the_job_and_every_clean_row_is_taken() {
        let table = january();
        for row in table.rows.iter().step_by(997) {
            for way in 0..WAYS {
                let bytes = mangle(row, way);
                assert!(Flight::parse(&bytes).is_err(), "way {way}: {:?}", String::from_utf8_lossy(&bytes));
            }
        }
        for row in &table.rows {
            assert!(Flight::parse(row.line.as_bytes()).is_ok(), "{}", row.line);
        }
    }

    #[test]
    fn stragglers_are_refused_when_the_flights_span_too_few_days() {
        let mut table = january();
        table.rows.truncate(3000);
        let problem = deliver(&table, DRAW).unwrap_err();
        assert!(problem.to_string().contains("--stragglers 0"), "{problem}");
        assert!(deliver(&table, Draw { stragglers: 0, ..DRAW }).is_ok());
    }
}
