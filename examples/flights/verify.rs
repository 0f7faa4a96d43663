//! Compares what stands in the log with what must stand there, row by row.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::expected::Expected;
use crate::independent::{Partition, Record, read_partition};

/// Everything that differs, in sentences; empty if nothing does. And what was read, a line for each topic.
pub(crate) fn differences(partitions: &Path, expected: &Expected) -> Result<(Vec<String>, String), String> {
    let mut found = Vec::new();
    let delays = read(partitions, "delays")?;
    per_origin("delays", &delays, &expected.delays, &mut found);
    let late = read(partitions, "flights.late")?;
    per_origin("flights.late", &late, &expected.late, &mut found);
    let dead = read(partitions, "flights.dead-letter")?;
    let rows: Vec<&[u8]> = dead.records.iter().map(|record| record.value.as_deref().unwrap_or_default()).collect();
    same("flights.dead-letter", &rows, &expected.dead.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut found);
    let mut summary = String::new();
    for (topic, partition) in [("delays", &delays), ("flights.late", &late), ("flights.dead-letter", &dead)] {
        summary += &format!(
            "{topic:<20} {:>6} rows; {} transactions committed, {} aborted with {} rows\n",
            partition.records.len(),
            partition.committed,
            partition.aborted,
            partition.aborted_records
        );
    }
    Ok((found, summary))
}

/// The only partition of a topic; a topic that was never written to is empty.
fn read(partitions: &Path, topic: &str) -> Result<Partition, String> {
    let directory = partitions.join(format!("{topic}-0"));
    if directory.exists() { read_partition(&directory) } else { Ok(Partition::default()) }
}

/// Compares JSON rows, for each origin in their order: which origin comes first is nobody's promise.
fn per_origin(topic: &str, partition: &Partition, expected: &BTreeMap<String, Vec<Value>>, found: &mut Vec<String>) {
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in &partition.records {
        match json(record) {
            Ok(row) => rows.entry(row["origin"].as_str().unwrap_or_default().to_string()).or_default().push(row),
            Err(what) => found.push(format!("{topic}, offset {}: {what}", record.offset)),
        }
    }
    let none = Vec::new();
    let mut origins: Vec<&String> = rows.keys().chain(expected.keys()).collect();
    origins.sort();
    origins.dedup();
    for origin in origins {
        let (rows, expected) = (rows.get(origin).unwrap_or(&none), expected.get(origin).unwrap_or(&none));
        same(&format!("{topic} of {origin}"), rows, expected, found);
    }
}

fn json(record: &Record) -> Result<Value, String> {
    serde_json::from_slice(record.value.as_deref().unwrap_or_default()).map_err(|e| format!("no JSON: {e}"))
}

/// Says where two sequences part.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &[T], expected: &[T], differences: &mut Vec<String>) {
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        differences.push(format!("{what}, row {at}: found {:?}, expected {:?}", found[at], expected[at]));
    } else if found.len() != expected.len() {
        let (longer, name) = if found.len() > expected.len() { (found, "too many") } else { (expected, "missing") };
        let at = found.len().min(expected.len());
        differences.push(format!(
            "{what}: {} rows, expected {}; {name}: {:?}",
            found.len(),
            expected.len(),
            longer[at]
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(offset: i64, value: &Value) -> Record {
        Record { offset, key: None, value: Some(value.to_string().into_bytes()), headers: vec![] }
    }

    #[test]
    fn a_lost_a_doubled_a_changed_and_a_reordered_row_are_each_found() {
        let row = |origin: &str, n: u32| json!({"origin": origin, "n": n});
        let expected = BTreeMap::from([
            ("EWR".to_string(), vec![row("EWR", 1), row("EWR", 2)]),
            ("JFK".to_string(), vec![row("JFK", 1)]),
        ]);
        let check = |rows: &[Value]| {
            let records = (0..).zip(rows).map(|(offset, row)| record(offset, row)).collect();
            let mut found = Vec::new();
            per_origin("t", &Partition { records, ..Partition::default() }, &expected, &mut found);
            found
        };
        assert!(check(&[row("EWR", 1), row("JFK", 1), row("EWR", 2)]).is_empty());
        assert!(check(&[row("JFK", 1), row("EWR", 1), row("EWR", 2)]).is_empty());
        for (rows, what) in [
            (vec![row("EWR", 1), row("JFK", 1)], "missing"),
            (vec![row("EWR", 1), row("JFK", 1), row("EWR", 2), row("EWR", 2)], "too many"),
            (vec![row("EWR", 1), row("JFK", 9), row("EWR", 2)], "row 0"),
            (vec![row("EWR", 2), row("JFK", 1), row("EWR", 1)], "row 0"),
            (vec![row("EWR", 1), row("JFK", 1), row("EWR", 2), row("LGA", 1)], "too many"),
            (vec![row("EWR", 1), row("EWR", 2)], "t of JFK: 0 rows"),
        ] {
            let found = check(&rows);
            assert!(found.len() == 1 && found[0].contains(what), "{rows:?}: {found:?}");
        }
    }
}
