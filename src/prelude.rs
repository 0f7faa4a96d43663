//! The one import of a job: handles, operators, the log, codecs, options, errors.

pub use cutwater_engine::config::{Alignment, Compression, Guarantee, Limits, Options, Snapshots};
pub use cutwater_engine::element::Rejected;
pub use cutwater_engine::error::{BuildError, RunError};
pub use cutwater_engine::exchange::{CanonicalKey, KeySink};
pub use cutwater_engine::graph::{Job, Keyed, Stream, Timed, Untimed};
pub use cutwater_engine::observe::{Control, Report};
pub use cutwater_engine::time::{EventTime, WallTime};
pub use cutwater_operators::prelude::*;
pub use cutwater_platform::Platform;
pub use cutwater_sources_sinks::codec::{Bytes, Csv, Json, Text};
pub use cutwater_sources_sinks::log::{BrokerPlace, JobLog, LogHandle, LogPlace, LogRecord};

pub use crate::face::{Flags, Promise};
