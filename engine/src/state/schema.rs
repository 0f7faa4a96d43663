//! Fingerprint of the types in a state, so that bytes are never read as something they aren't.
//!
//! State files hold entries in postcard, which carries no types: a `u64` where an `i64` was written decodes to a wrong
//! number without a word. So a state's key and value types are *traced*: their `Deserialize` is run against a recorder
//! that hands out trial values and writes down what was asked for. The fingerprint is a hash of that record and of the
//! schema version given by the operator.
//!
//! What it detects: another primitive, a field added, removed, renamed or moved, a variant added, removed, renamed or
//! moved, an `Option` put around something, another nesting.
//!
//! What it can't detect, and the schema version is for: a change of *meaning* (seconds that become milliseconds); a change
//! inside any variant but the first of an enum; anything behind a type that refuses the trial value (0, false, an empty
//! string), because the trace ends there; anything deeper than [`DEPTH_MAX`] levels. Names of types are left out on
//! purpose: moving or renaming a type changes no byte.

use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Visitor};
use xxhash_rust::xxh3::xxh3_64;

/// Version of the rules by which a trace is made; part of every fingerprint.
pub const SCHEMA_RULES: u32 = 1;
/// Levels of nesting that are traced; a recursive type ends here.
const DEPTH_MAX: u32 = 32;
/// Bytes of trace after which tracing ends: wide recursive types would go on for ever.
const TRACE_MAX: usize = 64 * 1024;

/// The fingerprint of a state with these key and value types and this schema version.
///
/// ```
/// use cutwater_engine::state::schema_fingerprint;
/// assert_ne!(schema_fingerprint::<u64, u32>(1), schema_fingerprint::<u64, i32>(1));
/// assert_ne!(schema_fingerprint::<u64, u32>(1), schema_fingerprint::<u64, u32>(2));
/// ```
pub fn schema_fingerprint<K: DeserializeOwned, V: DeserializeOwned>(schema_version: u32) -> u64 {
    fingerprint(schema_version, &trace::<K>(), &trace::<V>())
}

/// The fingerprint of traced types.
pub(crate) fn fingerprint(schema_version: u32, key: &str, value: &str) -> u64 {
    xxh3_64(format!("rules {SCHEMA_RULES} version {schema_version} key {key} value {value}").as_bytes())
}

/// What a type asks of a deserializer, as text.
pub(crate) fn trace<T: DeserializeOwned>() -> String {
    let mut out = String::new();
    // The end of a trace by a refusal is part of the trace; it is the same in every run.
    let refused = T::deserialize(Tracer { out: &mut out, depth: 0 }).is_err();
    if refused {
        out.push('!');
    }
    out
}

/// A deserializer that records questions and answers with trial values.
struct Tracer<'a> {
    out: &'a mut String,
    depth: u32,
}

/// A type refused its trial value, or is too deep.
#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the trial value was refused")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Refused
    }
}

impl Tracer<'_> {
    fn note(&mut self, what: &str) -> Result<(), Refused> {
        self.out.push_str(what);
        self.out.push(' ');
        if self.out.len() > TRACE_MAX { Err(Refused) } else { Ok(()) }
    }

    fn deeper(&mut self) -> Result<Tracer<'_>, Refused> {
        if self.depth == DEPTH_MAX {
            return Err(Refused);
        }
        Ok(Tracer { out: self.out, depth: self.depth + 1 })
    }
}

macro_rules! primitives {
    ($($method:ident $text:literal $visit:ident $($value:expr)?;)*) => {$(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
            self.note($text)?;
            visitor.$visit($($value)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Refused;

    primitives! {
        deserialize_bool "bool" visit_bool false;
        deserialize_i8 "i8" visit_i8 0;
        deserialize_i16 "i16" visit_i16 0;
        deserialize_i32 "i32" visit_i32 0;
        deserialize_i64 "i64" visit_i64 0;
        deserialize_i128 "i128" visit_i128 0;
        deserialize_u8 "u8" visit_u8 0;
        deserialize_u16 "u16" visit_u16 0;
        deserialize_u32 "u32" visit_u32 0;
        deserialize_u64 "u64" visit_u64 0;
        deserialize_u128 "u128" visit_u128 0;
        deserialize_f32 "f32" visit_f32 0.0;
        deserialize_f64 "f64" visit_f64 0.0;
        deserialize_char "char" visit_char '\0';
        deserialize_str "str" visit_borrowed_str "";
        deserialize_string "str" visit_borrowed_str "";
        deserialize_bytes "bytes" visit_borrowed_bytes &[];
        deserialize_byte_buf "bytes" visit_borrowed_bytes &[];
        deserialize_identifier "name" visit_u64 0;
        deserialize_ignored_any "ignored" visit_unit;
        deserialize_unit "unit" visit_unit;
        deserialize_any "any" visit_unit;
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        self.note("option")?;
        visitor.visit_some(self.deeper()?)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.note("unit")?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        // Postcard writes what is inside and nothing else.
        visitor.visit_newtype_struct(self.deeper()?)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        self.note("seq")?;
        visitor.visit_seq(Elements { tracer: self.deeper()?, left: 1 })
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        self.note(&format!("tuple {len}"))?;
        visitor.visit_seq(Elements { tracer: self.deeper()?, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        self.note("map")?;
        visitor.visit_map(Elements { tracer: self.deeper()?, left: 1 })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.note(&format!("struct {fields:?}"))?;
        visitor.visit_seq(Elements { tracer: self.deeper()?, left: fields.len() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.note(&format!("enum {variants:?}"))?;
        visitor.visit_enum(Variant(self.deeper()?))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A limited number of elements, all traced.
struct Elements<'a> {
    tracer: Tracer<'a>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Elements<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.tracer.deeper()?).map(Some)
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_> {
    type Error = Refused;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(self.tracer.deeper()?)
    }
}

/// The first variant of an enum.
struct Variant<'a>(Tracer<'a>);

impl<'a, 'de> de::EnumAccess<'de> for Variant<'a> {
    type Error = Refused;
    type Variant = Tracer<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Tracer<'a>), Refused> {
        let first = de::value::U32Deserializer::<Refused>::new(0);
        Ok((seed.deserialize(first)?, self.0))
    }
}

impl<'de> de::VariantAccess<'de> for Tracer<'_> {
    type Error = Refused;

    fn unit_variant(mut self) -> Result<(), Refused> {
        self.note("unit")
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Refused> {
        self.note("newtype")?;
        seed.deserialize(self.deeper()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Stats {
        count: u64,
        sum: i64,
    }

    #[derive(Serialize, Deserialize)]
    struct Swapped {
        sum: i64,
        count: u64,
    }

    #[derive(Serialize, Deserialize)]
    struct Wider {
        count: u64,
        sum: i64,
        last: Option<String>,
    }

    #[derive(Serialize, Deserialize)]
    enum Tree {
        Node(Vec<Tree>),
        Leaf(u8),
    }

    #[test]
    fn every_change_of_shape_changes_the_fingerprint() {
        let all = [
            schema_fingerprint::<u64, Stats>(1),
            schema_fingerprint::<u64, Swapped>(1),
            schema_fingerprint::<u64, Wider>(1),
            schema_fingerprint::<u64, Option<Stats>>(1),
            schema_fingerprint::<u64, Vec<Stats>>(1),
            schema_fingerprint::<u32, Stats>(1),
            schema_fingerprint::<(u64, u64), Stats>(1),
            schema_fingerprint::<Stats, u64>(1),
            schema_fingerprint::<u64, Stats>(2),
            schema_fingerprint::<u64, Tree>(1),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate().skip(i + 1) {
                assert_ne!(a, b, "{i} and {j}");
            }
        }
    }

    #[test]
    fn a_fingerprint_is_the_same_in_every_build() {
        assert_eq!(trace::<Stats>(), "struct [\"count\", \"sum\"] u64 i64 ");
        assert_eq!(trace::<(String, Option<f64>)>(), "tuple 2 str option f64 ");
        assert!(
            trace::<std::collections::BTreeMap<u8, Tree>>()
                .starts_with("map u8 enum [\"Node\", \"Leaf\"] newtype seq ")
        );
    }

    #[test]
    fn a_recursive_type_and_one_that_refuses_zero_end_their_traces() {
        assert!(trace::<Tree>().ends_with('!'));
        assert_eq!(trace::<(std::num::NonZeroU8, u64)>(), "tuple 2 u8 !");
    }
}
