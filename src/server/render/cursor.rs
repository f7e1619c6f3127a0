//! The `next` of lists: opaque to clients, readable for us. It has the name, the id, the last address shown (`-` for none),
//! and the moment whose names the list uses.

use crate::actors::coordinator::ListPlace;
use crate::actors::events::held::HeldPlace;
use crate::core::catalog::Naming;

/// Stands for nothing: no name and no address is written like this.
const FIRST: &str = "-";

/// Writes a place as text.
pub fn write(place: &ListPlace) -> String {
    let ListPlace { name, id, address, naming } = place;
    // Neither names nor ids nor addresses have blanks.
    let mut text = format!("{name} {id}");
    if address.is_some() || naming.is_some() {
        text += &address.map_or_else(|| format!(" {FIRST}"), |address| format!(" {address}"));
    }
    if let Some(Naming { line, changes, arrangement }) = naming {
        text += &format!(" {line:x}.{changes}.{arrangement:x}");
    }
    text
}

/// Reads a place from text.
pub fn parse(text: &str) -> Option<ListPlace> {
    let mut parts = text.split(' ');
    let (name, id) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let address = match parts.next() {
        Some(FIRST) | None => None,
        Some(address) => Some(address.parse().ok()?),
    };
    let naming = match parts.next() {
        Some(moment) => Some(parse_moment(moment)?),
        None => None,
    };
    parts.next().is_none().then_some(ListPlace { name, id, address, naming })
}

fn parse_moment(text: &str) -> Option<Naming> {
    let mut parts = text.split('.');
    let (line, changes) = (u64::from_str_radix(parts.next()?, 16).ok()?, parts.next()?.parse().ok()?);
    let arrangement = u64::from_str_radix(parts.next()?, 16).ok()?;
    parts.next().is_none().then_some(Naming { line, changes, arrangement })
}

/// Writes a place in a list of what was held at a time.
pub fn write_held(place: HeldPlace) -> String {
    match place {
        HeldPlace::First => FIRST.to_owned(),
        HeldPlace::Behind(name, id, address) => write(&ListPlace { name, id, address, naming: None }),
    }
}

/// Reads a place in a list of what was held at a time.
pub fn parse_held(text: &str) -> Option<HeldPlace> {
    if text == FIRST {
        return Some(HeldPlace::First);
    }
    parse(text).map(|ListPlace { name, id, address, naming: _ }| HeldPlace::Behind(name, id, address))
}
