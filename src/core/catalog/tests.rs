//! Facts about names, realms, prefixes and intents; and the search against a naive one.

use proptest::prelude::*;

use super::*;
use crate::core::address::Range;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn listing(id: u128, text: &str, prefixes: &[&str]) -> Listing {
    let subnets = (0..).zip(prefixes).map(|(n, prefix)| (SubnetId(id * 100 + n), cidr(prefix))).collect();
    Listing { id: NetworkId(id), name: name(text), realm: name("default"), closed: false, purged: false, subnets }
}

fn closed(listing: Listing) -> Listing {
    Listing { closed: true, ..listing }
}

/// The open network that is listed under this name.
fn called(catalog: &Catalog, text: &str) -> Option<NetworkId> {
    let is_called = |listing: &&Listing| !listing.closed && listing.name == name(text);
    catalog.networks_after(None).find(is_called).map(|listing| listing.id)
}

fn catalog(listings: &[Listing]) -> Catalog {
    let mut catalog = Catalog::default();
    for listing in listings {
        catalog.put(listing.clone());
    }
    catalog
}

fn intent(id: u128, text: Option<&str>, subnets: &[(u128, &str)]) -> Intent {
    let subnets = subnets.iter().map(|(n, prefix)| (SubnetId(id * 100 + n), cidr(prefix))).collect();
    Intent { network: NetworkId(id), realm: name("default"), name: text.map(name), subnets }
}

fn check(catalog: &Catalog, text: &str, prefixes: &[&str]) -> Result<(), Refusal> {
    catalog.check_create(&name(text), &name("default"), prefixes.iter().map(|prefix| cidr(prefix)))
}

/// Network and prefix that are in the way.
fn overlapped(result: Result<(), Refusal>) -> Option<(String, String)> {
    match result {
        Ok(()) => None,
        Err(Refusal::Overlap { with, network, .. }) => Some((network.to_string(), with.to_string())),
        Err(other) => panic!("not an overlap: {other:?}"),
    }
}

fn at(network: &str, prefix: &str) -> Option<(String, String)> {
    Some((network.to_owned(), prefix.to_owned()))
}

fn is_taken(result: Result<(), Refusal>) -> bool {
    match result {
        Ok(()) => false,
        Err(Refusal::NameTaken { .. } | Refusal::NameTakenSince { .. }) => true,
        Err(other) => panic!("not a taken name: {other:?}"),
    }
}

#[test]
fn names_are_unique_over_all_realms() {
    let catalog = catalog(&[Listing { realm: name("lab"), ..listing(1, "lan", &[]) }]);
    assert!(is_taken(check(&catalog, "lan", &[])));
    assert!(!is_taken(check(&catalog, "wan", &[])));
}

#[test]
fn a_taken_name_comes_before_an_overlap() {
    let catalog = catalog(&[listing(1, "lan", &["10.0.0.0/24"])]);
    assert!(is_taken(check(&catalog, "lan", &["10.0.0.0/24"])));
}

#[test]
fn an_overlap_names_the_other_network_and_the_first_prefix_in_address_order() {
    let catalog = catalog(&[
        listing(1, "b", &["10.0.2.0/24", "10.0.1.0/24"]),
        listing(2, "a", &["10.0.3.0/24", "192.0.2.0/24", "2001:db8::/64"]),
    ]);
    for (asked, expected) in [
        ("10.0.0.0/16", at("b", "10.0.1.0/24")),
        ("10.0.3.128/25", at("a", "10.0.3.0/24")),
        ("10.0.2.0/23", at("b", "10.0.2.0/24")),
        ("10.0.0.0/24", None),
        ("10.0.4.0/24", None),
        ("2001:db8::/32", at("a", "2001:db8::/64")),
        ("2001:db8:0:1::/64", None),
        ("192.0.2.7/32", at("a", "192.0.2.0/24")),
    ] {
        assert_eq!(overlapped(check(&catalog, "new", &[asked])), expected, "{asked}");
    }
    assert_eq!(overlapped(check(&catalog, "new", &["10.9.0.0/24", "192.0.0.0/8"])), at("a", "192.0.2.0/24"));
}

#[test]
fn realms_do_not_see_each_other() {
    let catalog = catalog(&[listing(1, "lan", &["10.0.0.0/24"])]);
    assert!(catalog.check_subnets(&name("lab"), [cidr("10.0.0.0/24")], None).is_ok());
}

#[test]
fn a_subnet_that_grows_is_not_compared_with_itself_but_with_its_brothers() {
    let catalog = catalog(&[listing(1, "lan", &["10.0.0.0/24", "10.0.2.0/24"])]);
    let own = Some((NetworkId(1), SubnetId(100)));
    let grow = |to: &str| overlapped(catalog.check_subnets(&name("default"), [cidr(to)], own));
    assert_eq!(grow("10.0.0.0/23"), None);
    assert_eq!(grow("10.0.0.0/22"), at("lan", "10.0.2.0/24"));
}

#[test]
fn space_that_subnets_of_one_network_exchange_is_held_until_it_is_settled() {
    for (before, after) in [
        (&["10.0.0.0/24"][..], &["10.0.0.0/25", "10.0.0.128/25"][..]),
        (&["10.0.0.0/25", "10.0.0.128/25"], &["10.0.0.0/24"]),
        (&["10.0.0.0/25", "10.0.0.128/25"], &["10.0.0.128/25", "10.0.0.0/25"]),
        (&["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/25"], &["10.0.0.0/25", "10.0.0.192/26", "10.0.0.128/26"]),
    ] {
        let mut catalog = catalog(&[listing(1, "lan", before), listing(2, "wan", &["10.0.1.0/24"])]);
        let taken: Vec<(u128, &str)> = (0..).zip(after.iter().copied()).collect();
        for settled in [false, true] {
            let id = IntentId(u64::from(settled));
            catalog.intend(id, intent(1, None, &taken));
            for first in [0, 63, 64, 127, 128, 191, 192, 255] {
                let asked = format!("10.0.0.{first}/32");
                assert!(
                    overlapped(check(&catalog, "new", &[&asked])).is_some(),
                    "{asked} from {before:?} to {after:?}"
                );
            }
            if !settled {
                catalog.abandon(id);
                continue;
            }
            catalog.settle(id, listing(1, "lan", after));
            assert_eq!(overlapped(check(&catalog, "new", &["10.0.0.0/24"])), at("lan", after.iter().min().unwrap()));
        }
        catalog.remove(NetworkId(1));
        assert!(check(&catalog, "new", &["10.0.0.0/24"]).is_ok(), "nothing stays behind of {after:?}");
    }
}

#[test]
fn a_network_is_compared_with_all_others_and_not_with_itself() {
    let catalog = catalog(&[listing(1, "lan", &["10.0.0.0/24"]), listing(2, "wan", &["10.0.1.0/24"])]);
    let others =
        |id: u128, asked: &str| overlapped(catalog.check_others(&name("default"), [cidr(asked)], NetworkId(id)));
    assert_eq!(others(1, "10.0.0.0/25"), None);
    assert_eq!(others(1, "10.0.0.0/23"), at("wan", "10.0.1.0/24"));
    assert_eq!(others(2, "10.0.0.0/25"), at("lan", "10.0.0.0/24"));
}

#[test]
fn a_closed_network_frees_its_name_and_guards_its_space() {
    let mut catalog = catalog(&[closed(listing(1, "lan", &["10.0.0.0/24"]))]);
    assert!(!is_taken(check(&catalog, "lan", &[])));
    assert_eq!(overlapped(check(&catalog, "new", &["10.0.0.0/25"])), at("lan", "10.0.0.0/24"));
    catalog.remove(NetworkId(1));
    assert_eq!(overlapped(check(&catalog, "new", &["10.0.0.0/25"])), None);
}

#[test]
fn restore_needs_the_name_to_be_free_still() {
    let mut catalog = catalog(&[closed(listing(1, "lan", &["10.0.0.0/24"]))]);
    assert!(!is_taken(catalog.check_restore(NetworkId(1))));
    catalog.put(listing(2, "lan", &[]));
    assert!(is_taken(catalog.check_restore(NetworkId(1))));
    assert!(matches!(catalog.check_restore(NetworkId(9)), Err(Refusal::NotFound { .. })));
}

#[test]
fn a_rename_frees_the_old_name_when_it_is_listed() {
    let mut catalog = catalog(&[listing(1, "old", &[]), listing(2, "other", &[])]);
    assert!(!is_taken(catalog.check_rename(NetworkId(1), &name("old"))), "nothing is compared with itself");
    assert!(is_taken(catalog.check_rename(NetworkId(1), &name("other"))));
    catalog.intend(IntentId(1), intent(1, Some("new"), &[]));
    assert!(is_taken(check(&catalog, "old", &[])) && is_taken(check(&catalog, "new", &[])));
    assert_eq!(called(&catalog, "old"), Some(NetworkId(1)));
    assert_eq!(called(&catalog, "new"), None, "not before it is durable");
    catalog.settle(IntentId(1), listing(1, "new", &[]));
    assert!(!is_taken(check(&catalog, "old", &[])));
    assert_eq!(called(&catalog, "new"), Some(NetworkId(1)));
}

#[test]
fn a_pending_create_holds_name_and_prefixes_until_settled_or_abandoned() {
    let mut catalog = Catalog::default();
    catalog.intend(IntentId(1), intent(1, Some("lan"), &[(0, "10.0.0.0/24")]));
    assert!(is_taken(check(&catalog, "lan", &[])));
    assert_eq!(overlapped(check(&catalog, "wan", &["10.0.0.0/16"])), at("lan", "10.0.0.0/24"));
    assert_eq!(catalog.realms().count(), 0, "not listed yet");
    let mut abandoned = catalog.clone();
    abandoned.abandon(IntentId(1));
    abandoned.abandon(IntentId(1));
    assert!(check(&abandoned, "lan", &["10.0.0.0/24"]).is_ok());
    assert_eq!(abandoned.intents().count(), 0);
    catalog.settle(IntentId(1), listing(1, "lan", &["10.0.0.0/24"]));
    assert!(is_taken(check(&catalog, "lan", &[])));
    assert_eq!(overlapped(check(&catalog, "wan", &["10.0.0.0/16"])), at("lan", "10.0.0.0/24"));
    assert_eq!(catalog.intents().count(), 0);
}

/// Widen first: the wide prefix is held from the intent on, and the narrow one again after it came to nothing.
#[test]
fn a_pending_grow_holds_the_wider_prefix() {
    let mut catalog = catalog(&[listing(1, "lan", &["10.0.0.0/24"])]);
    catalog.intend(IntentId(1), intent(1, None, &[(0, "10.0.0.0/22")]));
    for prefix in ["10.0.0.0/24", "10.0.2.0/24", "10.0.3.255/32"] {
        assert_eq!(overlapped(check(&catalog, "new", &[prefix])), at("lan", "10.0.0.0/22"), "{prefix}");
    }
    catalog.abandon(IntentId(1));
    assert_eq!(overlapped(check(&catalog, "new", &["10.0.2.0/24"])), None);
    assert_eq!(overlapped(check(&catalog, "new", &["10.0.0.0/22"])), at("lan", "10.0.0.0/24"));
}

/// Narrow last: what a network no longer uses stays held until it is listed without it.
#[test]
fn a_shrink_frees_space_when_it_is_listed() {
    let mut catalog = catalog(&[listing(1, "lan", &["10.0.0.0/22", "10.1.0.0/24"])]);
    catalog.put(listing(1, "lan", &["10.0.0.0/24"]));
    assert!(check(&catalog, "new", &["10.0.2.0/24", "10.1.0.0/24"]).is_ok());
}

#[test]
fn an_intent_outlives_a_listing_that_does_not_know_of_it() {
    let mut catalog = catalog(&[listing(1, "lan", &["10.0.0.0/24"])]);
    catalog.intend(IntentId(1), intent(1, None, &[(1, "10.1.0.0/24")]));
    catalog.intend(IntentId(2), intent(1, None, &[(2, "10.2.0.0/24")]));
    catalog.settle(IntentId(2), listing(1, "lan", &["10.0.0.0/24"]));
    assert_eq!(overlapped(check(&catalog, "new", &["10.1.0.0/24"])), at("lan", "10.1.0.0/24"));
    assert_eq!(overlapped(check(&catalog, "new", &["10.2.0.0/24"])), None);
    catalog.remove(NetworkId(1));
    assert_eq!(
        overlapped(check(&catalog, "new", &["10.1.0.0/24"])).map(|(_, prefix)| prefix).as_deref(),
        Some("10.1.0.0/24")
    );
    catalog.abandon(IntentId(1));
    assert!(check(&catalog, "lan", &["10.1.0.0/24"]).is_ok());
}

#[test]
fn a_subnet_on_its_way_is_held_by_both_networks() {
    let mut catalog = catalog(&[listing(1, "a", &["10.0.0.0/24"]), listing(2, "b", &["10.1.0.0/24"])]);
    let moving = Some((NetworkId(1), SubnetId(100)));
    assert!(catalog.check_subnets(&name("default"), [cidr("10.0.0.0/24")], moving).is_ok());
    let mut into = intent(2, None, &[]);
    into.subnets.push((SubnetId(100), cidr("10.0.0.0/24")));
    catalog.intend(IntentId(1), into);
    let grow = overlapped(catalog.check_subnets(&name("default"), [cidr("10.0.0.0/23")], moving));
    assert_eq!(grow, at("b", "10.0.0.0/24"));
    catalog.put(listing(1, "a", &[]));
    assert_eq!(overlapped(check(&catalog, "new", &["10.0.0.0/24"])), at("b", "10.0.0.0/24"));
    let mut arrived = listing(2, "b", &["10.1.0.0/24"]);
    arrived.subnets.insert(SubnetId(100), cidr("10.0.0.0/24"));
    catalog.settle(IntentId(1), arrived);
    assert_eq!(overlapped(check(&catalog, "new", &["10.0.0.0/24"])), at("b", "10.0.0.0/24"));
    catalog.remove(NetworkId(2));
    assert!(check(&catalog, "new", &["10.0.0.0/24"]).is_ok());
}

#[test]
fn a_pending_restore_holds_the_name() {
    let mut catalog = catalog(&[closed(listing(1, "lan", &["10.0.0.0/24"]))]);
    catalog.intend(IntentId(1), intent(1, Some("lan"), &[]));
    assert!(is_taken(check(&catalog, "lan", &[])));
    assert_eq!(called(&catalog, "lan"), None, "closed until it is durable");
    catalog.settle(IntentId(1), listing(1, "lan", &["10.0.0.0/24"]));
    assert_eq!(called(&catalog, "lan"), Some(NetworkId(1)));
}

#[test]
fn networks_are_listed_by_name_then_id_and_go_on_after_any_of_them() {
    let catalog = catalog(&[
        listing(3, "b", &[]),
        closed(listing(2, "a", &[])),
        closed(listing(1, "a", &[])),
        listing(4, "a", &[]),
        listing(5, "c", &[]),
    ]);
    let ids =
        |after: Option<&(Name, NetworkId)>| catalog.networks_after(after).map(|found| found.id.0).collect::<Vec<_>>();
    assert_eq!(ids(None), [1, 2, 4, 3, 5]);
    assert_eq!(ids(Some(&(name("a"), NetworkId(2)))), [4, 3, 5]);
    assert_eq!(ids(Some(&(name("aa"), NetworkId(0)))), [3, 5], "what is named need not be there");
    assert_eq!(ids(Some(&(name("c"), NetworkId(5)))), [] as [u128; 0]);
}

#[test]
fn realms_are_those_of_networks_without_subnets_and_closed_ones_too() {
    let mut catalog =
        catalog(&[Listing { realm: name("lab"), ..listing(1, "a", &[]) }, closed(listing(2, "b", &["10.0.0.0/24"]))]);
    assert_eq!(catalog.realms().map(Name::as_str).collect::<Vec<_>>(), ["default", "lab"]);
    catalog.remove(NetworkId(1));
    assert_eq!(catalog.realms().map(Name::as_str).collect::<Vec<_>>(), ["default"]);
}

/// Requests to the catalog and to the naive model.
#[derive(Debug, Clone)]
enum Act {
    Create { id: u128, name: u8, realm: bool, prefixes: Vec<Cidr>, listed_at_once: bool },
    Add { id: u128, prefix: Cidr },
    Grow { id: u128, subnet: usize, to: Cidr },
    Exchange { id: u128, prefixes: Vec<Cidr> },
    Rename { id: u128, name: u8 },
    Close { id: u128 },
    Restore { id: u128 },
    Drop { id: u128, subnet: usize },
    Remove { id: u128 },
    End { intent: usize, settled: bool },
}

fn a_prefix() -> impl Strategy<Value = Cidr> {
    (0u32..256, 0u8..=5)
        .prop_map(|(n, host_bits)| Cidr::containing(crate::core::address::Address::V4(0x0a00_0000 + n), 32 - host_bits))
}

fn an_act() -> impl Strategy<Value = Act> {
    let id = || 1u128..7;
    prop_oneof![
        4 => (id(), 0u8..4, any::<bool>(), proptest::collection::vec(a_prefix(), 0..3), any::<bool>())
            .prop_map(|(id, name, realm, prefixes, listed_at_once)| Act::Create { id, name, realm, prefixes, listed_at_once }),
        4 => (id(), a_prefix()).prop_map(|(id, prefix)| Act::Add { id, prefix }),
        3 => (id(), 0usize..4, a_prefix()).prop_map(|(id, subnet, to)| Act::Grow { id, subnet, to }),
        3 => (id(), proptest::collection::vec(a_prefix(), 0..4))
            .prop_map(|(id, prefixes)| Act::Exchange { id, prefixes }),
        2 => (id(), 0u8..4).prop_map(|(id, name)| Act::Rename { id, name }),
        1 => id().prop_map(|id| Act::Close { id }),
        1 => id().prop_map(|id| Act::Restore { id }),
        2 => (id(), 0usize..4).prop_map(|(id, subnet)| Act::Drop { id, subnet }),
        1 => id().prop_map(|id| Act::Remove { id }),
        5 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(intent, settled)| Act::End { intent: intent.index(64), settled }),
    ]
}

/// The rules of the catalog, checked by looking at everything.
#[derive(Default)]
struct Naive {
    listings: BTreeMap<NetworkId, Listing>,
    intents: BTreeMap<IntentId, Intent>,
}

impl Naive {
    fn holder(&self, name: &Name) -> Option<NetworkId> {
        let listed = self.listings.values().find(|listing| !listing.closed && listing.name == *name);
        let intended = || self.intents.values().find(|intent| intent.name.as_ref() == Some(name));
        listed.map(|listing| listing.id).or_else(|| intended().map(|intent| intent.network))
    }

    /// Does the range overlap any other subnet?
    fn overlap(&self, realm: &Name, asked: Range, except: Option<SubnetOf>) -> bool {
        let listed = self.listings.values().filter(|listing| listing.realm == *realm);
        let listed = listed.flat_map(|listing| listing.subnets.iter().map(|(id, cidr)| ((listing.id, *id), *cidr)));
        let intended = self.intents.values().filter(|intent| intent.realm == *realm);
        let intended =
            intended.flat_map(|intent| intent.subnets.iter().map(|(id, cidr)| ((intent.network, *id), *cidr)));
        listed.chain(intended).any(|(owner, cidr)| Some(owner) != except && cidr.range().overlaps(asked))
    }
}

fn realm_of(second: bool) -> Name {
    name(if second { "lab" } else { "default" })
}

/// Both catalogs, changed together whenever the real one allows it.
#[derive(Default)]
struct Pair {
    catalog: Catalog,
    naive: Naive,
    next_intent: u64,
    next_subnet: u128,
    /// Networks whose subnets exchange space: the intent replaces everything that is listed.
    exchanging: BTreeSet<NetworkId>,
}

impl Pair {
    fn put(&mut self, listing: Listing) {
        self.naive.listings.insert(listing.id, listing.clone());
        self.catalog.put(listing);
    }

    fn intend(&mut self, intent: Intent) {
        self.next_intent += 1;
        self.naive.intents.insert(IntentId(self.next_intent), intent.clone());
        self.catalog.intend(IntentId(self.next_intent), intent);
    }

    fn name_is_free(&self, id: u128, name: &Name) -> bool {
        let free = self.catalog.check_rename(NetworkId(id), name).is_ok();
        assert_eq!(free, self.naive.holder(name).is_none_or(|holder| holder == NetworkId(id)), "{name}");
        free
    }

    fn space_is_free(&self, realm: &Name, prefix: Cidr, except: Option<SubnetOf>) -> bool {
        let free = self.catalog.check_subnets(realm, [prefix], except).is_ok();
        assert_eq!(free, !self.naive.overlap(realm, prefix.range(), except), "{prefix} in {realm}");
        free
    }

    fn others_allow(&self, listing: &Listing, prefix: Cidr) -> bool {
        let free = self.catalog.check_others(&listing.realm, [prefix], listing.id).is_ok();
        let mut others = Naive { listings: self.naive.listings.clone(), intents: self.naive.intents.clone() };
        others.listings.remove(&listing.id);
        others.intents.retain(|_, intent| intent.network != listing.id);
        assert_eq!(free, !others.overlap(&listing.realm, prefix.range(), None), "{prefix} beside {listing:?}");
        free
    }

    /// A network that no other act is using.
    fn listing(&self, id: u128) -> Option<Listing> {
        let id = NetworkId(id);
        self.naive.listings.get(&id).filter(|_| !self.exchanging.contains(&id)).cloned()
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Create { id, name: number, realm, prefixes, listed_at_once } => {
                let busy = self.naive.intents.values().any(|intent| intent.network == NetworkId(id));
                let (text, realm) = (name(&format!("n{number}")), realm_of(realm));
                let mut subnets: Vec<(SubnetId, Cidr)> = Vec::new();
                for prefix in prefixes {
                    let beside = subnets.iter().all(|(_, other)| !other.range().overlaps(prefix.range()));
                    if self.space_is_free(&realm, prefix, None) && beside {
                        self.next_subnet += 1;
                        subnets.push((SubnetId(self.next_subnet), prefix));
                    }
                }
                if busy || self.listing(id).is_some() || !self.name_is_free(id, &text) {
                    return;
                }
                if listed_at_once {
                    let subnets = subnets.into_iter().collect();
                    self.put(Listing { id: NetworkId(id), name: text, realm, closed: false, purged: false, subnets });
                } else {
                    self.intend(Intent { network: NetworkId(id), realm, name: Some(text), subnets });
                }
            }
            Act::Add { id, prefix } => {
                let Some(listing) = self.listing(id) else { return };
                if self.space_is_free(&listing.realm, prefix, None) {
                    self.next_subnet += 1;
                    let subnets = vec![(SubnetId(self.next_subnet), prefix)];
                    self.intend(Intent { network: listing.id, realm: listing.realm, name: None, subnets });
                }
            }
            Act::Grow { id, subnet, to } => {
                let Some(listing) = self.listing(id) else { return };
                let Some(subnet) = listing.subnets.keys().nth(subnet).copied() else { return };
                if self.space_is_free(&listing.realm, to, Some((listing.id, subnet))) {
                    let subnets = vec![(subnet, to)];
                    self.intend(Intent { network: listing.id, realm: listing.realm, name: None, subnets });
                }
            }
            Act::Exchange { id, prefixes } => {
                // Only one act at a time uses a network; in the server, a lock ensures that.
                let busy = self.naive.intents.values().any(|intent| intent.network == NetworkId(id));
                let Some(listing) = self.listing(id).filter(|_| !busy) else { return };
                let mut subnets: Vec<(SubnetId, Cidr)> = Vec::new();
                let mut ids = listing.subnets.keys().copied().collect::<Vec<_>>().into_iter();
                for prefix in prefixes {
                    let beside = subnets.iter().all(|(_, other)| !other.range().overlaps(prefix.range()));
                    if self.others_allow(&listing, prefix) && beside {
                        self.next_subnet += 1;
                        subnets.push((ids.next().unwrap_or(SubnetId(self.next_subnet)), prefix));
                    }
                }
                self.exchanging.insert(listing.id);
                self.intend(Intent { network: listing.id, realm: listing.realm, name: None, subnets });
            }
            Act::Rename { id, name: number } => {
                let Some(listing) = self.listing(id).filter(|listing| !listing.closed) else { return };
                let text = name(&format!("n{number}"));
                if self.name_is_free(id, &text) {
                    self.intend(Intent {
                        network: listing.id,
                        realm: listing.realm,
                        name: Some(text),
                        subnets: vec![],
                    });
                }
            }
            Act::Close { id } => {
                let Some(listing) = self.listing(id) else { return };
                self.put(closed(listing));
            }
            Act::Restore { id } => {
                let Some(listing) = self.listing(id).filter(|listing| listing.closed) else { return };
                if self.name_is_free(id, &listing.name) {
                    assert!(self.catalog.check_restore(listing.id).is_ok());
                    self.put(Listing { closed: false, ..listing });
                }
            }
            Act::Drop { id, subnet } => {
                let Some(mut listing) = self.listing(id) else { return };
                let Some(subnet) = listing.subnets.keys().nth(subnet).copied() else { return };
                listing.subnets.remove(&subnet);
                self.put(listing);
            }
            Act::Remove { id } => {
                self.naive.listings.remove(&NetworkId(id));
                self.catalog.remove(NetworkId(id));
            }
            Act::End { intent, settled } => self.end(intent, settled),
        }
    }

    fn end(&mut self, intent: usize, settled: bool) {
        let count = self.naive.intents.len();
        let Some(id) = self.naive.intents.keys().nth(intent % count.max(1)).copied() else { return };
        let Some(intent) = self.naive.intents.remove(&id) else { return };
        let exchanged = self.exchanging.remove(&intent.network);
        if !settled {
            self.catalog.abandon(id);
            return;
        }
        let new = || Listing {
            id: intent.network,
            name: intent.name.clone().unwrap_or_else(|| name("unnamed")),
            realm: intent.realm.clone(),
            closed: intent.name.is_none(),
            purged: false,
            subnets: BTreeMap::new(),
        };
        let mut listing = self.naive.listings.get(&intent.network).cloned().unwrap_or_else(new);
        if let Some(name) = intent.name {
            listing.name = name;
        }
        if exchanged {
            listing.subnets.clear();
        }
        listing.subnets.extend(intent.subnets);
        self.naive.listings.insert(listing.id, listing.clone());
        self.catalog.settle(id, listing);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_search_agrees_with_comparing_everything(
        acts in proptest::collection::vec(an_act(), 1..80),
        probes in proptest::collection::vec(a_prefix(), 20),
    ) {
        let mut pair = Pair::default();
        for act in acts {
            pair.act(act);
            for probe in &probes {
                pair.space_is_free(&name("default"), *probe, None);
                pair.space_is_free(&name("lab"), *probe, None);
            }
            for number in 0..4 {
                pair.name_is_free(99, &name(&format!("n{number}")));
            }
            let listed: Vec<NetworkId> = pair.catalog.networks_after(None).map(|listing| listing.id).collect();
            prop_assert_eq!(listed.len(), pair.naive.listings.len());
            for listing in pair.naive.listings.values() {
                prop_assert_eq!(pair.catalog.get(listing.id), Some(listing));
            }
        }
    }
}
