//! What had been granted automatically is let go, and granted again: the second and third [stage](super::stages) of an
//! import, and the change from one to the next.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::super::apply::diff::Step;
use super::super::apply::networks;
use super::super::session::{Done, Session};
use super::claiming::{Again, Became, Held, grant_all};
use super::lines::{Claim, Content};
use super::places::Places;
use super::stages::{LED_MAX, Network, cidr_of, is_half_done};
use crate::core::address::Range;

/// What became of reservations that had been granted automatically.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// How many are held by a claim, and stay so.
    pub(super) named: usize,
    /// Line and sentence of those that somebody else was given meanwhile.
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

/// Gives filled networks their pools and reserved ranges, and makes automatic grants of what is `held` by claims, by line.
pub(super) async fn grant_again(
    session: &mut Session,
    content: &Content,
    held: &HashMap<usize, Held>,
    places: &HashMap<&str, Places>,
) -> Done<Granted> {
    let mut granted = Granted::default();
    let (mut direct, mut led) = (Vec::new(), HashMap::<&str, Vec<(&Claim, Held)>>::new());
    let chosen = content.claims.iter().filter(|claim| claim.is_chosen());
    for (claim, held) in chosen.filter_map(|claim| Some((claim, *held.get(&claim.line)?))) {
        match pool_of(claim, places) {
            Some(pool) => direct.push(Again { claim, held, pool: pool.to_owned() }),
            None => led.entry(&claim.network).or_default().push((claim, held)),
        }
    }
    let there = networks(session, None).await?;
    for (network, there) in pairs(&content.networks, &there) {
        let mut there = there.clone();
        if is_half_done(&there) {
            let mut led = led.remove(&*network.table.name).unwrap_or_default();
            led.sort_unstable_by_key(|(claim, _)| claim.range.first());
            for some in led.chunks(LED_MAX) {
                let ranges: Vec<Range> = some.iter().map(|(claim, _)| claim.range).collect();
                there = change(session, network.leading(&there, &ranges), there).await?;
                let again: Vec<Again<'_>> = some.iter().filter_map(|led| spanned(*led, &there)).collect();
                grant_all(session, &again, |became| granted.note(became)).await?;
            }
        }
        change(session, network.drawing(&there), there).await?;
    }
    granted.named += led.values().map(Vec::len).sum::<usize>();
    grant_all(session, &direct, |became| granted.note(became)).await?;
    Ok(granted)
}

/// Makes a change of a network, and answers what it is then.
async fn change(session: &mut Session, step: Option<Step>, there: Value) -> Done<Value> {
    match step {
        Some(step) => session.call(step.method, Value::Object(step.params)).await,
        None => Ok(there),
    }
}

/// A claim that is given again out of the pool that spans its subnet.
fn spanned<'a>((claim, held): (&'a Claim, Held), there: &Value) -> Option<Again<'a>> {
    let mut subnets = there["subnets"].as_array()?.iter().filter_map(|subnet| cidr_of(subnet.as_object()?));
    let pool = subnets.find(|cidr| cidr.range().covers(claim.range))?.range().to_string();
    Some(Again { claim, held, pool })
}

/// Networks of the file with what they are on the server.
pub(super) fn pairs<'a>(of_file: &'a [Network], there: &'a [Value]) -> impl Iterator<Item = (&'a Network, &'a Value)> {
    let named = there.iter().filter_map(|there| Some((there["name"].as_str()?, there)));
    let by_name: HashMap<&str, &Value> = named.collect();
    of_file.iter().filter_map(move |network| Some((network, *by_name.get(&*network.table.name)?)))
}

/// Where what is imported lies: in networks of the file, or in those that the server has and no import left half done.
pub(super) fn places<'a>(of_file: &'a [Network], there: &'a [Value]) -> HashMap<&'a str, Places> {
    let of_file = of_file.iter().map(|network| (&*network.table.name, Places::of_file(network)));
    let in_service = there.iter().filter(|there| !is_half_done(there));
    let of_server = in_service.filter_map(|there| Some((there["name"].as_str()?, Places::of_server(there))));
    of_file.chain(of_server).collect()
}

/// The pool out of which a claim is given again as it is.
pub(super) fn pool_of<'a>(claim: &Claim, places: &'a HashMap<&str, Places>) -> Option<&'a str> {
    places.get(&*claim.network)?.pool_of(claim)
}
