//! Facts about what a sweep sees of one network, and what it lets go.

use super::*;
use crate::core::outcome::UsedAddress;
use crate::limits::LIST_SLICE_RECORDS_MAX;

fn use_one(net: &mut Net, owner: &str, claimant: &str, change: impl FnOnce(&mut Allocate)) -> Binding {
    let mut ask = wish(owner);
    ask.options.claimant = Some(claimant.parse().unwrap());
    change(&mut ask);
    let grant = net.ask(ask).unwrap();
    let reservation = &grant.view.reservation;
    let claimant = reservation.claimant.clone().unwrap();
    Binding { address: grant.view.address, generation: reservation.generation, claimant, miss: None }
}

fn look(alive: &[&str]) -> SweepLook {
    let alive = alive.iter().map(|text| text.parse().unwrap()).collect();
    let scope = Scope::default();
    SweepLook { scope, alive: Arc::new(alive), doubted: false, grace_seconds: 0, note: false, after: None }
}

/// All slices together: what is used, the number of reservations, and the number of slices.
fn walk(net: &mut Net, mut ask: SweepLook) -> (Vec<UsedAddress>, u64, usize) {
    let (mut all, mut count, mut slices) = (Vec::new(), 0, 0);
    loop {
        let Outcome::SweepLooked { used, reservations, next } =
            net.run(&Command::SweepLook(Box::new(ask.clone()))).unwrap()
        else {
            panic!()
        };
        (count, slices) = (count + reservations, slices + 1);
        all.extend(used);
        let Some(after) = next else { return (all, count, slices) };
        ask.after = Some(after);
    }
}

fn sweep(net: &mut Net, bindings: &[Binding]) -> (Vec<String>, Vec<String>) {
    match net.run(&Command::Sweep(bindings.to_vec())).unwrap() {
        Outcome::Swept { unbound, released } => {
            let addresses = |list: Vec<Binding>| list.iter().map(|binding| binding.address.to_string()).collect();
            (addresses(unbound), addresses(released))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_look_tells_who_is_missing_of_what_the_scope_holds_and_counts_the_rest() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    use_one(&mut net, "a", "vm-1", |_| ());
    use_one(&mut net, "b", "vm-2", |ask| ask.options.release_with_claimant = true);
    use_one(&mut net, "c", "vm-3", |ask| ask.holder.scope = "elsewhere".parse().unwrap());
    net.allocate("unused");
    let (used, reservations, _) = walk(&mut net, look(&["vm-1"]));
    let seen: Vec<_> = used.iter().map(|u| (u.binding.claimant.as_str(), u.missing, u.released)).collect();
    assert_eq!(seen, [("vm-1", false, false), ("vm-2", true, true)]);
    assert_eq!(reservations, 3, "what nobody uses counts for the brake");
}

#[test]
fn a_scope_that_holds_much_is_looked_at_in_slices_each_reservation_once() {
    let mut net = Net::new(&["10.0.0.0/20"]);
    // Checking the whole network after each of so many commands would take minutes.
    for at in 0..2 * LIST_SLICE_RECORDS_MAX + 7 {
        let mut ask = wish(&format!("o{at}"));
        ask.options.claimant = Some(format!("vm-{at}").parse().unwrap());
        let context = net.context();
        let decision = net.network.decide(&Command::Allocate(Box::new(ask)), context).unwrap();
        decision.steps.iter().for_each(|step| net.network.apply(step, context.now));
    }
    let (used, reservations, slices) = walk(&mut net, look(&[]));
    assert_eq!((reservations, slices), (2 * LIST_SLICE_RECORDS_MAX as u64 + 7, 3));
    let mut addresses: Vec<_> = used.iter().map(|used| used.binding.address).collect();
    addresses.dedup();
    assert_eq!(addresses.len(), 2 * LIST_SLICE_RECORDS_MAX + 7);
}

#[test]
fn a_sweep_unbinds_and_releases_what_was_made_to_go_with_its_claimant() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let kept = use_one(&mut net, "kept", "vm-1", |_| ());
    let gone = use_one(&mut net, "gone", "vm-1", |ask| ask.options.release_with_claimant = true);
    let decision = net.network.decide(&Command::Sweep(vec![kept.clone(), gone.clone()]), {
        let mut other = Net::new(&["10.0.0.0/24"]);
        other.context()
    });
    let kinds: Vec<_> = decision.unwrap().steps.iter().map(|step| step.event.as_ref().unwrap().kind).collect();
    assert_eq!(kinds, [EventKind::Unbound, EventKind::Swept]);
    assert_eq!(
        sweep(&mut net, &[kept.clone(), gone.clone()]),
        (vec!["10.0.0.1".to_owned()], vec!["10.0.0.2".to_owned()])
    );
    assert_eq!((net.state("10.0.0.1"), net.state("10.0.0.2")), (AddressState::Held, AddressState::Free));
    assert_eq!(sweep(&mut net, &[kept, gone]), (vec![], vec![]), "repeated, it finds nothing");
}

#[test]
fn a_sweep_passes_over_what_is_not_the_holding_or_the_claimant_that_it_judged() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let granted_anew = use_one(&mut net, "a", "vm-1", |_| ());
    let bound_anew = use_one(&mut net, "b", "vm-1", |_| ());
    let handed_over = use_one(&mut net, "c", "vm-1", |_| ());
    net.release("a");
    use_one(&mut net, "a", "vm-1", |_| ());
    use_one(&mut net, "b", "vm-2", |_| ());
    let transfer = Transfer {
        address: handed_over.address,
        from: (Scope::default(), "c".parse().unwrap(), None),
        to: holder("d"),
        exchange: false,
        if_generation: None,
    };
    net.run(&Command::Transfer(Box::new(transfer))).unwrap();
    assert_eq!(sweep(&mut net, &[granted_anew, bound_anew, handed_over]), (vec![], vec![]));
}

#[test]
fn a_deleted_network_ends_with_what_a_sweep_releases_and_not_with_what_it_unbinds() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let kept = use_one(&mut net, "a", "vm", |_| ());
    let gone = use_one(&mut net, "b", "vm", |ask| ask.options.release_with_claimant = true);
    let delete = Box::new(Configure::Delete { force: true, purge: false });
    net.run(&Command::Configure { change: delete, if_version: None }).unwrap();
    assert_eq!(sweep(&mut net, &[kept, gone]).0, ["10.0.0.1"]);
    assert!(!net.network.is_gone());
    net.release("a");
    assert!(net.network.is_gone());
}
