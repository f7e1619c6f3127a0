//! Replaces claims by automatic grants: addresses that had been granted automatically are released and granted again. These
//! are the second and third [stage](super::stages) of an import, and the change from one to the next.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::super::apply::diff::Step;
use super::super::apply::networks;
use super::super::session::{Done, Session};
use super::claiming::{Again, Became, Held, grant_all};
use super::lines::{Claim, Content};
use super::places::Places;
use super::stages::{Network, is_half_done, led_at_a_time};

/// The results for reservations that had been granted automatically.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// How many are held by a claim, and stay so.
    pub(super) named: usize,
    /// Line and message of those whose address was granted to someone else meanwhile.
    pub(super) refused: BTreeMap<usize, String>,
}

impl Granted {
    fn note(&mut self, became: Became) {
        match became {
            Became::Automatic => {}
            Became::Named => self.named += 1,
            Became::Refused(line, sentence) => drop(self.refused.insert(line, sentence)),
        }
    }
}

/// Gives filled networks their pools and reserved ranges, and replaces claims by automatic grants. `held` has the holdings
/// by line.
pub(super) async fn grant_again(
    session: &mut Session,
    content: &Content,
    held: &HashMap<usize, Held>,
    places: &HashMap<&str, Places>,
) -> Done<Granted> {
    let mut granted = Granted::default();
    let mut chosen = HashMap::<&str, Vec<(&Claim, Held)>>::new();
    for claim in content.claims.iter().filter(|claim| claim.is_chosen()) {
        let held = held.get(&claim.line).map(|held| (claim, *held));
        chosen.entry(&claim.network).or_default().extend(held);
    }
    let there = networks(session, None).await?;
    for (network, there) in pairs(&content.networks, &there).filter(|(_, there)| is_half_done(there)) {
        let mut there = there.clone();
        let mut led = chosen.remove(&*network.table.name).unwrap_or_default();
        led.sort_unstable_by_key(|(claim, _)| claim.range.first());
        let mut later = &led[..];
        while !later.is_empty() {
            let (some, rest) = later.split_at(led_at_a_time(later.iter().map(|(claim, _)| *claim)));
            later = rest;
            let claims: Vec<&Claim> = some.iter().map(|(claim, _)| *claim).collect();
            there = change(session, network.leading(&there, &claims), there).await?;
            let pools = Places::drawn_while_led(&there);
            let again = some.iter().filter_map(|&(claim, held)| again(claim, held, &pools));
            grant_all(session, &again.collect::<Vec<_>>(), |became| granted.note(became)).await?;
        }
        change(session, network.drawing(&there), there).await?;
    }
    // The other networks are in service.
    let mut in_service = Vec::new();
    for (claim, held) in chosen.into_values().flatten() {
        match places.get(&*claim.network).and_then(|places| again(claim, held, places)) {
            Some(again) => in_service.push(again),
            None => granted.named += 1,
        }
    }
    grant_all(session, &in_service, |became| granted.note(became)).await?;
    Ok(granted)
}

/// Applies a change to a network, and returns its new state.
async fn change(session: &mut Session, step: Option<Step>, there: Value) -> Done<Value> {
    match step {
        Some(step) => session.call(step.method, Value::Object(step.params)).await,
        None => Ok(there),
    }
}

/// A claim that can be granted again from a pool; none if no pool would grant this address.
fn again<'a>(claim: &'a Claim, held: Held, places: &Places) -> Option<Again<'a>> {
    Some(Again { claim, held, pool: places.pool_of(claim)?.to_owned() })
}

/// Networks of the file with their state on the server.
pub(super) fn pairs<'a>(of_file: &'a [Network], there: &'a [Value]) -> impl Iterator<Item = (&'a Network, &'a Value)> {
    let named = there.iter().filter_map(|there| Some((there["name"].as_str()?, there)));
    let by_name: HashMap<&str, &Value> = named.collect();
    of_file.iter().filter_map(move |network| Some((network, *by_name.get(&*network.table.name)?)))
}

/// For networks in service: the pools that grant a slot again what it released.
pub(super) fn places(there: &[Value]) -> HashMap<&str, Places> {
    let in_service = there.iter().filter(|there| !is_half_done(there));
    in_service.filter_map(|there| Some((there["name"].as_str()?, Places::of_server(there)))).collect()
}
