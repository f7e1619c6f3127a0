//! Finds the id of the instance of a deployment that a wrong member belongs to, in params that are known to be wrong.
//!
//! Everything before the id is skipped, and nothing of it is kept: wrong params may be as long as a body may be.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::core::types::Owner;

/// The id of the instance that the member belongs to, if it can be read.
pub(super) fn instance_at(field: &str, params: &str) -> Option<Owner> {
    let at: usize = field.strip_prefix("instances[")?.split_once(']')?.0.parse().ok()?;
    let read = serde_json::Deserializer::from_str;
    let instances = read(params).deserialize_map(Under("instances")).ok()??;
    let instance = read(instances.get()).deserialize_seq(At(at)).ok()??;
    let id = read(instance.get()).deserialize_map(Under("id")).ok()??;
    serde_json::from_str::<Owner>(id.get()).ok()
}

/// Finds the value of a member of an object, as JSON text.
struct Under<'n>(&'n str);

impl<'de> Visitor<'de> for Under<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(IsNamed(self.0))? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Does a member have this name?
struct IsNamed<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsNamed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Finds an entry of a list, as JSON text.
struct At(usize);

impl<'de> Visitor<'de> for At {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        for _ in 0..self.0 {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = list.next_element()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_that_of_the_instance_in_which_the_member_is_wherever_it_stands() {
        let params = r#"{"deployment":"d","groups":[{"id":"g"}],
            "instances":[{"id":"a","networks":[{"id":"x"}]},{"zone":[],"networks":[{"id":"y"}],"id":"b\u0062"},{"id":5},7]}"#;
        let id_at = |field: &str| instance_at(field, params).map(|owner| owner.to_string());
        assert_eq!(id_at("instances[0].networks[0].slot").as_deref(), Some("a"));
        assert_eq!(id_at("instances[1].zone").as_deref(), Some("bb"));
        for field in ["instances[2].id", "instances[3]", "instances[4].id", "instances", "groups[0].id", "instances[x]"]
        {
            assert_eq!(id_at(field), None, "{field}");
        }
        assert_eq!(instance_at("instances[0]", r#"{"instances":{"0":{"id":"a"}}}"#), None);
        assert_eq!(instance_at("instances[0]", "[]"), None);
    }
}
