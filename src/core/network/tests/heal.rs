//! Facts about claims that a failover cut off.

use super::*;
use crate::core::outcome::Healing;
use crate::limits::CONFLICTS_MAX;

/// What somebody was told on the line that was cut off.
fn late(at: &str, owner: &str, generation: u64) -> (Address, Entry) {
    let prefix_length = address(at).family().width();
    late_block(at, prefix_length, owner, generation)
}

fn late_block(at: &str, prefix_length: u8, owner: &str, generation: u64) -> (Address, Entry) {
    let reservation = Reservation::plain(holder(owner), Generation(generation), prefix_length, WallTime(5));
    (address(at), Entry::Held(Arc::new(reservation)))
}

fn heal(net: &mut Net, claims: &[(Address, Entry)]) -> Healing {
    match net
        .run(&Command::Heal(Box::new(Heal { claims: claims.to_vec(), renewed: Vec::new(), elsewhere: false })))
        .unwrap()
    {
        Outcome::Healed(done) => done,
        other => panic!("{other:?}"),
    }
}

fn healing(healed: u64, standing: u64, conflicts: u64) -> Healing {
    Healing { healed, standing, conflicts, left: 0 }
}

fn held_at(net: &Net, at: &str) -> Option<(String, u64)> {
    match net.network.holdings.at(address(at)) {
        Some(Entry::Held(held)) => Some((held.holder.owner.as_str().to_owned(), held.generation.0)),
        _ => None,
    }
}

#[test]
fn what_is_free_is_held_again_as_its_holder_knows_it_and_the_same_once_more_is_the_same() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let claims = [late("10.0.0.5", "web", 50), late("10.0.0.6", "db", 5_000)];
    assert_eq!(heal(&mut net, &claims), healing(2, 0, 0));
    assert_eq!(held_at(&net, "10.0.0.5"), Some(("web".to_owned(), 50)));
    assert_eq!(heal(&mut net, &claims), healing(0, 2, 0));
    // A generation that was given there must never be given again.
    assert!(net.network.next_generation() > Generation(5_000));
    // If its holder has let it go since, it stays free.
    assert_eq!(net.release("web"), 1);
    assert_eq!(net.network.config().conflicts, []);
}

#[test]
fn what_cools_after_its_very_holding_was_let_go_is_not_given_back_and_after_another_one_it_is() {
    let mut net = Net::with(|config| config.cooldown_seconds = 100, vec![subnet("10.0.0.0/24", 0)]);
    assert_eq!(heal(&mut net, &[late("10.0.0.5", "web", 50)]), healing(1, 0, 0));
    assert_eq!(net.release("web"), 1);
    assert_eq!(heal(&mut net, &[late("10.0.0.5", "web", 50)]), healing(0, 1, 0));
    assert_eq!(held_at(&net, "10.0.0.5"), None);
    assert_eq!(heal(&mut net, &[late("10.0.0.5", "db", 60)]), healing(1, 0, 0));
    assert_eq!(held_at(&net, "10.0.0.5"), Some(("db".to_owned(), 60)));
    // A block over pieces that cool.
    assert_eq!(net.release("db"), 1);
    assert_eq!(heal(&mut net, &[late_block("10.0.0.4", 30, "pod", 70)]), healing(1, 0, 0));
    assert_eq!(held_at(&net, "10.0.0.4"), Some(("pod".to_owned(), 70)));
}

#[test]
fn what_cannot_be_given_back_is_a_conflict_that_puts_nobody_out_and_is_noted_once() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    assert_eq!(heal(&mut net, &[late("10.0.0.5", "web", 50), late("10.0.0.9", "db", 51)]), healing(2, 0, 0));
    let before = net.network.entries();
    let claims = [
        // Held by another; inside a block; around what is held; its slot has something else; unusable address; outside every
        // subnet.
        late("10.0.0.5", "other", 60),
        late_block("10.0.0.4", 30, "pod", 61),
        late("10.0.0.20", "db", 62),
        late("10.0.0.0", "zero", 63),
        late("10.9.0.1", "far", 64),
        // Twice in one journal, as no real journal would have it.
        late("10.0.0.30", "a", 65),
        late("10.0.0.30", "b", 66),
    ];
    assert_eq!(heal(&mut net, &claims), healing(1, 0, 6));
    assert_eq!(heal(&mut net, &claims), healing(0, 1, 6));
    assert_eq!(net.network.entries(), before + 1);
    assert_eq!(held_at(&net, "10.0.0.5"), Some(("web".to_owned(), 50)));
    let Outcome::Conflicts(contested) = net.run(&Command::Conflicts).unwrap() else { panic!() };
    let present = |at: usize| contested[at].present.as_ref().map(|it| (it.address, it.reservation.generation.0));
    assert_eq!(contested.len(), 6);
    assert_eq!((present(0), present(1)), (Some((address("10.0.0.5"), 50)), Some((address("10.0.0.5"), 50))));
    assert_eq!((present(2), present(3)), (Some((address("10.0.0.9"), 51)), None));
    // An operator decides one conflict, or all; the present holder keeps the address.
    let accept = |at: Option<&str>| Command::Accept(at.map(address));
    let Outcome::Accepted(one) = net.run(&accept(Some("10.0.0.20"))).unwrap() else { panic!() };
    assert_eq!(one.iter().map(|one| one.conflict.generation.0).collect::<Vec<_>>(), [62]);
    refused!(net.run(&accept(Some("10.0.0.20"))), Refusal::NotFound { missing: Missing::Conflict, .. });
    let Outcome::Accepted(rest) = net.run(&accept(None)).unwrap() else { panic!() };
    assert_eq!(rest.len(), 5);
    assert_eq!(net.run(&accept(None)).unwrap(), Outcome::Accepted(Vec::new()));
    assert_eq!(held_at(&net, "10.0.0.5"), Some(("web".to_owned(), 50)));
}

/// On the line that was cut off, a plan gave the slot one address, and the next plan another one. Only the latter is used.
#[test]
fn what_a_plan_left_for_another_address_is_held_again_as_obsolete_and_the_other_one_is_current() {
    let (at, Entry::Held(left)) = late("10.0.0.5", "web", 50) else { panic!() };
    let obsolete = Some(Box::new(Obsolete { since: WallTime(6), plan: 7 }));
    let left = (at, Entry::Held(Arc::new(Reservation { obsolete, ..Reservation::clone(&left) })));
    // The latter may have the lower or the higher address, and is brought together with the former, or before or after it.
    for current in ["10.0.0.4", "10.0.0.6"] {
        let (left, has) = (left.clone(), late(current, "web", 51));
        let mut together = vec![left.clone(), has.clone()];
        together.sort_by_key(|(address, _)| *address);
        for parts in [vec![together], vec![vec![left.clone()], vec![has.clone()]], vec![vec![has], vec![left]]] {
            let mut net = Net::new(&["10.0.0.0/24"]);
            for part in &parts {
                assert_eq!(heal(&mut net, part), healing(part.len() as u64, 0, 0), "{current} {parts:?}");
            }
            let slot = net.network.holdings.slot(&holder("web"));
            assert_eq!(slot.map(|(at, held)| (at, held.generation.0)), Some((address(current), 51)), "{parts:?}");
            let plan = |at: &str| net.network.holdings.at(address(at))?.held()?.obsolete.as_ref().map(|it| it.plan);
            assert_eq!((plan("10.0.0.5"), plan(current)), (Some(7), None), "{parts:?}");
        }
    }
}

#[test]
fn the_history_tells_of_both_claims_and_of_what_was_given_back() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    heal(&mut net, &[late("10.0.0.5", "web", 50)]);
    let context = net.context();
    let ask = Heal {
        claims: vec![late("10.0.0.5", "other", 60), late("10.0.0.6", "db", 61)],
        renewed: Vec::new(),
        elsewhere: false,
    };
    let decision = net.network.decide(&Command::Heal(Box::new(ask)), context).unwrap();
    let told: Vec<_> = decision.steps.iter().filter_map(|step| Some((step.key, step.event.as_ref()?))).collect();
    assert_eq!(told.iter().map(|(_, event)| event.kind).collect::<Vec<_>>(), [EventKind::Conflict, EventKind::Healed]);
    assert_eq!(told[0].0, Key::Address(address("10.0.0.5")));
    assert_eq!(told[0].1.before.as_ref().unwrap().holder, holder("other"));
    assert!(!decision.grants());
}

#[test]
fn a_network_keeps_so_many_conflicts_and_says_what_it_has_no_room_for() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    for from in [0, 200] {
        let claims: Vec<_> = (from..from + 200).map(|n| late("10.9.0.1", &format!("far/{n}"), 1_000 + n)).collect();
        let done = heal(&mut net, &claims);
        assert_eq!(done.conflicts + done.left, 200);
    }
    assert_eq!(net.network.config().conflicts.len(), CONFLICTS_MAX);
}

#[test]
fn a_lease_that_ended_meanwhile_leaves_its_holder_time_to_renew_it() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    net.at(1_000);
    let (at, entry) = late("10.0.0.5", "web", 50);
    let Entry::Held(held) = entry else { panic!() };
    let lease = std::num::NonZeroU64::new(10).map(|ttl_seconds| Lease { ends: ShardTime(7), ttl_seconds });
    let claim = (at, Entry::Held(Arc::new(Reservation { lease, ..(*held).clone() })));
    assert_eq!(heal(&mut net, &[claim]), healing(1, 0, 0));
    let Some(Entry::Held(held)) = net.network.holdings.at(at) else { panic!() };
    assert_eq!(held.lease.unwrap().ends, ShardTime(net.now + 10_000));
}

/// The end of the lease at an address; none if nobody holds it or it is permanent.
fn ends_at(net: &Net, at: &str) -> Option<u64> {
    Some(net.network.holdings.at(address(at))?.held()?.lease?.ends.0)
}

/// `web` was given this address for an hour, and was told of another end on the line that was cut off.
fn renewed(net: &mut Net, ends: Option<u64>) -> (Heal, u64) {
    let mut ask = wish("web");
    ask.options.ttl_seconds = Some(3_600);
    let view = net.ask(ask).unwrap().view;
    let (at, held) = (view.address, view.reservation);
    let ended = held.lease.unwrap().ends;
    let ttl_seconds = std::num::NonZeroU64::new(3_600).unwrap();
    let lease = ends.map(|more| Lease { ends: ShardTime(ended.0 + more), ttl_seconds });
    let renewal = LateRenewal { address: at, generation: held.generation, ended };
    let claims = vec![(at, Entry::Held(Arc::new(Reservation { lease, ..Reservation::clone(&held) })))];
    (Heal { claims, renewed: vec![renewal], elsewhere: false }, ended.0)
}

fn brought(net: &mut Net, ask: &Heal) -> Healing {
    match net.run(&Command::Heal(Box::new(ask.clone()))).unwrap() {
        Outcome::Healed(done) => done,
        other => panic!("{other:?}"),
    }
}

const MORE: u64 = 55 * 60 * 1_000;

#[test]
fn who_was_told_that_his_lease_is_longer_has_it_for_so_long_and_never_for_less() {
    let mut net = Net::new(&["10.0.0.0/24"]);
    let (ask, ended) = renewed(&mut net, Some(MORE));
    let command = Command::Heal(Box::new(ask.clone()));
    let context = net.context();
    let kinds = |decision: &Decision| -> Vec<EventKind> {
        decision.steps.iter().map(|step| step.event.as_ref().unwrap().kind).collect()
    };
    assert_eq!(kinds(&net.network.decide(&command, context).unwrap()), [EventKind::Renewed]);
    assert_eq!(brought(&mut net, &ask), healing(1, 0, 0));
    assert_eq!(ends_at(&net, "10.0.0.1"), Some(ended + MORE));
    // Bringing the claim again changes nothing.
    assert_eq!(brought(&mut net, &ask), healing(0, 1, 0));
    // Renewed here in the meantime, for longer.
    net.now += 2 * MORE;
    net.run(&Command::Renew(Box::new(target("web")), Some(7_200))).unwrap();
    let longer = ends_at(&net, "10.0.0.1");
    assert_eq!(brought(&mut net, &ask), healing(0, 1, 0));
    assert_eq!(ends_at(&net, "10.0.0.1"), longer);
    // The holder was told that it is permanent.
    let mut net = Net::new(&["10.0.0.0/24"]);
    let (ask, _) = renewed(&mut net, None);
    assert_eq!(brought(&mut net, &ask), healing(1, 0, 0));
    assert_eq!((ends_at(&net, "10.0.0.1"), net.network.holdings.held()), (None, 1));
    assert_eq!(brought(&mut net, &ask), healing(0, 1, 0));
}

/// Between the end that is known here and the one that the holder was told, somebody else may have come.
#[test]
fn a_renewed_lease_that_ended_here_is_held_again_or_a_conflict_until_the_end_that_was_told() {
    for cooldown in [0, 7_200] {
        let cools = |config: &mut NetworkConfig| config.cooldown_seconds = cooldown;
        let mut net = Net::with(cools, vec![subnet("10.0.0.0/24", 0)]);
        let (ask, ended) = renewed(&mut net, Some(MORE));
        net.now = ended + 1;
        net.run(&Command::Expire).unwrap();
        assert_eq!(held_at(&net, "10.0.0.1"), None);
        assert_eq!(brought(&mut net, &ask), healing(1, 0, 0), "cooldown {cooldown}");
        assert_eq!(ends_at(&net, "10.0.0.1"), Some(ended + MORE));
        // By now it is over, here and for its holder.
        net.now = ended + MORE + 1;
        net.run(&Command::Expire).unwrap();
        assert_eq!(brought(&mut net, &ask), healing(0, 1, 0), "cooldown {cooldown}");
        assert_eq!(held_at(&net, "10.0.0.1"), None);
    }
    let mut net = Net::new(&["10.0.0.0/24"]);
    let (ask, ended) = renewed(&mut net, Some(MORE));
    net.now = ended + 1;
    net.run(&Command::Expire).unwrap();
    net.allocate("other");
    assert_eq!(brought(&mut net, &ask), healing(0, 0, 1));
    assert_eq!(held_at(&net, "10.0.0.1").unwrap().0, "other");
}

/// The lease had not ended, so its holder let it go. If nothing shows that any more, it is held again.
#[test]
fn what_was_renewed_and_let_go_here_before_its_end_is_not_held_again_while_it_cools() {
    for (cooldown, became) in [(7_200, healing(0, 1, 0)), (0, healing(1, 0, 0))] {
        let cools = |config: &mut NetworkConfig| config.cooldown_seconds = cooldown;
        let mut net = Net::with(cools, vec![subnet("10.0.0.0/24", 0)]);
        let (ask, ended) = renewed(&mut net, Some(MORE));
        assert_eq!(net.release("web"), 1);
        net.now = ended + 1;
        assert_eq!(brought(&mut net, &ask), became, "cooldown {cooldown}");
        assert_eq!(net.network.holdings.held(), became.healed);
    }
}

/// Whoever was told that they hold an address looks it up under that address.
#[test]
fn the_history_of_a_late_address_tells_of_its_conflict_and_of_who_gave_it_up_whatever_lies_there() {
    let cools = |config: &mut NetworkConfig| {
        config.cooldown_seconds = 100;
        config.policy = Policy::Oldest;
    };
    let mut net = Net::with(cools, vec![subnet("10.0.0.0/24", 0)]);
    heal(&mut net, &[late("10.0.0.51", "mv", 50), late("10.0.0.5", "web", 51), late("10.0.0.12", "cold", 52)]);
    assert_eq!(net.release("cold"), 1);
    let claims = [
        // The holder has another address by now; outside every subnet; held; and twice in one journal.
        (late("10.0.0.50", "mv", 60), vec!["10.0.0.51", "10.0.0.50"]),
        (late("10.9.0.1", "far", 61), vec!["10.9.0.1"]),
        (late("10.0.0.5", "other", 62), vec!["10.0.0.5"]),
        (late("10.0.0.30", "a", 63), vec![]),
        (late("10.0.0.30", "b", 64), vec!["10.0.0.30"]),
    ];
    let told = |decision: &Decision| -> Vec<(Key, String, Option<String>)> {
        let conflicts =
            decision.steps.iter().filter(|step| step.event.as_ref().is_some_and(|it| it.kind == EventKind::Conflict));
        let owner = |state: &Option<State>| match state {
            Some(State::Entry(Entry::Held(held))) => Some(held.holder.owner.to_string()),
            _ => None,
        };
        let before = |step: &Step| step.event.as_ref().and_then(|event| event.before.clone()).unwrap();
        conflicts.map(|step| (step.key, before(step).holder.owner.to_string(), owner(&step.state))).collect()
    };
    let entries = net.network.entries();
    let ask =
        Heal { claims: claims.iter().map(|(claim, _)| claim.clone()).collect(), renewed: Vec::new(), elsewhere: false };
    let command = Command::Heal(Box::new(ask));
    let context = net.context();
    let decision = net.network.decide(&command, context).unwrap();
    let expected: Vec<(Key, String)> = claims
        .iter()
        .flat_map(|((_, entry), at)| {
            let Entry::Held(held) = entry else { panic!() };
            at.iter().map(|at| (Key::Address(address(at)), held.holder.owner.to_string()))
        })
        .collect();
    let named: Vec<(Key, String)> = told(&decision).into_iter().map(|(key, late, _)| (key, late)).collect();
    assert_eq!(named, expected);
    let present: Vec<Option<String>> = told(&decision).into_iter().map(|(.., present)| present).collect();
    let of = |owner: &str| Some(owner.to_owned());
    assert_eq!(present, [of("mv"), None, None, of("web"), of("a")]);
    net.run(&command).unwrap();
    assert_eq!(net.network.entries(), entries + 1, "only what was free is held");
    // An operator gives them up, in the order in which they were found.
    let command = Command::Accept(None);
    let context = net.context();
    let decision = net.network.decide(&command, context).unwrap();
    let given_up: Vec<(Key, String)> = told(&decision).into_iter().map(|(key, late, _)| (key, late)).collect();
    let at = |at: &str, owner: &str| (Key::Address(address(at)), owner.to_owned());
    assert_eq!(given_up, [at("10.0.0.50", "mv"), at("10.9.0.1", "far"), at("10.0.0.5", "other"), at("10.0.0.30", "b")]);
    assert!(!decision.grants());
    net.run(&command).unwrap();
    assert_eq!(net.network.entries(), entries + 1);
    assert_eq!(held_at(&net, "10.0.0.51"), Some(("mv".to_owned(), 50)));
}

/// It is kept for its claims, and would otherwise be looked at again and again.
#[test]
fn a_deleted_network_that_is_kept_for_its_claims_is_due_when_something_in_it_ends_and_behind_the_last_claim_at_once() {
    let mut net = Net::with(|config| config.cooldown_seconds = 100, vec![subnet("10.0.0.0/24", 0)]);
    net.allocate("a");
    let change = Box::new(Configure::Delete { force: true, purge: false });
    net.run(&Command::Configure { change, if_version: None }).unwrap();
    assert_eq!(heal(&mut net, &[late("10.0.0.1", "web", 50)]), healing(0, 0, 1));
    assert_eq!(net.release("a"), 1);
    assert_eq!((net.network.is_gone(), net.network.next_due()), (false, Some(ShardTime(101_000))));
    net.run(&Command::Accept(None)).unwrap();
    assert_eq!(net.network.next_due(), Some(ShardTime(0)));
    net.run(&Command::Expire).unwrap();
    assert!(net.network.is_gone());
}
