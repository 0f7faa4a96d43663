//! Where a job's log is: the one decision that makes several jobs share topics, and none of the job's code.

use std::fmt;

use cutwater_engine::config::Options;
use cutwater_engine::graph::Environment;
use cutwater_secure::{BrokerPlace, PlaceError};

use super::NAME;

/// Where the topics of a job are.
///
/// ```
/// use cutwater_engine::config::Options;
/// use cutwater_sources_sinks::log::{BrokerPlace, LogPlace};
///
/// let mut options = Options::new("delays", "data/delays");
/// LogPlace::Broker(BrokerPlace::plain("127.0.0.1:9092")).choose(&mut options);
/// // Over TLS, as a user whose password is in the environment (CUTWATER_BROKER_PASSWORD) or in a file.
/// let place = "tls://alice@log.example.org:9093?ca=ca.pem&password-file=alice.txt".parse()?;
/// LogPlace::Broker(place).choose(&mut options);
/// # Ok::<(), cutwater_sources_sinks::log::PlaceError>(())
/// ```
///
/// What is set in the options has no secret in it: files and variables are named there, and read when a connection is made.
///
/// The job's checkpoints stay in its own data directory either way. A job that has checkpoints goes on with the log that it began
/// with: the broker must serve the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogPlace {
    /// In the job's data directory, for this job alone.
    #[default]
    Embedded,
    /// Behind this broker (`cutwater broker`): shared with all jobs and Kafka clients that it serves.
    Broker(BrokerPlace),
}

impl LogPlace {
    /// Has `job.log()` of a run with these options be this log.
    pub fn choose(&self, options: &mut Options) {
        match self {
            LogPlace::Embedded => options.places.remove(NAME),
            LogPlace::Broker(place) => options.places.insert(NAME.to_string(), place.to_string()),
        };
    }

    /// Where the log of a run is.
    pub(super) fn of(environment: &Environment) -> Result<LogPlace, PlaceError> {
        environment.places.get(NAME).map_or(Ok(LogPlace::Embedded), |place| place.parse().map(LogPlace::Broker))
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogPlace::Embedded => f.write_str("in the data directory"),
            LogPlace::Broker(place) => write!(f, "at {place}"),
        }
    }
}
