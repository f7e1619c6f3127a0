//! The stages of a network while an import fills it, until it is as in the file. Pure.
//!
//! | stage | the network | what others are granted in it |
//! | --- | --- | --- |
//! | filled | as created: all of it reserved, without settings that would refuse a claim (`static_only`, `limits`, `protected`, `draining`) | nothing, unless they force it |
//! | led | the same, but each address that was chosen is reserved for its slot, some of them at a time; if no pool of the file grants it, a pool spans its subnet | nothing, unless they force it; while a block is released for a moment, its addresses go to requests that name one |
//! | drawn from | pools and reserved ranges are those of the file | addresses that nobody holds in the file either |
//! | closed | as in the file | as in the file |
//!
//! Each stage is one commit, the second one as many as it takes. All reservations of the file are claimed in the first
//! stage, so that none of their addresses is free later. Those that had been granted automatically are released and granted
//! again in the second. A block cannot be reserved for a slot; it is protected by the cooldown, which is longer than any
//! import takes. The cooldown keeps for the slot what it released, except from requests that name an address. That cooldown
//! also distinguishes a network that an import left half done from any other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::apply::diff::{self, Step};
use super::super::apply::file::Table;
use super::lines::Claim;
use super::places::Places;
use crate::core::address::{Address, Cidr, Range};
use crate::limits::LINE_BYTES_MAX;

/// The cooldown of a network while it is filled: more than a hundred years, which nobody sets otherwise.
const COOLDOWN_SECONDS: u64 = 3_155_760_123;

/// The most bytes of the slots that are led at a time, each with the range between its address and the next: they are sent
/// in one call.
const LED_BYTES_MAX: usize = LINE_BYTES_MAX / 2;
/// The bytes of one slot, besides its names.
const LED_RANGE_BYTES: usize = 200;

/// Members that would refuse a claim.
const HELD_BACK: [&str; 3] = ["static_only", "limits", "protected"];

/// A network of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Its line number, from 1.
    pub line: usize,
    /// Its final configuration.
    pub table: Table,
    /// The configuration with which it is created.
    pub open: Table,
    /// The members of its subnets in the third stage, by cidr.
    drawn: BTreeMap<String, Map<String, Value>>,
}

impl Network {
    /// A network in which the file has no reservations.
    pub fn new(line: usize, table: Table) -> Self {
        Self { line, open: table.clone(), table, drawn: BTreeMap::new() }
    }

    /// Its realm, in which no other network may overlap it.
    pub fn realm(&self) -> &str {
        self.table.members.get("realm").and_then(Value::as_str).unwrap_or("default")
    }

    /// Its kind, if the file names one.
    pub fn kind(&self) -> Option<&str> {
        self.table.members.get("kind").and_then(Value::as_str)
    }

    /// Is it filled in stages?
    pub fn is_filled(&self) -> bool {
        self.open != self.table
    }

    /// Plans the stages in which it is filled with these claims.
    pub fn fill_with(&mut self, claims: &[&Claim]) {
        let places = Places::of_file(self);
        let is_led = |claim: &&&Claim| claim.automatic && places.pool_of(claim).is_none();
        let led: BTreeSet<Address> = claims.iter().filter(is_led).map(|claim| claim.range.first()).collect();
        let blocks: BTreeSet<Range> = claims.iter().map(|claim| claim.range).filter(|range| range.size() > 1).collect();
        self.open = without_held_back(&self.table);
        self.open.members.insert("cooldown_seconds".to_owned(), json!(COOLDOWN_SECONDS));
        self.open.members.shift_remove("cooldown_yields");
        for subnet in subnets_of(&mut self.open) {
            let Some(cidr) = cidr_of(subnet) else { continue };
            let mut drawn = Map::new();
            let mut reserved = subnet.get("reserved").cloned().unwrap_or_else(|| json!([]));
            // A slot with an address reserved for it would be granted that one first, and not the one that it held.
            let ranges = reserved.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
            ranges.for_each(|range| drop(range.shift_remove("for")));
            drawn.insert("reserved".to_owned(), reserved);
            let lies_here = |first: &Address| cidr.contains(*first);
            if led.range(cidr.base()..).next().is_some_and(lies_here) || lies_across_pools(subnet, cidr, &blocks) {
                let pools = subnet.get("pools").cloned().unwrap_or_else(|| json!([whole(cidr)]));
                drawn.insert("pools".to_owned(), pools);
                subnet.insert("pools".to_owned(), json!([whole(cidr)]));
            }
            subnet.insert("reserved".to_owned(), json!([whole(cidr)]));
            self.drawn.insert(cidr.to_string(), drawn);
        }
    }

    /// What the network on the server must be equal to. If an import left it half done, that excludes everything that later
    /// stages change. A network in service may only be changed by its operators.
    pub fn expected(&self, there: &Value) -> Table {
        if !is_half_done(there) {
            return self.table.clone();
        }
        let mut expected = without_held_back(&self.table);
        if self.is_filled() {
            for member in ["cooldown_seconds", "cooldown_yields"] {
                expected.members.shift_remove(member);
            }
            for subnet in subnets_of(&mut expected) {
                for member in ["pools", "reserved"] {
                    subnet.shift_remove(member);
                }
            }
        }
        expected
    }

    /// The step that lets these slots be granted the addresses that they hold, and no one anything else; nothing if the
    /// network is not being filled.
    pub fn leading(&self, there: &Value, to: &[&Claim]) -> Option<Step> {
        self.with_subnets(there, |cidr, drawn| {
            let mut led = Map::new();
            if drawn.contains_key("pools") {
                led.insert("pools".to_owned(), json!([whole(cidr)]));
            }
            let here = || to.iter().filter(|claim| cidr.contains(claim.range.first()));
            let rest = here().fold(vec![cidr.range()], |rest, claim| without(rest, claim.range));
            let rest = rest.iter().map(|range| json!({"range": range.to_string()}));
            let kept = here().filter(|claim| claim.range.size() == 1);
            let kept = kept.map(|claim| json!({"range": claim.range.to_string(), "for": claim.kept_for()}));
            led.insert("reserved".to_owned(), rest.chain(kept).collect());
            led
        })
    }

    /// The step that gives the network the pools and reserved ranges of the file; nothing if it is not being filled.
    pub fn drawing(&self, there: &Value) -> Option<Step> {
        self.with_subnets(there, |_, drawn| drawn.clone())
    }

    /// The call that changes these members of the subnets.
    fn with_subnets(
        &self,
        there: &Value,
        members: impl Fn(Cidr, &Map<String, Value>) -> Map<String, Value>,
    ) -> Option<Step> {
        let subnets = there["subnets"].as_array().filter(|list| !list.is_empty() && is_half_done(there))?;
        let entry = |subnet: &Value| {
            let cidr = subnet.as_object().and_then(cidr_of);
            let drawn = cidr.and_then(|cidr| Some((cidr, self.drawn.get(&cidr.to_string())?)));
            let mut entry = drawn.map(|(cidr, drawn)| members(cidr, drawn)).unwrap_or_default();
            // A subnet that is not listed would be removed.
            entry.insert("id".to_owned(), subnet["id"].clone());
            Value::Object(entry)
        };
        let set = json!({"subnets": subnets.iter().map(entry).collect::<Vec<_>>()});
        let params = json!({"network": there["id"], "set": set, "if_version": there["version"]});
        Some(Step::new(&self.table.name, "network.update", params, Vec::new()))
    }

    /// The steps that make a network of the server as it is in the file.
    ///
    /// # Errors
    /// What cannot be changed.
    pub fn closing(&self, there: &Value) -> Result<Vec<Step>, String> {
        let mut table = self.table.clone();
        if is_half_done(there) {
            table.members.entry("cooldown_seconds").or_insert(json!(0));
        }
        diff::steps(std::slice::from_ref(&table), std::slice::from_ref(there), false)
    }
}

/// How many of these slots are led at a time, at least one.
pub(super) fn led_at_a_time<'a>(claims: impl Iterator<Item = &'a Claim>) -> usize {
    let mut bytes = 0;
    let fits = |claim: &&Claim| {
        bytes += LED_RANGE_BYTES + claim.kept_for().to_string().len();
        bytes <= LED_BYTES_MAX
    };
    claims.take_while(fits).count().max(1)
}

/// Did an import leave this network of the server before it was closed?
pub fn is_half_done(there: &Value) -> bool {
    there["cooldown_seconds"] == COOLDOWN_SECONDS
}

/// The network without settings that would refuse a claim.
fn without_held_back(table: &Table) -> Table {
    let mut open = table.clone();
    for member in HELD_BACK {
        open.members.shift_remove(member);
    }
    for subnet in subnets_of(&mut open) {
        subnet.shift_remove("draining");
        let pools = subnet.get_mut("pools").and_then(Value::as_array_mut).into_iter().flatten();
        pools.filter_map(Value::as_object_mut).for_each(|pool| drop(pool.shift_remove("draining")));
    }
    open
}

/// Is there a block that does not lie completely in one pool, because the pools were changed since? Blocks can only be
/// claimed in a pool.
fn lies_across_pools(subnet: &Map<String, Value>, cidr: Cidr, blocks: &BTreeSet<Range>) -> bool {
    let from = Range::single(cidr.base());
    let mut here = blocks.range(from..).take_while(|block| cidr.range().covers(**block)).peekable();
    // A subnet without `pools` has one that spans it.
    let Some(pools) = subnet.get("pools").and_then(Value::as_array).filter(|_| here.peek().is_some()) else {
        return false;
    };
    let ranges = pools.iter().filter_map(|pool| range_of(pool.as_object()?));
    let pools: BTreeMap<Address, Range> = ranges.map(|range| (range.first(), range)).collect();
    let lies_in_one =
        |block: &Range| pools.range(..=block.first()).next_back().is_some_and(|(_, pool)| pool.covers(*block));
    !here.all(lies_in_one)
}

/// Removes a range from ranges in order; it must begin after all that were removed before.
fn without(mut ranges: Vec<Range>, range: Range) -> Vec<Range> {
    if let Some(last) = ranges.pop_if(|last| last.covers(range)) {
        ranges.extend(last.without(range));
    }
    ranges
}

/// The range of a whole subnet.
fn whole(cidr: Cidr) -> Value {
    json!({"range": cidr.range().to_string()})
}

fn subnets_of(table: &mut Table) -> impl Iterator<Item = &mut Map<String, Value>> {
    let subnets = table.members.get_mut("subnets").and_then(Value::as_array_mut).into_iter().flatten();
    subnets.filter_map(Value::as_object_mut)
}

/// The cidr of a subnet.
pub(super) fn cidr_of(subnet: &Map<String, Value>) -> Option<Cidr> {
    subnet.get("cidr")?.as_str()?.parse().ok()
}

/// The range of a pool or reserved range.
pub(super) fn range_of(of: &Map<String, Value>) -> Option<Range> {
    of.get("range")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::lines::read;
    use super::*;

    const FILE: &str = r#"{"format":"allod-export","version":1}
{"network":{"name":"lan","static_only":true,"subnets":[{"cidr":"10.0.0.0/24","pools":[{"range":"10.0.0.64/26"}],"reserved":[{"range":"10.0.0.70","for":{"owner":"x"}}]},{"cidr":"10.0.1.0/24","draining":true}]}}
{"reservation":{"network":"lan","address":"10.0.0.5","owner":"a","kind":"dynamic"}}
{"reservation":{"network":"lan","address":"10.0.0.64","owner":"b","kind":"dynamic"}}
{"reservation":{"network":"lan","address":"10.0.1.5","owner":"c","kind":"dynamic"}}"#;

    /// The network in the server's form, with these members.
    fn there(members: &Map<String, Value>) -> Value {
        let mut there = json!({"id": "1", "name": "lan", "realm": "default", "kind": "manual", "version": 7});
        there.as_object_mut().unwrap().extend(members.clone());
        for (at, subnet) in there["subnets"].as_array_mut().unwrap().iter_mut().enumerate() {
            subnet["id"] = json!(at);
        }
        there
    }

    #[test]
    fn while_it_is_filled_nothing_of_a_network_is_given_and_while_it_is_led_nothing_but_what_is_named() {
        let content = read(FILE);
        let network = &content.networks[0];
        let whole = |subnet: u8| json!([{"range": format!("10.0.{subnet}.0-10.0.{subnet}.255")}]);
        let open = &network.open.members;
        assert_eq!(open.get("static_only"), None);
        let subnets = [
            json!({"cidr": "10.0.0.0/24", "pools": whole(0), "reserved": whole(0)}),
            json!({"cidr": "10.0.1.0/24", "reserved": whole(1)}),
        ];
        assert_eq!(open["subnets"], json!(subnets));
        let led: Vec<&Claim> = content.claims.iter().take(2).collect();
        let led = network.leading(&there(open), &led).unwrap();
        let kept = |at: &str, owner: &str| json!({"range": format!("{at}-{at}"), "for": {"scope": "default", "owner": owner, "slot": "0"}});
        let between = |range: &str| json!({"range": range});
        let reserved = [
            between("10.0.0.0-10.0.0.4"),
            between("10.0.0.6-10.0.0.63"),
            between("10.0.0.65-10.0.0.255"),
            kept("10.0.0.5", "a"),
            kept("10.0.0.64", "b"),
        ];
        let set = json!([{"id": 0, "pools": whole(0), "reserved": reserved}, {"id": 1, "reserved": whole(1)}]);
        assert_eq!(led.params["set"]["subnets"], set);
        // An address reserved for a slot that does not hold it would be granted to that slot instead of its own.
        let drawn = network.drawing(&there(open)).unwrap();
        let pools = json!([{"range": "10.0.0.64-10.0.0.127"}]);
        let kept = json!([{"range": "10.0.0.70-10.0.0.70"}]);
        let set = json!([{"id": 0, "pools": pools, "reserved": kept}, {"id": 1, "reserved": []}]);
        assert_eq!(drawn.params["set"]["subnets"], set);
    }

    #[test]
    fn a_network_that_an_import_left_is_known_by_its_cooldown_and_one_in_service_is_left_as_it_is() {
        let content = read(FILE);
        let network = &content.networks[0];
        let left = there(&network.open.members);
        let differs =
            |there: &Value| diff::steps(&[network.expected(there)], std::slice::from_ref(there), false).unwrap();
        assert!(is_half_done(&left) && differs(&left).is_empty());
        assert_eq!(network.closing(&left).unwrap()[0].params["set"]["cooldown_seconds"], 0);
        let mut in_service = network.table.members.clone();
        in_service.insert("cooldown_seconds".to_owned(), json!(30));
        let mut changed = there(&in_service);
        let in_service = there(&in_service);
        changed["static_only"] = json!(false);
        assert_eq!(differs(&changed)[0].words, ["~ static_only: false → true"], "whoever changed it since meant it");
        assert!(!is_half_done(&in_service) && differs(&in_service).is_empty());
        assert_eq!((network.drawing(&in_service), network.leading(&in_service, &[])), (None, None));
        assert!(network.closing(&in_service).unwrap().is_empty());
    }
}
