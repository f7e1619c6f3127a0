//! Values that are texts: names, identities, addresses, times, notes, and host names.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use compact_str::CompactString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::core::address::{Address, Cidr, Malformed, Range};
use crate::core::compact;
use crate::core::types::{
    Claimant, InvalidText, Mac, Name, NetworkId, Owner, OwnerUid, Scope, Slot, SubnetId, WallTime, check_printable,
};
use crate::limits;

/// Reads a text with `parse`; anything but a text is refused as not `expected`.
pub(crate) fn parse_text<'de, D, T, E, F>(deserializer: D, expected: &'static str, parse: F) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
    F: FnOnce(&str) -> Result<T, E>,
{
    struct TextVisitor<T, F>(&'static str, F, PhantomData<T>);
    impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for TextVisitor<T, F> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<X: serde::de::Error>(self, text: &str) -> Result<T, X> {
            (self.1)(text).map_err(X::custom)
        }
    }
    deserializer.deserialize_str(TextVisitor(expected, parse, PhantomData))
}

/// The first 80 characters of a text, for error messages.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(80) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Says that an address is malformed, as a fragment that follows the name of the member.
pub(super) fn fragment(malformed: Malformed) -> String {
    let Malformed { text, expected, problem } = malformed;
    format!("is {:?}, not {expected}: {problem}", shortened(&text))
}

/// Serde and schema for a type that is a text on the wire. `compact` is for the core's own types, which cross between nodes
/// in their [`Compact`](crate::core::compact::Compact) form.
macro_rules! text_on_the_wire {
    (compact $type:ty, $name:expr, $expected:literal, $parse:expr, $schema:tt) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    crate::core::compact::serialize(self, serializer)
                }
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    parse_text(deserializer, $expected, $parse)
                } else {
                    crate::core::compact::deserialize(deserializer)
                }
            }
        }
        text_on_the_wire!(@schema $type, $name, $schema);
    };
    (@schema $type:ty, $name:expr, $schema:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
    ($type:ty, $name:expr, $expected:literal, $parse:expr, $schema:tt) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                parse_text(deserializer, $expected, $parse)
            }
        }
        text_on_the_wire!(@schema $type, $name, $schema);
    };
}
pub(super) use text_on_the_wire;

text_on_the_wire!(compact Name, "Name", "a name", Name::from_str, {
    "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$",
    "description": "Letters, digits and . _ - : /, first a letter or digit; nothing that reads as an address"
});

macro_rules! identity_on_the_wire {
    ($($type:ident $expected:literal $description:literal;)*) => {$(
        text_on_the_wire!(compact $type, stringify!($type), $expected, $type::from_str, {
            "type": "string", "minLength": 1, "maxLength": 256, "description": $description
        });
    )*};
}
identity_on_the_wire! {
    Owner "an owner" "Who keeps a reservation while it exists: an instance";
    Scope "a scope" "The deployment, tenant or namespace that an owner lives in";
    Slot "a slot" "Which of an owner's addresses in one network";
    Claimant "a claimant" "Who uses an address now: a machine or a network interface";
    OwnerUid "an owner_uid" "Tells two owners of one name apart";
}

const UUID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

fn parse_id<T: FromStr>(text: &str) -> Result<T, String> {
    let wrong = || format!("is {:?}, not an id: 36 characters, lower case, with hyphens", shortened(text));
    text.parse().map_err(|_| wrong())
}

text_on_the_wire!(compact NetworkId, "NetworkId", "the id of a network", parse_id::<NetworkId>, {
    "type": "string", "pattern": UUID, "description": "Id of a network"
});
text_on_the_wire!(compact SubnetId, "SubnetId", "the id of a subnet", parse_id::<SubnetId>, {
    "type": "string", "pattern": UUID, "description": "Id of a subnet"
});
text_on_the_wire!(compact Mac, "Mac", "a MAC", Mac::from_str, {
    "type": "string", "pattern": "^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$", "description": "A hardware address"
});
text_on_the_wire!(compact Address, "Address", "an address", |text| Address::from_str(text).map_err(fragment), {
    "type": "string", "maxLength": 45, "description": "An IPv4 or IPv6 address; output is canonical (RFC 5952)"
});
text_on_the_wire!(compact Cidr, "Cidr", "a prefix (10.0.0.0/24)", |text| Cidr::from_str(text).map_err(fragment), {
    "type": "string", "maxLength": 49, "pattern": "/[0-9]{1,3}$", "description": "A prefix without host bits: 10.0.0.0/24"
});
text_on_the_wire!(compact Range, "Range", "a range", |text| Range::from_str(text).map_err(fragment), {
    "type": "string", "maxLength": 128,
    "description": "Consecutive addresses: 10.0.0.10-10.0.0.20, 10.0.0.10+11, 10.0.0.0/24 or one address"
});

/// A time on the wire: RFC 3339 UTC with three digits of milliseconds. The number is milliseconds since 1970.
pub type Time = WallTime;

/// The latest time that can be written: the end of 9999, less the day that time zones may need.
const TIME_MS_MAX: u64 = 253_402_207_199_999;

/// Writes a time as `2026-03-01T09:12:44.031Z`. A time beyond the year 9999 is written as the end of that year, less a day.
pub fn time_text(time: Time) -> String {
    let millisecond = i64::try_from(time.0.min(TIME_MS_MAX)).unwrap_or(0);
    let timestamp = jiff::Timestamp::from_millisecond(millisecond).unwrap_or_default();
    format!("{timestamp:.3}")
}

/// Reads what [`time_text`] writes, and nothing else.
///
/// # Errors
/// A fragment that says what is wrong.
pub fn parse_time(text: &str) -> Result<Time, String> {
    let wrong = |problem| format!("is {:?}, not a time (2026-03-01T09:12:44.031Z): {problem}", shortened(text));
    if text.len() != 24 || !text.is_ascii() || !text.ends_with('Z') || text.as_bytes()[10] != b'T' {
        return Err(wrong("it must be UTC with three digits of milliseconds"));
    }
    let timestamp: jiff::Timestamp = text.parse().map_err(|_| wrong("there is no such time"))?;
    let time = u64::try_from(timestamp.as_millisecond()).map(WallTime).map_err(|_| wrong("it is before 1970"))?;
    // Without this, a leap second and the like would be a second spelling of another time.
    if time_text(time) == text { Ok(time) } else { Err(wrong("there is no such time")) }
}

impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&time_text(*self))
        } else {
            compact::serialize(self, serializer)
        }
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            parse_text(deserializer, "a time (2026-03-01T09:12:44.031Z)", parse_time)
        } else {
            compact::deserialize(deserializer)
        }
    }
}

impl JsonSchema for WallTime {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Time")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$",
            "description": "RFC 3339, UTC, with three digits of milliseconds"
        })
    }
}

/// A printable text of `MIN` to `MAX` bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text<const MIN: usize, const MAX: usize>(CompactString);

/// Name of a node.
pub type NodeName = Text<1, { limits::IDENTITY_BYTES_MAX }>;
/// A note or description, which may be empty.
pub type Note = Text<0, { limits::NOTE_BYTES_MAX }>;
/// Why a change is made, kept in the history.
pub type Reason = Text<0, { limits::REASON_BYTES_MAX }>;
/// What was seen at a declined address: a MAC, a host, a sentence.
pub type Seen = Text<1, { limits::IDENTITY_BYTES_MAX }>;
/// A zone, `l2.mode` or `l2.link`.
pub type Word = Text<1, { limits::ZONE_BYTES_MAX }>;
/// A text that clients hand back unchanged: a cursor, or the `next` of a list.
pub type Cursor = Text<1, { limits::CURSOR_BYTES_MAX }>;
/// The beginning of owners' names; also prefixes of slots.
pub type OwnerPrefix = Text<1, { limits::IDENTITY_BYTES_MAX }>;

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    /// Checks and keeps a text.
    ///
    /// # Errors
    /// [`InvalidText`] says what is wrong.
    pub fn new(text: CompactString) -> Result<Self, InvalidText> {
        if text.len() < MIN {
            return Err(InvalidText::Empty);
        }
        check_printable(&text, MAX)?;
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, without copying it.
    pub fn into_inner(self) -> CompactString {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> FromStr for Text<MIN, MAX> {
    type Err = InvalidText;
    fn from_str(text: &str) -> Result<Self, InvalidText> {
        Self::new(CompactString::from(text))
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Display for Text<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<const MIN: usize, const MAX: usize> Serialize for Text<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for Text<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_text(deserializer, "a text", Self::from_str)
    }
}

impl<const MIN: usize, const MAX: usize> JsonSchema for Text<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Text{MIN}To{MAX}"))
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": MIN, "maxLength": MAX })
    }
}

macro_rules! checked_text {
    ($(#[$meta:meta])* $name:ident, $expected:literal, $check:ident, $schema:tt) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(CompactString);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                $check(text).map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        text_on_the_wire!($name, stringify!($name), $expected, $name::from_str, $schema);
    };
}

checked_text!(
    /// A host name or search domain: parts of letters, digits, `-` and `_`, with dots between them.
    Hostname, "a host name", check_hostname, {
        "type": "string", "maxLength": 253,
        "pattern": r"^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$",
        "description": "A host name or domain"
    }
);

fn check_hostname(text: &str) -> Result<CompactString, String> {
    const ALLOWED: &str = "a host name is made of A-Z a-z 0-9 - _ and dots";
    if text.is_empty() {
        return Err(InvalidText::Empty.to_string());
    }
    if text.len() > limits::HOSTNAME_BYTES_MAX {
        let error = InvalidText::TooLong { length: text.len(), max: limits::HOSTNAME_BYTES_MAX };
        return Err(error.to_string());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some((at, found)) = text.chars().enumerate().find(|&(_, c)| !allowed(c)) {
        return Err(InvalidText::Character { at, found, allowed: ALLOWED }.to_string());
    }
    for part in text.split('.') {
        if part.is_empty() {
            return Err("has an empty part; a host name has one dot between its parts and none at its ends".to_owned());
        }
        if part.len() > limits::HOSTNAME_PART_BYTES_MAX {
            return Err(format!(
                "has the part `{part}`, which is longer than {} bytes",
                limits::HOSTNAME_PART_BYTES_MAX
            ));
        }
        if part.starts_with('-') || part.ends_with('-') {
            return Err(format!("has the part `{part}`, which begins or ends with a hyphen"));
        }
    }
    Ok(CompactString::from(text))
}

checked_text!(
    /// The first three bytes of the MACs that a network generates, in lower case with `:`.
    MacPrefix, "the beginning of a MAC", check_mac_prefix, {
        "type": "string", "pattern": "^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){2}$",
        "description": "The first three bytes of the MACs that a network makes"
    }
);

fn check_mac_prefix(text: &str) -> Result<CompactString, String> {
    let wrong = || {
        format!(
            "is {:?}, not the first three bytes of a MAC in hexadecimal digits, for example 52:54:00",
            shortened(text)
        )
    };
    let parts = if text.contains('-') { text.split('-') } else { text.split(':') };
    let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.len() != 8 || !parts.clone().all(two_digits) {
        return Err(wrong());
    }
    Ok(CompactString::from(parts.collect::<Vec<_>>().join(":").to_ascii_lowercase()))
}
