//! Everything that is due at once ends in bounded steps.

use super::*;

#[test]
fn a_thousand_leases_that_are_due_end_at_most_256_at_a_time_and_each_once() {
    let mut net = Net::new(&["10.0.0.0/20"]);
    for owner in 0..1_000 {
        let mut ask = wish(&format!("o{owner}"));
        ask.options.ttl_seconds = Some(60);
        net.ask(ask).unwrap();
    }
    net.at(61);
    let mut turns = Vec::new();
    while net.network.next_due().is_some_and(|due| due.0 <= net.now) {
        let context = net.context();
        let decision = net.network.decide(&Command::Expire, context).unwrap();
        let Outcome::Expired { leases, more } = decision.outcome else { panic!("{:?}", decision.outcome) };
        assert!(decision.steps.len() <= crate::limits::EXPIRE_STEPS_MAX);
        decision.steps.iter().for_each(|step| net.network.apply(step, context.now));
        turns.push((leases, more));
    }
    assert_eq!(turns, [(256, true), (256, true), (256, true), (232, false)]);
    net.network.check().unwrap();
}
