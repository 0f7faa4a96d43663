//! SCRAM, the server's side (RFC 5802, RFC 7677; KIP-84): a client proves that it knows a password, and the server that it knows
//! what follows from it. The password itself is neither sent nor kept.
//!
//! Pure: no clock, no randomness, no I/O. [`Exchange`] takes a nonce and a credential and answers messages; the primitives are those
//! of the client's side ([`cutwater_secure::scram`]). Deliberately without channel binding (Kafka's clients have none) and without
//! SASLprep (they don't prepare passwords either; one that did would lock out the others).
//!
//! What stands here takes the same steps whether or not a user exists: for one who doesn't, the caller gives a decoy.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
pub use cutwater_secure::scram::{MECHANISMS, Mechanism};
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

/// Fewer rounds than this are refused (RFC 7677).
pub const ITERATIONS_MIN: u32 = 4096;
/// More rounds than this are refused, as by Kafka: clients pay for them at each connect.
pub const ITERATIONS_MAX: u32 = 16_384;
/// No message of an exchange is longer.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// No user's name is longer.
pub const NAME_BYTES_MAX: usize = 255;

/// What a server keeps of a password. Whoever reads it can pretend to be the server, but not to be the user.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The user's own salt.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
    pub(super) stored_key: Vec<u8>,
    pub(super) server_key: Vec<u8>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        self.stored_key.zeroize();
        self.server_key.zeroize();
    }
}

impl Credential {
    /// Of a password.
    pub(crate) fn of_password(mechanism: Mechanism, password: &[u8], salt: Vec<u8>, iterations: u32) -> Credential {
        let salted = mechanism.salt(password, &salt, iterations);
        Credential::of_salted(mechanism, &salted, salt, iterations)
    }

    /// Of a password that was salted elsewhere.
    pub(crate) fn of_salted(mechanism: Mechanism, salted: &[u8], salt: Vec<u8>, iterations: u32) -> Credential {
        let client_key = Zeroizing::new(mechanism.hmac(salted, b"Client Key"));
        let stored_key = mechanism.hash(&client_key);
        let server_key = mechanism.hmac(salted, b"Server Key");
        Credential { salt, iterations, stored_key, server_key }
    }
}

/// Why an exchange failed. Says nothing that a stranger could use; the log may say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum ScramError {
    /// Not a message of SCRAM.
    #[error("a message isn't one of SCRAM ({0})")]
    Malformed(&'static str),
    /// The proof doesn't fit, or there is no such user.
    #[error("user or password is wrong")]
    WrongPassword,
}

/// One exchange: the client's first message, the server's first, the client's last, the server's last.
#[derive(Debug)]
pub(crate) struct Exchange {
    mechanism: Mechanism,
    /// What the client said about channel binding and whom it acts for; its last message repeats it.
    header: String,
    first_bare: String,
    server_first: String,
    nonce: String,
    credential: Credential,
}

/// The client's first message, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientFirst {
    /// Who it says it is.
    pub(crate) user: String,
    header: String,
    bare: String,
    nonce: String,
}

impl ClientFirst {
    /// Reads `n,[a=USER],n=USER,r=NONCE[,EXTENSIONS]`.
    pub(crate) fn read(message: &[u8]) -> Result<ClientFirst, ScramError> {
        let bad = ScramError::Malformed;
        let text = message_text(message)?;
        let (binding, rest) = text.split_once(',').ok_or(bad("no header"))?;
        if !["n", "y"].contains(&binding) {
            return Err(bad("channel binding isn't served"));
        }
        let (acts_for, bare) = rest.split_once(',').ok_or(bad("no header"))?;
        let (user, rest) = bare.split_once(',').ok_or(bad("no nonce"))?;
        let user = name(user.strip_prefix("n=").ok_or(bad("no user"))?)?;
        let acts_for = match acts_for.strip_prefix("a=") {
            Some(other) => Some(name(other)?),
            None if acts_for.is_empty() => None,
            None => return Err(bad("no header")),
        };
        if acts_for.is_some_and(|other| other != user) {
            return Err(bad("nobody may act for somebody else"));
        }
        let mut rest = rest.split(',');
        let nonce = rest.next().and_then(|nonce| nonce.strip_prefix("r=")).filter(|nonce| is_nonce(nonce));
        let nonce = nonce.ok_or(bad("no nonce"))?.to_string();
        // Kafka's delegation tokens, of which there are none here.
        if rest.any(|extension| extension.eq_ignore_ascii_case("tokenauth=true") || extension.starts_with("m=")) {
            return Err(bad("an extension that isn't served"));
        }
        let header = text[..text.len() - bare.len()].to_string();
        Ok(ClientFirst { user, header, bare: bare.to_string(), nonce })
    }
}

fn message_text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Malformed("too long"));
    }
    let text = std::str::from_utf8(message).map_err(|_| ScramError::Malformed("no text"))?;
    if text.contains('\0') { Err(ScramError::Malformed("no text")) } else { Ok(text) }
}

fn is_nonce(nonce: &str) -> bool {
    !nonce.is_empty() && nonce.bytes().all(|byte| (0x21..=0x7E).contains(&byte) && byte != b',')
}

/// A name: `=2C` stands for a comma, `=3D` for an equals sign, and there is no other `=`.
fn name(escaped: &str) -> Result<String, ScramError> {
    let bad = ScramError::Malformed("no user");
    let mut parts = escaped.split('=');
    let mut name = parts.next().ok_or(bad)?.to_string();
    for part in parts {
        match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => {
                name.push(',');
                name.push_str(rest);
            }
            (_, Some(rest)) => {
                name.push('=');
                name.push_str(rest);
            }
            _ => return Err(bad),
        }
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(bad) } else { Ok(name) }
}

impl Exchange {
    /// Answers the client's first message. `nonce` must never repeat.
    pub(crate) fn begin(
        mechanism: Mechanism,
        first: ClientFirst,
        nonce: &str,
        credential: Credential,
    ) -> (Exchange, Vec<u8>) {
        let nonce = format!("{}{nonce}", first.nonce);
        let salt = BASE64.encode(&credential.salt);
        let server_first = format!("r={nonce},s={salt},i={}", credential.iterations);
        let message = server_first.clone().into_bytes();
        let (header, first_bare) = (first.header, first.bare);
        (Exchange { mechanism, header, first_bare, server_first, nonce, credential }, message)
    }

    /// What the client must know the password of.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Judges the client's last message; the answer proves to the client that this is the server it knows.
    pub(crate) fn finish(self, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let bad = ScramError::Malformed;
        let text = message_text(message)?;
        let (unproved, proof) = text.rsplit_once(",p=").ok_or(bad("no proof"))?;
        let mut fields = unproved.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c=")).ok_or(bad("no channel binding"))?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(bad("no nonce"))?;
        if fields.any(|field| field.starts_with("m=")) {
            return Err(bad("an extension that isn't served"));
        }
        if BASE64.decode(binding).ok().as_deref() != Some(self.header.as_bytes()) {
            return Err(bad("another channel binding than before"));
        }
        if nonce != self.nonce {
            return Err(bad("another nonce"));
        }
        let proof = Zeroizing::new(BASE64.decode(proof).map_err(|_| bad("no proof"))?);
        if proof.len() != self.mechanism.hash_bytes() {
            return Err(bad("no proof"));
        }
        let said = format!("{},{},{unproved}", self.first_bare, self.server_first);
        let signature = self.mechanism.hmac(&self.credential.stored_key, said.as_bytes());
        let key: Zeroizing<Vec<u8>> = Zeroizing::new(proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect());
        let known = self.mechanism.hash(&key);
        if !bool::from(known.ct_eq(&self.credential.stored_key)) {
            return Err(ScramError::WrongPassword);
        }
        let signature = self.mechanism.hmac(&self.credential.server_key, said.as_bytes());
        Ok(format!("v={}", BASE64.encode(signature)).into_bytes())
    }
}

#[cfg(test)]
pub(crate) mod client {
    //! A client, for tests: written against the RFC by itself, with the password at hand.
    use super::*;

    pub(crate) fn first(user: &str, nonce: &str) -> Vec<u8> {
        format!("n,,n={user},r={nonce}").into_bytes()
    }

    /// The last message, and the server's signature that must follow.
    pub(crate) fn last(mechanism: Mechanism, first: &[u8], server_first: &[u8], password: &str) -> (Vec<u8>, Vec<u8>) {
        let (first, server) = (std::str::from_utf8(first).unwrap(), std::str::from_utf8(server_first).unwrap());
        let field = |name: &str| server.split(',').find_map(|f| f.strip_prefix(name)).unwrap();
        let salt = BASE64.decode(field("s=")).unwrap();
        let salted = mechanism.salt(password.as_bytes(), &salt, field("i=").parse().unwrap());
        let unproved = format!("c=biws,r={}", field("r="));
        let said = format!("{},{server},{unproved}", &first[3..]);
        let key = mechanism.hmac(&salted, b"Client Key");
        let signature = mechanism.hmac(&mechanism.hash(&key), said.as_bytes());
        let proof: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let server_signature = mechanism.hmac(&mechanism.hmac(&salted, b"Server Key"), said.as_bytes());
        let last = format!("{unproved},p={}", BASE64.encode(proof));
        (last.into_bytes(), format!("v={}", BASE64.encode(server_signature)).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_exchange_of_rfc_7677_is_answered_byte_for_byte() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let credential = Credential::of_password(Mechanism::Sha256, b"pencil", salt, 4096);
        let first = ClientFirst::read(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        assert_eq!(first.user, "user");
        let (exchange, answer) =
            Exchange::begin(Mechanism::Sha256, first, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", credential);
        assert_eq!(answer, b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(exchange.finish(last).unwrap(), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    fn begun(mechanism: Mechanism, first: &[u8], password: &str) -> (Exchange, Vec<u8>) {
        let credential = Credential::of_password(mechanism, password.as_bytes(), b"salt of bob".to_vec(), 4096);
        Exchange::begin(mechanism, ClientFirst::read(first).unwrap(), "server", credential)
    }

    #[test]
    fn the_right_password_is_taken_the_wrong_one_is_not_and_a_changed_byte_never_is() {
        for mechanism in MECHANISMS {
            let first = client::first("bob", "abc");
            let (exchange, answer) = begun(mechanism, &first, "right");
            let (last, expected) = client::last(mechanism, &first, &answer, "right");
            assert_eq!(exchange.finish(&last).unwrap(), expected, "the server proves itself, too");
            let (exchange, answer) = begun(mechanism, &first, "right");
            let (wrong, _) = client::last(mechanism, &first, &answer, "wrong");
            assert_eq!(exchange.finish(&wrong), Err(ScramError::WrongPassword));
            for at in 0..last.len() {
                let mut changed = last.clone();
                changed[at] ^= 1;
                let (exchange, _) = begun(mechanism, &first, "right");
                assert!(exchange.finish(&changed).is_err(), "{mechanism:?} byte {at}");
            }
        }
    }

    #[test]
    fn what_is_no_first_message_is_refused() {
        for good in ["n,,n=a,r=x", "y,,n=a,r=x", "n,a=a,n=a,r=x", "n,,n=a=2Cb=3Dc,r=x", "n,,n=a,r=x,tokenauth=false"] {
            assert!(ClientFirst::read(good.as_bytes()).is_ok(), "{good}");
        }
        assert_eq!(ClientFirst::read(b"n,,n=a=2Cb=3Dc,r=x").unwrap().user, "a,b=c");
        let long = format!("n,,n={},r=x", "a".repeat(NAME_BYTES_MAX + 1));
        let bad = [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=a",
            "n,,n=,r=x",
            "n,,n=a,r=",
            "p=tls-unique,,n=a,r=x",
            "n,a=b,n=a,r=x",
            "n,b,n=a,r=x",
            "n,,n=a=2,r=x",
            "n,,n=a=2c,r=x",
            "n,,r=x,n=a",
            "n,,n=a,r=x,tokenauth=true",
            "n,,n=a,r=x,m=1",
            "n,,n=a\0,r=x",
            "n,,n=a,r=x y",
            long.as_str(),
        ];
        for bad in bad {
            assert!(ClientFirst::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(ClientFirst::read(&[b'n'; MESSAGE_BYTES_MAX + 1]).is_err());
        assert!(ClientFirst::read(b"n,,n=\xFF,r=x").is_err());
    }

    #[test]
    fn a_last_message_of_another_exchange_is_refused() {
        let first = client::first("bob", "abc");
        let (_, answer) = begun(Mechanism::Sha256, &first, "right");
        let (last, _) = client::last(Mechanism::Sha256, &first, &answer, "right");
        let credential = || Credential::of_password(Mechanism::Sha256, b"right", b"salt of bob".to_vec(), 4096);
        let (other, _) = Exchange::begin(Mechanism::Sha256, ClientFirst::read(&first).unwrap(), "other", credential());
        assert_eq!(other.finish(&last), Err(ScramError::Malformed("another nonce")));
        let acting = ClientFirst::read(b"n,a=bob,n=bob,r=abc").unwrap();
        let (other, _) = Exchange::begin(Mechanism::Sha256, acting, "server", credential());
        assert_eq!(other.finish(&last), Err(ScramError::Malformed("another channel binding than before")));
    }
}
