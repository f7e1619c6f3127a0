//! `10.0.0.16/28` in place of an address: a block in the form of answers.
//!
//! The protocol names a block by its first address. For a claim, the length becomes a member. In a command on an existing
//! reservation, ADDRESS/LEN means exactly that block. So the reservation is looked up first, and its generation is sent
//! along, so that nothing can change in between.
//!
//! Before: the arguments. After: `perform`, which makes the call.

use serde_json::{Map, Value, json};

use super::args::Ask;
use super::failure::Failure;
use super::output::held_address;
use super::phrase;
use super::quote::shell;
use super::session::{Done, Session};
use crate::core::address::Address;

/// The address of ADDRESS/LEN, as it was typed, and the length; none for any other text, which is left to the server.
pub fn parts(text: &str) -> Option<(&str, u8)> {
    let (address, length) = text.split_once('/')?;
    let width = address.parse::<Address>().ok()?.family().width();
    let length = length.parse::<u8>().ok().filter(|length| *length <= width)?;
    Some((address, length))
}

/// The address, without the length of a block.
pub fn first(text: &str) -> &str {
    parts(text).map_or(text, |(address, _)| address)
}

/// Converts ADDRESS/LEN to the form that the method takes. Returns the reservation there, if it was looked up.
///
/// # Errors
/// Another length is given as well, or the reservation is not that block.
pub async fn resolve(session: &mut Session, ask: &mut Ask) -> Done<Option<Value>> {
    let Some((address, length)) = ask.text("address").and_then(parts) else { return Ok(None) };
    let address = address.to_owned();
    match ask.method {
        "ip.claim" => {
            let given = ask.params.get("prefix_length").and_then(Value::as_u64);
            if let Some(given) = given.filter(|given| *given != u64::from(length)) {
                let asked = phrase::of(ask.method, &Value::Object(ask.params.clone()));
                let problem = format!("it is to be a block of /{length} and, by `--prefix-length`, of /{given}");
                return Err(Failure::usage(asked, problem, "leave one of the two out").into());
            }
            ask.params.insert("prefix_length".to_owned(), json!(length));
        }
        "ip.release" | "ip.renew" | "ip.bind" | "ip.unbind" | "ip.update" | "ip.transfer" | "ip.decline" => {
            let held = look(session, ask, &address).await?;
            if let Some(held) = &held {
                is_that(ask, held, &address, length)?;
            }
            if ask.method != "ip.decline" {
                // No reservation ever has generation 0: one that is made there meanwhile is not the one that was meant.
                let generation = held.as_ref().and_then(|held| held.get("generation")).cloned().unwrap_or(json!(0));
                ask.params.entry("if_generation").or_insert(generation);
            }
            ask.params.insert("address".to_owned(), json!(address));
            return Ok(held);
        }
        "ip.get" | "ip.find" => {}
        _ => return Ok(None),
    }
    ask.params.insert("address".to_owned(), json!(address));
    Ok(None)
}

/// The reservation at the address, or of the block around it.
async fn look(session: &mut Session, ask: &Ask, address: &str) -> Done<Option<Value>> {
    let mut params = Map::from_iter([("address".to_owned(), json!(address))]);
    params.extend(ask.params.get("network").map(|network| ("network".to_owned(), network.clone())));
    let found = session.call("ip.get", Value::Object(params)).await?;
    Ok(found.get("reservation").cloned())
}

/// Refuses unless exactly this block is held.
fn is_that(ask: &Ask, held: &Value, address: &str, length: u8) -> Done<()> {
    let same = |text: &str| text.parse::<Address>().ok() == address.parse().ok();
    let is_length = held.get("prefix_length").and_then(Value::as_u64) == Some(u64::from(length));
    if is_length && phrase::text(held, "address").is_some_and(same) {
        return Ok(());
    }
    let there = held_address(held);
    let problem = format!("what is held there is {there}, by `{}`", phrase::text(held, "owner").unwrap_or_default());
    let network = shell(ask.text("network").unwrap_or("NETWORK"));
    let hint =
        format!("name {there} if that reservation is meant; `allod ip get {there} --network {network}` shows it");
    Err(Failure::new(phrase::of(ask.method, &Value::Object(ask.params.clone())), problem, hint).into())
}

/// The answer to a release, for people, with the length of the block: the protocol answers with first addresses.
pub fn with_length(result: &Value, held: Option<&Value>) -> Value {
    let mut shown = result.clone();
    let (Some(held), Some(Value::Array(released))) = (held, shown.get_mut("released")) else { return shown };
    for item in released.iter_mut().filter(|item| Some(&**item) == held.get("address")) {
        *item = json!(held_address(held));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_length_is_a_block_and_nothing_else_is() {
        assert_eq!(parts("10.0.0.16/28"), Some(("10.0.0.16", 28)));
        assert_eq!(parts("2001:db8::/56"), Some(("2001:db8::", 56)));
        for other in ["10.0.0.16", "10.0.0.16/33", "10.0.0.16/-1", "10.0.0.016/28", "web/0", "10.0.0.16/28/1", "/28"] {
            assert_eq!((parts(other), first(other)), (None, other));
        }
        assert_eq!(first("10.0.0.17/28"), "10.0.0.17");
    }
}
