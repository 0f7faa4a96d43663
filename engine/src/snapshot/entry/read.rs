//! Bytes -> values.

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::{EntryError, LONG};

/// The value at the beginning of `bytes`, which then begin behind it. After an error they begin anywhere.
#[inline]
pub(crate) fn read_entry<'de, T: Deserialize<'de>>(bytes: &mut &'de [u8]) -> Result<T, EntryError> {
    T::deserialize(&mut Reader { left: bytes })
}

struct Reader<'a, 'de> {
    left: &'a mut &'de [u8],
}

impl<'de> Reader<'_, 'de> {
    #[inline]
    fn take(&mut self, length: u64) -> Result<&'de [u8], EntryError> {
        let split = usize::try_from(length).ok().and_then(|length| self.left.split_at_checked(length));
        let (taken, left) = split.ok_or(EntryError::Short { needed: length, left: self.left.len() })?;
        *self.left = left;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let short = EntryError::Short { needed: N as u64, left: self.left.len() };
        let (taken, left) = self.left.split_first_chunk().ok_or(short)?;
        *self.left = left;
        Ok(*taken)
    }

    #[inline]
    fn length(&mut self) -> Result<u64, EntryError> {
        match self.array::<1>()? {
            [LONG] => Ok(u64::from_le_bytes(self.array()?)),
            [short] => Ok(u64::from(short)),
        }
    }

    #[inline]
    fn flag(&mut self) -> Result<bool, EntryError> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(EntryError::Invalid { expected: "0 or 1", found: u64::from(other) }),
        }
    }

    fn text(&mut self) -> Result<&'de str, EntryError> {
        let length = self.length()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map_err(|e| EntryError::Invalid { expected: "UTF-8", found: u64::from(bytes[e.valid_up_to()]) })
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
            visitor.$visit(<$type>::from_le_bytes(self.array()?))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Reader<'_, 'de> {
    type Error = EntryError;

    numbers! {
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_i128 visit_i128 i128
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
        deserialize_u128 visit_u128 u128
        deserialize_f32 visit_f32 f32
        deserialize_f64 visit_f64 f64
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_bool(self.flag()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        let found = u32::from_le_bytes(self.array()?);
        let char = char::from_u32(found);
        visitor.visit_char(char.ok_or(EntryError::Invalid { expected: "character", found: u64::from(found) })?)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_borrowed_str(self.text()?)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_borrowed_str(self.text()?)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        let length = self.length()?;
        visitor.visit_borrowed_bytes(self.take(length)?)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        if self.flag()? { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        let left = self.length()?;
        visitor.visit_seq(Elements { reader: self, left })
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, EntryError> {
        visitor.visit_seq(Elements { reader: self, left: len as u64 })
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, EntryError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, EntryError> {
        let left = self.length()?;
        visitor.visit_map(Elements { reader: self, left })
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, EntryError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, EntryError> {
        visitor.visit_enum(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, EntryError> {
        Err(EntryError::NotSelfDescribing)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, EntryError> {
        Err(EntryError::NotSelfDescribing)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, EntryError> {
        Err(EntryError::NotSelfDescribing)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// What is left of a sequence, tuple or map.
struct Elements<'a, 'b, 'de> {
    reader: &'a mut Reader<'b, 'de>,
    left: u64,
}

impl Elements<'_, '_, '_> {
    /// No more than there are bytes: visitors allocate by it.
    #[inline]
    fn hint(&self) -> Option<usize> {
        usize::try_from(self.left.min(self.reader.left.len() as u64)).ok()
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, '_, 'de> {
    type Error = EntryError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, EntryError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> MapAccess<'de> for Elements<'_, '_, 'de> {
    type Error = EntryError;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, EntryError> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, EntryError> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> EnumAccess<'de> for &mut Reader<'_, 'de> {
    type Error = EntryError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), EntryError> {
        let number = self.length()?;
        let number = u32::try_from(number).map_err(|_| EntryError::Invalid { expected: "variant", found: number })?;
        let variant: de::value::U32Deserializer<EntryError> = number.into_deserializer();
        Ok((seed.deserialize(variant)?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Reader<'_, 'de> {
    type Error = EntryError;

    fn unit_variant(self) -> Result<(), EntryError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, EntryError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, EntryError> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, EntryError> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
