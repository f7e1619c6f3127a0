//! What a node is while it does not own the register: the follower of the one that does, or one that waits.
//!
//! Neighbour: `keeper`, which tries to own it, and says here why it could not.

use std::sync::Arc;

use super::keeper::Keeper;
use crate::actors::service::CannotOwn;
use crate::actors::{Fault, NotReadyReason};
use crate::server::role::Role;

impl Keeper {
    /// This node does not own the register: who does?
    pub(super) fn follow(&mut self, cannot: &CannotOwn) {
        let role = self.server.seat.role();
        if let CannotOwn::Held { address, .. } = cannot {
            if self.is_no_better_off(address) {
                return;
            }
            // The store said so.
            self.server.nodes.out_of_trouble();
        }
        let why = match (cannot, &self.peers) {
            // That leads nowhere but here. Of another name it is followed, and said to lead here.
            (CannotOwn::Held { owner, address, .. }, Some(_))
                if (&**owner, &**address) == (&self.card.name, &self.card.peer_address) =>
            {
                "the process before this one owns the register still"
            }
            (CannotOwn::Held { owner, .. }, None) if **owner == *self.card.name => {
                "the process before this one owns the register still"
            }
            (CannotOwn::Held { owner, address, .. }, Some(peers)) if !address.is_empty() => {
                // Another one may be where it was: a machine that was set up anew has a new name.
                let is_followed =
                    matches!(&*role, Role::Follower { owner: o, address: a, .. } if o == owner && a == address);
                if !is_followed {
                    let (owner, address) = (Arc::clone(owner), Arc::clone(address));
                    let link = peers.link(&address);
                    self.server.seat.become_role(Role::Follower { owner, address, link });
                }
                return;
            }
            // Redis is not reached, but the owner is: it knows better.
            (CannotOwn::Overtaken(_) | CannotOwn::Unreachable(_) | CannotOwn::Full(_) | CannotOwn::Damaged(_), _)
                if is_led(&role) =>
            {
                return;
            }
            (CannotOwn::Held { .. }, Some(_)) => "another node owns the register, and it has no secret",
            (CannotOwn::Held { .. }, None) => "another node owns the register, and this one has no secret",
            (CannotOwn::Overtaken(_), _) => "another node took the register over while this one did",
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
                | CannotOwn::Unreachable(problem)
                | CannotOwn::Full(problem)
                | CannotOwn::Damaged(problem) => problem.clone(),
            };
            tracing::warn!(problem, "this node does not own the register: {why}");
            self.wait(why, NotReadyReason::NoOwner);
        }
    }

    /// Too few replicas let this node begin with the register, and whoever the store names now may only be trying as this one
    /// did: two would follow each other, and each name the other one as the owner. So it is followed when it says that it is.
    fn is_no_better_off(&mut self, address: &Arc<str>) -> bool {
        let way = self.peers.as_ref().filter(|_| !address.is_empty()).map(|peers| peers.link(address));
        let owns = way.as_ref().is_some_and(|way| way.standing().is_some_and(|standing| standing.owns));
        // Kept, or it would never be heard.
        self.unheard = way.filter(|_| self.server.nodes.tried_in_vain() && !owns);
        self.unheard.is_some()
    }

    pub(super) fn wait(&self, why: &'static str, reason: NotReadyReason) {
        let fault = Fault::NotReady { reason, retry_after_ms: 500 };
        self.server.seat.become_role(Role::Waiting { why, fault });
    }

    /// Nobody serves, as far as this node knows, because it does not reach the store, or nothing is there. Clients are told
    /// what stands in the way, also where its words change; the log has them once.
    pub(super) fn wait_for_store(&self, problem: &str) {
        let was_emptied = self.store.was_emptied();
        let why = if was_emptied { "the store was emptied" } else { "the store cannot be reached" };
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

/// Is there a way to the node that is followed, and does that not say that it owns nothing?
fn is_led(role: &Role) -> bool {
    matches!(role, Role::Follower { link, .. } if link.is_connected() && !link.is_of_no_owner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::Hooks;
    use crate::server::session::idle_server;
    use crate::store::memory::MemoryStore;

    #[actix::test]
    async fn a_lease_of_the_process_before_this_one_is_not_said_to_be_another_nodes() {
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let mut keeper = Keeper::alone(idle_server(), Arc::new(MemoryStore::new(1)), hooks);
        let own = keeper.card.name.clone();
        for (owner, says) in [("another", "another node owns"), (own.as_str(), "the process before this one owns")] {
            keeper.follow(&CannotOwn::Held { owner: owner.into(), address: "".into(), left_ms: 5 });
            let role = keeper.server.seat.role();
            let Role::Waiting { why, .. } = &*role else { panic!("{owner} is followed") };
            assert!(why.starts_with(says), "{owner}: {why}");
        }
    }
}
