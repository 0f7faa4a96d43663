//! Requests that no client would send: samples and fields after a shape, put together and damaged by somebody's choices.
//!
//! For fuzzing (the choices are the fuzzer's bytes) and for tests that send a million of them (the choices are random). Every
//! API and version of the table is reached, new ones without a change here.

use bytes::Bytes;

use super::apis::{APIS, Api};
use super::guard::{Field, Fields, plain};
use super::samples;

/// No frame is made larger than this.
const BYTES_MAX: usize = 64 << 10;

/// Bytes that decide; zeros when they are used up.
#[derive(Debug)]
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { rest: bytes }
    }

    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *byte
    }

    /// A number below `n`, which is at most 65,536 and not 0.
    fn below(&mut self, n: usize) -> usize {
        let high = if n > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (high | usize::from(self.byte())) % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }
}

/// A frame without its size.
pub fn frame(choices: &mut Choices<'_>) -> Bytes {
    let (api, version) = any(choices);
    let mut frame = match choices.below(4) {
        0 | 1 => samples::frame(api, version).to_vec(),
        2 => {
            let mut frame = head(api, version);
            Writer { out: &mut frame, version, flexible: api.is_flexible(version), choices }.structure(api.shape);
            frame
        }
        // The body of another request behind the header of this one.
        _ => {
            let (other, its_version) = any(choices);
            [&head(api, version)[..], &samples::body(other, its_version)].concat()
        }
    };
    for _ in 0..[0, 0, 1, 1, 1, 2, 3, 5][choices.below(8)] {
        damage(&mut frame, choices);
    }
    frame.truncate(BYTES_MAX);
    frame.into()
}

fn any(choices: &mut Choices<'_>) -> (&'static Api, i16) {
    let api = &APIS[choices.below(APIS.len())];
    let (from, to) = api.versions;
    let versions = usize::from((to - from).unsigned_abs()) + 1;
    (api, from + i16::try_from(choices.below(versions)).expect("there are few versions"))
}

/// Key, version, correlation id, the client's name, and no tagged fields where there may be some.
fn head(api: &Api, version: i16) -> Vec<u8> {
    let mut head = (api.key as i16).to_be_bytes().to_vec();
    head.extend_from_slice(&version.to_be_bytes());
    head.extend_from_slice(&[0, 0, 0, 7, 0, 1, b'm']);
    if api.is_flexible(version) {
        head.push(0);
    }
    head
}

/// Numbers at which something changes.
const EDGES: [i64; 12] = [
    0,
    -1,
    1,
    -2,
    i16::MAX as i64,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
    200_001,
    100_000,
    u32::MAX as i64,
];

/// Changes bytes somewhere: one, a number, a piece more, a piece less, a piece twice, an end.
fn damage(frame: &mut Vec<u8>, choices: &mut Choices<'_>) {
    if frame.is_empty() || frame.len() > BYTES_MAX {
        return;
    }
    let at = choices.below(frame.len());
    let piece = at..frame.len().min(at + 1 + choices.below(32));
    match choices.below(8) {
        0 => frame[at] = choices.byte(),
        1 => frame[at] ^= 1 << choices.below(8),
        2 => {
            let edge = EDGES[choices.below(EDGES.len())].to_be_bytes();
            let width = [1, 2, 4, 8][choices.below(4)];
            let bytes = &edge[8 - width..];
            let fits = bytes.len().min(frame.len() - at);
            frame[at..at + fits].copy_from_slice(&bytes[..fits]);
        }
        // The longest compact numbers.
        3 => drop(frame.splice(at..at, [0xFF, 0xFF, 0xFF, 0xFF, 0x0F])),
        4 => drop(frame.drain(piece)),
        5 => {
            let twice = frame[piece.clone()].to_vec();
            let times = 1 + choices.below(64);
            drop(frame.splice(piece.start..piece.start, twice.repeat(times)));
        }
        6 => frame.truncate(at),
        // A tagged field more, of a number that may mean something, with a length that may be wrong.
        _ => {
            let held = choices.below(24);
            let said = if choices.one_in(4) { choices.byte() } else { held as u8 };
            frame[at] = frame[at].saturating_add(1);
            let tag = [choices.below(3) as u8, said];
            drop(frame.splice(at + 1..at + 1, tag.into_iter().chain((0..held).map(|_| 1))));
        }
    }
}

/// Writes what a shape says.
struct Writer<'a, 'c> {
    out: &'a mut Vec<u8>,
    version: i16,
    flexible: bool,
    choices: &'a mut Choices<'c>,
}

impl Writer<'_, '_> {
    fn structure(&mut self, shape: &str) {
        let mut tagged = Vec::new();
        for field in (Fields { rest: shape, version: self.version }) {
            match field {
                Field::Tagged(tag, content) => tagged.push((tag, content)),
                field => self.field(field),
            }
        }
        if self.flexible {
            self.tags(&tagged);
        }
    }

    fn field(&mut self, field: Field<'_>) {
        match field {
            Field::Fixed(bytes) => {
                let edge = EDGES[self.choices.below(EDGES.len())];
                let wide = [0; 8].into_iter().chain(edge.to_be_bytes()).collect::<Vec<u8>>();
                self.out.extend_from_slice(&wide[16 - bytes..]);
            }
            Field::String => {
                let length = self.choices.below(4);
                self.length(length, true);
                self.out.extend(std::iter::repeat_n(b's', length));
            }
            Field::Bytes => {
                let length = self.choices.below(70);
                self.length(length, false);
                self.out.extend((0..length).map(|n| n as u8));
            }
            Field::Plain(kind) => {
                let element = plain(kind.chars().next().expect("an array has elements"));
                for _ in 0..self.count() {
                    self.field(element);
                }
            }
            Field::Structs(shape) => {
                for _ in 0..self.count() {
                    self.structure(shape);
                }
            }
            Field::Struct(shape) => self.structure(shape),
            Field::Nullable(shape) => {
                let is_there = self.choices.one_in(2);
                self.out.push(if is_there { 1 } else { self.choices.byte() });
                if is_there {
                    self.structure(shape);
                }
            }
            // Behind the others.
            Field::Tagged(..) => {}
        }
    }

    /// How many elements follow: as many as are announced, seldom fewer.
    fn count(&mut self) -> usize {
        let count = match self.choices.below(64) {
            0 => 300,
            few => few % 4,
        };
        let count = if self.out.len() > BYTES_MAX / 8 { count.min(1) } else { count };
        self.length(count, false);
        count
    }

    fn length(&mut self, length: usize, short: bool) {
        let said = if self.choices.one_in(24) { EDGES[self.choices.below(EDGES.len())] } else { length as i64 };
        if self.flexible {
            self.varint((said + i64::from(said < i64::MAX)) as u32);
        } else if short {
            self.out.extend_from_slice(&(said as i16).to_be_bytes());
        } else {
            self.out.extend_from_slice(&(said as i32).to_be_bytes());
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn tags(&mut self, known: &[(u32, &str)]) {
        let known: Vec<_> = known.iter().filter(|_| self.choices.one_in(2)).copied().collect();
        let unknown = if self.choices.one_in(8) { self.choices.below(40) } else { 0 };
        self.varint((known.len() + unknown) as u32);
        for (tag, content) in known {
            let mut held = Vec::new();
            let Writer { version, flexible, .. } = *self;
            let mut inner = Writer { out: &mut held, version, flexible, choices: &mut *self.choices };
            for field in (Fields { rest: content, version }) {
                inner.field(field);
            }
            self.varint(tag);
            let length = held.len() as i64 - i64::from(self.choices.one_in(24));
            self.varint(length.max(0) as u32);
            self.out.extend_from_slice(&held);
        }
        for tag in 0..unknown {
            self.varint(100 + tag as u32);
            self.varint(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cutwater_platform::SplitMix;

    use super::*;
    use crate::api::decodes;
    use crate::wire::codec;

    #[test]
    fn made_up_requests_reach_every_version_of_every_api_and_thousands_are_decoded_and_refused() {
        let mut random = SplitMix::new(3);
        let (mut reached, mut decoded, mut refused) = (BTreeSet::new(), 0, 0);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..40).flat_map(|_| random.next().to_le_bytes()).collect();
            match codec::read(frame(&mut Choices::new(&bytes))) {
                Ok(head) if decodes(&head) => {
                    reached.insert((head.api.key as i16, head.version));
                    decoded += 1;
                }
                _ => refused += 1,
            }
        }
        let all = APIS.iter().map(|api| usize::from((api.versions.1 - api.versions.0).unsigned_abs()) + 1).sum();
        assert_eq!(reached.len(), all, "versions that are decoded at least once");
        assert!(decoded > 3_000 && refused > 3_000, "{decoded} decoded, {refused} refused");
    }
}
