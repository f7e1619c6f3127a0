//! Makes values of any type that crosses, by deserializing random choices instead of bytes.
//!
//! The `Deserialize` of a type knows what the type is made of; so a new variant or member needs nothing here. Numbers rise
//! and addresses of one value are of one family, so that prefixes and ranges are valid ones.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::rngs::SmallRng;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor, value,
};

/// Which variants of which enums have been made, out of how many.
pub type Seen = BTreeMap<&'static str, (usize, BTreeSet<u32>)>;

/// One value, and the variants in it.
pub fn any<T: DeserializeOwned>(rng: &mut SmallRng, seen: &mut Seen) -> T {
    loop {
        let is_v6 = rng.random();
        let mut chance = Chance { rng, number: 0, is_v6, made: Vec::new() };
        let value = crate::core::compact::sharing(|| T::deserialize(&mut chance));
        let made = std::mem::take(&mut chance.made);
        // Some checks are rarely met by chance, such as a mark below 2^53: try again.
        if let Ok(value) = value {
            for (name, of, variant) in made {
                seen.entry(name).or_insert_with(|| (of, BTreeSet::new())).1.insert(variant);
            }
            return value;
        }
    }
}

struct Chance<'a> {
    rng: &'a mut SmallRng,
    number: u32,
    is_v6: bool,
    made: Vec<(&'static str, usize, u32)>,
}

impl Chance<'_> {
    /// Base of a /24, after all earlier ones.
    fn block(&mut self) -> u32 {
        self.number += self.rng.random_range(1..4);
        0x0a00_0000 + (self.number << 8)
    }

    fn text(&mut self) -> &'static str {
        const TEXTS: &[&str] = &["lan", "web/0", "a", "z1.example.org", "node-0007/pod-7f9c4d-abc-of-many-bytes"];
        match self.rng.random_range(0..60) {
            0 => "J\u{f6}rg",
            1 => "",
            n => TEXTS[n % TEXTS.len()],
        }
    }

    fn count(&mut self) -> usize {
        [0, 1, 1, 2, 3][self.rng.random_range(0..5)]
    }
}

type Failed = value::Error;

macro_rules! numbers {
    ($($deserialize:ident $visit:ident $make:expr;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            let make: fn(&mut Chance<'_>) -> _ = $make;
            visitor.$visit(make(self))
        }
    )*};
}

macro_rules! unused {
    ($($deserialize:ident)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Failed> {
            Err(Failed::custom(stringify!($deserialize)))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Chance<'_> {
    type Error = Failed;

    numbers! {
        deserialize_bool visit_bool |chance| chance.rng.random();
        deserialize_u8 visit_u8 |chance| [24, 32][chance.rng.random_range(0..2)];
        deserialize_u16 visit_u16 |chance| chance.rng.random();
        deserialize_u32 visit_u32 |chance| chance.block();
        deserialize_u64 visit_u64 |chance| match chance.rng.random_range(0..40) {
            0 => chance.rng.random(),
            1 => 4,
            2 => 6,
            _ => chance.rng.random_range(0..1 << 47),
        };
        deserialize_u128 visit_u128 |chance| u128::from(chance.block()) << 96;
        deserialize_str visit_str |chance| chance.text();
        deserialize_string visit_str |chance| chance.text();
    }
    unused! {
        deserialize_any deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_f32 deserialize_f64
        deserialize_char deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
        deserialize_ignored_any
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        if self.rng.random() { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let count = self.count();
        visitor.visit_seq(Parts(self, count))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Parts(self, count))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_seq(Parts(self, count))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let count = self.count();
        visitor.visit_map(Parts(self, count))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_seq(Parts(self, fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        let variant = match name {
            "AddressBits" => u32::from(self.is_v6),
            // A reference to an earlier configuration is only valid after that one.
            "Shared" => 0,
            _ => self.rng.random_range(0..variants.len() as u32),
        };
        if name != "Shared" {
            self.made.push((name, variants.len(), variant));
        }
        visitor.visit_enum(Chosen(self, variant))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

struct Parts<'a, 'b>(&'a mut Chance<'b>, usize);

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Failed;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failed> {
        if self.1 == 0 {
            return Ok(None);
        }
        self.1 -= 1;
        seed.deserialize(&mut *self.0).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, '_> {
    type Error = Failed;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        self.next_element_seed(seed)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failed> {
        seed.deserialize(&mut *self.0)
    }
}

struct Chosen<'a, 'b>(&'a mut Chance<'b>, u32);

impl<'de> EnumAccess<'de> for Chosen<'_, '_> {
    type Error = Failed;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Failed> {
        let index: value::U32Deserializer<Failed> = self.1.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Chosen<'_, '_> {
    type Error = Failed;
    fn unit_variant(self) -> Result<(), Failed> {
        Ok(())
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failed> {
        seed.deserialize(self.0)
    }
    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Parts(self.0, count))
    }
    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Parts(self.0, fields.len()))
    }
}
