//! Facts about lists of what an owner holds.

use super::*;
use crate::limits::LIST_SLICE_RECORDS_MAX;

/// A network in which one owner holds so much, and another one as much beside it.
fn held(count: u32) -> Network {
    let of = |owner: &str, n: u32, at: u32| {
        let slot = format!("s{n}").parse().unwrap();
        let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot };
        let held = Reservation::plain(holder, Generation(u64::from(at) + 1), 32, WallTime(0));
        (Address::V4(0x0a00_0100 + at), Entry::Held(Arc::new(held)))
    };
    let entries: Entries = (0..count).flat_map(|n| [of("much", n, 2 * n), of("other", n, 2 * n + 1)]).collect();
    let net = Net::new(&["10.0.0.0/8"]);
    let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
    Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap()
}

fn slice(network: &Network, after: Option<Address>, limit: usize) -> (Vec<Address>, Option<Address>) {
    let filter = Filter { owner: Some("much".parse().unwrap()), ..Filter::default() };
    let ask = ListSlice { filter, after, limit, count_only: false };
    let context = Net::new(&[]).context();
    match network.decide(&Command::List(Box::new(ask)), context).unwrap().outcome {
        Outcome::Listed { views, next, .. } => (views.iter().map(|view| view.address).collect(), next),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_that_an_owner_holds_is_listed_in_order_however_much_it_is() {
    for count in [5, 3 * LIST_SLICE_RECORDS_MAX, 11 * LIST_SLICE_RECORDS_MAX] {
        let network = held(count as u32);
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (addresses, next) = slice(&network, after, 700);
            assert!(addresses.len() <= 700);
            listed.extend(addresses);
            if next.is_none() {
                break;
            }
            after = next;
        }
        assert_eq!(listed.len(), count);
        assert!(listed.is_sorted());
    }
}

/// A slice is one turn of its network, whoever holds how much.
#[test]
fn a_slice_of_what_an_owner_of_much_holds_looks_at_so_many_records_and_no_more() {
    let network = held(11 * LIST_SLICE_RECORDS_MAX as u32);
    let (addresses, next) = slice(&network, None, usize::MAX);
    assert_eq!((addresses.len(), next.is_some()), (LIST_SLICE_RECORDS_MAX / 2, true));
}
