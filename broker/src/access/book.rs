//! What is kept about users and rights, and how it is written. `docs/formats/access.md` has the layout.
//!
//! Pure. Decoding never allocates on a length that it hasn't compared with what is there, and what it accepts it writes again byte for
//! byte.

use std::collections::BTreeMap;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::acl::{Acl, Kind, Operation, Pattern, Permission, Rules};
use super::scram::{Credential, ITERATIONS_MAX, ITERATIONS_MIN, Mechanism, NAME_BYTES_MAX};

const MAGIC: [u8; 8] = *b"CUTWACCS";
const FORMAT_VERSION: u32 = 1;
/// Magic, version, checksum.
const HEAD_BYTES: usize = 8 + 4 + 8;

/// Users at most.
pub const USERS_MAX: usize = 10_000;
/// Rules at most.
pub const ACLS_MAX: usize = 10_000;
/// No salt is longer.
pub const SALT_BYTES_MAX: usize = 255;

/// Bytes of the secret that decoys are made with.
pub(super) const SECRET_BYTES: usize = 32;

/// Everything about users and rights at one time.
#[derive(Clone, Default)]
pub(crate) struct Book {
    /// What decoys for unknown users are made with, so that they are the same each time.
    pub(super) secret: [u8; SECRET_BYTES],
    pub(crate) users: BTreeMap<String, BTreeMap<Mechanism, Credential>>,
    pub(crate) rules: Rules,
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book")
            .field("users", &self.users.len())
            .field("rules", &self.rules.all().len())
            .finish_non_exhaustive()
    }
}

/// Bytes that aren't a book.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BookError {
    /// They don't begin as one, end too early or go on for too long, or their checksum doesn't fit.
    #[error("it is damaged ({0})")]
    Damaged(&'static str),
    /// A newer program wrote them.
    #[error("it has format version {found}, and this program knows {known} at most: use a newer one")]
    Newer {
        /// Its version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
}

impl Book {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes.extend_from_slice(&self.secret);
        put_count(&mut bytes, self.users.len());
        for (name, credentials) in &self.users {
            put(&mut bytes, name.as_bytes());
            put_count(&mut bytes, credentials.len());
            for (mechanism, credential) in credentials {
                bytes.push(mechanism.number().cast_unsigned());
                bytes.extend_from_slice(&credential.iterations.to_le_bytes());
                put(&mut bytes, &credential.salt);
                put(&mut bytes, &credential.stored_key);
                put(&mut bytes, &credential.server_key);
            }
        }
        put_count(&mut bytes, self.rules.all().len());
        for acl in self.rules.all() {
            let numbers = [acl.kind as i8, acl.pattern as i8, acl.operation as i8, acl.permission as i8];
            bytes.extend(numbers.map(i8::cast_unsigned));
            for text in [&acl.name, &acl.principal, &acl.host] {
                put(&mut bytes, text.as_bytes());
            }
        }
        let sum = xxh3_64(&bytes[HEAD_BYTES..]);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Book, BookError> {
        let mut reader = Reader(bytes);
        if reader.array::<8>()? != MAGIC {
            return Err(BookError::Damaged("it doesn't begin like one"));
        }
        let found = u32::from_le_bytes(reader.array()?);
        match found {
            FORMAT_VERSION => {}
            0 => return Err(BookError::Damaged("there is no version 0")),
            _ => return Err(BookError::Newer { found, known: FORMAT_VERSION }),
        }
        if u64::from_le_bytes(reader.array()?) != xxh3_64(reader.0) {
            return Err(BookError::Damaged("its checksum doesn't fit"));
        }
        let mut book = Book { secret: reader.array()?, ..Book::default() };
        for _ in 0..reader.count(USERS_MAX)? {
            let name = reader.text()?;
            let mut credentials = BTreeMap::new();
            for _ in 0..reader.count(2)? {
                let [number] = reader.array()?;
                let mechanism = Mechanism::of_number(number.cast_signed());
                let mechanism = mechanism.ok_or(BookError::Damaged("an unknown mechanism"))?;
                let iterations = u32::from_le_bytes(reader.array()?);
                let salt = reader.bytes()?.to_vec();
                let (stored_key, server_key) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
                let credential = Credential { salt, iterations, stored_key, server_key };
                check_credential(mechanism, &credential).map_err(BookError::Damaged)?;
                credentials.insert(mechanism, credential);
            }
            check_name(&name).map_err(BookError::Damaged)?;
            book.users.insert(name, credentials);
        }
        let mut acls = Vec::new();
        for _ in 0..reader.count(ACLS_MAX)? {
            let [kind, pattern, operation, permission] = reader.array::<4>()?.map(u8::cast_signed);
            let unknown = |()| BookError::Damaged("an unknown kind of rule");
            let acl = Acl {
                kind: Kind::try_from(kind).map_err(unknown)?,
                pattern: Pattern::try_from(pattern).map_err(unknown)?,
                operation: Operation::try_from(operation).map_err(unknown)?,
                permission: Permission::try_from(permission).map_err(unknown)?,
                name: reader.text()?,
                principal: reader.text()?,
                host: reader.text()?,
            };
            acl.check().map_err(BookError::Damaged)?;
            acls.push(acl);
        }
        book.rules = acls.into_iter().collect();
        if reader.0.is_empty() { Ok(book) } else { Err(BookError::Damaged("something follows its end")) }
    }
}

/// Whether somebody may be called so.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("a user has a name"),
        "*" => Err("* stands for all users and is no name"),
        _ if name.len() > NAME_BYTES_MAX => Err("a user's name has at most 255 bytes"),
        _ if name.chars().any(char::is_control) => Err("a user's name has no control characters"),
        _ => Ok(()),
    }
}

/// Whether a credential is one that can be kept.
pub(crate) fn check_credential(mechanism: Mechanism, credential: &Credential) -> Result<(), &'static str> {
    let keys = [&credential.stored_key, &credential.server_key];
    match credential.iterations {
        ..ITERATIONS_MIN => Err("too few iterations: at least 4096 are needed"),
        iterations if iterations > ITERATIONS_MAX => Err("too many iterations: at most 16384 are taken"),
        _ if credential.salt.is_empty() => Err("there is no salt"),
        _ if credential.salt.len() > SALT_BYTES_MAX => Err("the salt has more than 255 bytes"),
        _ if keys.iter().any(|key| key.len() != mechanism.hash_bytes()) => Err("the keys don't fit the mechanism"),
        _ => Ok(()),
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&u32::try_from(count).expect("counts are limited").to_le_bytes());
}

/// A length of two bytes, and as many.
fn put(bytes: &mut Vec<u8>, some: &[u8]) {
    bytes.extend_from_slice(&u16::try_from(some.len()).expect("what is kept was checked").to_le_bytes());
    bytes.extend_from_slice(some);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BookError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BookError::Damaged("it is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BookError> {
        Ok(self.take(N)?.try_into().expect("as many as asked for"))
    }

    fn count(&mut self, most: usize) -> Result<usize, BookError> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        if count > most { Err(BookError::Damaged("it has too many entries")) } else { Ok(count) }
    }

    fn bytes(&mut self) -> Result<&'a [u8], BookError> {
        let length = u16::from_le_bytes(self.array()?);
        self.take(length.into())
    }

    fn text(&mut self) -> Result<String, BookError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| BookError::Damaged("a name isn't text"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two users, one rule.
    pub(in crate::access) fn some() -> Book {
        some_with(ITERATIONS_MIN)
    }

    /// The same with fewer rounds, for tests of exchanges by the thousand.
    pub(in crate::access) fn some_with(rounds: u32) -> Book {
        let mut book = Book { secret: [7; SECRET_BYTES], ..Book::default() };
        for (name, mechanisms) in
            [("alice", vec![Mechanism::Sha256, Mechanism::Sha512]), ("bob,=", vec![Mechanism::Sha512])]
        {
            let made = |m: Mechanism| (m, Credential::of_password(m, name.as_bytes(), b"salt".to_vec(), rounds));
            book.users.insert(name.to_string(), mechanisms.into_iter().map(made).collect());
        }
        let acl = Acl {
            kind: Kind::Topic,
            pattern: Pattern::Prefixed,
            name: "orders".to_string(),
            principal: "User:alice".to_string(),
            host: "*".to_string(),
            operation: Operation::Read,
            permission: Permission::Allow,
        };
        book.rules = [acl].into_iter().collect();
        book
    }

    #[test]
    fn a_book_is_read_as_it_was_written() {
        for book in [Book::default(), some()] {
            let bytes = book.encode();
            let read = Book::decode(&bytes).expect("a book");
            assert_eq!((read.encode(), read.users, read.rules.all()), (bytes, book.users, book.rules.all()));
        }
    }

    #[test]
    fn a_book_that_is_cut_changed_or_longer_is_refused_and_a_newer_one_named_so() {
        let bytes = some().encode();
        for cut in 0..bytes.len() {
            assert!(Book::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Book::decode(&changed).is_err(), "changed at {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Book::decode(&longer).is_err());
        let mut newer = bytes.clone();
        newer[8] = 2;
        assert_eq!(Book::decode(&newer).expect_err("newer"), BookError::Newer { found: 2, known: 1 });
    }

    #[test]
    fn what_lies_behind_a_right_checksum_is_still_not_believed() {
        let seal = |body: &[u8]| [&MAGIC[..], &1u32.to_le_bytes(), &xxh3_64(body).to_le_bytes(), body].concat();
        let many = [&[0; SECRET_BYTES][..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(Book::decode(&seal(&many)).expect_err("a lie"), BookError::Damaged("it has too many entries"));
        let short = [&[0; SECRET_BYTES][..], &9u32.to_le_bytes()].concat();
        assert_eq!(Book::decode(&seal(&short)).expect_err("a lie"), BookError::Damaged("it is cut short"));
    }
}
