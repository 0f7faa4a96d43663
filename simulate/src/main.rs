//! The campaign's command; see [`cutwater_simulate::campaign`].

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to whoever runs it")]

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use cutwater_platform::Platform;
use cutwater_simulate::Case;
use cutwater_simulate::campaign::{Campaign, Kind, Sums, page};

/// Seeds between two writes of the progress file.
const STRIDE: u64 = 1_000;

/// Strikes a job at crash points and steps of the disk, a million times over, and compares what readers see with what they must.
#[derive(Parser, Debug)]
#[command(name = "cutwater-simulate", version)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Where the result page is written.
    #[arg(long, default_value = "simulation-result.md")]
    result: PathBuf,
    /// Where the sums are kept; a campaign that was stopped goes on from there.
    #[arg(long, default_value = "simulation-progress.txt")]
    progress: PathBuf,
    /// Threads that run seeds; as many as cores by default. Each seed is a world of its own.
    #[arg(long)]
    threads: Option<usize>,
    /// Which cases seeds are made into.
    #[arg(long, value_enum, default_value_t = Kind::All)]
    kind: Kind,
    /// Runs this case alone, twice, and tells its story.
    #[arg(long)]
    replay: Option<Case>,
}

fn main() -> ExitCode {
    // What panics on purpose, at a crash point, is part of a story, and a story is printed when it is wrong.
    std::panic::set_hook(Box::new(|_| {}));
    match campaign(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// True when every case showed what it must.
fn campaign(args: &Args) -> Result<bool, Box<dyn std::error::Error>> {
    let campaign = Campaign::new()?.of(args.kind);
    if let Some(case) = &args.replay {
        let (first, second) = (campaign.one(case), campaign.one(case));
        match &first {
            Ok(one) => {
                println!("case {case}: good; {} lives, struck at {:?}, trace {:016x}", one.lives, one.struck, one.trace)
            }
            Err(story) => println!("{story}"),
        }
        println!("{}", if first == second { "the second run was the same" } else { "THE SECOND RUN DIFFERED" });
        return Ok(first.is_ok() && first == second);
    }
    let platform = Platform::real();
    let files = platform.files.as_ref();
    let end = args.from.saturating_add(args.seeds);
    let begun = Sums::load(files, &args.progress)?.filter(|sums| sums.from == args.from);
    let mut sums = begun.unwrap_or(Sums { from: args.from, next: args.from, ..Sums::default() });
    if sums.next > args.from {
        println!("going on at seed {}, from {}", sums.next, args.progress.display());
    }
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    while sums.next < end {
        let since = platform.clock.monotonic();
        let stride = sums.next..end.min(sums.next + STRIDE);
        let mut more = campaign.range(stride, threads);
        more.seconds = (platform.clock.monotonic() - since).as_millis().div_ceil(1_000) as u64;
        for case in more.failed.keys() {
            println!("FAILED; replay: cargo run --release -p cutwater-simulate -- --replay {case}");
        }
        sums.merge(more);
        Sums::replace(files, &args.progress, &sums.to_text())?;
        println!(
            "seeds {} to {}: {} good, {} failed, {} lives",
            sums.from,
            sums.next - 1,
            sums.good,
            sums.failed.len(),
            sums.lives
        );
    }
    let date = jiff::Timestamp::from_millisecond(platform.clock.wall().0)?;
    Sums::replace(files, &args.result, &page(&sums, &commit(), &date.strftime("%F %T UTC").to_string()))?;
    println!("{} is written", args.result.display());
    Ok(sums.failed.is_empty())
}

/// The commit of the source tree, and whether it was changed since; "unknown" outside a repository.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return "unknown".to_string() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changed) if changed.is_empty() => commit,
        _ => format!("{commit}, with changes that aren't committed"),
    }
}
