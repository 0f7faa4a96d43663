//! Which addresses ask how often, from an access log: the streaming twin of
//!
//! ```text
//! awk '{print $1}' access.log | LC_ALL=C sort | uniq -c | LC_ALL=C sort -n
//! ```
//!
//! and equal to it byte for byte: `cargo run --release --example top_ips -- access.log`, or a log on standard input. Nothing is
//! sorted but the counts, so it needs memory for the addresses, not for the log.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use cutwater::connectors::collection::collect;
use cutwater::connectors::{stdin, text};
use cutwater::prelude::*;

#[cfg(feature = "mimalloc")]
cutwater::mimalloc!();

#[derive(Parser)]
struct Args {
    /// The access log; standard input without it
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let Args { file, mut flags } = Args::parse();
    // Standard input can't be read again, and a vector in memory is gone after a crash.
    flags.guarantee.get_or_insert(Promise::AtMostOnce);
    let counts = Arc::new(Mutex::new(Vec::new()));
    let collected = counts.clone();
    let exit = flags.run("top-ips", move |job| {
        let lines = match &file {
            Some(file) => job.source("lines", text::lines(job, file)),
            None => job.source("lines", stdin::lines(job)),
        };
        lines
            .key_value(|line| (first_field(&line.bytes).to_vec(), ()))
            .count_at_end("addresses")
            .sink("counts", collect(collected.clone()));
        Ok(())
    });
    if exit != ExitCode::SUCCESS {
        return exit;
    }
    let counts = std::mem::take(&mut *counts.lock().unwrap_or_else(PoisonError::into_inner));
    match print_sorted(counts) {
        // `| head` has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: standard output: {error}");
            ExitCode::FAILURE
        }
        _ => exit,
    }
}

/// awk's `$1`: what stands between the first blanks.
fn first_field(line: &[u8]) -> &[u8] {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    line.split(is_blank).find(|field| !field.is_empty()).unwrap_or_default()
}

/// As `uniq -c` pads and `sort -n` sorts: by count, equal counts by the bytes of the line.
fn print_sorted(mut counts: Vec<(Vec<u8>, u64)>) -> io::Result<()> {
    counts.sort_unstable_by(|(a, m), (b, n)| m.cmp(n).then_with(|| a.cmp(b)));
    let mut out = BufWriter::new(io::stdout().lock());
    for (address, count) in counts {
        write!(out, "{count:>7} ")?;
        out.write_all(&address)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
