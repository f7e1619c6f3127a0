//! `next` of lists: opaque to clients, readable for us. Name, id, and the last address shown.

use crate::actors::coordinator::ListPlace;
use crate::actors::events::held::HeldPlace;

/// As text.
pub fn write(place: &ListPlace) -> String {
    let address = place.address.map(|address| address.to_string()).unwrap_or_default();
    // Names have no blanks, nor have ids and addresses.
    format!("{} {} {address}", place.name, place.id).trim_end().to_owned()
}

/// From text.
pub fn parse(text: &str) -> Option<ListPlace> {
    let mut parts = text.split(' ');
    let (name, id) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let address = match parts.next() {
        Some(address) => Some(address.parse().ok()?),
        None => None,
    };
    parts.next().is_none().then_some(ListPlace { name, id, address })
}

/// No name is written so.
const FIRST: &str = "-";

/// The same of what was held at a time.
pub fn write_held(place: HeldPlace) -> String {
    match place {
        HeldPlace::First => FIRST.to_owned(),
        HeldPlace::Behind(name, id, address) => write(&ListPlace { name, id, address }),
    }
}

/// From text.
pub fn parse_held(text: &str) -> Option<HeldPlace> {
    if text == FIRST {
        return Some(HeldPlace::First);
    }
    parse(text).map(|ListPlace { name, id, address }| HeldPlace::Behind(name, id, address))
}
