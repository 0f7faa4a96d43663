//! Counts the words of a text file: `cargo run --release --example word_count -- README.md`
//!
//! Reads lines, makes words of them, brings equal words together on one worker, and prints each with its count once the file
//! has ended.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cutwater::connectors::print::print_with;
use cutwater::connectors::text;
use cutwater::prelude::*;

#[derive(Parser)]
struct Args {
    /// The text
    file: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let Args { file, mut flags } = Args::parse();
    // Nobody can take back what a terminal shows. Write to `job.log()` instead of printing, and leave this out.
    flags.guarantee.get_or_insert(Promise::AtMostOnce);
    flags.run("word-count", move |job| {
        job.source("lines", text::lines(job, &file))
            .flat_map(|line| line.to_string().split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .key_value(|word| (word, ()))
            .count_at_end("words")
            .sink("out", print_with(|(word, count)| format!("{count} {word}")));
        Ok(())
    })
}
