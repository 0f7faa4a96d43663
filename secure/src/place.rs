//! A broker's address with all that it takes to be let in, as text and as options of the log's client. Pure but for
//! [`BrokerPlace::options`], which reads nothing yet either.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cutwater_partition_log::remote::RemoteOptions;
use cutwater_platform::Platform;
use thiserror::Error;

use crate::scram::{Mechanism, Scram};

/// The variable of the environment that holds a user's password, if nothing else is said.
pub const PASSWORD_VARIABLE: &str = "CUTWATER_BROKER_PASSWORD";

/// Where a broker is, and what it takes to come in.
///
/// As text: `[SCHEME://][USER@]HOST:PORT[?OPTION=VALUE&...]`. A scheme is what the broker's listener has: `plain://` (or none), `tls://`,
/// `sasl-tls://` and `sasl://`; whoever names a user is asked for it under each of them. Options, with `%` as in URLs:
///
/// | option | value |
/// |---|---|
/// | `user` | as before `@` |
/// | `ca` | PEM file with the authorities that vouch for the broker; needed for TLS |
/// | `name` | the name that the broker's certificate has, if it isn't the host |
/// | `cert`, `key` | PEM files with a certificate to show, and its key |
/// | `password-file`, `password-env` | where the user's password is: a file, or a variable of the environment ([`PASSWORD_VARIABLE`] by default) |
/// | `mechanism` | `SCRAM-SHA-512` (the default) or `SCRAM-SHA-256` |
///
/// ```
/// use cutwater_secure::BrokerPlace;
/// let place: BrokerPlace = "tls://alice@log.example.org:9093?ca=/etc/log/ca.pem".parse()?;
/// assert_eq!(place.address, "log.example.org:9093");
/// assert_eq!(place.user.as_ref().map(|user| user.name.as_str()), Some("alice"));
/// assert_eq!(place.to_string().parse(), Ok(place));
/// assert!("tls://alice:secret@log.example.org:9093".parse::<BrokerPlace>().is_err());
/// # Ok::<(), cutwater_secure::PlaceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerPlace {
    /// Host and port, with a colon between them.
    pub address: String,
    /// How TLS is spoken, if it is.
    pub tls: Option<TlsPlace>,
    /// Who connects, if that is asked.
    pub user: Option<UserPlace>,
}

/// What TLS needs. Files are read for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsPlace {
    /// PEM file with the certificates of the authorities that vouch for the broker.
    pub ca: PathBuf,
    /// The name that its certificate has, if it isn't the host of the address.
    pub name: Option<String>,
    /// PEM files with a certificate to show, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Who connects, and how that is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserPlace {
    /// The user's name.
    pub name: String,
    /// The hash of SCRAM.
    pub mechanism: Mechanism,
    /// Where the password is.
    pub password: PasswordFrom,
}

impl UserPlace {
    /// A user whose password is in the environment, in [`PASSWORD_VARIABLE`], and who proves it by SCRAM-SHA-512.
    pub fn new(name: impl Into<String>) -> UserPlace {
        let password = PasswordFrom::Environment(PASSWORD_VARIABLE.to_string());
        UserPlace { name: name.into(), mechanism: Mechanism::Sha512, password }
    }
}

/// Where a password is. Read for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordFrom {
    /// In this variable of the environment.
    Environment(String),
    /// In this file, without the end of its line.
    File(PathBuf),
}

/// What was given is no place of a broker. Errors repeat no more than a name: somebody may have put a secret where none belongs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// There is no such scheme.
    #[error("\"{scheme}://\" is no way to a broker; there are plain://, tls://, sasl-tls:// and sasl://")]
    Scheme {
        /// What stood before `://`.
        scheme: String,
    },
    /// Not a host and a port.
    #[error("a broker is named by host and port, such as log.example.org:9093 or [::1]:9092; this is neither")]
    Address,
    /// A password stands in the address.
    #[error(
        "a password doesn't belong in an address, which others can read: put it into a file (--broker-password-file) or into the environment \
         ({PASSWORD_VARIABLE})"
    )]
    Password,
    /// There is no such option, or it can't have this value.
    #[error("behind the broker's address, \"{option}\" {what}")]
    Option {
        /// Its name.
        option: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Nobody vouches for the broker.
    #[error(
        "TLS needs to know who vouches for the broker: name a PEM file with the certificate of the authority that issued the broker's \
         (--broker-ca FILE; the system's own authorities are often in /etc/ssl/certs/ca-certificates.crt)"
    )]
    NoAuthority,
    /// A scheme that asks for a user, and none is named.
    #[error("{scheme}:// asks who connects: name a user (--broker-user NAME)")]
    NoUser {
        /// The scheme.
        scheme: &'static str,
    },
    /// Something that belongs to TLS, without TLS.
    #[error("{what} belongs to TLS: name the broker as tls://HOST:PORT")]
    NoTls {
        /// What was given.
        what: &'static str,
    },
    /// Proving who one is where everybody on the way can listen in.
    #[error(
        "{address} may be on another machine, and without TLS everybody on the way could guess at the password and write in the user's name: \
         name the broker as tls://HOST:PORT"
    )]
    Exposed {
        /// The address.
        address: String,
    },
    /// This program was built without TLS.
    #[error("this program was built without TLS: build it with the feature \"tls\"")]
    Without,
}

impl BrokerPlace {
    /// At this address, host and port, without TLS and where nobody asks who connects.
    pub fn plain(address: impl Into<String>) -> BrokerPlace {
        BrokerPlace { address: address.into(), tls: None, user: None }
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// It names no host and port, or what it names can't be safe.
    pub fn check(&self) -> Result<(), PlaceError> {
        let (host, port) = self.address.rsplit_once(':').ok_or(PlaceError::Address)?;
        let strange = |c: char| c.is_whitespace() || c.is_control() || "/@?&=%".contains(c);
        if host.is_empty() || host.contains(strange) || port.parse::<u16>().is_err() {
            return Err(PlaceError::Address);
        }
        match &self.tls {
            Some(tls) if tls.ca.as_os_str().is_empty() => Err(PlaceError::NoAuthority),
            Some(_) if cfg!(not(feature = "tls")) => Err(PlaceError::Without),
            None if self.user.is_some() && !is_here(host) => Err(PlaceError::Exposed { address: self.address.clone() }),
            _ => Ok(()),
        }
    }

    /// What the log's client needs to connect there. Files and variables are looked at with the first connection.
    ///
    /// # Errors
    /// As [`BrokerPlace::check`].
    pub fn options(&self, platform: &Platform, client: &str) -> Result<RemoteOptions, PlaceError> {
        self.check()?;
        let mut options = RemoteOptions::new(&self.address, client);
        if let Some(user) = &self.user {
            options.user = Some(std::sync::Arc::new(Scram::new(user.clone(), platform)));
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            options.net = Some(std::sync::Arc::new(crate::tls::TlsNet::new(tls.clone(), platform)));
        }
        Ok(options)
    }
}

/// Whether a host is this machine, by its name alone.
fn is_here(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl FromStr for BrokerPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<BrokerPlace, PlaceError> {
        BrokerPlace::read(text, &[])
    }
}

impl BrokerPlace {
    /// Reads a place, with options that are said elsewhere, by flags say: names as above and `user`, values as they are. They win.
    ///
    /// # Errors
    /// It is none, or what it names can't be safe.
    pub fn read(text: &str, more: &[(&str, &OsStr)]) -> Result<BrokerPlace, PlaceError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("plain", text));
        let (tls, asks) = match scheme {
            "plain" => (false, None),
            "tls" => (true, None),
            "sasl" => (false, Some("sasl")),
            "sasl-tls" => (true, Some("sasl-tls")),
            // Whatever it is, it may hold what nobody should see.
            _ if scheme.contains(['@', ':', '?']) => return Err(PlaceError::Address),
            _ => return Err(PlaceError::Scheme { scheme: scheme.to_string() }),
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, address) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((user, _)) if user.contains(':') => return Err(PlaceError::Password),
            Some((user, address)) => (Some(read_escaped("user", user)?), address),
        };
        let mut place = BrokerPlace { address: address.to_string(), tls: tls.then(TlsPlace::default), user: None };
        let given = |name: &str| more.iter().any(|(other, _)| *other == name);
        if let Some(user) = user.filter(|_| !given("user")) {
            place.take("user", &user)?;
        }
        more.iter()
            .filter(|(name, _)| *name == "user")
            .try_for_each(|(name, user)| place.take(name, user.as_bytes()))?;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if !given(name) {
                place.take(name, &read_escaped(name, value)?)?;
            }
        }
        let others = more.iter().filter(|(name, _)| *name != "user");
        others.clone().try_for_each(|(name, value)| place.take(name, value.as_bytes()))?;
        if place.tls.as_ref().and_then(|tls| tls.certificate.as_ref()).is_some_and(half) {
            return Err(wrong("cert", "and \"key\" belong together: name both"));
        }
        if let Some(scheme) = asks.filter(|_| place.user.is_none()) {
            return Err(PlaceError::NoUser { scheme });
        }
        place.check()?;
        Ok(place)
    }

    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), PlaceError> {
        let path = || PathBuf::from(OsString::from_vec(value.to_vec()));
        let text = || String::from_utf8(value.to_vec()).map_err(|_| wrong(name, "must be text"));
        if value.is_empty() {
            return Err(wrong(name, "is empty"));
        }
        match name {
            "user" => self.user = Some(UserPlace::new(text()?)),
            "ca" => self.tls("ca")?.ca = path(),
            "name" => self.tls("name")?.name = Some(text()?),
            "cert" => self.tls("cert")?.certificate.get_or_insert_default().0 = path(),
            "key" => self.tls("key")?.certificate.get_or_insert_default().1 = path(),
            "password-file" => self.user(name)?.password = PasswordFrom::File(path()),
            "password-env" => self.user(name)?.password = PasswordFrom::Environment(text()?),
            "mechanism" => {
                let named = Mechanism::named(&text()?);
                self.user(name)?.mechanism = named.ok_or(wrong(name, "is SCRAM-SHA-512 or SCRAM-SHA-256"))?;
            }
            "password" => return Err(PlaceError::Password),
            _ => {
                return Err(wrong(
                    name,
                    "is no option; there are user, ca, name, cert, key, password-file, password-env, mechanism",
                ));
            }
        }
        Ok(())
    }

    fn tls(&mut self, what: &'static str) -> Result<&mut TlsPlace, PlaceError> {
        self.tls.as_mut().ok_or(PlaceError::NoTls { what })
    }

    fn user(&mut self, option: &str) -> Result<&mut UserPlace, PlaceError> {
        self.user.as_mut().ok_or_else(|| wrong(option, "needs a user: USER@HOST:PORT"))
    }
}

fn half((certificate, key): &(PathBuf, PathBuf)) -> bool {
    certificate.as_os_str().is_empty() || key.as_os_str().is_empty()
}

fn wrong(option: &str, what: &'static str) -> PlaceError {
    PlaceError::Option { option: option.to_string(), what }
}

/// What `%` and two digits stand for is put in their place.
fn read_escaped(option: &str, text: &str) -> Result<Vec<u8>, PlaceError> {
    let bad = || wrong(option, "has a % without two hexadecimal digits behind it");
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>().ok_or_else(bad)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()));
        bytes.push(u8::from_str_radix(digits.ok_or_else(bad)?, 16).map_err(|_| bad())?);
        rest = behind;
    }
    Ok(bytes)
}

struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => {
                    write!(f, "{}", byte as char)?
                }
                other => write!(f, "%{other:02X}")?,
            }
        }
        Ok(())
    }
}

fn escaped(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_bytes())
}

impl fmt::Display for BrokerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "tls://" } else { "plain://" })?;
        if let Some(user) = &self.user {
            write!(f, "{}@", Escaped(user.name.as_bytes()))?;
        }
        f.write_str(&self.address)?;
        let mut options = vec![];
        if let Some(tls) = &self.tls {
            options.push(format!("ca={}", escaped(&tls.ca)));
            options.extend(tls.name.as_ref().map(|name| format!("name={}", Escaped(name.as_bytes()))));
            if let Some((certificate, key)) = &tls.certificate {
                options.push(format!("cert={}&key={}", escaped(certificate), escaped(key)));
            }
        }
        if let Some(user) = &self.user {
            options.push(match &user.password {
                PasswordFrom::Environment(name) => format!("password-env={}", Escaped(name.as_bytes())),
                PasswordFrom::File(path) => format!("password-file={}", escaped(path)),
            });
            options.push(format!("mechanism={}", user.mechanism.name()));
        }
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(text: &str) -> Result<BrokerPlace, PlaceError> {
        text.parse()
    }

    #[test]
    fn a_place_is_an_address_and_what_it_takes_to_come_in() {
        assert_eq!(place("127.0.0.1:9092"), Ok(BrokerPlace::plain("127.0.0.1:9092")));
        assert_eq!(place("plain://[::1]:9092"), Ok(BrokerPlace::plain("[::1]:9092")));
        let tls = TlsPlace { ca: "a b/ca.pem".into(), ..TlsPlace::default() };
        let address = "log.example.org:9093".to_string();
        assert_eq!(
            place("tls://log.example.org:9093?ca=a%20b/ca.pem"),
            Ok(BrokerPlace { address: address.clone(), tls: Some(tls.clone()), user: None })
        );
        let text = "sasl-tls://al%40ice@log.example.org:9093?ca=a%20b/ca.pem&name=log&cert=c&key=k&password-file=p&mechanism=SCRAM-SHA-256";
        let tls = TlsPlace { name: Some("log".to_string()), certificate: Some(("c".into(), "k".into())), ..tls };
        let password = PasswordFrom::File("p".into());
        let user = UserPlace { mechanism: Mechanism::Sha256, password, ..UserPlace::new("al@ice") };
        assert_eq!(place(text), Ok(BrokerPlace { address, tls: Some(tls), user: Some(user) }));
        let here = place("sasl://bob@localhost:9092").expect("on this machine");
        assert_eq!(here.user, Some(UserPlace::new("bob")));
    }

    #[test]
    fn what_is_no_place_or_no_safe_one_is_refused_and_says_what_to_do() {
        for (text, said) in [
            ("", "host and port"),
            ("nowhere", "host and port"),
            ("host:", "host and port"),
            ("host:99999", "host and port"),
            (":9092", "host and port"),
            ("a b:1", "host and port"),
            ("http://host:1", "plain://, tls://"),
            ("tls://host:1", "--broker-ca"),
            ("sasl-tls://host:1?ca=c", "--broker-user"),
            ("sasl://localhost:1", "--broker-user"),
            ("sasl://bob@host:1", "tls://"),
            ("bob@10.0.0.1:1", "tls://"),
            ("host:1?ca=c", "tls://"),
            ("tls://host:1?ca=c&cert=c", "both"),
            ("tls://host:1?ca=c&key=k", "both"),
            ("tls://host:1?ca=", "is empty"),
            ("tls://host:1?ca=%4", "two hexadecimal digits"),
            ("tls://host:1?ca=%+1", "two hexadecimal digits"),
            ("tls://host:1?ca=c&colour=red", "no option"),
            ("tls://host:1?ca=c&password-file=p", "needs a user"),
            ("tls://@host:1?ca=c", "is empty"),
            ("tls://bob@host:1?ca=c&mechanism=PLAIN", "SCRAM-SHA-512"),
        ] {
            let error = place(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_said_beside_the_address_completes_it_and_wins() {
        let said = |more: &[(&str, &str)]| {
            let more: Vec<(&str, &OsStr)> = more.iter().map(|(name, value)| (*name, OsStr::new(*value))).collect();
            BrokerPlace::read("sasl-tls://host:1?ca=theirs", &more)
        };
        assert_eq!(said(&[("ca", "a%20b")]), Err(PlaceError::NoUser { scheme: "sasl-tls" }));
        // In whatever order, and with no escapes.
        let place = said(&[("password-file", "p"), ("ca", "a%20b"), ("user", "al:ice")]).expect("complete");
        assert_eq!(place.tls.map(|tls| tls.ca), Some(PathBuf::from("a%20b")));
        assert_eq!(
            place.user.map(|user| (user.name, user.password)),
            Some(("al:ice".to_string(), PasswordFrom::File("p".into())))
        );
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for text in [
            "tls://bob:hunter2@host:1?ca=c",
            "tls://bob@host:1?ca=c&password=hunter2",
            "bob:hunter2@localhost:1",
            "bob:hunter2@host://x",
            "hunter2",
        ] {
            let error = place(text).expect_err(text);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn a_place_is_written_as_it_is_read(
            name in "\\PC{1,12}", files in prop::collection::vec(prop::collection::vec(1u8..=255, 1..9), 4), tls: bool, more: bool, env: bool,
        ) {
            let path = |n: usize| PathBuf::from(OsString::from_vec(files[n].clone()));
            let certificate = more.then(|| (path(1), path(2)));
            let tls = tls.then(|| TlsPlace { ca: path(0), name: more.then(|| name.clone()), certificate });
            let password = if env { PasswordFrom::Environment(name.clone()) } else { PasswordFrom::File(path(3)) };
            let user = UserPlace { mechanism: Mechanism::Sha256, password, ..UserPlace::new(name.clone()) };
            let place = BrokerPlace { address: "127.0.0.1:1".to_string(), tls, user: (more || env).then_some(user) };
            prop_assert_eq!(place.to_string().parse(), Ok(place));
        }

        #[test]
        fn no_text_does_harm(text in "\\PC{0,60}") {
            let _ = place(&text);
            let _ = place(&format!("tls://a@b:1?{text}"));
        }
    }
}
