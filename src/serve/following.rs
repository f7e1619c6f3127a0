//! The role of a node that does not own the register: it follows the owner, or waits.
//!
//! Neighbour: `keeper`, which tries to own the register, and reports here why it could not.

use std::sync::Arc;

use super::keeper::Keeper;
use crate::actors::service::CannotOwn;
use crate::actors::{Fault, NotReadyReason};
use crate::server::role::Role;

/// Why a node waits although the store would let it take the register.
const ANOTHER_FIRST: &str =
    "for the length of a lease, 5 s, this node lets another one go first, which may have taken the register";

impl Keeper {
    /// This node does not own the register: follows the owner, or waits and says why.
    pub(super) fn follow(&mut self, cannot: &CannotOwn) {
        let role = self.server.seat.role();
        if let CannotOwn::Held { address, .. } = cannot {
            if self.is_no_better_off(address) {
                return;
            }
            // So the store answers.
            self.server.nodes.out_of_trouble();
        }
        let why = match (cannot, &self.peers) {
            // Following would lead only back here. An owner of another name is followed, and the link reports that it leads
            // here.
            (CannotOwn::Held { owner, address, .. }, Some(_))
                if (&**owner, &**address) == (&self.card.name, &self.card.peer_address) =>
            {
                "the process before this one still owns the register"
            }
            (CannotOwn::Held { owner, .. }, None) if **owner == *self.card.name => {
                "the process before this one still owns the register"
            }
            (CannotOwn::Held { owner, address, .. }, Some(peers)) if !address.is_empty() => {
                // A machine that was set up again under a new name may have the same address.
                if let Role::Follower { owner: o, address: a, link } = &*role
                    && (o, a) == (owner, address)
                {
                    link.is_named_as_owner();
                } else {
                    let (owner, address) = (Arc::clone(owner), Arc::clone(address));
                    let link = peers.link(&address);
                    self.server.seat.become_role(Role::Follower { owner, address, link });
                }
                return;
            }
            // Redis cannot be reached, but the owner can: it knows better.
            (
                CannotOwn::Overtaken(_)
                | CannotOwn::NotFirst(_)
                | CannotOwn::Unreachable(_)
                | CannotOwn::Full(_)
                | CannotOwn::Damaged(_),
                _,
            ) if is_led(&role) => {
                return;
            }
            (CannotOwn::Held { .. }, Some(_)) => "another node owns the register, and it has no secret",
            (CannotOwn::Held { .. }, None) => "another node owns the register, and this one has no secret",
            (CannotOwn::Overtaken(_), _) => "another node took the register over while this one did",
            (CannotOwn::NotFirst(problem), _) => return self.wait_because(ANOTHER_FIRST, problem),
            (CannotOwn::Unreachable(problem), _) => return self.wait_for_store(problem),
            (CannotOwn::Full(_), _) => "the store has no room for what a new owner writes first",
            (CannotOwn::Damaged(_), _) => "what is stored cannot be loaded",
        };
        if !matches!(&*role, Role::Waiting { why: present, .. } if *present == why) {
            let problem = match cannot {
                CannotOwn::Held { owner, left_ms, .. } => {
                    format!("`{owner}` owns it, for another {left_ms} ms at least")
                }
                CannotOwn::Overtaken(problem)
                | CannotOwn::NotFirst(problem)
                | CannotOwn::Unreachable(problem)
                | CannotOwn::Full(problem) => problem.clone(),
                CannotOwn::Damaged(unloadable) => unloadable.problem.clone(),
            };
            tracing::warn!(problem, "this node does not own the register: {why}");
            self.wait(why, NotReadyReason::NoOwner);
        }
    }

    /// Too few replicas let this node begin with the register, and the owner that the store names now may only be trying as
    /// this one did: two nodes would follow each other, and each would name the other as the owner. So a node is followed
    /// only once it says that it owns the register.
    fn is_no_better_off(&mut self, address: &Arc<str>) -> bool {
        let way = self.peers.as_ref().filter(|_| !address.is_empty()).map(|peers| peers.link(address));
        let owns = way.as_ref().is_some_and(|way| way.standing().is_some_and(|standing| standing.owns));
        // Kept, because a dropped link would never hear the answer.
        self.unheard = way.filter(|_| self.server.nodes.tried_in_vain() && !owns);
        self.unheard.is_some()
    }

    pub(super) fn wait(&self, why: &'static str, reason: NotReadyReason) {
        let fault = Fault::NotReady { reason, retry_after_ms: 500 };
        self.server.seat.become_role(Role::Waiting { why, fault });
    }

    /// As far as this node knows nobody serves: it cannot reach the store, or the store is empty.
    pub(super) fn wait_for_store(&self, problem: &str) {
        let was_emptied = self.store.was_emptied();
        self.wait_because(if was_emptied { "the store was emptied" } else { "the store cannot be reached" }, problem);
    }

    /// As far as this node knows nobody serves. Clients are told the obstacle, and any change in its wording; the log has it
    /// once.
    fn wait_because(&self, why: &'static str, problem: &str) {
        let fault = Fault::StoreAway { problem: format!("{why}: {problem}") };
        match &*self.server.seat.role() {
            Role::Waiting { fault: present, .. } if *present == fault => {}
            Role::Waiting { why: present, .. } if *present == why => {
                self.server.seat.become_same(Arc::new(Role::Waiting { why, fault }));
            }
            _ => {
                tracing::warn!(problem, "this node does not own the register: {why}");
                self.server.seat.become_role(Role::Waiting { why, fault });
            }
        }
    }
}

/// Whether the followed node is connected, and does not say that it owns nothing.
fn is_led(role: &Role) -> bool {
    matches!(role, Role::Follower { link, .. } if link.is_connected() && !link.is_of_no_owner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::peer::frame::PeerStanding;
    use crate::peer::link::LinkState;
    use crate::peer::tests::nodes::{Node, Owner, connected, identity, secret};
    use crate::peer::{Identity, Versions};
    use crate::serve::Hooks;
    use crate::serve::listening::Port;
    use crate::serve::peers::introduce;
    use crate::server::session::idle_server;
    use crate::store::Store;
    use crate::store::memory::MemoryStore;
    use crate::store::{StoreError, chain};

    #[actix::test]
    async fn a_lease_of_the_process_before_this_one_is_not_said_to_be_another_nodes() {
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let mut keeper = Keeper::alone(idle_server(), Arc::new(MemoryStore::new(1)), hooks);
        let own = keeper.card.name.clone();
        for (owner, says) in
            [("another", "another node owns"), (own.as_str(), "the process before this one still owns")]
        {
            keeper.follow(&CannotOwn::Held { owner: owner.into(), address: "".into(), left_ms: 5 });
            let role = keeper.server.seat.role();
            let Role::Waiting { why, .. } = &*role else { panic!("{owner} is followed") };
            assert!(why.starts_with(says), "{owner}: {why}");
        }
    }

    /// It owned nothing while Redis was away, and then the connection to it broke. Clients that can reach it would wait until it
    /// is up again.
    #[actix::test]
    async fn clients_are_sent_on_to_an_owner_that_owned_nothing_when_it_was_last_heard_of() {
        let store = MemoryStore::new(1);
        let info = store.info();
        let port = Port::take("127.0.0.1:0", "cluster.listen").unwrap();
        let (_, peers) =
            introduce(&Config::default(), &info, Some((port, secret())), Versions::SPOKEN).unwrap_or_else(|_| panic!());
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let mut keeper = Keeper::new(idle_server(), Arc::new(store), hooks, peers);
        let register = format!("{:032x}", info.register).into();
        let other = Identity { register, shards: info.shards, ..identity(1) };
        let other = Node::new(other, secret(), Owner::default());
        other.owner.standing.send_replace(PeerStanding { owns: false, unready: None });
        let names_it = CannotOwn::Held { owner: "other".into(), address: other.address.to_string().into(), left_ms: 5 };
        keeper.follow(&names_it);
        let role = keeper.server.seat.role();
        let Role::Follower { link, .. } = &*role else { panic!("{role:?}") };
        connected(link).await;
        while link.standing().is_none() {
            tokio::task::yield_now().await;
        }
        keeper.follow(&names_it);
        assert_eq!(keeper.server.owner(), None, "it says so itself");
        drop(other);
        link.state().wait_for(|state| matches!(state, LinkState::Connecting(_))).await.unwrap();
        assert_eq!(
            keeper.server.owner(),
            None,
            "it may have ended in order, and nobody has looked who owns the register"
        );
        keeper.follow(&names_it);
        assert_eq!(keeper.server.owner().as_deref(), Some("other"));
    }

    /// Redis can be reached, and knows no owner since it reconnected: the node that owned the register in between goes
    /// first.
    #[actix::test]
    async fn a_node_that_lets_another_one_go_first_does_not_say_that_the_store_cannot_be_reached() {
        let error = StoreError::another_first("asking Redis at a".into(), "it knows of no owner");
        assert!(error.is_another_first());
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let mut keeper = Keeper::alone(idle_server(), Arc::new(MemoryStore::new(1)), hooks);
        keeper.follow(&CannotOwn::NotFirst(chain(&error)));
        let said = keeper.server.unready().unwrap();
        assert_eq!(
            &*said,
            "for the length of a lease, 5 s, this node lets another one go first, which may have taken the register: asking Redis at a: it knows of no owner"
        );
    }
}
