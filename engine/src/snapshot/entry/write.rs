//! Values -> bytes.

use serde::ser::{self, Serialize};

use super::{EntryError, LONG};

/// Appends `value` to `out`. After an error `out` has an incomplete value at its end.
#[inline]
pub(crate) fn write_entry<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), EntryError> {
    value.serialize(&mut Writer { out })
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    #[inline]
    fn length(&mut self, length: u64) {
        match u8::try_from(length) {
            Ok(short) if short < LONG => self.out.push(short),
            _ => {
                self.out.push(LONG);
                self.out.extend_from_slice(&length.to_le_bytes());
            }
        }
    }
}

macro_rules! numbers {
    ($($method:ident $type:ty)*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<(), EntryError> {
            self.out.extend_from_slice(&value.to_le_bytes());
            Ok(())
        }
    )*};
}

impl ser::Serializer for &mut Writer<'_> {
    type Ok = ();
    type Error = EntryError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_i8 i8
        serialize_i16 i16
        serialize_i32 i32
        serialize_i64 i64
        serialize_i128 i128
        serialize_u8 u8
        serialize_u16 u16
        serialize_u32 u32
        serialize_u64 u64
        serialize_u128 u128
        serialize_f32 f32
        serialize_f64 f64
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<(), EntryError> {
        self.out.push(u8::from(value));
        Ok(())
    }

    #[inline]
    fn serialize_char(self, value: char) -> Result<(), EntryError> {
        self.serialize_u32(u32::from(value))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), EntryError> {
        self.serialize_bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result<(), EntryError> {
        self.length(value.len() as u64);
        self.out.extend_from_slice(value);
        Ok(())
    }

    #[inline]
    fn serialize_none(self) -> Result<(), EntryError> {
        self.out.push(0);
        Ok(())
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EntryError> {
        self.out.push(1);
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit(self) -> Result<(), EntryError> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), EntryError> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(self, _: &'static str, variant: u32, _: &'static str) -> Result<(), EntryError> {
        self.length(u64::from(variant));
        Ok(())
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), EntryError> {
        value.serialize(self)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), EntryError> {
        self.length(u64::from(variant));
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self, EntryError> {
        self.length(len.ok_or(EntryError::UnknownLength)? as u64);
        Ok(self)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, EntryError> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, EntryError> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, EntryError> {
        self.length(u64::from(variant));
        Ok(self)
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Self, EntryError> {
        self.serialize_seq(len)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, EntryError> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, EntryError> {
        self.length(u64::from(variant));
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! parts {
    ($($trait:ident $method:ident ($($name:ident)?))*) => {$(
        impl ser::$trait for &mut Writer<'_> {
            type Ok = ();
            type Error = EntryError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Result<(), EntryError> {
                $(let _ = $name;)?
                value.serialize(&mut **self)
            }

            #[inline]
            fn end(self) -> Result<(), EntryError> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq serialize_element ()
    SerializeTuple serialize_element ()
    SerializeTupleStruct serialize_field ()
    SerializeTupleVariant serialize_field ()
    SerializeStruct serialize_field (name)
    SerializeStructVariant serialize_field (name)
}

impl ser::SerializeMap for &mut Writer<'_> {
    type Ok = ();
    type Error = EntryError;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), EntryError> {
        key.serialize(&mut **self)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EntryError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), EntryError> {
        Ok(())
    }
}
