//! The file of flights: read (plain or gzip), checked row by row, sorted by day.
//!
//! What it checks it checks before anything is written, so that a wrong file leaves no trace. It is written without a CSV
//! library and without the job's own parser on purpose: [`crate::expected`] counts on it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use xxhash_rust::xxh3::xxh3_128;

use crate::problem::{Kind, Problem};

/// The header line of nycflights13.
pub(crate) const HEADER: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,\
                                 flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour";

/// The first bytes of a gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// More than forty years of flights; a file that unpacks to more is refused.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// One clean row, and what the expected result is computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The line as it stands in the file.
    pub(crate) line: String,
    pub(crate) year: i32,
    pub(crate) month: u32,
    pub(crate) day: u32,
    /// Minutes since midnight of the scheduled departure.
    pub(crate) scheduled_minute: u32,
    /// Minutes; `None` for a flight that was cancelled.
    pub(crate) delay: Option<i32>,
    pub(crate) carrier: String,
    pub(crate) flight: u32,
    pub(crate) origin: String,
    pub(crate) dest: String,
}

impl Row {
    /// Scheduled departure in minutes since 1970-01-01T00:00, naive local time.
    pub(crate) fn minutes(&self) -> i64 {
        let mut days = 0;
        for year in 1970..self.year {
            days += if leap(year) { 366 } else { 365 };
        }
        for month in 1..self.month {
            days += i64::from(month_days(self.year, month));
        }
        (days + i64::from(self.day) - 1) * 24 * 60 + i64::from(self.scheduled_minute)
    }
}

fn leap(year: i32) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn month_days(year: i32, month: u32) -> u32 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A whole file.
#[derive(Debug)]
pub(crate) struct Table {
    /// Sorted by date; within a day as in the file.
    pub(crate) rows: Vec<Row>,
    /// XXH3-128 of the unpacked bytes, as hexadecimal digits: the same for a plain and a gzipped copy.
    pub(crate) hash: String,
}

impl Table {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Table, Problem> {
        let next =
            "give a CSV file of nycflights13 with --data, plain or gzipped, or leave --data out for January 2013";
        let problem = |what: String| Problem::new(Kind::Data, format!("{}: {what}", path.display()), next);
        let bytes = unpacked(path).map_err(|e| problem(format!("could not be read: {e}")))?;
        Table::parse(&bytes).map_err(problem)
    }

    /// Reads the bytes of a file; the error says what is wrong in which line.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Table, String> {
        let hash = format!("{:032x}", xxh3_128(bytes));
        let mut lines = bytes.split(|b| *b == b'\n');
        let header = String::from_utf8_lossy(lines.next().unwrap_or_default());
        if header.trim_end_matches('\r') != HEADER {
            let found: String = header.chars().take(60).collect();
            return Err(format!(
                "is no file of flights: its first line must be\n    {HEADER}\n  but begins with\n    {found:?}"
            ));
        }
        let mut rows = Vec::new();
        for (number, line) in (2..).zip(lines) {
            if line.is_empty() {
                continue;
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            rows.push(row(line).map_err(|what| format!("line {number}: {what}"))?);
        }
        if rows.is_empty() {
            return Err("has a header but not one flight".to_string());
        }
        rows.sort_by_key(|row| (row.year, row.month, row.day));
        Ok(Table { rows, hash })
    }
}

fn unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.starts_with(&GZIP_MAGIC) {
        let packed = std::mem::take(&mut bytes);
        MultiGzDecoder::new(&packed[..]).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 2 GiB"));
    }
    Ok(bytes)
}

fn row(line: &[u8]) -> Result<Row, String> {
    let line = str::from_utf8(line).map_err(|_| "is not UTF-8".to_string())?;
    let fields: Vec<&str> = line.split(',').collect();
    let [year, month, day, dep_time, scheduled, delay, _, _, _, carrier, flight, _, origin, dest, ..] = fields[..]
    else {
        return Err(format!("has {} fields instead of 19", fields.len()));
    };
    if fields.len() != 19 {
        return Err(format!("has {} fields instead of 19", fields.len()));
    }
    let (year, month, day) = (number(year, "year")?, number(month, "month")?, number(day, "day")?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 || day > month_days(year, month) {
        return Err(format!("{year}-{month}-{day} is no date between 1970 and 9999"));
    }
    let scheduled: u32 = number(scheduled, "sched_dep_time")?;
    let (hour, minute) = (scheduled / 100, scheduled % 100);
    if hour > 23 || minute > 59 {
        return Err(format!("sched_dep_time {scheduled} is no time of day"));
    }
    let delay = match (dep_time, delay) {
        ("NA", "NA") => None,
        ("NA", _) | (_, "NA") => return Err("has only one of dep_time and dep_delay".to_string()),
        (time, delay) => {
            number::<u32>(time, "dep_time")?;
            Some(number(delay, "dep_delay")?)
        }
    };
    if origin.len() != 3 || !origin.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err(format!("origin {origin:?} is no airport code of three letters"));
    }
    Ok(Row {
        line: line.to_string(),
        year,
        month,
        day,
        scheduled_minute: hour * 60 + minute,
        delay,
        carrier: carrier.to_string(),
        flight: number(flight, "flight")?,
        origin: origin.to_string(),
        dest: dest.to_string(),
    })
}

fn number<T: std::str::FromStr>(text: &str, field: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{field} {text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z";

    fn parse(lines: &[&str]) -> Result<Table, String> {
        let text = format!("{HEADER}\n{}\n", lines.join("\n"));
        Table::parse(text.as_bytes())
    }

    #[test]
    fn rows_are_sorted_by_date_and_keep_their_order_within_a_day() {
        let at = |date: &str, flight: &str| LINE.replace("2013,1,1", date).replace("1545", flight);
        let lines = [at("2013,10,1", "1"), at("2013,2,1", "2"), at("2013,10,1", "3"), at("2013,2,1", "4")];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let table = parse(&lines).unwrap();
        assert_eq!(table.rows.iter().map(|r| r.flight).collect::<Vec<_>>(), [2, 4, 1, 3]);
    }

    #[test]
    fn minutes_count_from_1970_in_a_calendar_with_leap_years() {
        let row = |date: &str| row(LINE.replace("2013,1,1", date).as_bytes()).unwrap();
        assert_eq!(row("1970,1,1").minutes(), 5 * 60 + 15);
        // 2013-01-01T00:00 is 1,356,998,400 seconds after the epoch; 2013-03-01 59 days later.
        assert_eq!(row("2013,1,1").minutes(), 1_356_998_400 / 60 + 315);
        assert_eq!(row("2013,3,1").minutes(), 1_356_998_400 / 60 + 59 * 1440 + 315);
        assert_eq!(row("2012,12,31").minutes(), 1_356_998_400 / 60 - 1440 + 315);
    }

    #[test]
    fn a_wrong_file_is_refused_with_line_and_reason() {
        assert!(Table::parse(b"PK\x03\x04rubbish").unwrap_err().contains("no file of flights"));
        assert!(Table::parse(b"").unwrap_err().contains("no file of flights"));
        assert!(Table::parse(format!("{HEADER}\n").as_bytes()).unwrap_err().contains("not one flight"));
        let cases = [
            (LINE.replace("2013,1,1,", "2013,2,30,"), "2013-2-30 is no date"),
            (LINE.replace(",515,", ",2460,"), "sched_dep_time 2460 is no time"),
            (LINE.replace(",517,", ",NA,"), "only one of dep_time and dep_delay"),
            (LINE.replace("EWR", "E"), "no airport code"),
            (LINE.replace(",1400", ""), "has 18 fields"),
            (LINE.replace(",2,", ",two,"), "dep_delay \"two\" is no number"),
        ];
        for (line, expected) in cases {
            let error = parse(&[LINE, &line]).unwrap_err();
            assert!(error.starts_with("line 3: ") && error.contains(expected), "{line}: {error}");
        }
    }
}
