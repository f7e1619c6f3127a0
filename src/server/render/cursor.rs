//! `next` of lists: opaque to clients, readable for us. Name, id, the last address shown (`-`: none), and the moment whose
//! names the list goes by.

use crate::actors::coordinator::ListPlace;
use crate::actors::events::held::HeldPlace;
use crate::core::catalog::Naming;

/// Nothing: no name and no address is written so.
const FIRST: &str = "-";

/// As text.
pub fn write(place: &ListPlace) -> String {
    let ListPlace { name, id, address, naming } = place;
    // Names have no blanks, nor have ids and addresses.
    let mut text = format!("{name} {id}");
    if address.is_some() || naming.is_some() {
        text += &address.map_or_else(|| format!(" {FIRST}"), |address| format!(" {address}"));
    }
    if let Some(Naming { line, changes, arrangement }) = naming {
        text += &format!(" {line:x}.{changes}.{arrangement:x}");
    }
    text
}

/// From text.
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

/// As text, of a place in a list of what was held at a time.
pub fn write_held(place: HeldPlace) -> String {
    match place {
        HeldPlace::First => FIRST.to_owned(),
        HeldPlace::Behind(name, id, address) => write(&ListPlace { name, id, address, naming: None }),
    }
}

/// From text.
pub fn parse_held(text: &str) -> Option<HeldPlace> {
    if text == FIRST {
        return Some(HeldPlace::First);
    }
    parse(text).map(|ListPlace { name, id, address, naming: _ }| HeldPlace::Behind(name, id, address))
}
