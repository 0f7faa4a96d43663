//! From an address to a connection that carries requests: connect, ask what is spoken, prove who asks, look whether jobs are served.
//!
//! ```text
//!   connect (TLS, if the options have such a network) --> ApiVersions --> [SaslHandshake --> two messages --> ApiVersions] --> open
//! ```
//!
//! Every connection takes all of these steps, the tenth like the first. Where a step fails in a way that doesn't pass by itself,
//! it is looked which of the likely mistakes it was, with requests that reveal nothing: so that the error can name it.

use cutwater_platform::{NetError, Platform};

use super::entry::{EntryError, Prove};
use super::error::RemoteError;
use super::kafka::{
    self, API_VERSIONS, API_VERSIONS_VERSION, FETCH, FETCH_VERSION, SASL_AUTHENTICATE, SASL_HANDSHAKE, SASL_VERSION,
};
use super::link::{Broken, Link};
use super::log::RemoteOptions;
use super::request::{API_KEY, API_VERSION, SOFTWARE};

/// Kafka's errors of an exchange.
const UNSUPPORTED_MECHANISM: i16 = 33;
const ILLEGAL_STATE: i16 = 34;
const AUTHENTICATION_FAILED: i16 = 58;

/// The keys with their versions that a server lists.
struct Listed(Vec<(i16, i16, i16)>);

impl Listed {
    fn serves(&self, key: i16, version: i16) -> bool {
        self.0.iter().any(|(k, from, to)| *k == key && (*from..=*to).contains(&version))
    }
}

/// What kept a connection from being opened: it may be tried again, or not.
enum Ending {
    Broken(Broken),
    Final(RemoteError),
}

impl From<Broken> for Ending {
    fn from(broken: Broken) -> Ending {
        Ending::Broken(broken)
    }
}

impl Link {
    /// Connects, is let in, and asks what the other side speaks.
    ///
    /// # Errors
    /// `Ok(Err)`: nobody is there, or not for long. `Err`: somebody else is, or doesn't let this program in.
    pub(super) fn open(platform: &Platform, options: &RemoteOptions) -> Result<Result<Link, Broken>, RemoteError> {
        let mut opening = Opening { platform, options };
        match opening.open() {
            Ok(link) => Ok(Ok(link)),
            Err(Ending::Final(error)) => Err(error),
            Err(Ending::Broken(Broken::Net(error))) if !error.may_pass() => {
                Err(opening.refused(EntryError::Net(error)))
            }
            Err(Ending::Broken(Broken::SpeaksTls)) => Err(opening.refused(EntryError::SpeaksTls)),
            Err(Ending::Broken(Broken::Nonsense(what))) => Err(opening.foreign(what)),
            // A server of another kind may well close the connection; so does a broker that is being stopped.
            Err(Ending::Broken(broken)) => Ok(Err(broken)),
        }
    }
}

struct Opening<'a> {
    platform: &'a Platform,
    options: &'a RemoteOptions,
}

impl Opening<'_> {
    fn foreign(&self, found: String) -> RemoteError {
        RemoteError::Foreign { address: self.options.address.clone(), found }
    }

    fn refused(&self, error: EntryError) -> RemoteError {
        RemoteError::Entry { address: self.options.address.clone(), error }
    }

    fn open(&mut self) -> Result<Link, Ending> {
        let mut link = self.connect()?;
        let mut listed = hello(&mut link)?;
        if let Some(user) = &self.options.user {
            if !listed.serves(SASL_HANDSHAKE, SASL_VERSION) || !listed.serves(SASL_AUTHENTICATE, SASL_VERSION) {
                return Err(Ending::Final(self.foreign("it has no way to prove who asks (SASL)".to_string())));
            }
            self.prove(&mut link, &**user)?;
            listed = hello(&mut link)?;
        }
        if !listed.serves(API_KEY, API_VERSION) {
            if self.options.user.is_none() && asks_who_connects(&mut link, &listed) {
                return Err(Ending::Final(self.refused(EntryError::UserWanted)));
            }
            let found = match listed.0.iter().find(|(key, _, _)| *key == API_KEY) {
                Some((_, from, to)) => {
                    format!("API 17237 has version {API_VERSION} here, and {from} to {to} there: use the same release")
                }
                None => format!("it serves {} APIs, and 17237 is not among them", listed.0.len()),
            };
            return Err(Ending::Final(self.foreign(found)));
        }
        if !listed.serves(FETCH, FETCH_VERSION) {
            let found = format!("it doesn't serve Fetch in version {FETCH_VERSION}");
            return Err(Ending::Final(self.foreign(found)));
        }
        Ok(link)
    }

    fn connect(&self) -> Result<Link, Ending> {
        let Opening { platform, options } = *self;
        let net = options.net.as_ref().unwrap_or(&platform.net);
        match net.connect(&options.address, options.connect_patience) {
            Ok(connection) => Ok(Link::over(connection, platform, options)),
            // It was there, and hung up on the first words.
            Err(error @ NetError::Lost { .. }) if options.net.is_some() && self.speaks_plain() => {
                tracing::debug!(%error, "what answers speaks without TLS");
                Err(Ending::Final(self.refused(EntryError::SpeaksPlain)))
            }
            Err(error) => Err(Ending::Broken(error.into())),
        }
    }

    /// Whether Kafka's protocol is spoken at the address over the platform's own network. Says nothing but hello.
    fn speaks_plain(&self) -> bool {
        let Opening { platform, options } = *self;
        let connected = platform.net.connect(&options.address, options.connect_patience);
        connected.is_ok_and(|connection| hello(&mut Link::over(connection, platform, options)).is_ok())
    }

    /// Proves who asks, and has the server prove itself.
    fn prove(&self, link: &mut Link, user: &dyn Prove) -> Result<(), Ending> {
        let final_of = |error| Ending::Final(self.refused(error));
        let mut proof = user.begin().map_err(final_of)?;
        let (code, served) = choose(link, user.mechanism())?;
        match code {
            0 => {}
            UNSUPPORTED_MECHANISM => {
                return Err(final_of(EntryError::Mechanism { wanted: user.mechanism(), served }));
            }
            ILLEGAL_STATE => return Err(final_of(EntryError::NotAsked { user: user.user().to_string() })),
            code => return Err(Broken::Nonsense(format!("it answers SaslHandshake with Kafka's error {code}")).into()),
        }
        let say = |link: &mut Link, message: &[u8]| -> Result<Vec<u8>, Ending> {
            link.send(SASL_AUTHENTICATE, SASL_VERSION, false, |out| kafka::put_proof(out, message))?;
            match kafka::proof(&link.receive()?).map_err(Broken::from)? {
                (0, answer) => Ok(answer),
                (AUTHENTICATION_FAILED, _) => {
                    Err(final_of(EntryError::WrongPassword { user: user.user().to_string() }))
                }
                (code, _) => {
                    Err(Broken::Nonsense(format!("it answers SaslAuthenticate with Kafka's error {code}")).into())
                }
            }
        };
        let challenge = say(link, &proof.first())?;
        let answer = say(link, &proof.last(&challenge).map_err(final_of)?)?;
        proof.check(&answer).map_err(final_of)
    }
}

/// What the other side speaks.
fn hello(link: &mut Link) -> Result<Listed, Broken> {
    let hello = |out: &mut Vec<u8>| kafka::put_api_versions(out, SOFTWARE, env!("CARGO_PKG_VERSION"));
    link.send(API_VERSIONS, API_VERSIONS_VERSION, true, hello)?;
    let said = link.receive()?;
    kafka::api_versions(&said).map(Listed).map_err(|e| Broken::Nonsense(e.0.to_string()))
}

/// Names a mechanism; the error, and what is served.
fn choose(link: &mut Link, mechanism: &str) -> Result<(i16, Vec<String>), Broken> {
    link.send(SASL_HANDSHAKE, SASL_VERSION, false, |out| kafka::put_mechanism(out, mechanism))?;
    Ok(kafka::mechanisms(&link.receive()?)?)
}

/// Whether a listener asks who connects: one that does knows no mechanism of this name, one that doesn't knows of no exchange.
fn asks_who_connects(link: &mut Link, listed: &Listed) -> bool {
    listed.serves(SASL_HANDSHAKE, SASL_VERSION)
        && choose(link, "NONE").is_ok_and(|(code, _)| code == UNSUPPORTED_MECHANISM)
}
