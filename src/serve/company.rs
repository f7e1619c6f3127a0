//! Decides whether this node may share the register with the nodes that are there: either all have the cluster's secret, or
//! there is only one node.
//!
//! A node without the secret cannot be asked by others, so if it took the register it would serve nobody but its own
//! clients. It does not start beside others and never waits for its turn; and it ends if others that have the secret came
//! while it stood still. Alone on its store it serves as ever.
//!
//! **Another secret.** Two nodes whose secrets differ refuse each other, and no secret tells which of them is wrong. The
//! newcomer is taken to be: a node that starts has never been part of this register, whereas a node that is there and
//! *ready* has owned it, or has proved to its owner that it has its secret (only then does its card say where clients reach
//! it; a node without a common version waits after that, and counts all the same). So before a node that starts contends,
//! it asks the owner and all nodes that are ready. It ends if the owner has another secret, or if a ready node has another
//! one and none has the same: otherwise it would win the register at a failover, and nobody could ask it. A node that is
//! only starting stands in nobody's way, so two that start side by side do not keep each other out for ever: the first to
//! own the register is right. A node that is ready does not end either: it waits, and takes the register when the other one
//! is gone, however that one came to have it.
//!
//! **Another version of the protocol between nodes.** Secret and register are compared before versions are, so all this holds
//! for such a node, too. One that passes stays, and takes the register when its owner lets go of it (`unspoken`).
//!
//! Review notes: is a node without the secret, or with another one, refused before it contends?

use std::time::Duration;

use super::cannot::CannotBegin;
use super::keeper::Keeper;
use crate::actors::service::CannotOwn;
use crate::limits::NODE_LEASE_MS;
use crate::server::cluster::Node;
use crate::server::role::Role;

/// How long a node that starts waits for the ready nodes to say whether their secret is the same. One that is gone says
/// nothing.
const SAID_WITHIN: Duration = Duration::from_millis(500);

/// Why two nodes cannot share a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrelated {
    /// A sentence that names both.
    pub(super) problem: String,
    /// Whether it may pass without anybody changing this node.
    pub(super) may_pass: bool,
}

impl From<Unrelated> for CannotBegin {
    fn from(unrelated: Unrelated) -> Self {
        CannotBegin::Unrelated(unrelated)
    }
}

/// For node `own`, which has no secret: a node that has one and was seen within a lease stands in its way.
fn beside(own: &str, seen: &[Node]) -> Option<Unrelated> {
    let has_secret = |node: &&Node| node.is_reachable_beside(own) && node.age_ms <= NODE_LEASE_MS;
    let node = seen.iter().find(has_secret)?;
    Some(without(own, &node.name, "shares"))
}

fn without(own: &str, other: &str, does: &str) -> Unrelated {
    let problem = format!(
        "node `{other}`, which has a cluster secret, {does} this register, but node `{own}` has none, so the two could not talk to each other"
    );
    Unrelated { problem, may_pass: false }
}

/// What a ready node says about the secret of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Same,
    Another,
    /// It cannot be reached.
    None,
}

/// For node `own`, which starts: a ready node has another secret, and none has the same.
fn outside(own: &str, said: &[(&str, Word)]) -> Option<Unrelated> {
    if said.iter().any(|(_, word)| *word == Word::Same) {
        return None;
    }
    let (node, _) = said.iter().find(|(_, word)| *word == Word::Another)?;
    Some(differs(own, node, "shares"))
}

fn differs(own: &str, other: &str, does: &str) -> Unrelated {
    let problem = format!(
        "node `{other}`, which {does} this register, has a different cluster secret than node `{own}` (`--cluster-secret-file`), so the two could not talk to each other"
    );
    Unrelated { problem, may_pass: false }
}

/// Another node owns the register, and others reach it at `address`: whether node `own` may not follow it, and why.
fn under(own: &str, has_secret: bool, owner: &str, address: &str) -> Option<Unrelated> {
    let (problem, may_pass) = match (has_secret, address.is_empty()) {
        _ if own == owner => return None,
        (true, false) => return None,
        (false, false) => return Some(without(own, owner, "owns")),
        (true, true) => {
            (format!("node `{owner}` owns this register and has no secret, and node `{own}` has one"), true)
        }
        (false, true) => {
            (format!("node `{owner}` owns this register, and neither it nor node `{own}` has a secret"), true)
        }
    };
    Some(Unrelated { problem: problem + ", so the two could not talk to each other", may_pass })
}

impl Keeper {
    /// Whether it has a secret, or a register for itself.
    fn needs_no_secret(&self) -> bool {
        self.peers.is_some() || self.store.info().ownership_is_standing
    }

    /// What forbids owning the register beside the nodes that were seen last.
    pub(super) fn stranger(&self) -> Option<Unrelated> {
        let is_old = self.server.nodes.age().as_millis() as u64 > NODE_LEASE_MS;
        if self.needs_no_secret() || is_old {
            return None;
        }
        beside(&self.server.node, &self.server.nodes.all())
    }

    /// Like [`Keeper::stranger`], but about the secret of this node while it starts: it asks the ready nodes.
    pub(super) async fn outsider(&mut self) -> Option<Unrelated> {
        self.find_ways(|node| !node.address.is_empty() && node.age_ms <= NODE_LEASE_MS);
        let ways = &self.reach.ways;
        let tried = async {
            for (_, way) in ways {
                way.tried().await;
            }
        };
        // A node that has not answered by then stands in nobody's way.
        let _ = tokio::time::timeout(SAID_WITHIN, tried).await;
        let nodes = self.server.nodes.all();
        let said = ways.iter().filter_map(|(process, way)| {
            let node = nodes.iter().find(|node| node.process == *process)?;
            // Whoever shares no version has proved that it knows the secret.
            let is_related = way.is_connected() || way.no_common_version().is_some();
            let word = match (is_related, way.differs_in_secret()) {
                (true, _) => Word::Same,
                (false, true) => Word::Another,
                (false, false) => Word::None,
            };
            Some((node.name.as_str(), word))
        });
        outside(&self.server.node, &said.collect::<Vec<_>>())
    }

    /// Whether the owner's secret forbids this node, which starts, to follow it.
    pub(super) fn refused_by_owner(&self) -> Option<Unrelated> {
        match &*self.server.seat.role() {
            Role::Follower { owner, link, .. } if link.differs_in_secret() => {
                Some(differs(&self.server.node, owner, "owns"))
            }
            _ => None,
        }
    }

    /// What forbids following the node that owns the register.
    pub(super) fn stranger_to(&self, cannot: &CannotOwn) -> Option<Unrelated> {
        let CannotOwn::Held { owner, address, .. } = cannot else { return None };
        under(&self.server.node, self.peers.is_some(), owner, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, peer_address: &str, age_ms: u64) -> Node {
        let (version, address) = (String::new(), String::new());
        let (name, peer_address) = (name.to_owned(), peer_address.to_owned());
        Node { name, process: 1, version, address, peer_address, draining: false, apart: None, age_ms }
    }

    #[test]
    fn a_node_without_a_secret_may_be_where_no_other_node_has_one() {
        let seen = [node("a", "10.0.0.1:7402", 900), node("b", "", 0), node("c", "10.0.0.3:7402", NODE_LEASE_MS + 1)];
        let unrelated = beside("b", &seen).unwrap();
        assert!(unrelated.problem.contains("`a`") && unrelated.problem.contains("`b`"), "{unrelated:?}");
        assert!(!unrelated.may_pass);
        // The node itself, no other node, and one that has no secret either.
        assert_eq!(beside("a", &seen), None);
        assert_eq!(beside("b", &[]), None);
        assert_eq!(beside("d", &[node("b", "", 0)]), None);
    }

    #[test]
    fn a_node_that_starts_is_outside_where_one_that_is_ready_has_another_secret_and_none_has_the_same() {
        use Word::{Another, None, Same};
        assert_eq!(outside("d", &[]), Option::None);
        assert_eq!(outside("d", &[("a", None), ("b", None)]), Option::None, "those that are gone");
        // A node that is left over from another cluster keeps nobody out.
        assert_eq!(outside("d", &[("a", Another), ("b", Same)]), Option::None);
        let unrelated = outside("d", &[("a", None), ("b", Another)]).unwrap();
        assert!(unrelated.problem.contains("node `b`") && unrelated.problem.contains("secret"), "{unrelated:?}");
        assert!(!unrelated.may_pass);
    }

    #[test]
    fn who_owns_the_register_is_followed_where_both_have_a_secret() {
        assert_eq!(under("a", true, "b", "10.0.0.1:7402"), None);
        // The owner is this node's previous process.
        assert_eq!(under("a", false, "a", ""), None);
        for (has_secret, address, says, may_pass) in [
            (true, "", "node `b` owns this register and has no secret, and node `a` has one", true),
            (false, "10.0.0.1:7402", "node `b`, which has a cluster secret, owns this register, but node `a`", false),
            (false, "", "neither it nor node `a` has a secret", true),
        ] {
            let unrelated = under("a", has_secret, "b", address).unwrap();
            assert!(unrelated.problem.contains(says) && unrelated.may_pass == may_pass, "{unrelated:?}");
        }
    }
}
