//! Values that are numbers.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::{parse_text, shortened};
use crate::core::address::Family;
use crate::core::types::{Generation, Version};
use crate::limits;

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number<const MIN: u64, const MAX: u64>(u64);

/// Length of a lease.
pub type TtlSeconds = Number<1, { limits::DURATION_SECONDS_MAX }>;
/// How long a declined address stays out of circulation.
pub type ProbationSeconds = Number<1, { limits::DURATION_SECONDS_MAX }>;
/// A cooldown, or the grace of a sweep; may be 0.
pub type CooldownSeconds = Number<0, { limits::DURATION_SECONDS_MAX }>;
/// How soon a request must be begun.
pub type DeadlineMs = Number<1, { limits::DEADLINE_MS_MAX }>;
/// How many records a page has at most.
pub type PageLimit = Number<1, { limits::LIST_PAGE_RECORDS_MAX as u64 }>;
/// Length of a prefix; whether it fits the family is checked later.
pub type PrefixLength = Number<0, 128>;
/// A generation or version: a number that every JSON reader keeps exactly.
pub type Serial = Number<0, { limits::JSON_NUMBER_MAX }>;

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    /// The number, if it is in its bounds.
    pub const fn new(number: u64) -> Option<Self> {
        if number >= MIN && number <= MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Number<0, 128> {
    /// The length in the type that the core uses.
    pub const fn length(self) -> u8 {
        self.0 as u8
    }
}

impl From<Generation> for Serial {
    fn from(generation: Generation) -> Self {
        Number(generation.0.min(limits::JSON_NUMBER_MAX))
    }
}

impl From<Version> for Serial {
    fn from(version: Version) -> Self {
        Number(version.0.min(limits::JSON_NUMBER_MAX))
    }
}

impl<const MIN: u64, const MAX: u64> FromStr for Number<MIN, MAX> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().and_then(Self::new);
        number.ok_or_else(|| format!("must be a whole number from {MIN} to {MAX}, not {:?}", shortened(text)))
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Display for Number<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Number<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// Reads whole numbers from `min` to `max`; the error for anything else names these bounds.
struct WholeNumber {
    min: u64,
    max: u64,
}

impl WholeNumber {
    fn refuse<E: Error>(&self, found: impl fmt::Display) -> E {
        E::custom(format_args!("must be a whole number from {} to {}, not {found}", self.min, self.max))
    }
}

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.min, self.max)
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if (self.min..=self.max).contains(&number) { Ok(number) } else { Err(self.refuse(number)) }
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(self.refuse(number)),
        }
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // Debug keeps the `.0`, which shows why 60.0 is not a whole number.
        Err(self.refuse(format_args!("{number:?}")))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeNumber { min: MIN, max: MAX }).map(Self)
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Number<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Number{MIN}To{MAX}"))
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// How long to wait for capacity; 0 means not to wait.
pub type WaitSeconds = Number<0, { limits::WAIT_SECONDS_MAX }>;

/// `ttl_seconds` of `ip.renew`: must be there, may be null. (An `Option` could be left out.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewTtl(pub Option<TtlSeconds>);

impl Serialize for RenewTtl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RenewTtl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrNull(WholeNumber);
        impl Visitor<'_> for OrNull {
            type Value = Option<u64>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.expecting(f)?;
                f.write_str(", or null")
            }
            fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
                Ok(None)
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Option<u64>, E> {
                self.0.visit_u64(number).map(Some)
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Option<u64>, E> {
                self.0.visit_i64(number).map(Some)
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Option<u64>, E> {
                self.0.visit_f64(number).map(Some)
            }
        }
        // Not `deserialize_option`: with that, serde would take a missing member for null.
        let bounds = WholeNumber { min: 1, max: limits::DURATION_SECONDS_MAX };
        deserializer.deserialize_any(OrNull(bounds)).map(|seconds| RenewTtl(seconds.map(Number)))
    }
}

impl JsonSchema for RenewTtl {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("RenewTtl")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "null"], "minimum": 1, "maximum": limits::DURATION_SECONDS_MAX })
    }
}

macro_rules! serial_on_the_wire {
    ($($type:ident $description:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(self.0)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_u64(WholeNumber { min: 0, max: limits::JSON_NUMBER_MAX }).map($type)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($type))
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "integer", "minimum": 0, "maximum": limits::JSON_NUMBER_MAX, "description": $description
                })
            }
        }
    )*};
}
serial_on_the_wire! {
    Generation "Number of one holding of an address: rises with every grant in a network and never repeats";
    Version "Number of a network's configuration: rises with every change of it";
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FamilyVisitor;
        impl Visitor<'_> for FamilyVisitor {
            type Value = Family;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("4 or 6")
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Family, E> {
                match number {
                    4 => Ok(Family::V4),
                    6 => Ok(Family::V6),
                    other => Err(E::custom(format_args!("must be 4 or 6, not {other}"))),
                }
            }
        }
        deserializer.deserialize_u64(FamilyVisitor)
    }
}

impl JsonSchema for Family {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Family")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "enum": [4, 6] })
    }
}

/// A count of addresses: a decimal text, because an IPv6 /64 is larger than a JSON number can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Count(pub u128);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Count {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let one_spelling = digits && (text == "0" || !text.starts_with('0'));
        let number = text.parse().ok().filter(|_| one_spelling).map(Count);
        number.ok_or_else(|| format!("must be a count in decimal digits, not {:?}", shortened(text)))
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_text(deserializer, "a count as a text of decimal digits", Count::from_str)
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Count")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "pattern": "^(0|[1-9][0-9]{0,38})$",
            "description": "A count of addresses, in decimal digits"
        })
    }
}

/// A share from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// The share, if it is from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShareVisitor;
        impl Visitor<'_> for ShareVisitor {
            type Value = Share;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1")
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Share, E> {
                Share::new(number).ok_or_else(|| E::custom(format_args!("must be a number from 0 to 1, not {number}")))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Share, E> {
                self.visit_f64(number as f64)
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Share, E> {
                self.visit_f64(number as f64)
            }
        }
        deserializer.deserialize_f64(ShareVisitor)
    }
}

impl JsonSchema for Share {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Share")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}
