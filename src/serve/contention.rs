//! When a node that does not own the register tries to: out of step with the others, after them if it was replaced, and not
//! at all while something bars it.
//!
//! What made a node late once may do so again, so a node that was replaced lets others go first for two leases and some
//! more. Meanwhile it watches who owns the register (`draining`), and takes it only if no other node is there, or none takes
//! it within a lease.

use std::time::Duration;

use super::keeper::Keeper;
use super::meeting::meet;
use crate::actors::service::CannotOwn;
use crate::limits::NODE_LEASE_MS;
use crate::server::Server;
use crate::store::{Store, chain};

/// How often a node tries, on average.
const CONTENDS_EVERY: Duration = Duration::from_millis(500);
/// The part of that interval that is random, half of it to either side.
const CONTENDS_SPREAD: f64 = 0.4;
/// How long others go first, and how much longer at most, at random.
const STAYS_OFF_MS: u64 = 2 * NODE_LEASE_MS;
const STAYS_OFF_MORE_MS: u64 = NODE_LEASE_MS / 2;

/// How long a node that could not load the register does not try again: the first time, and at most.
pub(super) const UNABLE_MS: (u64, u64) = (2 * NODE_LEASE_MS, 12 * NODE_LEASE_MS);

/// The time until the next attempt, from a random number.
pub(super) fn contends_in(drawn: u64) -> Duration {
    CONTENDS_EVERY.mul_f64(1.0 + CONTENDS_SPREAD * ((drawn % 1_000) as f64 / 1_000.0 - 0.5))
}

/// Why nobody could take the register now, or who owns it meanwhile, if the store knows of something in the way. In that
/// case nobody tries: each failed take-over uses up one of the few that a head remembers, and those tell later what is on
/// its line.
pub(super) async fn barred(server: &Server, store: &dyn Store) -> Option<CannotOwn> {
    store.bars_taking()?;
    // Looks at the obstacle itself: nobody else may while a node begins.
    let looked = match meet(server, store).await {
        Ok(()) => store.review().await,
        met => met,
    };
    if let Err(error) = looked {
        tracing::debug!(error = chain(&error), "whether the register can be taken over is not known");
    }
    let holder = store.holder().await;
    let why = store.bars_taking()?;
    Some(match holder {
        Ok(Some(holder)) if *holder.name != *server.node => {
            CannotOwn::Held { owner: holder.name, address: holder.address, left_ms: 0 }
        }
        Ok(_) => CannotOwn::Unreachable(why.to_string()),
        Err(error) => CannotOwn::Unreachable(chain(&error)),
    })
}

impl Keeper {
    /// Differs from node to node and from time to time, but is the same when a schedule is run again.
    pub(super) fn drawn(&self) -> u64 {
        let seen = (self.card.name.as_str(), self.server.clock.lease_ms());
        xxhash_rust::xxh3::xxh3_64(format!("{seen:?}").as_bytes())
    }

    /// From now on other nodes go first: this one was replaced, or they cannot reach it.
    pub(super) fn stay_off(&mut self) {
        let more_ms = self.drawn() % (STAYS_OFF_MORE_MS + 1);
        self.stays_off_ms = self.server.clock.lease_ms() + STAYS_OFF_MS + more_ms;
        (self.was_fenced, self.ownerless_ms) = (false, None);
    }

    pub(super) fn stays_off(&self) -> bool {
        self.server.clock.lease_ms() < self.stays_off_ms
    }

    /// This node took the register, and could not load it.
    pub(super) fn was_unable(&mut self) {
        self.unable_ms = (2 * self.unable_ms).clamp(UNABLE_MS.0, UNABLE_MS.1);
        self.unable_until_ms = self.server.clock.lease_ms() + self.unable_ms;
        self.ownerless_ms = None;
    }

    /// Whether it is too early to try again to load the register.
    pub(super) fn is_unable(&self) -> bool {
        self.server.clock.lease_ms() < self.unable_until_ms
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::actors::clock::{Clock, ManualClock};
    use crate::core::types::WallTime;
    use crate::serve::{Hooks, Reactor};
    use crate::server::cluster::Node;
    use crate::server::session::idle_server;
    use crate::store::memory::MemoryStore;

    #[test]
    fn several_nodes_do_not_contend_in_step() {
        let waits: Vec<Duration> = (0..64).map(|n| contends_in(n * 7_919)).collect();
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(400) && *most <= Duration::from_millis(600), "{waits:?}");
        assert!(*most - *least > Duration::from_millis(50), "{waits:?}");
    }

    /// A node that was just replaced, and a register that nobody owns; another node was last seen `age_ms` ago.
    fn replaced(age_ms: u64) -> (Keeper, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(WallTime(1_795_000_000_000), 1));
        let mut server = idle_server();
        let inside = Arc::get_mut(&mut server).expect("nobody else has it");
        inside.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        inside.reactors = vec![Reactor::from(actix::Arbiter::current())];
        let node = |name: &str, process, age_ms| Node {
            name: name.to_owned(),
            process,
            version: String::new(),
            address: String::new(),
            peer_address: String::new(),
            draining: false,
            apart: None,
            age_ms,
        };
        server.nodes.seen(vec![node(&server.node, 1, 0), node("another", 2, age_ms)]);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
        let mut keeper = Keeper::alone(server, store, Hooks { without_index: true, ..Hooks::default() });
        keeper.stay_off();
        (keeper, clock)
    }

    /// Whether it owns the register after one more attempt.
    async fn takes(keeper: &mut Keeper) -> bool {
        assert!(keeper.seek().await.is_none());
        keeper.tenure.is_some()
    }

    /// It would only make the outage longer to wait.
    #[actix::test]
    async fn a_node_that_was_replaced_takes_the_register_at_once_where_no_other_is_there() {
        let (mut keeper, _clock) = replaced(3_001);
        assert!(keeper.stays_off());
        assert!(takes(&mut keeper).await);
    }

    #[actix::test]
    async fn a_node_that_was_replaced_lets_one_that_is_there_go_first_for_a_lease_without_an_owner() {
        let (mut keeper, clock) = replaced(3_000);
        assert!(!takes(&mut keeper).await);
        clock.advance_ms(NODE_LEASE_MS);
        assert!(!takes(&mut keeper).await, "it could have taken it until now");
        clock.advance_ms(1);
        assert!(keeper.stays_off());
        assert!(takes(&mut keeper).await, "the other one does not, although it could");
    }

    #[actix::test]
    async fn a_node_that_was_replaced_is_like_any_other_after_two_leases_and_some_more() {
        let (mut keeper, clock) = replaced(0);
        clock.advance_ms(STAYS_OFF_MS - 1);
        assert!(keeper.stays_off());
        clock.advance_ms(1 + STAYS_OFF_MORE_MS);
        assert!(!keeper.stays_off());
        assert!(takes(&mut keeper).await);
    }

    /// Each attempt would only take it from whoever can load it.
    #[actix::test]
    async fn a_node_that_could_not_load_the_register_leaves_it_to_others_for_longer_and_longer_even_where_none_is_there()
     {
        let (mut keeper, clock) = replaced(3_001);
        for waits_ms in [10_000, 20_000, 40_000, 60_000, 60_000] {
            keeper.was_unable();
            clock.advance_ms(waits_ms - 1);
            assert!(!takes(&mut keeper).await, "{waits_ms}");
            clock.advance_ms(1);
            assert!(!keeper.is_unable(), "{waits_ms}");
        }
        assert!(takes(&mut keeper).await);
    }
}
