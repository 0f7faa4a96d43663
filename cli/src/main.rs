//! The command `cutwater`. Data goes to standard output, everything else to standard error.
//!
//! Exit codes: 0 all went well; 1 what was asked for failed; 2 it was asked for wrongly; 130 interrupted twice.

#![forbid(unsafe_code)]

mod advice;
mod broker;
mod records;
mod users;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

// Requests are made by one thread and dropped by another: the system's allocator spends most of its time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exactly-once dataflow, and the partition log it lives on.
#[derive(Debug, Parser)]
#[command(name = "cutwater", version, arg_required_else_help = true)]
#[command(after_help = "RUST_LOG chooses what is traced on standard error, for example RUST_LOG=cutwater_broker=debug.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted twice.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a partition log to Kafka clients.
    Broker(broker::BrokerArguments),
    /// List the topics of a log that nobody is running on.
    Topics(records::TopicsArguments),
    /// Show the records of a topic in a log that nobody is running on, one a line: what a job has committed.
    Read(records::ReadArguments),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    // Who asks for data wants nothing beside it but what went wrong.
    let usual = if matches!(command, Command::Broker(_)) { "info" } else { "error" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let done = match command {
        Command::Broker(arguments) => broker::run(&arguments).map_err(|e| e.to_string()),
        Command::Topics(arguments) => records::topics(&arguments).map_err(|e| e.to_string()),
        Command::Read(arguments) => records::read(&arguments).map_err(|e| e.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("{why}");
            ExitCode::FAILURE
        }
    }
}
