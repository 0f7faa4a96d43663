//! Where a job's log is: the one decision that makes several jobs share topics, and none of the job's code.

use std::fmt;

use cutwater_engine::config::Options;
use cutwater_engine::graph::Environment;

use super::NAME;

/// Where the topics of a job are.
///
/// ```
/// use cutwater_engine::config::Options;
/// use cutwater_sources_sinks::log::LogPlace;
///
/// let mut options = Options::new("delays", "data/delays");
/// LogPlace::Broker("127.0.0.1:9092".to_string()).choose(&mut options);
/// ```
///
/// The job's checkpoints stay in its own data directory either way. A job that has checkpoints goes on with the log that it began
/// with: the broker must serve the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogPlace {
    /// In the job's data directory, for this job alone.
    #[default]
    Embedded,
    /// Behind the broker (`cutwater broker`) at this address, host and port: shared with all jobs and Kafka clients that it serves.
    Broker(String),
}

impl LogPlace {
    /// Has `job.log()` of a run with these options be this log.
    pub fn choose(&self, options: &mut Options) {
        match self {
            LogPlace::Embedded => options.places.remove(NAME),
            LogPlace::Broker(address) => options.places.insert(NAME.to_string(), address.clone()),
        };
    }

    /// Where the log of a run is.
    pub(super) fn of(environment: &Environment) -> LogPlace {
        environment.places.get(NAME).cloned().map_or(LogPlace::Embedded, LogPlace::Broker)
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlace::Embedded => f.write_str("in the data directory"),
            LogPlace::Broker(address) => write!(f, "at {address}"),
        }
    }
}
