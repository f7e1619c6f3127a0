//! The zones of a group, dealt to those of its instances that have none of their own.
//!
//! A machine lives in one zone, whatever its networks are; so a zone is dealt once for all of them, by what each network says
//! of the instance ([`ZoneTie`]). Who has an address that he may keep stays in a zone that serves it; those to whom all zones
//! are alike are dealt in turn. So nobody moves because of who is listed beside him, or in which order; and who has to leave
//! his address is not held in its zone by it.
//!
//! Before: `actors::coordinator`, which asks the networks. After: `network::deploy`, for which each instance has its zone.
//!
//! Review notes: are the same zones dealt again when the plan comes again, before its commit and behind it?

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::types::Owner;

/// The zones of a group, and to whom they are dealt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneGroup {
    /// In the order of the request; one that is named twice is dealt twice as often.
    pub zones: Vec<CompactString>,
    /// The instances that have no zone yet, in the order of the request.
    pub instances: Vec<Owner>,
}

/// Why an instance is tied to zones; what comes first weighs more than all that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TieReason {
    /// It names an address there.
    Named,
    /// It holds one that it keeps.
    Held,
    /// One of its list is promised to it.
    Promised,
}

/// An address ties an instance to the zones that its subnet serves. What serves every zone ties nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneTie {
    /// The instance.
    pub owner: Owner,
    /// Why.
    pub reason: TieReason,
    /// To which: of all ties by one subnet the same list.
    pub zones: Arc<[CompactString]>,
}

/// Deals. Who is in several groups is dealt by the first.
///
/// Cost: O(instances × zones of their group), and of each tie O(zones of its subnet).
pub fn deal(groups: &[ZoneGroup], ties: &[ZoneTie]) -> BTreeMap<Owner, CompactString> {
    let mut of_owner: HashMap<&Owner, Vec<&ZoneTie>> = HashMap::new();
    for tie in ties {
        of_owner.entry(&tie.owner).or_default().push(tie);
    }
    let mut dealt = BTreeMap::new();
    for group in groups {
        // How many have which of the zones, by its place in the list.
        let mut taken = vec![0_u64; group.zones.len()];
        let mut places: HashMap<&CompactString, Vec<usize>> = HashMap::new();
        for (at, zone) in group.zones.iter().enumerate() {
            places.entry(zone).or_default().push(at);
        }
        let mut rest = Vec::new();
        for instance in &group.instances {
            if dealt.contains_key(instance) {
                continue;
            }
            let ties = of_owner.get(instance).map_or(&[][..], Vec::as_slice);
            let fitting = fitting(&places, group.zones.len(), ties);
            let is_one = fitting.windows(2).all(|pair| group.zones[pair[0]] == group.zones[pair[1]]);
            if is_one {
                take(group, instance, &fitting, &mut taken, &mut dealt)
            } else {
                rest.push((instance, fitting))
            }
        }
        for (instance, fitting) in rest {
            take(group, instance, &fitting, &mut taken, &mut dealt);
        }
    }
    dealt
}

/// Gives an instance the zone of these that the fewest have; of several the first.
fn take(
    group: &ZoneGroup,
    instance: &Owner,
    fitting: &[usize],
    taken: &mut [u64],
    dealt: &mut BTreeMap<Owner, CompactString>,
) {
    if let Some(at) = fitting.iter().copied().min_by_key(|at| taken[*at]) {
        taken[at] += 1;
        dealt.insert(instance.clone(), group.zones[at].clone());
    }
}

/// The zones that serve the most of what ties an instance, by their places.
fn fitting(places: &HashMap<&CompactString, Vec<usize>>, count: usize, ties: &[&ZoneTie]) -> Vec<usize> {
    // Of each zone, how much of what is named, held and promised it serves.
    let mut served = vec![[0_u32; 3]; count];
    for tie in ties {
        for at in tie.zones.iter().filter_map(|zone| places.get(zone)).flatten() {
            let [named, held, promised] = &mut served[*at];
            *match tie.reason {
                TieReason::Named => named,
                TieReason::Held => held,
                TieReason::Promised => promised,
            } += 1;
        }
    }
    let most = served.iter().max().copied();
    (0..count).filter(|at| Some(served[*at]) == most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &str) -> Owner {
        text.parse().unwrap()
    }

    fn group(zones: &[&str], instances: &[&str]) -> ZoneGroup {
        let zones = zones.iter().map(|zone| (*zone).into()).collect();
        ZoneGroup { zones, instances: instances.iter().map(|id| owner(id)).collect() }
    }

    fn tie(id: &str, reason: TieReason, zones: &[&str]) -> ZoneTie {
        ZoneTie { owner: owner(id), reason, zones: zones.iter().map(|zone| (*zone).into()).collect() }
    }

    fn dealt(groups: &[ZoneGroup], ties: &[ZoneTie]) -> String {
        let each = deal(groups, ties).into_iter().map(|(owner, zone)| format!("{owner}:{zone}"));
        each.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn who_is_tied_to_no_zone_is_dealt_in_turn() {
        assert_eq!(dealt(&[group(&["z1", "z2"], &["a", "b", "c"])], &[]), "a:z1 b:z2 c:z1");
        assert_eq!(dealt(&[group(&["z1", "z2", "z1"], &["a", "b", "c", "d"])], &[]), "a:z1 b:z2 c:z1 d:z1");
        assert_eq!(dealt(&[group(&[], &["a"])], &[]), "");
        assert_eq!(dealt(&[group(&["z1"], &["a"]), group(&["z2", "z3"], &["a", "b"])], &[]), "a:z1 b:z2");
    }

    #[test]
    fn who_is_tied_stays_and_the_others_go_where_fewest_are() {
        use TieReason::{Held, Named, Promised};
        let zones = &["z1", "z2"];
        let ties = [tie("a", Held, &["z2"]), tie("b", Held, &["z1", "z2"]), tie("d", Held, &["z3"])];
        assert_eq!(dealt(&[group(zones, &["c", "b", "a", "d"])], &ties), "a:z2 b:z1 c:z1 d:z2");
        // What is named weighs more than what is held, and that more than what is promised.
        let ties = [tie("a", Held, &["z1"]), tie("a", Held, &["z1"]), tie("a", Named, &["z2"])];
        assert_eq!(dealt(&[group(zones, &["a"])], &ties), "a:z2");
        let ties = [tie("a", Promised, &["z1"]), tie("a", Held, &["z2"]), tie("b", Promised, &["z2"])];
        assert_eq!(dealt(&[group(zones, &["b", "a"])], &ties), "a:z2 b:z2");
    }
}
