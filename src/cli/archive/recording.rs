//! Records reservations in networks of kind `dynamic`: nothing is claimed there; a bind records the address that the
//! infrastructure picked.
//!
//! This takes several calls. Until the last ones the address is bound to [`UNFINISHED`]. So a later import recognises a
//! reservation that was recorded incompletely, and completes it, in whatever network it lies.

use serde_json::{Map, Value, json};

use super::claiming::{Claiming, Held, generation};
use super::lines::Claim;
use crate::client::{Client, ClientError, RpcError};
use crate::wire::ErrorKind;

/// The claimant of an address that is not completely recorded yet.
const UNFINISHED: &str = "allod import, unfinished";

/// Records the reservation of a line, or finds out whether that would be refused.
pub(super) async fn record(client: &Client, claim: &Claim, what_for: Claiming) -> Result<Held, ClientError> {
    let of_claim = |members: &[&str]| {
        let members = members.iter().filter_map(|&member| Some((member.to_owned(), claim.params.get(member)?.clone())));
        members.collect::<Map<_, _>>()
    };
    let there = held_in_slot(client, claim).await?;
    // A bind would move the slot to this address, and release the one that it holds.
    if let Some(other) = there.as_ref().filter(|there| !claim.is_held_as(there)) {
        return Err(ClientError::Rpc(holds_another(claim, other)));
    }
    let bound = there.as_ref().and_then(|there| there.get("claimant"));
    let is_checked = what_for == Claiming::Checks;
    if let Some(there) = there.as_ref().filter(|_| is_checked && !claim.is_begun && bound != Some(&json!(UNFINISHED))) {
        return Ok(Held { generation: generation(there), is_new: false, is_static: false });
    }
    let by = claim.params.get("claimant");
    let place = of_claim(&["network", "address"]);
    let of_it = |generation: u64, member: &str, value: &Value| {
        let mut params = place.clone();
        params.insert("if_generation".to_owned(), json!(generation));
        params.insert(member.to_owned(), value.clone());
        params.extend(is_checked.then(|| ("dry_run".to_owned(), json!(true))));
        params
    };
    let is_bound = bound.is_some() && bound == by;
    let generation = match there.as_ref().filter(|_| is_bound) {
        Some(there) => generation(there),
        None => {
            let mut bind = of_claim(&["network", "address", "scope", "owner", "slot"]);
            bind.insert("claimant".to_owned(), json!(UNFINISHED));
            bind.extend(is_checked.then(|| ("dry_run".to_owned(), json!(true))));
            generation(&client.call("ip.bind", bind).await?)
        }
    };
    let held = Held { generation, is_new: true, is_static: false };
    let set = of_claim(&["labels", "note", "hostname", "mac", "owner_uid"]);
    // Of a reservation that does not exist yet, a dry run can ask no more.
    if !set.is_empty() && (there.is_some() || !is_checked) {
        client.call("ip.update", of_it(generation, "set", &Value::Object(set))).await?;
    }
    if is_checked {
        return Ok(held);
    }
    if let Some(ttl) = claim.params.get("ttl_seconds") {
        client.call("ip.renew", of_it(generation, "ttl_seconds", ttl)).await?;
    }
    if !is_bound {
        client.call("ip.unbind", of_it(generation, "claimant", &json!(UNFINISHED))).await?;
        if let Some(by) = by {
            client.call("ip.bind", of_it(generation, "claimant", by)).await?;
        }
    }
    Ok(held)
}

/// What the slot of a line holds now.
async fn held_in_slot(client: &Client, claim: &Claim) -> Result<Option<Value>, ClientError> {
    let mut filter = claim.of_owner();
    loop {
        let mut page = client.call("ip.list", filter.clone()).await?;
        let held = page["reservations"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if let Some(held) = held.into_iter().find(|held| claim.is_slot_of(held)) {
            return Ok(Some(held));
        }
        match page.get("next") {
            Some(next) => drop(filter.insert("after".to_owned(), next.clone())),
            None => return Ok(None),
        }
    }
}

/// The refusal of a claim whose slot holds another address.
fn holds_another(claim: &Claim, other: &Value) -> RpcError {
    let (kind, address) = (ErrorKind::AlreadyExists, other["address"].as_str().unwrap_or_default());
    let message = format!(
        "its slot holds {address} in network `{}` already, which an import leaves as it is; have that released first, or leave \
         this line out",
        claim.network
    );
    let word = kind.as_str();
    RpcError {
        code: kind.code().into(),
        kind: word.to_owned(),
        message,
        data: json!({"kind": word, "address": address}),
    }
}
