//! Random sequences of every command over two small networks: what must hold after each decision, whatever was asked.
//!
//! A sequence is numbers; [`asks`] reads commands out of them, aimed at what is there, so that shrinking makes a failure
//! shorter and simpler at once. [`world`] plays a store beside the networks and checks each decision against it.
//!
//! A failure prints the numbers and keeps their seed under `proptest-regressions`. More cases:
//! `PROPTEST_CASES=20000 cargo test --lib tests_sequences`.

mod asks;
mod deploys;
mod world;

use proptest::prelude::*;
use world::World;

/// Numbers of one act.
const ACT_NUMBERS: usize = 48;

fn an_act() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), ACT_NUMBERS)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_commands_keeps_every_promise(
        beginnings in [an_act(), an_act()],
        acts in proptest::collection::vec(an_act(), 1..90),
    ) {
        let mut world = World::new(&beginnings);
        for act in &acts {
            world.act(act);
        }
        world.every_address_is_given_exactly_once_in_the_end();
    }
}
