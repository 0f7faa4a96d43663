//! The flags that say where the job's log is, if it is shared: a broker, and what it takes to be let in there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use cutwater_engine::error::RunError;
use cutwater_sources_sinks::log::{BrokerPlace, LogPlace};

/// Where the job's topics are. A password is never a flag: it stands in the environment, in `CUTWATER_BROKER_PASSWORD`, or in a file.
#[derive(Args, Clone, Debug, Default)]
pub struct BrokerFlags {
    /// Have the job's topics behind this broker (`cutwater broker`), shared with other jobs, instead of in the data directory:
    /// HOST:PORT, or tls://HOST:PORT for a listener with TLS [default: in the data directory]
    #[arg(long, value_name = "[tls://]HOST:PORT", env = "CUTWATER_BROKER", hide_env_values = true)]
    pub broker: Option<String>,
    /// With --broker: PEM file with the authorities that vouch for it; needed for tls://
    #[arg(long, value_name = "FILE", env = "CUTWATER_BROKER_CA", hide_env_values = true)]
    pub broker_ca: Option<PathBuf>,
    /// With --broker: who connects, by SCRAM; the password is read from CUTWATER_BROKER_PASSWORD
    #[arg(long, value_name = "NAME", env = "CUTWATER_BROKER_USER", hide_env_values = true)]
    pub broker_user: Option<String>,
    /// With --broker-user: read the password from this file instead
    #[arg(long, value_name = "FILE", env = "CUTWATER_BROKER_PASSWORD_FILE", hide_env_values = true)]
    pub broker_password_file: Option<PathBuf>,
    /// With --broker-user: SCRAM-SHA-512 or SCRAM-SHA-256 [default: SCRAM-SHA-512]
    #[arg(long, value_name = "NAME", env = "CUTWATER_BROKER_MECHANISM", hide_env_values = true)]
    pub broker_mechanism: Option<String>,
    /// With --broker: PEM file with a certificate to show there
    #[arg(long, value_name = "FILE", env = "CUTWATER_BROKER_CERT", hide_env_values = true)]
    pub broker_cert: Option<PathBuf>,
    /// With --broker-cert: PEM file with its key
    #[arg(long, value_name = "FILE", env = "CUTWATER_BROKER_KEY", hide_env_values = true)]
    pub broker_key: Option<PathBuf>,
}

impl BrokerFlags {
    /// The place that is named.
    ///
    /// # Errors
    /// [`RunError::Options`]: it is none, or the flags don't go together.
    pub fn place(&self) -> Result<LogPlace, RunError> {
        let said: Vec<(&str, &OsStr)> = [
            ("user", self.broker_user.as_deref().map(OsStr::new)),
            ("mechanism", self.broker_mechanism.as_deref().map(OsStr::new)),
            ("password-file", self.broker_password_file.as_deref().map(Path::as_os_str)),
            ("ca", self.broker_ca.as_deref().map(Path::as_os_str)),
            ("cert", self.broker_cert.as_deref().map(Path::as_os_str)),
            ("key", self.broker_key.as_deref().map(Path::as_os_str)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let refused = |what: String| RunError::Options(what);
        match (&self.broker, said.first()) {
            (None, None) => Ok(LogPlace::Embedded),
            (None, Some((name, _))) => {
                Err(refused(format!("--broker-{name} says how to come to a broker, and none is named: say --broker")))
            }
            (Some(address), _) => BrokerPlace::read(address, &said)
                .map(LogPlace::Broker)
                .map_err(|error| refused(format!("--broker: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_name_a_place_or_say_what_is_missing() {
        assert_eq!(BrokerFlags::default().place().expect("none"), LogPlace::Embedded);
        let plain = BrokerFlags { broker: Some("127.0.0.1:9092".to_string()), ..BrokerFlags::default() };
        assert_eq!(plain.place().expect("a place"), LogPlace::Broker(BrokerPlace::plain("127.0.0.1:9092")));
        let all = BrokerFlags {
            broker: Some("tls://log.example.org:9093".to_string()),
            broker_ca: Some("ca.pem".into()),
            broker_user: Some("alice".to_string()),
            broker_password_file: Some("alice.txt".into()),
            broker_mechanism: Some("SCRAM-SHA-256".to_string()),
            broker_cert: Some("c".into()),
            broker_key: Some("k".into()),
        };
        let text = "sasl-tls://alice@log.example.org:9093?ca=ca.pem&password-file=alice.txt&mechanism=SCRAM-SHA-256&cert=c&key=k";
        assert_eq!(all.place().expect("a place"), LogPlace::Broker(text.parse().expect("a place")));
        for (flags, said) in [
            (BrokerFlags { broker: None, ..all.clone() }, "--broker"),
            (BrokerFlags { broker_ca: None, ..all.clone() }, "--broker-ca"),
            (BrokerFlags { broker_user: None, ..all.clone() }, "needs a user"),
            (BrokerFlags { broker_key: None, ..all.clone() }, "both"),
            (BrokerFlags { broker: Some("log.example.org:9093".to_string()), ..all.clone() }, "tls://"),
        ] {
            let error = flags.place().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
