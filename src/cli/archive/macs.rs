//! Finds MACs that the server already has: a MAC is held once in a realm.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::session::{Done, Session};
use super::lines::Claim;
use crate::core::address::Address;
use crate::core::types::Mac;
use crate::limits::LIST_PAGE_RECORDS_MAX;

/// The lines with a MAC that another reservation of its realm has on the server: line and message. `realms` has the realms
/// of the networks by name, and `there` the networks of the server.
pub(super) async fn held_macs(
    session: &mut Session,
    realms: &BTreeMap<&str, &str>,
    claims: &[&Claim],
    there: &[Value],
) -> Done<BTreeMap<usize, String>> {
    let mut asked: BTreeMap<&str, BTreeMap<Mac, &Claim>> = BTreeMap::new();
    for &claim in claims {
        if let (Some(realm), Some(mac)) = (realms.get(claim.network.as_str()), claim.mac()) {
            asked.entry(realm).or_default().insert(mac, claim);
        }
    }
    asked.retain(|realm, _| there.iter().any(|network| network["realm"] == **realm));
    let mut refused = BTreeMap::new();
    for (realm, macs) in asked {
        let mut filter = json!({"realm": realm, "limit": LIST_PAGE_RECORDS_MAX});
        loop {
            let page = session.call("ip.list", filter.clone()).await?;
            for held in page["reservations"].as_array().into_iter().flatten() {
                let mac = held["mac"].as_str().and_then(|mac| mac.parse::<Mac>().ok());
                let Some((mac, claim)) = mac.and_then(|mac| macs.get_key_value(&mac)) else { continue };
                if claim.is_held_as(held) {
                    continue;
                }
                let at = held["address"].as_str().and_then(|address| address.parse::<Address>().ok());
                let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                let (owner, network) = (held["owner"].as_str(), held["network"].as_str());
                let (owner, network) = (owner.unwrap_or_default(), network.unwrap_or_default());
                let problem = format!("MAC {mac} is held by `{owner}`{at} in network `{network}` of the server");
                refused.insert(claim.line, problem);
            }
            match page.get("next") {
                Some(next) => filter["after"] = next.clone(),
                None => break,
            }
        }
    }
    Ok(refused)
}
