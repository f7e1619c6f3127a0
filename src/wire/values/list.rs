//! Lists of bounded length.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::object::IsEmpty;

/// A list of `MIN` to `MAX` entries. Reading stops at the first entry too many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BoundedList<T, const MIN: usize, const MAX: usize>(Vec<T>);

impl<T, const MIN: usize, const MAX: usize> BoundedList<T, MIN, MAX> {
    /// The list, if it is in its bounds.
    pub fn new(entries: Vec<T>) -> Option<Self> {
        (MIN..=MAX).contains(&entries.len()).then_some(Self(entries))
    }

    /// The entries, to be changed where they are.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// Puts the entries in order, where it does not matter how they were listed.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        self.0.sort_by_cached_key(key);
    }

    /// The entries.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MIN: usize, const MAX: usize> Deref for BoundedList<T, MIN, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MIN: usize, const MAX: usize> IsEmpty for BoundedList<T, MIN, MAX> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Serialize, const MIN: usize, const MAX: usize> Serialize for BoundedList<T, MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Deserialize<'de> for BoundedList<T, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MIN: usize, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Visitor<'de> for ListVisitor<T, MIN, MAX> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = entries.next_element()? {
                    if list.len() == MAX {
                        return Err(A::Error::custom(format_args!("has more than {MAX} entries")));
                    }
                    list.push(entry);
                }
                if list.len() < MIN {
                    return Err(A::Error::custom(format_args!("must have {MIN} to {MAX} entries, not {}", list.len())));
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(ListVisitor::<T, MIN, MAX>(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema, const MIN: usize, const MAX: usize> JsonSchema for BoundedList<T, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("List{MIN}To{MAX}Of{}", T::schema_name()))
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "minItems": MIN, "maxItems": MAX })
    }
}
