//! What readers of a topic must find although records are taken away from it. Pure.
//!
//! * Whatever is there is what was written at that offset, and offsets rise: an offset never has another record.
//! * Compaction: who reads from the beginning to the end finds for each key what it held last when he began, or something newer.
//!   A tombstone may be missing where tombstones may go; then no older value of its key may be left either.
//! * Retention: from the partition's start on everything is there, without a gap, and the last `WINDOW_BYTES` always are. The start never goes back.
//! * At the end something has gone, if enough was written; else nothing of this was seen.

use std::collections::BTreeMap;

use super::{Kind, WINDOW_BYTES};

/// Of so many records something must have gone: more than `WINDOW_BYTES` and two segments. On a slow machine a short round has fewer.
const ENOUGH: u64 = 800;

/// What was written into a topic, by offset: key, and value or tombstone.
#[derive(Debug)]
pub(crate) struct Book {
    kind: Kind,
    puts: Vec<(u64, Option<u64>)>,
    /// So many of them are acknowledged.
    acknowledged: u64,
    /// The highest start that a scan was told.
    start: u64,
}

/// What one who read from the beginning to the end has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// So many records were acknowledged when it began.
    pub(crate) acknowledged: u64,
    /// Where it began, and where it ended.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Offset, key, and value or tombstone.
    pub(crate) records: Vec<(u64, u64, Option<u64>)>,
    /// Bytes of the batches.
    pub(crate) bytes: u64,
}

impl Book {
    pub(crate) fn new(kind: Kind) -> Book {
        Book { kind, puts: Vec::new(), acknowledged: 0, start: 0 }
    }

    /// The offset of whatever is put next: one producer alone writes.
    pub(crate) fn next(&self) -> u64 {
        self.puts.len() as u64
    }

    /// These are about to be written.
    pub(crate) fn puts(&mut self, keyed: &[(u64, Option<u64>)]) {
        self.puts.extend_from_slice(keyed);
    }

    /// All that was put is acknowledged.
    pub(crate) fn acknowledged(&mut self) {
        self.acknowledged = self.next();
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acknowledged
    }

    /// What is wrong with a scan; `last`: with one that was made when all had come to an end.
    pub(crate) fn judge(&self, scan: &Scan, last: bool) -> Vec<String> {
        let mut wrong = vec![];
        if !scan.records.is_sorted_by(|a, b| a.0 < b.0) {
            wrong.push("offsets don't rise".to_string());
        }
        for (offset, key, value) in &scan.records {
            let written = usize::try_from(*offset).ok().and_then(|at| self.puts.get(at));
            if written != Some(&(*key, *value)) {
                wrong.push(format!("offset {offset} holds {key}={value:?}, and {written:?} was written there"));
            }
        }
        if scan.end < scan.acknowledged {
            wrong.push(format!("it ends at {}, and {} records were acknowledged", scan.end, scan.acknowledged));
        }
        match self.kind {
            Kind::Window => self.judge_window(scan, &mut wrong),
            Kind::Table | Kind::Short => self.judge_keys(scan, last, &mut wrong),
        }
        let is_enough = self.next() >= ENOUGH;
        if last && is_enough && wrong.is_empty() && scan.records.len() as u64 == self.next() {
            wrong.push(format!("all of its {} records are still there: nothing was taken away", self.next()));
        }
        wrong.truncate(5);
        wrong
    }

    fn judge_keys(&self, scan: &Scan, last: bool, wrong: &mut Vec<String>) {
        if scan.start != 0 {
            wrong.push(format!("it begins at {}, and nothing may go from the front", scan.start));
        }
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for (offset, key, _) in &scan.records {
            found.insert(*key, *offset);
        }
        let mut held: BTreeMap<u64, (u64, Option<u64>)> = BTreeMap::new();
        for (offset, (key, value)) in (0..scan.acknowledged).zip(&self.puts) {
            held.insert(*key, (offset, *value));
        }
        for (key, (offset, value)) in held {
            let newest = found.get(&key);
            let is_there = newest.is_some_and(|newest| *newest >= offset);
            let may_be_gone = self.kind == Kind::Short && value.is_none();
            // An older value may have been read a moment before both it and the tombstone went. At the end it is read again.
            if is_there || (may_be_gone && (newest.is_none() || !last)) {
                continue;
            }
            let what = if value.is_some() { "value" } else { "tombstone" };
            wrong.push(format!("the last {what} of key {key}, at {offset}, isn't there: its newest is at {newest:?}"));
        }
    }

    fn judge_window(&self, scan: &Scan, wrong: &mut Vec<String>) {
        let expected = scan.start..scan.end;
        if !scan.records.iter().map(|(offset, ..)| *offset).eq(expected.clone()) {
            let missing = expected.zip(&scan.records).find(|(offset, (found, ..))| offset != found);
            wrong.push(format!("a gap between {} and {}: {missing:?}", scan.start, scan.end));
        }
        if scan.start > 0 && scan.bytes < WINDOW_BYTES {
            wrong.push(format!("{} bytes are left from {} on, and {WINDOW_BYTES} shall stay", scan.bytes, scan.start));
        }
    }

    /// A scan was told that it begins there: whoever scans afterwards must begin there, or further on.
    pub(crate) fn begins_at(&mut self, start: u64) -> Result<(), String> {
        if start < self.start {
            return Err(format!("its start went back from {} to {start}", self.start));
        }
        self.start = start;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys 1, 2, 1, 2 (a tombstone), 3; all acknowledged.
    fn book(kind: Kind) -> Book {
        let mut book = Book::new(kind);
        book.puts(&[(1, Some(0)), (2, Some(1)), (1, Some(2)), (2, None), (3, Some(4))]);
        book.acknowledged();
        book
    }

    /// A scan that finds these offsets of the book, and begins at the first.
    fn scan(of: &Book, start: u64, offsets: &[u64]) -> Scan {
        let records = offsets.iter().map(|o| (*o, of.puts[*o as usize].0, of.puts[*o as usize].1)).collect();
        Scan { acknowledged: of.acked(), start, end: of.next(), records, bytes: WINDOW_BYTES }
    }

    #[test]
    fn of_each_key_the_last_value_must_be_there_and_all_else_may_go() {
        let book = book(Kind::Table);
        for fine in [&[2, 3, 4][..], &[0, 2, 3, 4], &[0, 1, 2, 3, 4]] {
            assert_eq!(book.judge(&scan(&book, 0, fine), false), Vec::<String>::new(), "{fine:?}");
        }
        for (wrong, told) in
            [(&[3, 4][..], "value of key 1"), (&[0, 3, 4], "value of key 1"), (&[2, 4], "tombstone of key 2")]
        {
            let found = book.judge(&scan(&book, 0, wrong), false);
            assert!(found.len() == 1 && found[0].contains(told), "{wrong:?}: {found:?}");
        }
        assert_eq!(book.judge(&scan(&book, 0, &[0, 1, 2, 3, 4]), true), Vec::<String>::new(), "few were written");
        let mut long = Book::new(Kind::Table);
        long.puts(&[(1, Some(0)); ENOUGH as usize]);
        long.acknowledged();
        let all: Vec<u64> = (0..ENOUGH).collect();
        assert!(long.judge(&scan(&long, 0, &all), true)[0].contains("nothing was taken away"));
        assert!(book.judge(&scan(&book, 2, &[2, 3, 4]), false)[0].contains("begins at 2"));
    }

    #[test]
    fn where_tombstones_may_go_what_they_deleted_must_have_gone_before() {
        let book = book(Kind::Short);
        assert_eq!(book.judge(&scan(&book, 0, &[2, 4]), true), Vec::<String>::new());
        assert_eq!(book.judge(&scan(&book, 0, &[1, 2, 4]), false), Vec::<String>::new(), "perhaps both went meanwhile");
        let found = book.judge(&scan(&book, 0, &[1, 2, 4]), true);
        assert!(found.len() == 1 && found[0].contains("tombstone of key 2"), "{found:?}");
    }

    #[test]
    fn an_offset_has_one_record_for_ever() {
        for kind in Kind::ALL {
            let book = book(kind);
            let mut other = scan(&book, 0, &[0, 1, 2, 3, 4]);
            other.records[2].2 = Some(9);
            assert!(book.judge(&other, false)[0].contains("offset 2 holds"), "{kind:?}");
            let mut order = scan(&book, 0, &[0, 2, 1, 3, 4]);
            assert!(book.judge(&order, false)[0].contains("don't rise"), "{kind:?}");
            order.end = 4;
            assert!(book.judge(&order, false).iter().any(|what| what.contains("ends at 4")), "{kind:?}");
        }
    }

    #[test]
    fn retention_takes_from_the_front_alone_and_leaves_what_it_promised() {
        let mut book = book(Kind::Window);
        assert_eq!(book.judge(&scan(&book, 2, &[2, 3, 4]), true), Vec::<String>::new());
        assert!(book.judge(&scan(&book, 2, &[2, 4]), false)[0].contains("a gap"));
        assert!(book.judge(&scan(&book, 1, &[2, 3, 4]), false)[0].contains("a gap"));
        let few = Scan { bytes: WINDOW_BYTES - 1, ..scan(&book, 2, &[2, 3, 4]) };
        assert!(book.judge(&few, false)[0].contains("shall stay"));
        assert_eq!([2, 2, 3].map(|start| book.begins_at(start)), [Ok(()), Ok(()), Ok(())]);
        assert!(book.begins_at(2).is_err_and(|what| what.contains("went back from 3 to 2")));
    }
}
