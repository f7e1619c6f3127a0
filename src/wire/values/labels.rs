//! Labels and tags: bounded maps from text to text, their merge patch, and the filter by label.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use compact_str::CompactString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::{Text, parse_text, shortened, text_on_the_wire};
use crate::core::types::{InvalidText, Labels, check_printable, labels_pass};
use crate::limits;
use crate::wire::object::IsEmpty;

/// A value of a label: printable, and may be empty.
type LabelValue = Text<0, { limits::LABEL_VALUE_BYTES_MAX }>;

/// Labels of a reservation, or tags of a network or subnet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct LabelMap(pub Labels);

/// A merge patch of labels or tags: a text sets, null removes. The result is checked where the patch is applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct LabelPatch(pub BTreeMap<CompactString, Option<CompactString>>);

impl IsEmpty for LabelMap {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_key(key: &str) -> Result<(), InvalidText> {
    if key.is_empty() {
        return Err(InvalidText::Empty);
    }
    check_printable(key, limits::LABEL_KEY_BYTES_MAX)
}

/// Reads an object of at most `MAX` entries whose values are read as `V`.
struct EntriesVisitor<V, T, const MAX: usize>(PhantomData<(V, T)>);

impl<'de, V: Deserialize<'de>, T: From<V>, const MAX: usize> Visitor<'de> for EntriesVisitor<V, T, MAX> {
    type Value = BTreeMap<CompactString, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<CompactString>()? {
            // `explain` recognises this wording and the one below, and finds the member by them.
            if let Err(error) = check_key(&key) {
                return Err(A::Error::custom(format_args!(
                    "invalid key `{}`: is not a valid key: it {error}",
                    shortened(&key)
                )));
            }
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
            }
            if entries.len() == MAX {
                return Err(A::Error::custom(format_args!("has more than {MAX} entries")));
            }
            let value = map.next_value::<V>()?;
            entries.insert(key, T::from(value));
        }
        Ok(entries)
    }
}

impl From<LabelValue> for CompactString {
    fn from(value: LabelValue) -> Self {
        value.into_inner()
    }
}

/// A value of a patch: a text or null.
struct PatchValue(Option<LabelValue>);

impl<'de> Deserialize<'de> for PatchValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(PatchValue)
    }
}

impl From<PatchValue> for Option<CompactString> {
    fn from(value: PatchValue) -> Self {
        value.0.map(CompactString::from)
    }
}

impl<'de> Deserialize<'de> for LabelMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = EntriesVisitor::<LabelValue, CompactString, { limits::LABEL_ENTRIES_MAX }>(PhantomData);
        deserializer.deserialize_map(entries).map(LabelMap)
    }
}

impl<'de> Deserialize<'de> for LabelPatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries =
            EntriesVisitor::<PatchValue, Option<CompactString>, { limits::LABEL_PATCH_ENTRIES_MAX }>(PhantomData);
        let patch = deserializer.deserialize_map(entries)?;
        // Whatever the map held before, it will have at least these entries.
        if patch.values().flatten().count() > limits::LABEL_ENTRIES_MAX {
            return Err(D::Error::custom(format_args!(
                "has more than {} entries beside those that are null",
                limits::LABEL_ENTRIES_MAX
            )));
        }
        Ok(LabelPatch(patch))
    }
}

impl JsonSchema for LabelMap {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Labels")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object", "maxProperties": limits::LABEL_ENTRIES_MAX,
            "propertyNames": { "minLength": 1, "maxLength": limits::LABEL_KEY_BYTES_MAX },
            "additionalProperties": { "type": "string", "maxLength": limits::LABEL_VALUE_BYTES_MAX },
            "description": "Labels or tags: text to text"
        })
    }
}

impl JsonSchema for LabelPatch {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("LabelPatch")
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object", "maxProperties": limits::LABEL_PATCH_ENTRIES_MAX,
            "propertyNames": { "minLength": 1, "maxLength": limits::LABEL_KEY_BYTES_MAX },
            "additionalProperties": { "type": ["string", "null"], "maxLength": limits::LABEL_VALUE_BYTES_MAX },
            "description": format!(
                "Merge patch of labels or tags: a text sets, null removes; what it leads to has at most {} entries",
                limits::LABEL_ENTRIES_MAX
            )
        })
    }
}

/// `"k"`: has this label; `"k=v"`: has it with this value. The key ends at the first `=`, unless there is a label whose key
/// contains a `=` itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelFilter {
    /// The key.
    pub key: CompactString,
    /// The value, if one is asked for.
    pub value: Option<CompactString>,
}

impl LabelFilter {
    /// Do these labels pass?
    pub fn matches(&self, labels: &Labels) -> bool {
        labels_pass(labels, &self.key, self.value.as_deref())
    }
}

impl FromStr for LabelFilter {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        check_key(key).map_err(|error| format!("is {:?}, whose key {error}", shortened(text)))?;
        if let Some(value) = value {
            // The text after the first `=` may be the rest of a key, another `=`, and a value.
            let of_a_key = if value.contains('=') { limits::LABEL_KEY_BYTES_MAX - key.len() } else { 0 };
            check_printable(value, limits::LABEL_VALUE_BYTES_MAX + of_a_key)
                .map_err(|error| format!("is {:?}, whose value {error}", shortened(text)))?;
        }
        Ok(Self { key: CompactString::from(key), value: value.map(CompactString::from) })
    }
}

impl fmt::Display for LabelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match &self.value {
            Some(value) => write!(f, "={value}"),
            None => Ok(()),
        }
    }
}

text_on_the_wire!(LabelFilter, "LabelFilter", "a label (\"k\" or \"k=v\")", LabelFilter::from_str, {
    "type": "string", "minLength": 1, "maxLength": 385, "description": "k: has this label; k=v: with this value"
});
