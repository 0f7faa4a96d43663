//! Text and CSV files as sources.

mod common;

use std::path::Path;

use common::{check_positions, drain, job, open, write_file};
use cutwater_engine::source::{Read, Source, Waker};
use cutwater_platform::{Files, OsFiles};
use cutwater_sources_sinks::{csv, text};

fn texts(path: &Path) -> Vec<(u64, String)> {
    let source = text::lines(&job(path.parent().unwrap()), path);
    let split = &source.splits().unwrap()[0];
    check_positions(&source, split).into_iter().map(|line| (line.number, line.into_text().unwrap())).collect()
}

#[test]
fn lines_of_every_shape_are_read_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.txt");
    let cases: [(&str, &[&str]); 8] = [
        ("", &[]),
        ("\n", &[""]),
        ("a", &["a"]),
        ("a\n", &["a"]),
        ("a\nb", &["a", "b"]),
        ("a\r\nb\r\n", &["a", "b"]),
        ("\n\na\n\n", &["", "", "a", ""]),
        ("ä\u{FEFF}\nxyz\r\n\r", &["ä\u{FEFF}", "xyz", ""]),
    ];
    for (bytes, expected) in cases {
        write_file(&path, bytes.as_bytes());
        let expected: Vec<_> = expected.iter().enumerate().map(|(i, s)| (i as u64 + 1, s.to_string())).collect();
        assert_eq!(texts(&path), expected, "{bytes:?}");
    }
}

#[test]
fn lines_longer_than_a_chunk_and_chunks_that_end_in_a_line_end_are_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.txt");
    let chunk = 256 * 1024;
    let lines = ["x".repeat(chunk - 1), "y".repeat(3 * chunk), "z".repeat(chunk - 2), String::new(), "end".to_string()];
    write_file(&path, lines.join("\n").as_bytes());
    let source = text::lines(&job(dir.path()), &path);
    let split = &source.splits().unwrap()[0];
    let read: Vec<_> = check_positions(&source, split).into_iter().map(|line| line.into_text().unwrap()).collect();
    assert_eq!(read, lines);
}

#[test]
fn a_line_over_the_limit_ends_the_job_and_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.txt");
    write_file(&path, format!("short\n{}", "y".repeat(600_000)).as_bytes());
    let source = text::lines(&job(dir.path()), &path).line_bytes_max(1000);
    let error = drain(open(&source, path.to_str().unwrap(), None).as_mut(), 10).unwrap_err();
    assert!(error.fatal);
    assert!(error.to_string().ends_with("line 2: the line has more than 1000 bytes; raise line_bytes_max"), "{error}");
}

#[test]
fn a_line_that_is_no_text_reaches_the_job_as_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes.txt");
    write_file(&path, b"ok\n\xFF\xFE\nok");
    let (lines, _) =
        drain(open(&text::lines(&job(dir.path()), &path), path.to_str().unwrap(), None).as_mut(), 10).unwrap();
    let good: Vec<bool> = lines.iter().map(|line| line.text().is_ok()).collect();
    assert_eq!(good, [true, false, true]);
    assert!(lines[1].text().unwrap_err().to_string().contains("invalid utf-8"));
}

#[test]
fn a_changed_file_is_refused_with_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.txt");
    let split = path.to_str().unwrap();
    let source = text::lines(&job(dir.path()), &path);
    write_file(&path, b"one\ntwo\nthree\n");
    let mut reader = open(&source, split, None);
    reader.read(&mut vec![], 1).unwrap();
    let position = reader.position();
    let refusal = |source: &dyn Fn() -> Option<String>| source().expect("refused");
    let reopen = || match source.open(split, Some(&position), Waker::noop()) {
        Ok(_) => None,
        Err(e) => {
            assert!(e.fatal, "a restart would find the same file");
            Some(e.to_string())
        }
    };
    assert_eq!(reopen(), None, "unchanged");
    write_file(&path, b"one\ntwo\nthree\nfour\n");
    assert!(refusal(&reopen).contains("it had 14 bytes and has 19"));
    write_file(&path, b"ONE\ntwo\nthree\n");
    assert!(refusal(&reopen).contains("its beginning is another"));
    write_file(&path, b"one\ntwo\nthree\n");
    assert!(refusal(&reopen).contains("time of last change"));
    OsFiles.remove_file(&path).unwrap();
    assert!(refusal(&reopen).contains("there is no such file"));
}

#[test]
fn a_position_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.txt");
    let split = path.to_str().unwrap();
    write_file(&path, b"one\ntwo\n");
    let source = text::lines(&job(dir.path()), &path);
    let good = open(&source, split, None).position();
    let open = |position: &[u8]| source.open(split, Some(position), Waker::noop()).err().map(|e| e.to_string());
    assert_eq!(open(&good), None);
    for cut in 0..good.len() {
        assert!(open(&good[..cut]).expect("cut short").contains("damaged"), "{cut}");
    }
    let mut newer = good.clone();
    newer[0] = 9;
    assert!(open(&newer).expect("newer").contains("holds format 9 here, this program reads 1"));
    let mut beyond = good;
    beyond[25..33].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(open(&beyond).expect("beyond the end").contains("damaged"));
}

#[test]
fn each_file_is_one_split_and_a_file_given_twice_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.txt"), dir.path().join("b.txt"));
    write_file(&a, b"1\n");
    write_file(&b, b"2\n");
    let source = text::lines_of(&job(dir.path()), [&a, &b]);
    assert_eq!(source.splits().unwrap(), [a.to_str().unwrap(), b.to_str().unwrap()]);
    let twice = text::lines_of(&job(dir.path()), [&a, &a]).splits().unwrap_err();
    assert!(twice.to_string().contains("it is given twice"), "{twice}");
}

const FLIGHTS: &str =
    "origin,delay,note\nSFO,3,\"a, b\"\n\"O\"\"Hare\",-1,\"two\nlines\"\n\nJFK,0,\nLAX,x,bad number\nLAX,1\nEWR,7,last";

#[derive(serde::Deserialize, Clone, Debug, PartialEq)]
struct Flight {
    origin: String,
    delay: i32,
    note: String,
}

fn rows_as_text(path: &Path) -> Vec<(u64, Vec<Vec<u8>>)> {
    let source = csv::rows(&job(path.parent().unwrap()), path);
    let split = path.to_str().unwrap();
    // Rows have no equality of their own; the typed source below is checked as a whole.
    let (rows, end) = drain(open(&source, split, None).as_mut(), 2).unwrap();
    assert_eq!(end, Read::Exhausted);
    rows.iter().map(|row| (row.line, row.fields().map(<[u8]>::to_vec).collect())).collect()
}

#[test]
fn good_and_bad_rows_are_read_in_order_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flights.csv");
    for line_end in ["\n", "\r\n"] {
        write_file(&path, FLIGHTS.replace('\n', line_end).as_bytes());
        let source = csv::rows(&job(dir.path()), &path).typed::<Flight>();
        let rows = check_positions(&source, path.to_str().unwrap());
        let shown: Vec<String> = rows
            .iter()
            .map(|row| match row {
                Ok(f) => format!("{} {} {:?}", f.origin, f.delay, f.note.replace("\r\n", "\n")),
                Err(e) => e.to_string().replace(path.to_str().unwrap(), "flights.csv"),
            })
            .collect();
        let expected = [
            "SFO 3 \"a, b\"",
            "O\"Hare -1 \"two\\nlines\"",
            "JFK 0 \"\"",
            "flights.csv line 7: field 2 (\"x\"): invalid digit found in string",
            "flights.csv line 8: expected 3 fields as the header has, found 2",
            "EWR 7 \"last\"",
        ];
        assert_eq!(shown, expected, "line end {line_end:?}");
    }
}

#[test]
fn rows_without_a_header_go_by_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.csv");
    write_file(&path, b" a ; 1 \n b ; 2 ; 3\n");
    let source = csv::rows(&job(dir.path()), &path).without_header().delimiter(b';').trimmed();
    let (rows, _) = drain(open(&source, path.to_str().unwrap(), None).as_mut(), 10).unwrap();
    assert_eq!(rows[0].decode::<(String, u32)>().unwrap(), ("a".to_string(), 1));
    assert_eq!(rows[1].text().unwrap(), vec!["b", "2", "3"]);
    assert_eq!(rows[1].get(2), Some(&b"3"[..]));
}

#[test]
fn rows_say_their_line_and_fields_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flights.csv");
    write_file(&path, FLIGHTS.as_bytes());
    let lines: Vec<u64> = rows_as_text(&path).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 6, 7, 8, 9]);
    let source = csv::rows(&job(dir.path()), &path);
    let (rows, _) = drain(open(&source, path.to_str().unwrap(), None).as_mut(), 10).unwrap();
    assert_eq!(rows[0].field("note"), Some(&b"a, b"[..]));
    assert_eq!(rows[0].field("nothing"), None);
}

#[test]
fn fields_that_are_no_text_are_bad_rows_not_a_failed_job() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes.csv");
    write_file(&path, b"name\nok\n\xFF\nok\n");
    let source = csv::rows(&job(dir.path()), &path);
    let (rows, _) = drain(open(&source, path.to_str().unwrap(), None).as_mut(), 10).unwrap();
    let good: Vec<bool> = rows.iter().map(|row| row.text().is_ok()).collect();
    assert_eq!(good, [true, false, true]);
    assert!(rows[1].text().unwrap_err().to_string().contains("line 3: field 1"));
    assert!(rows[1].decode::<(String,)>().is_err());
}

#[test]
fn a_quote_that_is_never_closed_ends_the_job_instead_of_filling_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("open.csv");
    let mut bytes = b"name\nok\n\"open ".to_vec();
    bytes.resize(18 << 20, b'x');
    write_file(&path, &bytes);
    let source = csv::rows(&job(dir.path()), &path);
    let error = drain(open(&source, path.to_str().unwrap(), None).as_mut(), 10).unwrap_err();
    assert!(
        error.fatal && error.to_string().contains("line 3: the row is too long; is a quote not closed?"),
        "{error}"
    );
}

#[test]
fn a_file_without_rows_is_exhausted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty.csv");
    for bytes in ["", "origin,delay,note\n", "origin,delay,note"] {
        write_file(&path, bytes.as_bytes());
        let source = csv::rows(&job(dir.path()), &path).typed::<Flight>();
        assert_eq!(check_positions(&source, path.to_str().unwrap()), [], "{bytes:?}");
    }
}
