//! The name in a client's certificate, as Kafka's rules have it: the subject's distinguished name in the form of RFC 2253, the innermost part
//! first (`CN=alice,OU=jobs,O=Example`). Pure.
//!
//! Only certificates that TLS has verified come here, so this reads one field of what is known to be well formed; it panics on nothing all
//! the same. Source: RFC 5280 (4.1), RFC 2253 (2), X.690 for the bytes; the types with a name of their own are those that Java's
//! `X500Principal.getName()` has, the others stand as numbers with their value's bytes.

use std::fmt::Write;

/// Tags of ASN.1.
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const UTF8: u8 = 0x0C;
const PRINTABLE: u8 = 0x13;
const TELETEX: u8 = 0x14;
const IA5: u8 = 0x16;
const BMP: u8 = 0x1E;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xA0;

/// How a client's certificate names a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// By the whole distinguished name: `User:CN=alice,O=Example`.
    Distinguished,
    /// By the common name in it, if it has exactly one: `User:alice`. All authorities that may vouch for clients must then be
    /// trusted not to give a name twice.
    Common,
}

/// The user that a certificate names; `None` if it names none in this way.
pub(crate) fn user(certificate: &[u8], by: CertificateName) -> Option<String> {
    let parts = subject(certificate)?;
    let name = match by {
        CertificateName::Distinguished => {
            let one = |part: &Part<'_>| part.iter().map(attribute).collect::<Option<Vec<_>>>().map(|all| all.join("+"));
            parts.iter().rev().map(one).collect::<Option<Vec<_>>>()?.join(",")
        }
        CertificateName::Common => {
            let mut names = parts.iter().flatten().filter(|(object, _, _)| *object == [0x55, 4, 3]);
            let (_, tag, value) = names.next()?;
            if names.next().is_some() {
                return None;
            }
            text(*tag, value)?
        }
    };
    (!name.is_empty()).then_some(name)
}

/// Attributes that stand together: type, tag and bytes of the value.
type Part<'a> = Vec<(&'a [u8], u8, &'a [u8])>;

/// The parts of the subject's name, the outermost first.
fn subject(certificate: &[u8]) -> Option<Vec<Part<'_>>> {
    let mut signed = take(&mut take(&mut &*certificate, SEQUENCE)?, SEQUENCE)?;
    if signed.first() == Some(&VERSION) {
        take(&mut signed, VERSION)?;
    }
    take(&mut signed, INTEGER)?; // serial number
    take(&mut signed, SEQUENCE)?; // algorithm
    take(&mut signed, SEQUENCE)?; // issuer
    take(&mut signed, SEQUENCE)?; // validity
    let mut name = take(&mut signed, SEQUENCE)?;
    let mut parts = vec![];
    while !name.is_empty() {
        let (mut set, mut part) = (take(&mut name, SET)?, vec![]);
        while !set.is_empty() {
            let mut attribute = take(&mut set, SEQUENCE)?;
            let object = take(&mut attribute, OBJECT)?;
            let (tag, value) = next(&mut attribute)?;
            part.push((object, tag, value));
        }
        parts.push(part);
    }
    Some(parts)
}

/// `TYPE=VALUE`.
fn attribute((object, tag, value): &(&[u8], u8, &[u8])) -> Option<String> {
    let keyword = match *object {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25] => "DC",
        _ => {
            let mut out = number(object)?;
            out.push_str("=#");
            for byte in encoded(*tag, value) {
                let _ = write!(out, "{byte:02x}");
            }
            return Some(out);
        }
    };
    Some(format!("{keyword}={}", escaped(&text(*tag, value)?)))
}

/// A type as a number with dots.
fn number(object: &[u8]) -> Option<String> {
    let mut numbers = vec![];
    let mut value = 0u64;
    for byte in object {
        value = value.checked_mul(128)?.checked_add(u64::from(byte & 0x7F))?;
        if byte & 0x80 == 0 {
            numbers.push(std::mem::take(&mut value));
        }
    }
    let (first, rest) = numbers.split_first()?;
    let root = (first / 40).min(2);
    Some(rest.iter().fold(format!("{root}.{}", first - 40 * root), |out, number| format!("{out}.{number}")))
}

/// A value with its tag and length in front, as it stood there.
fn encoded(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(value.len()) {
        Ok(short @ ..=0x7F) => out.push(short),
        _ => {
            let bytes = value.len().to_be_bytes();
            let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(value);
    out
}

fn text(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        UTF8 | PRINTABLE | IA5 => String::from_utf8(value.to_vec()).ok(),
        TELETEX => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        BMP if value.len().is_multiple_of(2) => {
            let units: Vec<u16> = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// What has a meaning in a name stands behind a backslash.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (place, c) in value.chars().enumerate() {
        let edge = (c == ' ' && (place == 0 || place == last)) || (c == '#' && place == 0);
        if edge || ",+\"\\<>;".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The content of what comes next, which must have this tag.
fn take<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content) = next(bytes)?;
    (found == tag).then_some(content)
}

/// Tag and content of what comes next.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, short], mut rest) = bytes.split_first_chunk::<2>()?;
    let length = match short {
        ..=0x7F => usize::from(short),
        // No certificate has more than 2^32 bytes. 0x80, a length that comes later, isn't allowed in one.
        0x81..=0x84 => {
            let (digits, behind) = rest.split_at_checked(usize::from(short - 0x80))?;
            rest = behind;
            digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
        }
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(length)?;
    *bytes = behind;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn certificate(name: DistinguishedName) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = name;
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().to_vec()
    }

    fn name(parts: &[(DnType, &str)]) -> DistinguishedName {
        let mut name = DistinguishedName::new();
        parts.iter().for_each(|(kind, value)| name.push(kind.clone(), *value));
        name
    }

    #[test]
    fn names_have_the_form_that_kafkas_rules_have() {
        let full = [
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Example, \"Inc\""),
            (DnType::OrganizationalUnitName, "jobs+more"),
            (DnType::CommonName, " ali=ce "),
        ];
        let certificate_of = |parts: &[(DnType, &str)]| certificate(name(parts));
        let full = certificate_of(&full);
        let expected = "CN=\\ ali=ce\\ ,OU=jobs\\+more,O=Example\\, \\\"Inc\\\",C=DE";
        assert_eq!(user(&full, CertificateName::Distinguished).as_deref(), Some(expected));
        assert_eq!(user(&full, CertificateName::Common).as_deref(), Some(" ali=ce "));
        // emailAddress has no name of its own there.
        let mail = certificate_of(&[
            (DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a@b"),
            (DnType::CommonName, "#x"),
        ]);
        let found = user(&mail, CertificateName::Distinguished).expect("a name");
        assert_eq!(found, "CN=\\#x,1.2.840.113549.1.9.1=#0c03614062");
        let mut wide = DistinguishedName::new();
        wide.push(DnType::CommonName, DnValue::BmpString("Ωmega".try_into().expect("text")));
        assert_eq!(user(&certificate(wide), CertificateName::Common).as_deref(), Some("Ωmega"));
    }

    #[test]
    fn what_names_nobody_names_nobody() {
        let nameless = certificate(name(&[(DnType::OrganizationName, "Example")]));
        assert_eq!(user(&nameless, CertificateName::Common), None);
        assert_eq!(user(&nameless, CertificateName::Distinguished).as_deref(), Some("O=Example"));
        assert_eq!(user(&certificate(DistinguishedName::new()), CertificateName::Distinguished), None);
        let whole = certificate(name(&[(DnType::CommonName, "alice")]));
        let cut_before = whole.len();
        for cut in 0..cut_before {
            assert_eq!(user(&whole[..cut], CertificateName::Common), None, "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..120), at in 0usize..200, with: u8) {
            let _ = user(&bytes, CertificateName::Distinguished);
            let mut damaged = certificate(name(&[(DnType::CommonName, "alice"), (DnType::OrganizationName, "Example")]));
            let at = at % damaged.len();
            damaged[at] = with;
            let _ = user(&damaged, CertificateName::Distinguished);
            let _ = user(&damaged, CertificateName::Common);
        }
    }
}
