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
    if let Some(Naming { line, changes }) = naming {
        text += &format!(" {line:x}.{changes}");
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
    let naming = match parts.next().map(|moment| moment.split_once('.')) {
        Some(Some((line, changes))) => {
            Some(Naming { line: u64::from_str_radix(line, 16).ok()?, changes: changes.parse().ok()? })
        }
        Some(None) => return None,
        None => None,
    };
    parts.next().is_none().then_some(ListPlace { name, id, address, naming })
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
