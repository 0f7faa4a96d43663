//! Where a broker listens, how it is protected there, and what its clients are told about it.
//!
//! The one rule that must hold is in [`Listen::check`], which is pure: an address that other machines can reach is served
//! only where TLS hides what is said and something proves who says it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::options::Security;

/// One address, as `--listen` takes it: `[SCHEME://]ADDRESS[=HOST:PORT]`.
///
/// | scheme | on the wire |
/// |---|---|
/// | `plain://`, or none | as it is; loopback addresses alone |
/// | `tls://` | TLS; public addresses only if clients must show certificates |
/// | `sasl-tls://` | TLS, and clients must prove who they are, by SCRAM |
/// | `sasl://` | as `sasl-tls://`, without TLS; loopback addresses alone |
///
/// Behind `=` stands what clients are told to connect to; needed where they can't know the address itself by that name, as
/// behind `0.0.0.0`.
///
/// ```
/// use cutwater_broker::Listen;
/// let listen: Listen = "tls://0.0.0.0:9093=log.example.org:9093".parse()?;
/// assert!(listen.tls && listen.address.port() == 9093);
/// assert_eq!(listen.advertised, Some(("log.example.org".to_string(), 9093)));
/// assert!("ftp://127.0.0.1:9092".parse::<Listen>().is_err());
/// # Ok::<(), cutwater_broker::ListenParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Whether clients must prove who they are.
    pub sasl: bool,
    /// Host and port that clients are told, if not the address itself. Port 0 stands for the port that is listened on.
    pub advertised: Option<(String, u16)>,
}

/// What was asked for is no place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenParseError {
    /// There is no such scheme.
    #[error("\"{scheme}://\" is no scheme; there are {SCHEMES}")]
    Scheme {
        /// What stood before `://`.
        scheme: String,
    },
    /// Not an IP address and a port.
    #[error("\"{address}\" is no IP address with a port, such as 127.0.0.1:9092 or [::1]:9092")]
    Address {
        /// What stood there.
        address: String,
    },
    /// What clients shall be told is no host and port.
    #[error("clients can't be told \"{advertised}\": behind = stands a host and a port, such as log.example.org:9093")]
    Advertised {
        /// What stood behind `=`.
        advertised: String,
    },
}

const SCHEMES: &str = "plain://, tls://, sasl-tls:// and sasl://";

/// A listener that would be open to strangers, or that nobody could connect to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenError {
    /// Others could listen in.
    #[error(
        "{listen} can be reached from other machines and has no TLS, so that everybody on the way could read and change \
         what is said: use a loopback address such as 127.0.0.1:9092, or sasl-tls://"
    )]
    PublicWithoutTls {
        /// What was asked for.
        listen: Listen,
    },
    /// Everybody could connect.
    #[error(
        "{listen} can be reached from other machines and nothing there proves who connects: use sasl-tls://, so that \
         clients need a user's password, or give --tls-client-ca, so that they must show a certificate"
    )]
    PublicWithoutAuthentication {
        /// What was asked for.
        listen: Listen,
    },
    /// There is no certificate.
    #[error("{listen} has TLS, and there is no certificate: give --tls-cert FILE and --tls-key FILE")]
    NoCertificate {
        /// What was asked for.
        listen: Listen,
    },
    /// Certificates shall name users, and nobody vouches for them.
    #[error("certificates can name users only where somebody vouches for them: give --tls-client-ca FILE")]
    NoVoucher,
    /// Nobody could prove who they are.
    #[error(
        "users or rights are asked for, and it isn't said where they are kept: set `Security::data` to the log's directory"
    )]
    NothingKept,
    /// Clients would be told to connect to nowhere.
    #[error("clients can't connect to {}: say by which name they find {listen}, as {listen}=HOST:PORT", listen.address.ip())]
    NoName {
        /// What was asked for.
        listen: Listen,
    },
}

impl Listen {
    /// At this address, without TLS.
    pub fn plain(address: SocketAddr) -> Listen {
        Listen { address, tls: false, sasl: false, advertised: None }
    }

    /// Whether a broker may listen so.
    ///
    /// # Errors
    /// It would be open to strangers, or nobody could connect to it; the error says what to do.
    pub fn check(&self, security: &Security) -> Result<(), ListenError> {
        let listen = || self.clone();
        let public = !self.address.ip().is_loopback();
        let proves = self.sasl || (self.tls && security.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));
        match self {
            _ if security.certificate_names.is_some()
                && security.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) =>
            {
                Err(ListenError::NoVoucher)
            }
            _ if public && !self.tls => Err(ListenError::PublicWithoutTls { listen: listen() }),
            _ if self.tls && security.tls.is_none() => Err(ListenError::NoCertificate { listen: listen() }),
            _ if (self.sasl || security.authorize) && security.data.is_none() => Err(ListenError::NothingKept),
            _ if public && !proves => Err(ListenError::PublicWithoutAuthentication { listen: listen() }),
            _ if self.address.ip().is_unspecified() && self.advertised.is_none() => {
                Err(ListenError::NoName { listen: listen() })
            }
            _ => Ok(()),
        }
    }

    /// Host and port that clients are told, when it listens on `bound`.
    pub(crate) fn told(&self, bound: SocketAddr) -> (String, u16) {
        match &self.advertised {
            Some((host, 0)) => (host.clone(), bound.port()),
            Some((host, port)) => (host.clone(), *port),
            None => (bound.ip().to_string(), bound.port()),
        }
    }
}

impl FromStr for Listen {
    type Err = ListenParseError;

    fn from_str(text: &str) -> Result<Listen, ListenParseError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("plain", text));
        let (tls, sasl) = match scheme {
            "plain" => (false, false),
            "tls" => (true, false),
            "sasl-tls" => (true, true),
            "sasl" => (false, true),
            _ => return Err(ListenParseError::Scheme { scheme: scheme.to_string() }),
        };
        let (address, advertised) = match rest.split_once('=') {
            None => (rest, None),
            Some((address, told)) => {
                let wrong = || ListenParseError::Advertised { advertised: told.to_string() };
                let (host, port) = told.rsplit_once(':').ok_or_else(wrong)?;
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                let port = port.parse().map_err(|_| wrong())?;
                if host.is_empty() || host.contains(char::is_whitespace) || host.len() > 255 {
                    return Err(wrong());
                }
                (address, Some((host.to_string(), port)))
            }
        };
        let wrong = |_| ListenParseError::Address { address: address.to_string() };
        Ok(Listen { address: address.parse().map_err(wrong)?, tls, sasl, advertised })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.tls, self.sasl) {
            (false, false) => "plain",
            (true, false) => "tls",
            (true, true) => "sasl-tls",
            (false, true) => "sasl",
        };
        write!(f, "{scheme}://{}", self.address)?;
        match &self.advertised {
            Some((host, port)) if host.contains(':') => write!(f, "=[{host}]:{port}"),
            Some((host, port)) => write!(f, "={host}:{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TlsFiles;

    fn security(certificate: bool, client_ca: bool) -> Security {
        let tls = TlsFiles { certificate: "c".into(), key: "k".into(), client_ca: client_ca.then(|| "ca".into()) };
        Security { tls: certificate.then_some(tls), data: Some("d".into()), ..Security::default() }
    }

    /// Over all addresses and protections: only what is hidden and proved is open to other machines.
    #[test]
    fn what_other_machines_can_reach_has_tls_and_authentication_or_is_refused() {
        for address in
            ["127.0.0.1:1", "[::1]:1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "192.168.1.1:1", "[2001:db8::1]:1"]
        {
            for scheme in ["plain", "tls", "sasl", "sasl-tls"] {
                for (certificate, client_ca) in [(false, false), (true, false), (true, true)] {
                    let listen: Listen = format!("{scheme}://{address}=a.b:1").parse().expect("a listener");
                    let checked = listen.check(&security(certificate, client_ca));
                    let loopback = ["127.0.0.1:1", "[::1]:1"].contains(&address);
                    let (tls, sasl) = (scheme.ends_with("tls"), scheme.starts_with("sasl"));
                    let right = (loopback || (tls && (client_ca || sasl))) && (!tls || certificate);
                    assert_eq!(
                        checked.is_ok(),
                        right,
                        "{listen}, certificate {certificate}, CA {client_ca}: {checked:?}"
                    );
                    if let Err(error) = checked {
                        assert!(error.to_string().contains(address), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_said_to_clients_is_an_address_that_they_can_use() {
        let any: Listen = "tls://0.0.0.0:9093".parse().expect("a listener");
        let refused = any.check(&security(true, true)).expect_err("nobody can connect to 0.0.0.0");
        assert!(refused.to_string().contains("=HOST:PORT"), "{refused}");
        let bound: SocketAddr = "0.0.0.0:4711".parse().expect("an address");
        let told = |text: &str| text.parse::<Listen>().expect("a listener").told(bound);
        assert_eq!(told("tls://0.0.0.0:0=log.example.org:0"), ("log.example.org".to_string(), 4711));
        assert_eq!(told("tls://0.0.0.0:0=[::1]:99"), ("::1".to_string(), 99));
        let plain = Listen::plain("127.0.0.1:0".parse().expect("an address"));
        assert_eq!(plain.told("127.0.0.1:5".parse().expect("an address")), ("127.0.0.1".to_string(), 5));
    }

    #[test]
    fn a_listener_is_read_as_it_is_written() {
        for text in [
            "plain://127.0.0.1:9092",
            "sasl://127.0.0.1:9092",
            "sasl-tls://127.0.0.1:9092",
            "tls://[::1]:9093",
            "tls://0.0.0.0:1=log.example.org:2",
            "tls://[::]:1=[::2]:2",
        ] {
            assert_eq!(text.parse::<Listen>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "nowhere",
            "127.0.0.1",
            "tsl://127.0.0.1:1",
            "127.0.0.1:1=",
            "127.0.0.1:1=host",
            "127.0.0.1:1=:1",
            "127.0.0.1:1=a b:1",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
