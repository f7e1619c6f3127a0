//! Former names and homes, so that a list over several pages goes on in the order in which it began, even if networks were
//! renamed and subnets moved in the meantime.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{Catalog, Listing};
use crate::core::address::Cidr;
use crate::core::types::{Name, NetworkId, SubnetId};

/// How many renames, and how many moves, are remembered. A list that began before the oldest of them cannot be continued.
const REMEMBERED_MAX: usize = 4_096;

/// A moment in the sequence of renames and moves that one supervisor made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Naming {
    /// The supervisor.
    pub line: u64,
    /// How many there had been.
    pub changes: u64,
    /// Hash of all names and homes: another supervisor compares it to find out whether anything has changed.
    pub arrangement: u64,
}

/// A network in its place in a list.
#[derive(Debug, Clone)]
pub struct ListRow {
    /// The name that it had when the list began.
    pub name: Name,
    /// Its present listing.
    pub listing: Listing,
    /// The subnets that it had when the list began, ascending, each with its present network; none if they are the present ones.
    pub parts: Option<Vec<(Cidr, NetworkId)>>,
}

/// The latest renames and moves.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    count: u64,
    /// Sum over the hashes of all listings.
    arrangement: u64,
    /// Number of the rename, the network, and its name before; oldest first.
    renamed: VecDeque<(u64, NetworkId, Name)>,
    /// Number of the move, the subnet, where it was and where it went; oldest first.
    moved: VecDeque<(u64, SubnetId, NetworkId, NetworkId)>,
    /// Lists that began before this number of changes cannot be continued: their place for a subnet that moved is gone.
    removed: u64,
}

impl Changes {
    pub(super) fn renamed(&mut self, network: NetworkId, before: Name) {
        self.count += 1;
        push(&mut self.renamed, (self.count, network, before));
    }

    pub(super) fn moved(&mut self, subnet: SubnetId, from: NetworkId, to: NetworkId) {
        self.count += 1;
        push(&mut self.moved, (self.count, subnet, from, to));
    }

    pub(super) fn listed(&mut self, listing: &Listing) {
        self.arrangement = self.arrangement.wrapping_add(hash_of(listing));
    }

    pub(super) fn unlisted(&mut self, listing: &Listing) {
        self.arrangement = self.arrangement.wrapping_sub(hash_of(listing));
    }

    /// A network is removed. What moved out of it is listed in its place, if the list began before that.
    pub(super) fn removed(&mut self, network: NetworkId) {
        let left = self.moved.iter().rev().find(|(_, _, from, _)| *from == network);
        self.removed = self.removed.max(left.map_or(0, |(number, ..)| *number));
    }

    /// Are all changes after this number still remembered?
    fn knows_since(&self, since: u64) -> bool {
        let oldest = |front: Option<u64>, full: bool| front.filter(|_| full).map_or(0, |number| number - 1);
        let (renamed, moved) = (&self.renamed, &self.moved);
        let forgotten = oldest(renamed.front().map(|(number, ..)| *number), renamed.len() == REMEMBERED_MAX)
            .max(oldest(moved.front().map(|(number, ..)| *number), moved.len() == REMEMBERED_MAX));
        since >= forgotten.max(self.removed)
    }

    /// The names that the networks renamed since then had at that time.
    fn names(&self, since: u64) -> BTreeMap<NetworkId, &Name> {
        let later = self.renamed.iter().rev().take_while(|(number, ..)| *number > since);
        // The oldest rename comes last, so its name wins.
        later.map(|(_, network, name)| (*network, name)).collect()
    }

    /// Where the subnets that moved since then were, and where they are now.
    fn homes(&self, since: u64) -> BTreeMap<SubnetId, (NetworkId, NetworkId)> {
        let mut homes = BTreeMap::new();
        for (_, subnet, from, to) in self.moved.iter().filter(|(number, ..)| *number > since) {
            homes.entry(*subnet).or_insert((*from, *to)).1 = *to;
        }
        homes
    }
}

fn hash_of(listing: &Listing) -> u64 {
    let mut bytes = listing.id.0.to_be_bytes().to_vec();
    bytes.extend(listing.subnets.keys().flat_map(|subnet| subnet.0.to_be_bytes()));
    bytes.extend(listing.name.as_str().as_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

fn push<T>(latest: &mut VecDeque<T>, change: T) {
    if latest.len() == REMEMBERED_MAX {
        latest.pop_front();
    }
    latest.push_back(change);
}

impl Catalog {
    /// Notes that a subnet moved from one network to another.
    pub fn moved(&mut self, subnet: SubnetId, from: NetworkId, to: NetworkId) {
        self.changes.moved(subnet, from, to);
    }

    /// How many renames and moves there have been.
    pub fn changes(&self) -> u64 {
        self.changes.count
    }

    /// The present moment of the supervisor `line`.
    pub fn naming(&self, line: u64) -> Naming {
        Naming { line, changes: self.changes.count, arrangement: self.changes.arrangement }
    }

    /// The moment of this supervisor by which a list can go on that began at `since`, perhaps under another supervisor. None
    /// if it is not known what was renamed or moved since.
    pub fn goes_on(&self, line: u64, since: Naming) -> Option<Naming> {
        let now = self.naming(line);
        if since.line == line {
            return self.changes.knows_since(since.changes).then_some(since);
        }
        (since.arrangement == now.arrangement).then_some(now)
    }

    /// At most `limit` networks from a place on, ordered by the names that they had after `since` changes, then by id. Cost:
    /// O(limit · log n), plus the changes since then.
    pub fn page(&self, since: u64, from: Bound<&(Name, NetworkId)>, limit: usize) -> Vec<ListRow> {
        let (names, homes) = (self.changes.names(since), self.changes.homes(since));
        let is_there = |(name, id): &(&Name, NetworkId)| match from {
            Bound::Unbounded => true,
            Bound::Included((first, first_id)) => (*name, *id) >= (first, *first_id),
            Bound::Excluded((last, last_id)) => (*name, *id) > (last, *last_id),
        };
        let mut renamed: Vec<_> = names.iter().map(|(id, name)| (*name, *id)).filter(is_there).collect();
        renamed.sort_unstable();
        let mut renamed = renamed.into_iter().peekable();
        let stayed = self.by_name.range((from.cloned(), Bound::Unbounded)).map(|(name, id)| (name, *id));
        let mut stayed = stayed.filter(|(_, id)| !names.contains_key(id)).peekable();
        let places = std::iter::from_fn(|| match (renamed.peek(), stayed.peek()) {
            (Some(one), Some(other)) if one < other => renamed.next(),
            (Some(_), None) => renamed.next(),
            (Some(_) | None, _) => stayed.next(),
        });
        let row = |(name, id): (&Name, NetworkId)| {
            let listing = self.get(id)?;
            Some(ListRow { name: name.clone(), listing: listing.clone(), parts: self.parts(listing, &homes) })
        };
        places.filter_map(row).take(limit).collect()
    }

    fn parts(
        &self,
        listing: &Listing,
        homes: &BTreeMap<SubnetId, (NetworkId, NetworkId)>,
    ) -> Option<Vec<(Cidr, NetworkId)>> {
        let came = |subnet: &SubnetId| homes.get(subnet).is_some_and(|(before, _)| *before != listing.id);
        let mut went = homes.iter().filter(|(_, (before, now))| *before == listing.id && *now != listing.id).peekable();
        if went.peek().is_none() && !listing.subnets.keys().any(came) {
            return None;
        }
        let stayed = listing.subnets.iter().filter(|(subnet, _)| !came(subnet)).map(|(_, cidr)| (*cidr, listing.id));
        let went = went.filter_map(|(subnet, (_, now))| Some((*self.get(*now)?.subnets.get(subnet)?, *now)));
        let mut parts: Vec<_> = stayed.chain(went).collect();
        parts.sort_unstable_by_key(|(cidr, _)| cidr.base());
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn listing(id: u128, name: &str) -> Listing {
        let (name, realm) = (name.parse().unwrap(), Name::default_realm());
        Listing { id: NetworkId(id), name, realm, closed: false, purged: false, subnets: BTreeMap::new() }
    }

    proptest! {
        #[test]
        fn what_is_there_throughout_is_on_one_page_whatever_is_renamed_in_between(
            limit in 1_usize..5,
            renamed in proptest::collection::vec(proptest::collection::vec((0_u128..8, "[a-z]{1,2}"), 0..4), 12),
        ) {
            let mut catalog = Catalog::default();
            (0..8).for_each(|id| catalog.put(listing(id, &format!("{}", char::from(b'a' + 3 * id as u8)))));
            let begun = catalog.changes();
            let (mut after, mut found) = (None::<(Name, NetworkId)>, Vec::new());
            for renames in renamed {
                let page = catalog.page(begun, after.as_ref().map_or(Bound::Unbounded, Bound::Excluded), limit);
                let Some(last) = page.last() else { break };
                found.extend(page.iter().map(|row| row.listing.id.0));
                after = Some((last.name.clone(), last.listing.id));
                for (id, name) in renames {
                    if catalog.check_rename(NetworkId(id), &name.parse().unwrap()).is_ok() {
                        catalog.put(listing(id, &name));
                    }
                }
            }
            prop_assert_eq!(found, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_page_goes_by_the_names_of_now_where_nothing_was_renamed_since() {
        let mut catalog = Catalog::default();
        [(1, "a"), (2, "b"), (3, "c")].into_iter().for_each(|(id, name)| catalog.put(listing(id, name)));
        catalog.put(listing(1, "z"));
        let ids =
            |since| catalog.page(since, Bound::Unbounded, 9).iter().map(|row| row.listing.id.0).collect::<Vec<_>>();
        assert_eq!((ids(catalog.changes()), ids(0)), (vec![2, 3, 1], vec![1, 2, 3]));
    }

    #[test]
    fn another_supervisor_goes_on_with_a_list_where_all_is_as_it_was_and_none_where_too_much_was_renamed() {
        let of = |names: &[(u128, &str)]| {
            let mut catalog = Catalog::default();
            names.iter().for_each(|(id, name)| catalog.put(listing(*id, name)));
            catalog
        };
        let mut before = of(&[(1, "a"), (2, "b")]);
        before.put(listing(1, "x"));
        let begun = before.naming(7);
        let same = of(&[(2, "b"), (1, "x")]);
        assert_eq!(same.goes_on(8, begun), Some(same.naming(8)));
        let others = [of(&[(1, "a"), (2, "b")]), of(&[(1, "b"), (2, "x")]), of(&[(1, "x")])];
        others.iter().for_each(|other| assert_eq!(other.goes_on(8, begun), None));
        for at in 0..=REMEMBERED_MAX {
            assert_eq!(before.goes_on(7, begun), Some(begun), "{at}");
            before.put(listing(1, if at % 2 == 0 { "y" } else { "z" }));
        }
        assert_eq!(before.goes_on(7, begun), None);
        assert_eq!(before.goes_on(7, before.naming(7)), Some(before.naming(7)));
    }

    #[test]
    fn a_subnet_that_moved_is_listed_where_it_was_and_nowhere_else() {
        let with = |listing: Listing, subnets: &[(u128, &str)]| {
            let subnets = subnets.iter().map(|(id, cidr)| (SubnetId(*id), cidr.parse().unwrap())).collect();
            Listing { subnets, ..listing }
        };
        let (one, two) = ((1, "10.0.0.0/24"), (2, "10.0.1.0/24"));
        let mut catalog = Catalog::default();
        catalog.put(with(listing(1, "a"), &[one, two]));
        catalog.put(with(listing(2, "b"), &[]));
        let begun = catalog.changes();
        catalog.put(with(listing(2, "b"), &[one]));
        catalog.put(with(listing(1, "a"), &[two]));
        catalog.moved(SubnetId(1), NetworkId(1), NetworkId(2));
        let parts = |since| {
            let page = catalog.page(since, Bound::Unbounded, 9);
            let part = |(cidr, network): &(Cidr, NetworkId)| (cidr.to_string(), network.0);
            page.into_iter()
                .map(|row| row.parts.map(|parts| parts.iter().map(part).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        };
        let there = |(_, cidr): (u128, &str), network| (cidr.to_owned(), network);
        assert_eq!(parts(begun), [Some(vec![there(one, 2), there(two, 1)]), Some(vec![])]);
        assert_eq!(parts(catalog.changes()), [None, None]);
    }

    #[test]
    fn no_list_goes_on_from_before_a_move_out_of_a_network_that_is_removed() {
        let mut catalog = Catalog::default();
        (1..4).for_each(|id| catalog.put(listing(id, &format!("lan-{id}"))));
        let before = catalog.naming(7);
        catalog.moved(SubnetId(1), NetworkId(1), NetworkId(2));
        let behind = catalog.naming(7);
        catalog.remove(NetworkId(3));
        assert_eq!(catalog.goes_on(7, before), Some(before), "nothing came from there");
        catalog.remove(NetworkId(1));
        assert_eq!(catalog.goes_on(7, before), None, "what moved was to be listed there");
        assert_eq!(catalog.goes_on(7, behind), Some(behind), "it is listed where it is");
    }
}
