//! What to do about an error of the system, for whoever reads it on a terminal. Pure.

use std::io::ErrorKind;

use cutwater_partition_log::OpenError;

/// What to do if the log's directory can't be used; nothing if the error says it.
pub(crate) fn about_data(error: &OpenError) -> &'static str {
    let OpenError::Io(error) = error else { return "" };
    match error.source.kind() {
        ErrorKind::NotFound => {
            "; --data needs a directory that is there, or that can be made: on a disk of your own, such as --data data/broker (nothing can be \
             made below /proc or /sys)"
        }
        ErrorKind::PermissionDenied => {
            "; this user may not write there: name another directory with --data, or have it given to this user (chown)"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "; that disk is mounted read-only: name a directory on another with --data, or mount it for writing"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "; a file stands where a directory is needed: name another one with --data"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; that disk is full: make room there, or name a directory on another with --data"
        }
        _ => "",
    }
}
