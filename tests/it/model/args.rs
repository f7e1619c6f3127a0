//! Reads the members of a request: types, bounds, unknown members. Every complaint is `invalid_argument`, which precedes all
//! other refusals, so the first one that is found is answered at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use allod::core::address::{Address, Cidr, Range};
use serde_json::{Map, Value, json};

use super::errors::{ModelError, Refusal};

/// Labels or tags.
pub type Texts = BTreeMap<String, String>;

/// The members of one object, and which of them were asked for.
pub struct Args<'a> {
    members: &'a Map<String, Value>,
    known: RefCell<BTreeSet<String>>,
}

fn bad<T>(field: &str) -> Refusal<T> {
    Err(ModelError::new("invalid_argument", json!({ "field": field })))
}

impl<'a> Args<'a> {
    pub fn of(value: &'a Value) -> Refusal<Self> {
        match value.as_object() {
            Some(members) => Ok(Self { members, known: RefCell::default() }),
            None => bad("params"),
        }
    }

    /// The member as it was sent, including `null`.
    pub fn raw(&self, name: &str) -> Option<&'a Value> {
        self.known.borrow_mut().insert(name.to_string());
        self.members.get(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// Refuses members that nobody asked for.
    pub fn end(&self) -> Refusal<()> {
        match self.members.keys().find(|name| !self.known.borrow().contains(*name)) {
            Some(name) => bad(name),
            None => Ok(()),
        }
    }

    pub fn text(&self, name: &str, right: fn(&str) -> bool) -> Refusal<Option<String>> {
        match self.raw(name) {
            None => Ok(None),
            Some(Value::String(text)) if right(text) => Ok(Some(text.clone())),
            Some(_) => bad(name),
        }
    }

    pub fn need_text(&self, name: &str, right: fn(&str) -> bool) -> Refusal<String> {
        self.text(name, right)?.map_or_else(|| bad(name), Ok)
    }

    pub fn flag(&self, name: &str) -> Refusal<Option<bool>> {
        match self.raw(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => bad(name),
        }
    }

    pub fn on(&self, name: &str) -> Refusal<bool> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    pub fn number(&self, name: &str, least: u64, most: u64) -> Refusal<Option<u64>> {
        match self.raw(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
                _ => bad(name),
            },
        }
    }

    pub fn address(&self, name: &str) -> Refusal<Option<Address>> {
        let text = self.text(name, |text| text.parse::<Address>().is_ok())?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    pub fn need_address(&self, name: &str) -> Refusal<Address> {
        self.address(name)?.map_or_else(|| bad(name), Ok)
    }

    pub fn range(&self, name: &str) -> Refusal<Option<Range>> {
        let text = self.text(name, |text| text.parse::<Range>().is_ok())?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    pub fn cidr(&self, name: &str) -> Refusal<Option<Cidr>> {
        let text = self.text(name, |text| text.parse::<Cidr>().is_ok_and(may_be_subnet))?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    pub fn texts(&self, name: &str) -> Refusal<Option<Texts>> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let Some(object) = value.as_object() else { return bad(name) };
        let mut texts = Texts::new();
        for (key, value) in object {
            match value.as_str() {
                Some(text) if is_entry(key, text) => texts.insert(key.clone(), text.to_string()),
                _ => return bad(name),
            };
        }
        if texts.len() > 32 { bad(name) } else { Ok(Some(texts)) }
    }

    pub fn list(&self, name: &str, most: usize) -> Refusal<Option<&'a Vec<Value>>> {
        match self.raw(name) {
            None => Ok(None),
            Some(Value::Array(list)) if list.len() <= most => Ok(Some(list)),
            Some(_) => bad(name),
        }
    }

    pub fn object(&self, name: &str) -> Refusal<Option<Args<'a>>> {
        match self.raw(name) {
            None => Ok(None),
            Some(value) if value.is_object() => Args::of(value).map(Some),
            Some(_) => bad(name),
        }
    }

    /// The `set` of a change: an object with at least one member.
    pub fn set(&self) -> Refusal<Args<'a>> {
        match self.object("set")? {
            Some(set) if !set.members.is_empty() => Ok(set),
            _ => bad("set"),
        }
    }

    pub fn word(&self, name: &str, words: &[&'static str]) -> Refusal<Option<&'static str>> {
        match self.raw(name) {
            None => Ok(None),
            Some(value) => match words.iter().find(|word| value.as_str() == Some(word)) {
                Some(word) => Ok(Some(word)),
                None => bad(name),
            },
        }
    }

    /// A merge patch of labels or tags, applied to what is there.
    pub fn patch_texts(&self, name: &str, now: &mut Texts) -> Refusal<()> {
        match self.raw(name) {
            None => return Ok(()),
            Some(Value::Null) => now.clear(),
            Some(Value::Object(object)) => {
                for (key, value) in object {
                    match value {
                        Value::Null => drop(now.remove(key)),
                        Value::String(text) if is_entry(key, text) => drop(now.insert(key.clone(), text.clone())),
                        _ => return bad(name),
                    }
                }
            }
            Some(_) => return bad(name),
        }
        if now.len() > 32 { bad(name) } else { Ok(()) }
    }

    /// A merge patch of one text that may be removed.
    pub fn patch_text(&self, name: &str, now: &mut Option<String>, right: fn(&str) -> bool) -> Refusal<()> {
        if self.raw(name) == Some(&Value::Null) {
            *now = None;
        } else if let Some(text) = self.text(name, right)? {
            *now = Some(text);
        }
        Ok(())
    }
}

fn is_entry(key: &str, text: &str) -> bool {
    !key.is_empty() && key.len() <= 128 && text.len() <= 256
}

/// Valid owners, scopes, slots, claimants and owner_uids.
pub fn is_owner(text: &str) -> bool {
    let printable = |c: char| {
        let blank = c.is_whitespace() && c != ' ';
        let format = matches!(c as u32, 0xad | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff);
        let private = matches!(c as u32, 0xe000..=0xf8ff | 0xf_0000..);
        !(c.is_control() || blank || format || private)
    };
    (1..=256).contains(&text.len()) && text.chars().all(printable) && text.trim() != ""
}

/// Valid names of networks, subnets and pools.
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-:/".contains(c))
        && text.parse::<Range>().is_err()
}

/// A reference to a subnet: cidr, name or id (which reads like a name). What can be neither refers to nothing.
pub fn is_subnet(text: &str) -> bool {
    is_name(text) || text.contains('/') && text.parse::<Cidr>().is_ok()
}

/// A reference to pools: a name or a range.
pub fn is_pool(text: &str) -> bool {
    is_name(text) || text.parse::<Range>().is_ok()
}

pub fn is_note(text: &str) -> bool {
    text.len() <= 1024
}

pub fn is_mac(text: &str) -> bool {
    let byte = |pair: &str| u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2);
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    // No interface has a group MAC, or one of zeros.
    text == "auto" || bytes.is_some_and(|of| of.len() == 6 && of[0] % 2 == 0 && of.iter().any(|byte| *byte > 0))
}

/// Excludes prefixes that no subnet may have.
fn may_be_subnet(cidr: Cidr) -> bool {
    cidr.length() != 0 && !(cidr.range().size() == 1 && is_never(cidr.base())) && !is_multicast(cidr.base())
}

fn is_multicast(address: Address) -> bool {
    match address {
        Address::V4(bits) => bits >> 28 == 0xe,
        Address::V6(bits) => bits >> 120 == 0xff,
    }
}

/// Addresses that are never handed out, wherever they lie.
pub fn is_never(address: Address) -> bool {
    is_multicast(address)
        || matches!(address, Address::V4(0 | u32::MAX) | Address::V6(0 | 0xffff_0000_0000..=0xffff_ffff_ffff))
}
