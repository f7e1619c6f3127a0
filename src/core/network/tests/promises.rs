//! Facts about promises to a slot, when its owner asks for that slot, or the promised address moves to another network.

use super::*;
use crate::core::deployment::*;

fn in_scope(owner: &str, slot: &str) -> SlotKey {
    SlotKey { scope: "D".parse().unwrap(), owner: owner.parse().unwrap(), slot: slot.parse().unwrap() }
}

fn claim(net: &mut Net, owner: &str, slot: &str, at: &str) {
    claim_with(net, (owner, slot), at, GrantOptions::default());
}

fn claim_with(net: &mut Net, (owner, slot): (&str, &str), at: &str, options: GrantOptions) {
    let holder = in_scope(owner, slot);
    let ask = Claim { holder, address: address(at), prefix_length: None, force: false, options };
    net.run(&Command::Claim(Box::new(ask))).unwrap();
}

/// Applies a plan by which these slots get these addresses.
fn deploy(net: &mut Net, wishes: &[(&str, &str, &str)]) {
    let wish = |(place, (owner, slot, at)): (usize, &(&str, &str, &str))| DeployWish {
        place,
        owner: owner.parse().unwrap(),
        slot: slot.parse().unwrap(),
        zone: None,
        fresh: false,
        wanted: Wanted::Static(address(at)),
    };
    let ask = Deploy {
        scope: "D".parse().unwrap(),
        plan: 1,
        again: false,
        open: false,
        wishes: wishes.iter().enumerate().map(wish).collect(),
        lists: Vec::new(),
        listed: Arc::new(wishes.iter().map(|(owner, ..)| owner.parse().unwrap()).collect()),
    };
    net.run(&Command::Deploy(Box::new(ask))).unwrap();
}

/// What `i` gets when it asks for an address, or any address, in each of these slots.
fn acquire(net: &mut Net, slots: &[(&str, Option<&str>)], exact: bool) -> Vec<String> {
    acquire_as(net, slots, exact, false)
}

/// What `i` gets when it optionally asks for any address in one slot, and for nothing else.
fn acquire_optional(net: &mut Net, slot: &str) -> Vec<String> {
    acquire_as(net, &[(slot, None)], true, true)
}

fn acquire_as(net: &mut Net, slots: &[(&str, Option<&str>)], exact: bool, optional: bool) -> Vec<String> {
    let item = |(index, (slot, at)): (usize, &(&str, Option<&str>))| AcquireItem {
        index,
        slot: slot.parse().unwrap(),
        address: at.map(address),
        wish: Wish::default(),
        optional,
    };
    let ask = Acquire {
        scope: "D".parse().unwrap(),
        owner: "i".parse().unwrap(),
        items: slots.iter().enumerate().map(item).collect(),
        exact,
        options: GrantOptions { replace: !exact, ..GrantOptions::default() },
    };
    match net.run(&Command::Acquire(Box::new(ask))).unwrap() {
        Outcome::Acquired { grants, released } => {
            let of_i = |at: &Address| matches!(net.network.holdings.at(*at), Some(Entry::Held(held)) if held.holder.owner.as_str() == "i");
            assert!(!released.iter().any(of_i), "{released:?} are released");
            grants.iter().map(|(_, grant)| grant.view.address.to_string()).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// `i#a` waits for .2, which `j` lets go; .1, which `i#a` holds until then, is promised to `i#b`.
fn promised() -> Net {
    let mut net = Net::new(&["10.0.0.0/28"]);
    claim(&mut net, "i", "a", "10.0.0.1");
    claim(&mut net, "j", "0", "10.0.0.2");
    deploy(&mut net, &[("i", "a", "10.0.0.2"), ("i", "b", "10.0.0.1")]);
    net
}

fn current(net: &Net, slot: &str) -> Vec<String> {
    current_of(net, "i", slot)
}

fn current_of(net: &Net, owner: &str, slot: &str) -> Vec<String> {
    let is_current = |entry: &Entry| matches!(entry, Entry::Held(held) if held.holder == in_scope(owner, slot) && held.obsolete.is_none());
    let entries = net.network.entries_in("10.0.0.0/8".parse::<Cidr>().unwrap().range());
    entries.iter().filter(|(_, entry)| is_current(entry)).map(|(address, _)| address.to_string()).collect()
}

#[test]
fn a_slot_that_an_acquire_fills_does_not_get_what_was_promised_to_it_as_well() {
    for (slots, exact) in [
        (&[("b", None)][..], true),
        (&[("a", Some("10.0.0.6")), ("b", Some("10.0.0.5"))], false),
        (&[("b", Some("10.0.0.5")), ("a", Some("10.0.0.6"))], false),
    ] {
        let mut net = promised();
        let granted = acquire(&mut net, slots, exact);
        for ((slot, _), address) in slots.iter().zip(granted) {
            assert_eq!(current(&net, slot), [address], "{slots:?}");
        }
        let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
        let entries = net.network.entries_in("0.0.0.0/0".parse::<Cidr>().unwrap().range());
        Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap();
    }
}

#[test]
fn what_a_slot_holds_that_an_acquire_names_stays_current_although_something_is_promised_to_it() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    claim(&mut net, "i", "a", "10.0.0.1");
    claim(&mut net, "i", "b", "10.0.0.3");
    claim(&mut net, "j", "0", "10.0.0.2");
    deploy(&mut net, &[("i", "a", "10.0.0.2"), ("i", "b", "10.0.0.1")]);
    assert_eq!(acquire(&mut net, &[("b", Some("10.0.0.3"))], true), ["10.0.0.3"]);
    assert_eq!(current(&net, "b"), ["10.0.0.3"]);
}

/// With `exact`, the owner holds what it asks for and nothing else.
#[test]
fn a_slot_that_an_acquire_does_not_name_gets_what_was_promised_to_it_unless_that_is_all_its_owner_asks_for() {
    let mut net = promised();
    acquire(&mut net, &[("c", None)], true);
    assert!(current(&net, "b").is_empty());
    let mut net = promised();
    acquire(&mut net, &[("a", Some("10.0.0.6"))], false);
    assert_eq!(current(&net, "b"), ["10.0.0.1"]);
}

/// There is no room for the request, but the slot is not left with nothing.
#[test]
fn a_slot_that_is_asked_for_in_vain_gets_what_was_promised_to_it() {
    let mut net = Net::new(&["10.0.0.0/30"]);
    claim(&mut net, "i", "a", "10.0.0.1");
    claim(&mut net, "j", "0", "10.0.0.2");
    deploy(&mut net, &[("i", "a", "10.0.0.2"), ("i", "b", "10.0.0.1")]);
    assert!(acquire_optional(&mut net, "b").is_empty());
    assert_eq!(current(&net, "b"), ["10.0.0.1"]);
}

/// After the commit, the slot would hold both.
#[test]
fn a_subnet_with_a_promise_to_a_slot_does_not_move_where_that_slot_has_something_or_is_promised_it() {
    let a = || {
        let mut a = Net::new(&["10.1.0.0/28"]);
        claim(&mut a, "k", "0", "10.1.0.1");
        deploy(&mut a, &[("i", "s", "10.1.0.1")]);
        a
    };
    let b = || {
        Net::with(
            |config| config.id = NetworkId(8),
            vec![SubnetConfig { id: SubnetId(99), ..subnet("10.2.0.0/28", 0) }],
        )
    };
    let refused = |mut a: Net, mut b: Net| {
        let out = Command::MoveOut {
            subnet: SubnetRef::Cidr(cidr("10.1.0.0/28")),
            if_version: None,
            bytes_max: Some(usize::MAX),
        };
        let Ok(Outcome::MovedOut(moved)) = a.run(&out) else { panic!("it moves out") };
        let refusal = b.run(&Command::MoveIn(moved)).err()?;
        // The refusal names promised addresses as what stands in the way.
        let Refusal::Guarded { count, first, .. } = &refusal else { panic!("{refusal}") };
        let text = refusal.to_string();
        assert!(*count == first.len() as u64 && *count > 0, "{first:?}");
        assert!(first.iter().all(|at| text.contains(&format!("is promised {at}"))), "{first:?}: {text}");
        Some(text)
    };
    let says = |refusal: Option<String>, words: [&str; 2]| {
        let refusal = refusal.unwrap();
        assert!(words.iter().all(|words| refusal.contains(words)) && refusal.contains("deployment `D`"), "{refusal}");
    };
    assert_eq!(refused(a(), b()), None);
    let mut promised_there = b();
    claim(&mut promised_there, "j", "0", "10.2.0.1");
    deploy(&mut promised_there, &[("i", "s", "10.2.0.1")]);
    says(refused(a(), promised_there), ["is promised 10.2.0.1 in network", "is promised 10.1.0.1 in the subnet"]);
    let mut held_there = b();
    claim(&mut held_there, "i", "s", "10.2.0.3");
    says(refused(a(), held_there), ["holds 10.2.0.3 in network", "is promised 10.1.0.1 in the subnet"]);
    // The opposite case: it is held in the network that the subnet leaves.
    let mut holder = Net::new(&["10.1.0.0/28"]);
    claim(&mut holder, "i", "s", "10.1.0.5");
    let mut promised_there = b();
    claim(&mut promised_there, "j", "0", "10.2.0.1");
    deploy(&mut promised_there, &[("i", "s", "10.2.0.1")]);
    says(refused(holder, promised_there), ["is promised 10.2.0.1 in network", "holds 10.1.0.5 in the subnet"]);
}

#[test]
fn a_block_around_what_is_promised_to_another_is_refused_and_the_promise_is_kept() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    claim(&mut net, "a", "0", "10.0.0.4");
    claim(&mut net, "b", "0", "10.0.0.9");
    deploy(&mut net, &[("a", "0", "10.0.0.9"), ("b", "0", "10.0.0.4")]);
    let ask = Claim {
        holder: in_scope("a", "0"),
        address: address("10.0.0.4"),
        prefix_length: Some(30),
        force: false,
        options: GrantOptions { replace: true, ..GrantOptions::default() },
    };
    refused!(net.run(&Command::Claim(Box::new(ask))), Refusal::Taken { .. });
    let promised = |at: &str| match net.network.holdings.at(address(at)) {
        Some(Entry::Held(held)) => held.promise().map(|promise| promise.owner.to_string()),
        _ => None,
    };
    assert_eq!((promised("10.0.0.4"), promised("10.0.0.9")), (Some("b".to_owned()), Some("a".to_owned())));
}

/// `x` holds an address that is promised to `y`, who lets another one go for it. Both of their machines are gone.
fn promised_between_machines_that_are_gone(of_x: &str, of_y: &str, swap: bool, y_goes: bool) -> (Net, [Binding; 2]) {
    let mut net = Net::new(&["10.0.0.0/28"]);
    let used_by = |claimant: &str, release_with_claimant| {
        let claimant = Some(claimant.parse().unwrap());
        GrantOptions { claimant, release_with_claimant, ..GrantOptions::default() }
    };
    claim_with(&mut net, ("x", "0"), of_x, used_by("vm-x", true));
    claim_with(&mut net, ("y", "0"), of_y, used_by("vm-y", y_goes));
    let wishes = [("y", "0", of_x), ("x", "0", of_y)];
    deploy(&mut net, if swap { &wishes } else { &wishes[..1] });
    let binding = |at: &str| match net.network.holdings.at(address(at)) {
        Some(Entry::Held(held)) => Binding {
            address: address(at),
            generation: held.generation,
            claimant: held.claimant.clone().unwrap(),
            miss: None,
        },
        other => panic!("{other:?}"),
    };
    let mut bindings = [binding(of_x), binding(of_y)];
    bindings.sort_by_key(|binding| binding.address);
    (net, bindings)
}

/// In any order: as if one sweep had let go of each. Otherwise the slot would hold both, and the network could not be loaded.
#[test]
fn a_sweep_that_keeps_a_promise_leaves_the_taker_what_was_promised_and_nothing_else() {
    let all = [false, true].into_iter().flat_map(|a| [false, true].map(|b| (a, b)));
    for ((of_x, of_y), (swap, y_goes)) in [("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")]
        .into_iter()
        .flat_map(|at| all.clone().map(move |how| (at, how)))
    {
        let said = format!("{of_x} is promised, swap: {swap}, y's goes: {y_goes}");
        let (mut net, bindings) = promised_between_machines_that_are_gone(of_x, of_y, swap, y_goes);
        let (mut one_by_one, ..) = promised_between_machines_that_are_gone(of_x, of_y, swap, y_goes);
        let swept = net.run(&Command::Sweep(bindings.to_vec())).unwrap();
        for binding in bindings.clone() {
            one_by_one.run(&Command::Sweep(vec![binding])).unwrap();
        }
        assert_eq!(current_of(&net, "y", "0"), [of_x], "{said}");
        let everything = |net: &Net| net.network.entries_in("0.0.0.0/0".parse::<Cidr>().unwrap().range());
        assert_eq!(everything(&net), everything(&one_by_one), "{said}");
        let Outcome::Swept { unbound, released } = swept else { panic!("{swept:?}") };
        let of =
            |claimant: &str| bindings.iter().filter(|b| b.claimant.as_str() == claimant).cloned().collect::<Vec<_>>();
        let expected = if y_goes { (Vec::new(), bindings.to_vec()) } else { (of("vm-y"), of("vm-x")) };
        assert_eq!((unbound, released), expected, "{said}");
        let (config, subnets) = (Arc::clone(&net.network.config), net.network.subnets.clone());
        Network::load(config, subnets, everything(&net), Generation(0), ShardTime(0)).unwrap();
    }
}
