//! Random sequences of every command over three small networks: what must hold after each decision, whatever was asked.
//!
//! A sequence is numbers. [`asks`] reads commands out of them, aimed at what exists, so that shrinking makes a failure
//! shorter and simpler at once. [`side`] plays a store beside a network and checks each decision against it. [`lists`]
//! checks that lists show the network as it was when they began, [`repeats`] that granted requests can be repeated, and
//! [`deploys`] what a deployment does in one network. [`desk`] keeps the book of a deployment that spans all networks.
//!
//! A failure prints the numbers and keeps their seed under `proptest-regressions`. More cases:
//! `PROPTEST_CASES=20000 cargo test --lib tests_sequences`.

mod asks;
mod deploys;
mod desk;
mod lists;
mod repeats;
mod side;
mod world;

use proptest::prelude::*;
use world::World;

/// The numbers that one act uses.
const ACT_NUMBERS: usize = 64;

fn an_act() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), ACT_NUMBERS)
}

/// This many cases, unless the environment sets the number.
fn cases(count: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(count);
    ProptestConfig { cases, max_shrink_iters: 4_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(250))]

    #[test]
    fn any_sequence_of_commands_keeps_every_promise(
        beginnings in [an_act(), an_act(), an_act()],
        acts in proptest::collection::vec(an_act(), 1..90),
    ) {
        let mut world = World::new(&beginnings);
        for act in &acts {
            world.act(act);
        }
        world.every_address_is_given_exactly_once_in_the_end();
    }
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn plans_over_several_networks_end_as_wished_or_leave_what_was(
        beginnings in [an_act(), an_act(), an_act()],
        acts in proptest::collection::vec(an_act(), 1..60),
    ) {
        let mut world = World::roomy(&beginnings);
        for act in &acts {
            world.act_of_a_deployment(act);
        }
        world.every_address_is_given_exactly_once_in_the_end();
    }
}
