//! Deals the zones of a group to those of its instances that have no zone of their own.
//!
//! A machine lives in one zone, whichever networks it is in. So an instance gets one zone for all of its networks, decided
//! by what each network says of it ([`ZoneTie`]). An instance that may keep an address stays in a zone which that address
//! serves; instances for which all zones are equal are dealt zones in turn. So no instance moves because of which others are
//! listed, or in which order; and an address that an instance has to give up does not hold it in a zone.
//!
//! If a group lists static addresses, and they are spread unevenly over the zones, they decide how many instances may live in a
//! zone: no instance gets a zone for which a list has no address left ([`ListRoom`]), as long as there is another zone for it.
//!
//! Before: `actors::coordinator`, which asks the networks. After: `network::deploy`, for which each instance has its zone.
//!
//! Review notes: are the same zones dealt again when the plan is requested again, before its commit and after it?

mod room;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

pub use self::room::ListRoom;
use self::room::Room;
use super::types::Owner;

/// The zones of a group, and the instances that get one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneGroup {
    /// In the order of the request; a zone that is named twice is dealt twice as often.
    pub zones: Vec<CompactString>,
    /// The instances that have no zone yet, in the order of the request.
    pub instances: Vec<Owner>,
}

/// Why an instance is tied to zones. One tie of an earlier reason outweighs any number of later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TieReason {
    /// It names an address there.
    Named,
    /// It holds an address there that it keeps.
    Held,
    /// An address of its list is promised to it there.
    Promised,
}

/// An address ties an instance to the zones that its subnet serves. A subnet that serves every zone ties no instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneTie {
    /// The instance.
    pub owner: Owner,
    /// Why.
    pub reason: TieReason,
    /// The zones; all ties by one subnet share the list.
    pub zones: Arc<[CompactString]>,
}

/// What one network, or several, say of the instances that get a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneFacts {
    /// What ties the instances to zones.
    pub ties: Vec<ZoneTie>,
    /// The addresses that the lists of their groups have for them.
    pub lists: Vec<ListRoom>,
}

impl ZoneFacts {
    /// Adds what another network says.
    pub fn add(&mut self, other: Self) {
        self.ties.extend(other.ties);
        self.lists.extend(other.lists);
    }
}

/// What is left of the lists, and which lists each instance takes from.
struct Rooms<'a> {
    all: Vec<Room<'a>>,
    of_owner: HashMap<&'a Owner, Vec<usize>>,
}

impl<'a> Rooms<'a> {
    fn of(groups: &'a [ZoneGroup], lists: &'a [ListRoom]) -> Self {
        let mut dealt: HashMap<&Owner, &[CompactString]> = HashMap::new();
        for group in groups {
            for instance in &group.instances {
                dealt.entry(instance).or_insert(&group.zones);
            }
        }
        let all: Vec<Room<'_>> = lists.iter().map(|list| Room::of(list, &dealt)).collect();
        let mut of_owner: HashMap<&Owner, Vec<usize>> = HashMap::new();
        for (at, room) in all.iter().enumerate() {
            room.takers().for_each(|owner| of_owner.entry(owner).or_default().push(at));
        }
        Self { all, of_owner }
    }

    fn are_left_for(&mut self, instance: &Owner, zone: &'a CompactString) -> bool {
        let of_it = self.of_owner.get(instance).into_iter().flatten();
        of_it.into_iter().all(|at| self.all[*at].is_left_for(zone))
    }

    fn take(&mut self, instance: &Owner, zone: &'a CompactString) {
        for at in self.of_owner.get(instance).into_iter().flatten() {
            self.all[*at].take(Some(zone));
        }
    }
}

/// Deals the zones. An instance in several groups gets its zone from the first.
///
/// Cost: O(instances × zones of their group), O(zones of the subnet) for each tie, and for a list what its `Room` looks at.
pub fn deal(groups: &[ZoneGroup], facts: &ZoneFacts) -> BTreeMap<Owner, CompactString> {
    let mut of_owner: HashMap<&Owner, Vec<&ZoneTie>> = HashMap::new();
    for tie in &facts.ties {
        of_owner.entry(&tie.owner).or_default().push(tie);
    }
    let mut rooms = Rooms::of(groups, &facts.lists);
    let mut dealt = BTreeMap::new();
    for group in groups {
        // How many instances have each zone, by the zone's place in the list.
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
                take((group, instance), &fitting, &mut taken, &mut rooms, &mut dealt)
            } else {
                rest.push((instance, fitting))
            }
        }
        for (instance, fitting) in rest {
            take((group, instance), &fitting, &mut taken, &mut rooms, &mut dealt);
        }
    }
    dealt
}

/// Gives an instance the zone with the fewest instances among these, the first of several. Zones for which its lists have an
/// address left go first.
fn take<'a>(
    (group, instance): (&'a ZoneGroup, &Owner),
    fitting: &[usize],
    taken: &mut [u64],
    rooms: &mut Rooms<'a>,
    dealt: &mut BTreeMap<Owner, CompactString>,
) {
    let mut fewest_first = fitting.to_vec();
    fewest_first.sort_by_key(|at| taken[*at]);
    let roomy = fewest_first.iter().copied().find(|at| rooms.are_left_for(instance, &group.zones[*at]));
    if let Some(at) = roomy.or(fewest_first.first().copied()) {
        taken[at] += 1;
        rooms.take(instance, &group.zones[at]);
        dealt.insert(instance.clone(), group.zones[at].clone());
    }
}

/// The zones that serve the most of what ties an instance, by their places.
fn fitting(places: &HashMap<&CompactString, Vec<usize>>, count: usize, ties: &[&ZoneTie]) -> Vec<usize> {
    // How many named, held and promised addresses each zone serves.
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
        dealt_by(groups, ZoneFacts { ties: ties.to_vec(), lists: Vec::new() })
    }

    fn dealt_by(groups: &[ZoneGroup], facts: ZoneFacts) -> String {
        let each = deal(groups, &facts).into_iter().map(|(owner, zone)| format!("{owner}:{zone}"));
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
        // A named address outweighs held ones, and a held one outweighs promised ones.
        let ties = [tie("a", Held, &["z1"]), tie("a", Held, &["z1"]), tie("a", Named, &["z2"])];
        assert_eq!(dealt(&[group(zones, &["a"])], &ties), "a:z2");
        let ties = [tie("a", Promised, &["z1"]), tie("a", Held, &["z2"]), tie("b", Promised, &["z2"])];
        assert_eq!(dealt(&[group(zones, &["b", "a"])], &ties), "a:z2 b:z2");
    }

    fn zones(names: &[&str]) -> Arc<[CompactString]> {
        names.iter().map(|zone| (*zone).into()).collect()
    }

    fn list(seekers: &[&str], subnets: &[(&[&str], u64)]) -> ListRoom {
        let subnets = subnets.iter().map(|(names, count)| (zones(names), *count)).collect();
        ListRoom { subnets, seekers: seekers.iter().map(|id| owner(id)).collect(), ..ListRoom::default() }
    }

    fn by_lists(groups: &[ZoneGroup], lists: Vec<ListRoom>) -> String {
        dealt_by(groups, ZoneFacts { ties: Vec::new(), lists })
    }

    #[test]
    fn where_static_addresses_lie_unevenly_over_zones_so_do_those_who_are_dealt_them() {
        let (ids, both) = (&["a", "b", "c"][..], [group(&["z1", "z2"], &["a", "b", "c"])]);
        let one_and_two: [(&[&str], u64); 2] = [(&["z1"], 1), (&["z2"], 2)];
        assert_eq!(by_lists(&both, vec![list(ids, &one_and_two)]), "a:z1 b:z2 c:z2");
        assert_eq!(by_lists(&both, vec![list(ids, &[(&["z2"], 3)])]), "a:z2 b:z2 c:z2");
        // In turn, if there are enough for that.
        assert_eq!(by_lists(&both, vec![list(ids, &[(&["z1"], 9), (&["z2"], 9)])]), "a:z1 b:z2 c:z1");
        // An address for all zones is left to whoever finds no other, whoever got it first.
        assert_eq!(by_lists(&both, vec![list(ids, &[(&[], 1), (&["z1", "z2"], 1), (&["z2"], 1)])]), "a:z1 b:z2 c:z1");
        // Each of several lists must have an address.
        let all = &["z1", "z2", "z3"];
        let lists = vec![list(ids, &[(&["z1", "z2"], 2), (&["z3"], 2)]), list(ids, &[(&["z2"], 2), (&["z3"], 2)])];
        assert_eq!(by_lists(&[group(all, ids)], lists), "a:z2 b:z3 c:z2");
        // There are too few for all. The instance that finds none in turn is refused where addresses are dealt.
        assert_eq!(by_lists(&both, vec![list(ids, &[(&["z1"], 1), (&["z3"], 2)])]), "a:z1 b:z2 c:z1");
    }

    #[test]
    fn who_lives_in_a_zone_already_or_keeps_an_address_has_his_of_the_list_before_zones_are_dealt() {
        let groups = [group(&["z1", "z2"], &["a", "b"])];
        let placed = vec![Some("z1".into()), None];
        let of = |subnets: &[(&[&str], u64)]| ListRoom { placed: placed.clone(), ..list(&["a", "b"], subnets) };
        assert_eq!(by_lists(&groups, vec![of(&[(&["z1"], 1), (&["z2"], 3)])]), "a:z2 b:z2");
        assert_eq!(by_lists(&groups, vec![of(&[(&["z1"], 1), (&["z2"], 2), (&[], 1)])]), "a:z1 b:z2");
        let tied = [tie("a", TieReason::Held, &["z1"])];
        let kept = ListRoom { keepers: vec![(owner("a"), zones(&["z1"]))], ..list(&["b"], &[(&["z1"], 1)]) };
        assert_eq!(dealt_by(&groups, ZoneFacts { ties: tied.to_vec(), lists: vec![kept] }), "a:z1 b:z1");
        // An instance that has to give up its address leaves it to the others and takes another.
        let left =
            ListRoom { keepers: vec![(owner("a"), zones(&["z3"]))], ..list(&["b"], &[(&["z1"], 1), (&["z2"], 1)]) };
        assert_eq!(by_lists(&groups, vec![left]), "a:z1 b:z2");
    }

    /// Does each instance get an address in its zone? `free[kind]` counts those in subnets that serve the zones of that kind.
    fn is_enough(zone_of: &[usize], kinds: &[Vec<usize>], free: &mut [u64]) -> bool {
        let Some((zone, rest)) = zone_of.split_first() else { return true };
        (0..kinds.len()).filter(|kind| kinds[*kind].is_empty() || kinds[*kind].contains(zone)).any(|kind| {
            let is_free = free[kind] > 0;
            if is_free {
                free[kind] -= 1;
                let done = is_enough(rest, kinds, free);
                free[kind] += 1;
                return done;
            }
            false
        })
    }

    proptest::proptest! {
        /// Compared with trying everything.
        #[test]
        fn zones_are_dealt_so_that_a_list_has_one_for_each_wherever_that_can_be(
            count in 1..5_usize,
            placed in proptest::collection::vec(0..3_usize, 0..3),
            subnets in proptest::collection::vec((proptest::collection::btree_set(0..3_usize, 0..3), 0..3_u64), 1..4),
        ) {
            let name = |zone: &usize| format!("z{zone}");
            let ids: Vec<String> = (0..count).map(|at| format!("i{at}")).collect();
            let kinds: Vec<Vec<usize>> = subnets.iter().map(|(zones, _)| zones.iter().copied().collect()).collect();
            let free: Vec<u64> = subnets.iter().map(|(_, count)| *count).collect();
            let named = |zones: &Vec<usize>| zones.iter().map(|zone| name(zone).into()).collect();
            let room = ListRoom {
                subnets: kinds.iter().map(named).zip(free.iter().copied()).collect(),
                placed: placed.iter().map(|zone| Some(name(zone).into())).collect(),
                ..list(&ids.iter().map(String::as_str).collect::<Vec<_>>(), &[])
            };
            let groups = [group(&["z0", "z1"], &ids.iter().map(String::as_str).collect::<Vec<_>>())];
            let dealt = deal(&groups, &ZoneFacts { ties: Vec::new(), lists: vec![room] });
            let in_z1 = dealt.values().filter(|zone| *zone == "z1").count();
            let all = |in_z1: usize| -> Vec<usize> {
                let each = (0..count).map(|at| usize::from(at < in_z1));
                placed.iter().copied().chain(each).collect()
            };
            let fits = |in_z1: usize| is_enough(&all(in_z1), &kinds, &mut free.clone());
            proptest::prop_assert_eq!(fits(in_z1), (0..=count).any(fits), "{:?}", dealt);
        }
    }
}
