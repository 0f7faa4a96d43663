//! SCRAM, the client's side (RFC 5802, RFC 7677; KIP-84), and the primitives that the broker's side has in common with it.
//!
//! [`Exchange`] is pure: no clock, no randomness, no I/O. The password is neither sent nor kept, and the server must show that it knows
//! what follows from it. Without channel binding and SASLprep, as Kafka's clients. What the primitives are is `hmac`'s, `sha2`'s
//! and `pbkdf2`'s business.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cutwater_partition_log::remote::{EntryError, Proof, Prove};
use cutwater_platform::{Files, IoContext, Platform, Random};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::place::{PasswordFrom, UserPlace};

/// Fewer rounds than this are no server's of ours (RFC 7677): somebody would like to try passwords fast.
const ITERATIONS_MIN: u32 = 4096;
/// More would keep this side busy for nothing.
const ITERATIONS_MAX: u32 = 1 << 20;
/// No message of an exchange is longer.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// No password is longer.
const PASSWORD_BYTES_MAX: usize = 1 << 10;

/// A hash that SCRAM is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

/// All mechanisms, in the order in which they are offered.
pub const MECHANISMS: [Mechanism; 2] = [Mechanism::Sha256, Mechanism::Sha512];

impl Mechanism {
    /// SASL's name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Sha256 => "SCRAM-SHA-256",
            Mechanism::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Kafka's number of it (KIP-554).
    pub const fn number(self) -> i8 {
        match self {
            Mechanism::Sha256 => 1,
            Mechanism::Sha512 => 2,
        }
    }

    /// The mechanism of a number.
    pub fn of_number(number: i8) -> Option<Mechanism> {
        MECHANISMS.into_iter().find(|mechanism| mechanism.number() == number)
    }

    /// The mechanism of a name.
    pub fn named(name: &str) -> Option<Mechanism> {
        MECHANISMS.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Bytes of its hash.
    pub const fn hash_bytes(self) -> usize {
        match self {
            Mechanism::Sha256 => 32,
            Mechanism::Sha512 => 64,
        }
    }

    /// HMAC with this mechanism's hash.
    pub fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::Sha256 => mac::<Hmac<Sha256>>(key, message),
            Mechanism::Sha512 => mac::<Hmac<Sha512>>(key, message),
        }
    }

    /// This mechanism's hash.
    pub fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::Sha256 => Sha256::digest(bytes).to_vec(),
            Mechanism::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// What a password becomes before anything else is done with it.
    pub fn salt(self, password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<Vec<u8>> {
        let mut salted = Zeroizing::new(vec![0; self.hash_bytes()]);
        match self {
            Mechanism::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
            Mechanism::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted),
        }
        salted
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// A user who proves by SCRAM who it is. The password is read for each exchange, and wiped behind it.
#[derive(Clone)]
pub struct Scram {
    user: UserPlace,
    files: Arc<dyn Files>,
    random: Arc<dyn Random>,
}

impl Scram {
    /// This user.
    pub fn new(user: UserPlace, platform: &Platform) -> Scram {
        Scram { user, files: platform.files.clone(), random: platform.random.clone() }
    }

    fn password(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut password = match &self.user.password {
            PasswordFrom::Environment(name) => {
                let value = std::env::var_os(name).ok_or_else(|| {
                    format!("the variable {name} isn't set: set it, or name a file (--broker-password-file)")
                })?;
                Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value))
            }
            PasswordFrom::File(path) => {
                let bytes = self.files.read(path, PASSWORD_BYTES_MAX as u64 + 2).at("read the password", path);
                Zeroizing::new(bytes.map_err(|e| e.to_string())?)
            }
        };
        for end in [b'\n', b'\r'] {
            if password.last() == Some(&end) {
                password.pop();
            }
        }
        match password.len() {
            0 => Err("it is empty".to_string()),
            1..=PASSWORD_BYTES_MAX => Ok(password),
            _ => Err(format!("it has more than {PASSWORD_BYTES_MAX} bytes")),
        }
    }
}

impl fmt::Debug for Scram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scram").field(&self.user).finish()
    }
}

impl Prove for Scram {
    fn user(&self) -> &str {
        &self.user.name
    }

    fn mechanism(&self) -> &'static str {
        self.user.mechanism.name()
    }

    fn begin(&self) -> Result<Box<dyn Proof>, EntryError> {
        let user = self.user.name.clone();
        let password = self.password().map_err(|reason| EntryError::Secret { user: user.clone(), reason })?;
        let nonce = (0..3).map(|_| format!("{:016x}", self.random.next_u64())).collect();
        Ok(Box::new(Exchange::new(self.user.mechanism, user, nonce, password)))
    }
}

/// One exchange.
pub struct Exchange {
    mechanism: Mechanism,
    user: String,
    nonce: String,
    password: Zeroizing<Vec<u8>>,
    /// What the server must say at the end; nothing before the challenge was answered.
    expected: Option<Vec<u8>>,
}

impl Exchange {
    /// An exchange of a user. `nonce` must never repeat, and be printable without a comma.
    pub fn new(mechanism: Mechanism, user: String, nonce: String, password: Zeroizing<Vec<u8>>) -> Exchange {
        Exchange { mechanism, user, nonce, password, expected: None }
    }

    /// The first message behind its header.
    fn first_bare(&self) -> String {
        format!("n={},r={}", self.user.replace('=', "=3D").replace(',', "=2C"), self.nonce)
    }

    fn unproved(&self, reason: &'static str) -> EntryError {
        EntryError::Unproved { user: self.user.clone(), reason }
    }

    /// Nonce, salt and rounds of `r=NONCE,s=SALT,i=ROUNDS[,EXTENSIONS]`.
    fn read<'a>(&self, challenge: &'a [u8]) -> Result<(&'a str, &'a str, Vec<u8>, u32), &'static str> {
        if challenge.len() > MESSAGE_BYTES_MAX {
            return Err("its challenge is too long");
        }
        let text = std::str::from_utf8(challenge).map_err(|_| "its challenge is no text")?;
        let mut fields = text.split(',');
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let nonce = field("r=").ok_or("its challenge has no nonce")?;
        let salt = field("s=").and_then(|salt| BASE64.decode(salt).ok()).filter(|salt| !salt.is_empty());
        let salt = salt.ok_or("its challenge has no salt")?;
        let rounds = field("i=").and_then(|rounds| rounds.parse::<u32>().ok());
        let rounds = rounds.ok_or("its challenge doesn't say how many rounds")?;
        let fresh = nonce.strip_prefix(&self.nonce).is_some_and(|theirs| !theirs.is_empty());
        match rounds {
            _ if !fresh => Err("it answers another exchange"),
            ..ITERATIONS_MIN => Err("it asks for a proof from which a password is guessed fast"),
            ITERATIONS_MIN..=ITERATIONS_MAX => Ok((text, nonce, salt, rounds)),
            _ => Err("it asks for a proof that takes far too long"),
        }
    }
}

impl Proof for Exchange {
    fn first(&mut self) -> Vec<u8> {
        format!("n,,{}", self.first_bare()).into_bytes()
    }

    fn last(&mut self, challenge: &[u8]) -> Result<Vec<u8>, EntryError> {
        let (text, nonce, salt, rounds) = self.read(challenge).map_err(|reason| self.unproved(reason))?;
        let salted = self.mechanism.salt(&self.password, &salt, rounds);
        let unproved = format!("c=biws,r={nonce}");
        let said = format!("{},{text},{unproved}", self.first_bare());
        let key = Zeroizing::new(self.mechanism.hmac(&salted, b"Client Key"));
        let signature = self.mechanism.hmac(&self.mechanism.hash(&key), said.as_bytes());
        let proof: Vec<u8> = key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_key = Zeroizing::new(self.mechanism.hmac(&salted, b"Server Key"));
        self.expected = Some(self.mechanism.hmac(&server_key, said.as_bytes()));
        Ok(format!("{unproved},p={}", BASE64.encode(proof)).into_bytes())
    }

    fn check(self: Box<Self>, proof: &[u8]) -> Result<(), EntryError> {
        let text = std::str::from_utf8(proof).unwrap_or_default();
        let theirs = text.split(',').next().and_then(|field| field.strip_prefix("v="));
        let theirs = theirs.and_then(|theirs| BASE64.decode(theirs).ok()).unwrap_or_default();
        match &self.expected {
            Some(expected) if bool::from(expected.ct_eq(&theirs)) => Ok(()),
            _ => Err(self.unproved("its own proof is wrong")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exchange(mechanism: Mechanism, user: &str, nonce: &str, password: &str) -> Box<Exchange> {
        let password = Zeroizing::new(password.as_bytes().to_vec());
        Box::new(Exchange::new(mechanism, user.to_string(), nonce.to_string(), password))
    }

    fn with_files(files: &[(&str, &str)]) -> Platform {
        let platform = cutwater_testkit::sim::SimPlatform::new(1).platform();
        for (path, text) in files {
            platform.files.publish_bytes(std::path::Path::new(path), text.as_bytes()).expect("written");
        }
        platform
    }

    /// The example of RFC 7677, section 3.
    const CHALLENGE: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const PROVED: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn of_the_rfc() -> Box<Exchange> {
        exchange(Mechanism::Sha256, "user", "rOprNGfwEbeRWgbNEkqO", "pencil")
    }

    #[test]
    fn the_exchange_of_rfc_7677_is_spoken_byte_for_byte() {
        let mut rfc = of_the_rfc();
        assert_eq!(rfc.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(rfc.last(CHALLENGE).expect("a challenge"), last);
        assert_eq!(rfc.check(PROVED), Ok(()));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_found_out() {
        for changed in 0..PROVED.len() {
            let mut rfc = of_the_rfc();
            rfc.last(CHALLENGE).expect("a challenge");
            let mut proof = PROVED.to_vec();
            proof[changed] ^= 1;
            assert!(matches!(rfc.check(&proof), Err(EntryError::Unproved { .. })), "byte {changed}");
        }
        for proof in [&b""[..], b"v=", b"e=other-error", b"\xFF"] {
            let mut rfc = of_the_rfc();
            rfc.last(CHALLENGE).expect("a challenge");
            assert!(rfc.check(proof).is_err(), "{proof:?}");
        }
        assert!(of_the_rfc().check(PROVED).is_err(), "nor one that never asked");
    }

    #[test]
    fn a_challenge_that_no_server_of_ours_sends_is_refused() {
        for challenge in [
            "",
            "r=abc",
            "r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096",
            "r=somebody else's,s=W22Z,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=&,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4095",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4294967295",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=99999999999",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22Z",
        ] {
            let refused = of_the_rfc().last(challenge.as_bytes());
            assert!(matches!(refused, Err(EntryError::Unproved { .. })), "{challenge}: {refused:?}");
        }
    }

    #[test]
    fn names_are_escaped_and_nothing_shows_the_password() {
        let mut exchange = exchange(Mechanism::Sha512, "a=b,c", "n", "hunter2");
        assert_eq!(exchange.first(), b"n,,n=a=3Db=2Cc,r=n");
        let user = UserPlace { password: PasswordFrom::File("p".into()), ..UserPlace::new("bob") };
        let platform = with_files(&[("p", "hunter2\r\n")]);
        let scram = Scram::new(user.clone(), &platform);
        assert_eq!(scram.password().expect("it is there").as_slice(), b"hunter2");
        assert!(!format!("{scram:?}").contains("hunter2"));
        for (file, said) in [("missing", "missing"), ("empty", "empty"), ("long", "more than")] {
            let platform = with_files(&[("empty", "\n"), ("long", &"x".repeat(1025))]);
            let user = UserPlace { password: PasswordFrom::File(file.into()), ..user.clone() };
            let error = Scram::new(user, &platform).begin().err().expect("no password").to_string();
            assert!(error.contains(said) && error.contains("bob") && !error.contains("xxx"), "{error}");
        }
        let nowhere = UserPlace { password: PasswordFrom::Environment("CUTWATER_NO_SUCH".into()), ..user };
        let error = Scram::new(nowhere, &platform).begin().err().expect("no password").to_string();
        assert!(error.contains("CUTWATER_NO_SUCH") && error.contains("--broker-password-file"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_server_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = of_the_rfc().last(&bytes);
            let _ = of_the_rfc().check(&bytes);
        }
    }
}
