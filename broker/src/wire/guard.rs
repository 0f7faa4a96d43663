//! Looks at a request before anything else does: every length and every count must fit the bytes that are there.
//!
//! `kafka-protocol` allocates as many slots as an array says it has before it reads the first one; a frame of a few bytes
//! would make it ask for hundreds of gigabytes. Behind this guard that can't happen:
//! * every string, byte array and tagged field lies within the frame;
//! * a tagged field that has a meaning is exactly as long as it says: `kafka-protocol` reads what it means and not what its
//!   length says, so a wrong length would have it read the rest of the frame as something else than the guard did;
//! * every array of n elements has n times the least size of its element left in the frame;
//! * all arrays and tagged fields of a request together have at most [`ELEMENTS_MAX`] elements;
//! * no more than a few bytes are left over behind the last field ([`TRAILING_MAX`]).
//!
//! The guard allocates nothing and recurses only as deep as the shapes of [`super::apis`], which are constants. It says
//! nothing about meaning: that is the handlers' business.

use thiserror::Error;

use super::apis::Api;

/// Elements of arrays and tagged fields in one request.
pub const ELEMENTS_MAX: usize = 200_000;

/// Bytes that may follow the last field: librdkafka leaves three behind a null list of topics in `Metadata`, and Kafka's
/// own servers don't look.
pub const TRAILING_MAX: usize = 16;

/// A request that isn't one. The connection that sent it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It ends before its fields do, or says that something is longer than what is left.
    #[error("the request is cut short or says that a field is longer than what is left of it")]
    Short,
    /// It goes on behind its last field.
    #[error("{extra} bytes follow the last field of the request")]
    Trailing {
        /// How many.
        extra: usize,
    },
    /// A length is negative, or a number has more digits than it needs.
    #[error("a length in the request is none")]
    Length,
    /// A tagged field of a known meaning says that it is longer or shorter than what it holds.
    #[error("tagged field {tag} of the request isn't as long as it says")]
    Tagged {
        /// Its number.
        tag: u32,
    },
    /// There are more elements than any client needs.
    #[error("the request has more than {ELEMENTS_MAX} elements")]
    TooMany,
}

/// Checks the body of a request of `version`: what its shape says, and no more.
///
/// # Errors
/// What is wrong with it.
pub fn check(api: &Api, version: i16, body: &[u8]) -> Result<(), Malformed> {
    let extra = left_over(api, version, body)?;
    if extra <= TRAILING_MAX { Ok(()) } else { Err(Malformed::Trailing { extra }) }
}

/// As [`check`], and answers how many bytes follow the last field.
pub(super) fn left_over(api: &Api, version: i16, body: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader { rest: body, elements: 0, version, flexible: api.is_flexible(version) };
    reader.structure(api.shape)?;
    Ok(reader.rest.len())
}

/// Takes the header of a request off its front: what stands behind correlation id, and tagged fields if it is flexible.
///
/// # Errors
/// It is cut short.
pub fn skip_header_end(flexible: bool, bytes: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader { rest: bytes, elements: 0, version: 0, flexible: false };
    reader.string()?;
    if flexible {
        reader.tags("")?;
    }
    Ok(bytes.len() - reader.rest.len())
}

/// Fields of one struct, one after the other, with what stands before `:` already read.
pub(super) struct Fields<'a> {
    pub(super) rest: &'a str,
    pub(super) version: i16,
}

/// One field that is there in this version.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    Fixed(usize),
    String,
    Bytes,
    /// Of plain elements.
    Plain(&'a str),
    /// Of structs.
    Structs(&'a str),
    /// Behind the others, if it is there at all: its number, and the one field it holds.
    Tagged(u32, &'a str),
    /// A struct on its own, which only tagged fields hold.
    Struct(&'a str),
    /// A byte that says whether a struct follows it.
    Nullable(&'a str),
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            self.rest = self.rest.trim_start();
            let here = match self.rest.find([' ', '{', '[', '<', '(', ':']) {
                Some(end) if self.rest.as_bytes().get(end) == Some(&b':') => {
                    let range = &self.rest[..end];
                    self.rest = &self.rest[end + 1..];
                    covers(range, self.version)
                }
                _ => true,
            };
            let kind = self.rest.chars().next()?;
            let field = match kind {
                '{' => Field::Structs(self.enclosed('{', '}')),
                '[' => Field::Plain(self.enclosed('[', ']')),
                '(' => Field::Struct(self.enclosed('(', ')')),
                '?' => {
                    self.rest = &self.rest[1..];
                    Field::Nullable(self.enclosed('(', ')'))
                }
                '<' => tagged(self.enclosed('<', '>')),
                _ => {
                    self.rest = &self.rest[1..];
                    plain(kind)
                }
            };
            if here {
                return Some(field);
            }
        }
    }
}

impl<'a> Fields<'a> {
    /// What stands between this bracket and its partner; the reader goes on behind it.
    fn enclosed(&mut self, open: char, close: char) -> &'a str {
        let mut depth = 0;
        for (at, c) in self.rest.char_indices() {
            depth += i32::from(c == open) - i32::from(c == close);
            if depth == 0 {
                let inside = &self.rest[1..at];
                self.rest = &self.rest[at + 1..];
                return inside;
            }
        }
        unreachable!("a shape with a bracket that isn't closed: {}", self.rest)
    }
}

pub(super) fn plain(kind: char) -> Field<'static> {
    match kind {
        'b' => Field::Fixed(1),
        'h' => Field::Fixed(2),
        'i' => Field::Fixed(4),
        'l' => Field::Fixed(8),
        'u' => Field::Fixed(16),
        's' => Field::String,
        'y' => Field::Bytes,
        other => unreachable!("a shape with an unknown field: {other}"),
    }
}

fn tagged(inside: &str) -> Field<'_> {
    let (tag, field) = inside.split_once(' ').expect("a tagged field has a number and a field");
    Field::Tagged(tag.parse().expect("tagged fields have numbers"), field)
}

/// Whether a range such as `3+`, `0-2` or `13` covers a version.
fn covers(range: &str, version: i16) -> bool {
    let number = |text: &str| text.parse::<i16>().expect("shapes have numbers before a colon");
    if let Some(from) = range.strip_suffix('+') {
        return version >= number(from);
    }
    match range.split_once('-') {
        Some((from, to)) => (number(from)..=number(to)).contains(&version),
        None => version == number(range),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    elements: usize,
    version: i16,
    flexible: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn structure(&mut self, shape: &str) -> Result<(), Malformed> {
        for field in (Fields { rest: shape, version: self.version }) {
            self.field(field)?;
        }
        if self.flexible { self.tags(shape) } else { Ok(()) }
    }

    fn field(&mut self, field: Field<'_>) -> Result<(), Malformed> {
        match field {
            Field::Fixed(bytes) => self.take(bytes).map(drop),
            Field::String => self.string(),
            Field::Bytes => {
                let length = if self.flexible { self.compact()? } else { self.long_length()? };
                self.take(length.unwrap_or(0)).map(drop)
            }
            Field::Plain(kind) => {
                let element = plain(kind.chars().next().expect("an array has elements"));
                for _ in 0..self.count(self.least(element))? {
                    self.field(element)?;
                }
                Ok(())
            }
            Field::Structs(shape) => {
                for _ in 0..self.count(self.least_of(shape))? {
                    self.structure(shape)?;
                }
                Ok(())
            }
            Field::Struct(shape) => self.structure(shape),
            Field::Nullable(shape) => match self.take(1)? {
                // As `kafka-protocol` reads it: anything but 1 is null.
                [1] => self.structure(shape),
                _ => Ok(()),
            },
            // Not in its place but behind all others, in `tags`.
            Field::Tagged(..) => Ok(()),
        }
    }

    fn string(&mut self) -> Result<(), Malformed> {
        let length = if self.flexible {
            self.compact()?
        } else {
            let bytes = self.take(2)?.try_into().expect("two bytes");
            length(i16::from_be_bytes(bytes).into())?
        };
        self.take(length.unwrap_or(0)).map(drop)
    }

    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = if self.flexible { self.compact()? } else { self.long_length()? }.unwrap_or(0);
        self.add(count)?;
        let needed = count.checked_mul(least).ok_or(Malformed::Short)?;
        if needed > self.rest.len() { Err(Malformed::Short) } else { Ok(count) }
    }

    fn add(&mut self, elements: usize) -> Result<(), Malformed> {
        self.elements = self.elements.saturating_add(elements);
        if self.elements > ELEMENTS_MAX { Err(Malformed::TooMany) } else { Ok(()) }
    }

    /// The least bytes of a field.
    fn least(&self, field: Field<'_>) -> usize {
        match field {
            Field::Fixed(bytes) => bytes,
            Field::Nullable(_) => 1,
            Field::Tagged(..) => 0,
            _ if self.flexible => 1,
            Field::String => 2,
            _ => 4,
        }
    }

    /// The least bytes of a struct.
    fn least_of(&self, shape: &str) -> usize {
        let fields = Fields { rest: shape, version: self.version }.map(|field| self.least(field));
        fields.sum::<usize>() + usize::from(self.flexible)
    }

    fn long_length(&mut self) -> Result<Option<usize>, Malformed> {
        length(i32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    /// A compact length: one more than it means, 0 for null.
    fn compact(&mut self) -> Result<Option<usize>, Malformed> {
        Ok(self.varint()?.checked_sub(1).map(|length| length as usize))
    }

    /// An unsigned variable-length number of at most 32 bits and no more bytes than it needs.
    fn varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = *self.take(1)? else { return Err(Malformed::Short) };
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                let canonical = byte != 0 || shift == 0;
                return u32::try_from(value).ok().filter(|_| canonical).ok_or(Malformed::Length);
            }
        }
        Err(Malformed::Length)
    }

    /// The tagged fields of a struct. One that its shape doesn't know is skipped, as `kafka-protocol` does.
    fn tags(&mut self, shape: &str) -> Result<(), Malformed> {
        let count = self.varint()? as usize;
        self.add(count)?;
        for _ in 0..count {
            let tag = self.varint()?;
            let bytes = self.varint()? as usize;
            let held = self.take(bytes)?;
            for field in (Fields { rest: shape, version: self.version }) {
                if let Field::Tagged(number, content) = field
                    && number == tag
                {
                    self.tagged(tag, content, held)?;
                }
            }
        }
        Ok(())
    }

    /// What a tagged field holds fills it to the last byte.
    fn tagged(&mut self, tag: u32, content: &str, held: &'a [u8]) -> Result<(), Malformed> {
        let behind = std::mem::replace(&mut self.rest, held);
        let read = Fields { rest: content, version: self.version }.try_for_each(|field| self.field(field));
        let left = std::mem::replace(&mut self.rest, behind);
        match read {
            Err(Malformed::TooMany) => Err(Malformed::TooMany),
            Ok(()) if left.is_empty() => Ok(()),
            _ => Err(Malformed::Tagged { tag }),
        }
    }
}

/// -1 is null; less is nothing.
fn length(value: i32) -> Result<Option<usize>, Malformed> {
    match value {
        -1 => Ok(None),
        _ => usize::try_from(value).map(Some).map_err(|_| Malformed::Length),
    }
}
