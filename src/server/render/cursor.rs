//! `next` of lists: opaque to clients, readable for us. Name, id, and the last address shown.

use crate::actors::coordinator::ListPlace;

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
