//! Ways in and out of a job: connectors and codecs.
//!
//! | connector | in | out | guarantee | a restore replays | commit means |
//! |---|---|---|---|---|---|
//! | [`log`] | records of topics | records in topics | any | from the offset, read-committed | one atomic write of the log |
//! | [`files`] | | rows in files of a folder | any | | one rename shows a checkpoint |
//! | [`text`] | lines of files, gzip too | | any | from the line | |
//! | [`csv`] | rows of files, gzip too | | any | from the row | |
//! | [`generator`] | made records | | any | from the number | |
//! | [`stdin`] | lines | | at-most-once | nothing | |
//! | [`collection`] | a vector | a vector | at-most-once | nothing | |
//! | [`print`](mod@print) | | standard output | at-most-once, at-least-once | | |
//!
//! Each connector's file opens with the same four lines: guarantee, position, what is staged at a barrier, what commit does.
//! [`codec`] turns records into bytes and back.

#![forbid(unsafe_code)]

pub mod codec;
pub mod collection;
pub mod csv;
pub mod files;
pub mod generator;
pub mod log;
pub mod print;
pub mod stdin;
pub mod text;

mod file;
mod gzip;
mod position;
