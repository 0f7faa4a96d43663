//! `cutwater broker user`: the users of a log, whether or not a broker runs on it.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use cutwater_broker::{AccessError, Users};
use cutwater_platform::{IoContext, IoError, Platform};
use thiserror::Error;
use zeroize::Zeroizing;

/// No password is longer.
const PASSWORD_BYTES_MAX: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add a user, or give one another password. The password is read from standard input, or from a file; never from the command line.
    Add {
        /// The user's name.
        name: String,
        #[command(flatten)]
        data: Data,
        /// A file that holds the password and nothing else but perhaps a line's end.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Remove a user. Its connections end at their next request.
    Remove {
        /// The user's name.
        name: String,
        #[command(flatten)]
        data: Data,
    },
    /// List all users, one a line.
    List {
        #[command(flatten)]
        data: Data,
    },
}

#[derive(Debug, Args)]
struct Data {
    /// The log's directory. A broker that runs there takes changes over within seconds.
    #[arg(long = "data", value_name = "DIR", env = "CUTWATER_DATA")]
    dir: PathBuf,
}

#[derive(Debug, Error)]
pub(crate) enum UserError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    File(#[from] IoError),
    #[error("the password can't be read from standard input: {0}")]
    Stdin(std::io::Error),
    #[error("the password has more than {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    #[error("there is no user \"{0}\"")]
    Unknown(String),
}

pub(crate) fn run(arguments: &UserArguments) -> Result<(), UserError> {
    let platform = Platform::real();
    match &arguments.command {
        UserCommand::Add { name, data, password_file } => {
            let password = password(&platform, password_file.as_ref())?;
            Users::open(&platform, &data.dir)?.set_password(name, &password)?;
            tracing::info!(user = ?name, "the user is kept");
        }
        UserCommand::Remove { name, data } => {
            if !Users::open(&platform, &data.dir)?.remove(name)? {
                return Err(UserError::Unknown(name.clone()));
            }
            tracing::info!(user = ?name, "the user is removed");
        }
        UserCommand::List { data } => print(&Users::open(&platform, &data.dir)?.names()),
    }
    Ok(())
}

/// What stands in the file, or comes from standard input, without the end of its line. Wiped when it is dropped.
fn password(platform: &Platform, file: Option<&PathBuf>) -> Result<Zeroizing<Vec<u8>>, UserError> {
    // Room for all of it from the beginning, so that no part stays behind in memory that it has grown out of.
    let mut password = Zeroizing::new(Vec::with_capacity(PASSWORD_BYTES_MAX + 2));
    match file {
        Some(path) => {
            let bytes = platform.files.read(path, PASSWORD_BYTES_MAX as u64 + 1).at("read the password", path)?;
            password.extend_from_slice(&Zeroizing::new(bytes));
        }
        None => {
            let mut input = std::io::stdin().lock().take(PASSWORD_BYTES_MAX as u64 + 2);
            input.read_to_end(&mut password).map_err(UserError::Stdin)?;
        }
    }
    for end in [b'\n', b'\r'] {
        if password.last() == Some(&end) {
            password.pop();
        }
    }
    if password.len() > PASSWORD_BYTES_MAX { Err(UserError::TooLong) } else { Ok(password) }
}

#[expect(clippy::print_stdout, reason = "the names are what this command answers")]
fn print(names: &[String]) {
    names.iter().for_each(|name| println!("{name}"));
}
