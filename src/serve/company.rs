//! Whether this node may share the register with the nodes that are there: either all have the cluster's secret, or there
//! is one node.
//!
//! A node without it cannot be asked by others, so that one that took the register would serve nobody but its own clients.
//! It is not ready beside others and never waits for its turn: it does not start, and ends where others that have the secret
//! came while it stood still. Alone on its store it serves as ever.
//!
//! **Another secret.** Two nodes whose secrets differ refuse each other, and which of them is wrong no secret tells. It is the one
//! that comes: a node that starts has never been of this register, and one that is there and *ready* has been its owner or was
//! taken by it (only then its card says where clients reach it). So a node that starts asks the owner, and all that are ready,
//! before it contends: it ends where the owner has another secret, or where one that is ready has and none takes it. It would
//! win the register at a failover, and nobody could ask it. A node that only starts itself stands in nobody's way, so two that start
//! side by side do not keep each other out for ever: whoever has the register first is right. Nor does one that is
//! ready end: it waits, and takes the register when the other one is gone, however that came to have it.
//!
//! Review notes: is a node without the secret, or with another one, refused before it contends?

use std::time::Duration;

use super::cannot::CannotBegin;
use super::keeper::Keeper;
use crate::actors::service::CannotOwn;
use crate::limits::NODE_LEASE_MS;
use crate::server::cluster::Node;
use crate::server::role::Role;

/// How long a node that starts waits until those that are ready have said whether their secret is its own. One that is gone says
/// nothing.
const SAID_WITHIN: Duration = Duration::from_millis(500);

/// Why two nodes cannot share a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrelated {
    /// A sentence that names both.
    pub(super) problem: String,
    /// It may be over without anybody doing anything to this node.
    pub(super) may_pass: bool,
}

impl From<Unrelated> for CannotBegin {
    fn from(unrelated: Unrelated) -> Self {
        CannotBegin::Unrelated(unrelated)
    }
}

/// Of node `own`, which has no secret: the one that was seen within a lease and has it stands in its way.
fn beside(own: &str, seen: &[Node]) -> Option<Unrelated> {
    let has_secret = |node: &&Node| node.is_reachable_beside(own) && node.age_ms <= NODE_LEASE_MS;
    let node = seen.iter().find(has_secret)?;
    Some(without(own, &node.name, "shares"))
}

fn without(own: &str, other: &str, does: &str) -> Unrelated {
    let problem = format!(
        "node `{other}`, which has a secret of its cluster, {does} this register, and node `{own}` has none, so neither could \
         ask the other"
    );
    Unrelated { problem, may_pass: false }
}

/// What a node that is ready says of the secret of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Same,
    Another,
    /// It is not reached.
    None,
}

/// Of node `own`, which starts: the one that is ready and has another secret, where none has the same.
fn outside(own: &str, said: &[(&str, Word)]) -> Option<Unrelated> {
    if said.iter().any(|(_, word)| *word == Word::Same) {
        return None;
    }
    let (node, _) = said.iter().find(|(_, word)| *word == Word::Another)?;
    Some(differs(own, node, "shares"))
}

fn differs(own: &str, other: &str, does: &str) -> Unrelated {
    let problem = format!(
        "node `{other}`, which {does} this register, has another cluster secret than node `{own}` (`--cluster-secret-file`), so \
         neither could ask the other"
    );
    Unrelated { problem, may_pass: false }
}

/// The owner of the register is another node, reached by others at `address`: may node `own` follow it?
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
    Some(Unrelated { problem: problem + ", so neither could ask the other", may_pass })
}

impl Keeper {
    /// Has it a secret, or a register for itself?
    fn needs_no_secret(&self) -> bool {
        self.peers.is_some() || self.store.info().ownership_is_standing
    }

    /// What stands against owning the register beside the nodes that were seen last.
    pub(super) fn stranger(&self) -> Option<Unrelated> {
        let is_old = self.server.nodes.age().as_millis() as u64 > NODE_LEASE_MS;
        if self.needs_no_secret() || is_old {
            return None;
        }
        beside(&self.server.node, &self.server.nodes.all())
    }

    /// As [`Keeper::stranger`], of the secret of this node, which starts: those that are ready are asked.
    pub(super) async fn outsider(&mut self) -> Option<Unrelated> {
        self.find_ways(|node| !node.address.is_empty() && node.age_ms <= NODE_LEASE_MS);
        let ways = &self.reach.ways;
        let tried = async {
            for (_, way) in ways {
                way.tried().await;
            }
        };
        // What is not known by then stands in nobody's way.
        let _ = tokio::time::timeout(SAID_WITHIN, tried).await;
        let nodes = self.server.nodes.all();
        let said = ways.iter().filter_map(|(process, way)| {
            let node = nodes.iter().find(|node| node.process == *process)?;
            let word = match (way.is_connected(), way.differs_in_secret()) {
                (true, _) => Word::Same,
                (false, true) => Word::Another,
                (false, false) => Word::None,
            };
            Some((node.name.as_str(), word))
        });
        outside(&self.server.node, &said.collect::<Vec<_>>())
    }

    /// What stands against following the owner of the register, of this node, which starts.
    pub(super) fn refused_by_owner(&self) -> Option<Unrelated> {
        match &*self.server.seat.role() {
            Role::Follower { owner, link, .. } if link.differs_in_secret() => {
                Some(differs(&self.server.node, owner, "owns"))
            }
            _ => None,
        }
    }

    /// What stands against following the node that owns the register.
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
        // Itself, one that is gone, and one that is as it is.
        assert_eq!(beside("a", &seen), None);
        assert_eq!(beside("b", &[]), None);
        assert_eq!(beside("d", &[node("b", "", 0)]), None);
    }

    #[test]
    fn a_node_that_starts_is_outside_where_one_that_is_ready_has_another_secret_and_none_has_the_same() {
        use Word::{Another, None, Same};
        assert_eq!(outside("d", &[]), Option::None);
        assert_eq!(outside("d", &[("a", None), ("b", None)]), Option::None, "those that are gone");
        // One that is left over from another cluster keeps nobody out.
        assert_eq!(outside("d", &[("a", Another), ("b", Same)]), Option::None);
        let unrelated = outside("d", &[("a", None), ("b", Another)]).unwrap();
        assert!(unrelated.problem.contains("node `b`") && unrelated.problem.contains("secret"), "{unrelated:?}");
        assert!(!unrelated.may_pass);
    }

    #[test]
    fn who_owns_the_register_is_followed_where_both_have_a_secret() {
        assert_eq!(under("a", true, "b", "10.0.0.1:7402"), None);
        // The process before this one.
        assert_eq!(under("a", false, "a", ""), None);
        for (has_secret, address, says, may_pass) in [
            (true, "", "node `b` owns this register and has no secret, and node `a` has one", true),
            (
                false,
                "10.0.0.1:7402",
                "node `b`, which has a secret of its cluster, owns this register, and node `a`",
                false,
            ),
            (false, "", "neither it nor node `a` has a secret", true),
        ] {
            let unrelated = under("a", has_secret, "b", address).unwrap();
            assert!(unrelated.problem.contains(says) && unrelated.may_pass == may_pass, "{unrelated:?}");
        }
    }
}
