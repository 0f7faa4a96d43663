//! Gzip files as sources: read unpacked, found again at every row, and never read wrongly in silence.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};

use common::{check_positions, drain, job, open, write_file};
use cutwater_engine::error::SourceError;
use cutwater_engine::source::{Source, Waker};
use cutwater_sources_sinks::{csv, text};
use flate2::Compression;
use flate2::write::GzEncoder;

fn member(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Packs `members` one behind the other into a file; answers its path.
fn packed(dir: &Path, name: &str, members: &[&[u8]]) -> PathBuf {
    let path = dir.join(name);
    write_file(&path, &members.iter().flat_map(|bytes| member(bytes)).collect::<Vec<_>>());
    path
}

fn read_lines(dir: &Path, path: &Path) -> Result<Vec<String>, SourceError> {
    let source = text::lines(&job(dir), path);
    let split = source.splits()?.remove(0);
    let mut reader = source.open(&split, None, Waker::noop())?;
    Ok(drain(reader.as_mut(), 7)?.0.into_iter().map(|line| line.into_text().unwrap()).collect())
}

#[test]
fn lines_of_packed_files_are_read_and_found_again_wherever_members_end() {
    let dir = tempfile::tempdir().unwrap();
    let plain = b"one\ntwo\r\n\nfour, which is longer\nfive";
    // One member, two that meet at every byte (in a line, between lines, in a line end), an empty one before, between and behind.
    let mut files: Vec<Vec<&[u8]>> = vec![vec![plain], vec![b"", plain, b""], vec![&plain[..5], b"", b"", &plain[5..]]];
    files.extend((1..plain.len()).map(|at| vec![&plain[..at], &plain[at..]]));
    files.push(plain.chunks(1).collect());
    for members in files {
        let path = packed(dir.path(), "lines.gz", &members);
        let source = text::lines(&job(dir.path()), &path);
        let read = check_positions(&source, &source.splits().unwrap()[0]);
        let lines: Vec<_> = read.iter().map(|line| (line.number, line.text().unwrap())).collect();
        let expected = ["one", "two", "", "four, which is longer", "five"];
        assert_eq!(lines, (1..).zip(expected).collect::<Vec<_>>(), "{} members", members.len());
    }
}

#[test]
fn rows_of_packed_files_are_read_and_found_again_with_their_header() {
    let dir = tempfile::tempdir().unwrap();
    let members: [&[u8]; 3] = [b"n,word\n1,\"a\nb\"\n2", b",two\n", b"\n3,three\n"];
    let path = packed(dir.path(), "rows.csv.gz", &members);
    let source = csv::rows(&job(dir.path()), &path).typed::<(u64, String)>();
    let rows = check_positions(&source, &source.splits().unwrap()[0]);
    let rows: Vec<_> = rows.into_iter().map(Result::unwrap).collect();
    assert_eq!(rows, [(1, "a\nb".to_string()), (2, "two".to_string()), (3, "three".to_string())]);
    let plain = dir.path().join("rows.csv");
    write_file(&plain, &members.concat());
    let line_of = |path: &Path| {
        let source = csv::rows(&job(dir.path()), path);
        let mut reader = open(&source, path.to_str().unwrap(), None);
        drain(reader.as_mut(), 2).unwrap().0.into_iter().map(|row| row.line).collect::<Vec<_>>()
    };
    assert_eq!(line_of(&path), line_of(&plain), "rows stand on the same lines");
}

#[test]
fn a_place_far_inside_a_large_member_is_reached_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let line = [&[b'x'; 4095][..], b"\n"].concat();
    let path = packed(dir.path(), "large.gz", &[&line.repeat(8_000)]);
    let source = text::lines(&job(dir.path()), &path);
    let split = path.to_str().unwrap();
    let mut reader = open(&source, split, None);
    let mut read = vec![];
    while read.len() < 7_500 {
        reader.read(&mut read, 500).unwrap();
    }
    let mut resumed = open(&source, split, Some(&reader.position()));
    let (mut rest, mut steps) = (vec![], 0);
    while rest.is_empty() {
        assert_eq!(resumed.position(), reader.position(), "it stands where it stood while it is on its way");
        resumed.read(&mut rest, 500).unwrap();
        steps += 1;
    }
    assert!(steps > 3, "30 MB were unpacked in {steps} steps");
    assert_eq!((rest.len(), rest[0].number), (500, 7_501));
}

#[test]
fn a_file_that_is_cut_off_anywhere_or_has_a_flipped_bit_says_so_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..200).map(|n| format!("line {n} of {}\n", n * n)).collect();
    let whole = [member(&lines.as_bytes()[..900]), member(&lines.as_bytes()[900..])].concat();
    let good: Vec<&str> = lines.lines().collect();
    let path = dir.path().join("bad.gz");
    let first = member(&lines.as_bytes()[..900]).len();
    let unnoticed = std::cell::Cell::new(0);
    let check = |what: String, bytes: &[u8]| {
        write_file(&path, bytes);
        let source = text::lines(&job(dir.path()), &path);
        let result = source.open(path.to_str().unwrap(), None, Waker::noop()).and_then(|mut reader| {
            let mut read = vec![];
            loop {
                match reader.read(&mut read, 10) {
                    Ok(cutwater_engine::source::Read::More) => {}
                    Ok(end) => return Ok((read, Ok(end))),
                    Err(e) => return Ok((read, Err(e))),
                }
            }
        });
        let error = match result {
            Ok((_, Err(e))) | Err(e) => e,
            // Some bits mean nothing: the rest of the byte in which a member's last block ends.
            Ok((read, Ok(_))) => {
                let lines: Vec<_> = read.iter().map(|line| line.text().unwrap()).collect();
                assert_eq!(lines, good, "{what}");
                unnoticed.set(unnoticed.get() + 1);
                return;
            }
        };
        assert!(error.fatal && error.what.contains("bad.gz"), "{what}: {error}");
        assert!(error.reason.contains("restore"), "{what}: {error}");
    };
    for len in (0..whole.len()).filter(|len| *len != first) {
        check(format!("cut off after {len} bytes"), &whole[..len]);
    }
    // Bytes 4 to 9 of a member's header say when and where it was packed, and are checked by nobody.
    let unchecked = |at: usize| [0, first].iter().any(|begin| (begin + 3..begin + 10).contains(&at));
    for at in (0..whole.len()).filter(|at| !unchecked(*at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        check(format!("a flipped bit in byte {at}"), &bytes);
    }
    check("something else behind the last member".to_string(), &[&whole[..], b"\0\0and more"].concat());
    assert!(unnoticed.get() <= 2, "{} changes were not noticed, and harmed nothing", unnoticed.get());
    write_file(&path, &[&whole[..], &[0; 700]].concat());
    assert_eq!(read_lines(dir.path(), &path).unwrap(), good, "padding is none");
}

#[test]
fn a_packed_file_that_was_changed_refuses_the_position_and_so_does_a_damaged_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = packed(dir.path(), "lines.gz", &[b"one\ntwo\nthree\n"]);
    let source = text::lines(&job(dir.path()), &path);
    let split = path.to_str().unwrap();
    let mut reader = open(&source, split, None);
    reader.read(&mut vec![], 1).unwrap();
    let position = reader.position();
    for len in 0..position.len() {
        assert!(source.open(split, Some(&position[..len]), Waker::noop()).is_err(), "{len} bytes");
    }
    for at in 0..position.len() {
        let mut bad = position.clone();
        bad[at] ^= 0x40;
        // Refused, or it can't be told; never a panic.
        if let Ok(mut reader) = source.open(split, Some(&bad), Waker::noop()) {
            let _ = drain(reader.as_mut(), 10);
        }
    }
    packed(dir.path(), "lines.gz", &[b"one\ntwo\nthree\nfour\n"]);
    let error = source.open(split, Some(&position), Waker::noop()).err().unwrap();
    assert!(error.to_string().contains("the file was changed since it was read"), "{error}");
}
