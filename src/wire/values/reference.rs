//! How a request names a network, a subnet, a pool, or a MAC that may be generated.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::{fragment, parse_text, shortened, text_on_the_wire};
use crate::core::address::{Cidr, Malformed, Range, reads_as_address};
use crate::core::types::{InvalidText, Mac, Name, NetworkId, SubnetId};

/// Bytes of an id as text.
const ID_BYTES: usize = 36;

/// A network by name or id. A text that reads as an id is taken for an id, although it is also a valid name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NetworkRef {
    /// By name.
    Name(Name),
    /// By id.
    Id(NetworkId),
}

impl FromStr for NetworkRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // Only the few names of this length are parsed twice.
        if text.len() == ID_BYTES
            && let Ok(id) = text.parse()
        {
            return Ok(NetworkRef::Id(id));
        }
        text.parse().map(NetworkRef::Name).map_err(|error: InvalidText| error.to_string())
    }
}

impl fmt::Display for NetworkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkRef::Name(name) => name.fmt(f),
            NetworkRef::Id(id) => id.fmt(f),
        }
    }
}

/// A subnet by cidr, name or id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SubnetRef {
    /// By its cidr.
    Cidr(Cidr),
    /// By name.
    Name(Name),
    /// By id.
    Id(SubnetId),
}

impl FromStr for SubnetRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() == ID_BYTES
            && let Ok(id) = text.parse()
        {
            return Ok(SubnetRef::Id(id));
        }
        if reads_as_address(text) {
            return text.parse().map(SubnetRef::Cidr).map_err(fragment);
        }
        text.parse().map(SubnetRef::Name).map_err(|error: InvalidText| error.to_string())
    }
}

impl fmt::Display for SubnetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubnetRef::Cidr(cidr) => cidr.fmt(f),
            SubnetRef::Name(name) => name.fmt(f),
            SubnetRef::Id(id) => id.fmt(f),
        }
    }
}

/// Pools by name (all of that name) or one pool by range.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PoolRef {
    /// All pools of this name.
    Name(Name),
    /// The pool with this range.
    Range(Range),
}

impl FromStr for PoolRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if reads_as_address(text) {
            return text.parse().map(PoolRef::Range).map_err(|error: Malformed| fragment(error));
        }
        text.parse().map(PoolRef::Name).map_err(|error: InvalidText| error.to_string())
    }
}

impl fmt::Display for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolRef::Name(name) => name.fmt(f),
            PoolRef::Range(range) => range.fmt(f),
        }
    }
}

/// A MAC, or the wish that the network generates one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MacChoice {
    /// `"auto"`: generated under the network's `l2.mac_prefix`.
    Auto,
    /// This MAC, which an interface may have.
    Mac(Mac),
}

impl FromStr for MacChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(MacChoice::Auto),
            _ => {
                let mac: Mac = text.parse().map_err(|_: InvalidText| {
                    format!("is {:?}, neither \"auto\" nor a MAC (52:54:00:12:34:56)", shortened(text))
                })?;
                match mac.has_no_interface() {
                    Some(why) => Err(format!(
                        "cannot be {mac}: {why}, and no interface has it; give that of the interface, or \"auto\""
                    )),
                    None => Ok(MacChoice::Mac(mac)),
                }
            }
        }
    }
}

impl fmt::Display for MacChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MacChoice::Auto => f.pad("auto"),
            MacChoice::Mac(mac) => mac.fmt(f),
        }
    }
}

text_on_the_wire!(NetworkRef, "NetworkRef", "the name or id of a network", NetworkRef::from_str, {
    "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$", "description": "A network by name or id"
});
text_on_the_wire!(SubnetRef, "SubnetRef", "the cidr, name or id of a subnet", SubnetRef::from_str, {
    "type": "string", "minLength": 1, "maxLength": 128, "description": "A subnet by cidr, name or id"
});
text_on_the_wire!(PoolRef, "PoolRef", "the name or range of a pool", PoolRef::from_str, {
    "type": "string", "minLength": 1, "maxLength": 128,
    "description": "All pools of a name, or the pool with this range"
});
text_on_the_wire!(MacChoice, "MacChoice", "a MAC or \"auto\"", MacChoice::from_str, {
    "type": "string", "pattern": "^(auto|[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){5})$",
    "description": "A hardware address that an interface may have, or \"auto\" to have one made"
});
