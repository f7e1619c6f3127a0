//! Whether this node may share the register with the nodes that are there: either all have the cluster's secret, or there
//! is one node.
//!
//! A node without it cannot be asked by others, so that one that took the register would serve nobody but its own clients.
//! It is not ready beside others and never waits for its turn: it does not start, and ends where others that have the secret
//! came while it stood still. Alone on its store it serves as ever.
//!
//! Review notes: is a node without the secret refused before it contends?

use super::cannot::CannotBegin;
use super::keeper::Keeper;
use crate::actors::service::CannotOwn;
use crate::limits::NODE_LEASE_MS;
use crate::server::cluster::Node;

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
