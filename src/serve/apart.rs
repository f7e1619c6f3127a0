//! Detects that the other nodes cannot reach the owner of the register, and finds a better owner (R-13).
//!
//! ```text
//! follower    no way to the owner for long ──▶ tries the ways to all others ──▶ says in its card which it reaches
//! owner       most others say so, and reach one of them better ──▶ still so after a while ──▶ gives the register to that one
//! ```
//!
//! The owner compares how many nodes reach it with how many would reach each of the others, counting itself. Only a node
//! that more of them reach is a better owner; otherwise the register would go to and fro when all ways are cut. If the owner
//! reaches that node it hands the register over in order, and no request is refused. If not, it lets go of the register, and
//! stays off for two leases while the others contend. None of this is needed for safety: tokens decide who may write, as
//! always.
//!
//! A node that shares no version of the protocol with the owner is not cut off from it, and says nothing: when the register goes
//! on is for an operator to decide, who upgrades one node after the other (`unspoken`).
//!
//! Neighbours: `keeper` calls this; `handover` does the rest; `store::Apart` is what the cards carry.
//!
//! Review notes: can two nodes give the register to each other for ever?

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::handover::Unhanded;
use super::keeper::Keeper;
use super::lease::let_go;
use super::reactors::all_run;
use crate::actors::NotReadyReason;
use crate::actors::service::Shared;
use crate::limits::{HANDOVER_QUIET_MS, NODE_LEASE_MS, OWNER_APART_MS, OWNER_LEFT_MS};
use crate::peer::link::Link;
use crate::server::cluster::Node;
use crate::server::role::Role;
use crate::store::Apart;

/// How long a condition has held, and the links that are kept open to examine it.
#[derive(Debug, Default)]
pub(super) struct Reach {
    since_ms: Option<u64>,
    /// By the process each leads to.
    pub(super) ways: Vec<(u128, Arc<Link>)>,
}

impl Reach {
    /// Whether the condition has held for more than `longer_ms`.
    fn lasts(&mut self, is_so: bool, now_ms: u64, longer_ms: u64) -> bool {
        if !is_so {
            // The links stay: connecting takes a while, and the condition cannot hold before they are connected.
            self.since_ms = None;
            return false;
        }
        now_ms.saturating_sub(*self.since_ms.get_or_insert(now_ms)) > longer_ms
    }
}

/// The name of a node that cannot reach the owner, and that more nodes reach than reach the owner.
fn better_than(owner: (&str, u128), seen: &[Node], reached: &[u128]) -> Option<String> {
    let lives = |node: &&Node| node.is_reachable_beside(owner.0) && node.age_ms <= NODE_LEASE_MS;
    let others: Vec<&Node> = seen.iter().filter(lives).collect();
    let is_apart = |node: &Node| node.apart.as_ref().is_some_and(|apart| apart.owner == owner.1);
    let apart: Vec<&Node> = others.iter().copied().filter(|node| is_apart(node)).collect();
    if 2 * apart.len() <= others.len() {
        return None;
    }
    let reach_owner = others.len() - apart.len();
    let reach = |other: &Node| {
        let by = |node: &&&Node| node.apart.as_ref().is_some_and(|apart| apart.reaches.contains(&other.process));
        apart.iter().filter(by).count() + usize::from(reached.contains(&other.process))
    };
    let candidates = apart.iter().filter(|node| !node.draining).map(|node| (reach(node), node));
    // Among equals the owner prefers one that it reaches itself.
    let (most, best) = candidates.max_by_key(|(reach, node)| (*reach, reached.contains(&node.process)))?;
    (most > reach_owner).then(|| best.name.clone())
}

impl Keeper {
    /// Publishes in this node's card that it has had no way to the owner for long, or withdraws that. The others see it when
    /// they next read the cards.
    pub(super) fn tell_reach(&mut self) {
        let role = self.server.seat.role();
        let (nodes, now_ms) = (self.server.nodes.all(), self.server.clock.lease_ms());
        let owner = match &*role {
            // An owner without a common version is not cut off: its operator decides when the register goes on (`unspoken`).
            Role::Follower { owner, link, .. } if !link.is_connected() && link.no_common_version().is_none() => {
                nodes.iter().find(|node| *node.name == **owner).map(|node| node.process)
            }
            _ => None,
        };
        let lasts = self.reach.lasts(owner.is_some(), now_ms, OWNER_APART_MS);
        if owner.is_none() {
            self.reach.ways.clear();
        }
        let apart = owner.filter(|_| lasts).map(|owner| {
            self.find_ways(|node| node.process != owner);
            Apart { owner, reaches: self.reached() }
        });
        if self.card.apart != apart {
            let name = |process: &u128| nodes.iter().find(|node| node.process == *process).map(|node| &*node.name);
            match &apart {
                Some(Apart { owner, reaches }) => {
                    let reached: Vec<&str> = reaches.iter().filter_map(name).collect();
                    tracing::warn!(
                        owner = name(owner),
                        reached = ?reached,
                        "this node has had no way to the owner of the register for long: the owner learns it through the store, \
                         and hands the register to a node that more of them reach"
                    );
                }
                None => {
                    tracing::info!("this node has a way to the owner of the register again, or another one owns it")
                }
            }
            self.card.apart = apart;
            self.store.introduce(self.card.clone());
        }
    }

    /// The node that should own the register in place of this one.
    pub(super) fn better(&mut self) -> Option<String> {
        let (nodes, now_ms) = (self.server.nodes.all(), self.server.clock.lease_ms());
        if nodes.iter().all(|node| node.apart.is_none()) {
            self.reach = Reach::default();
            return None;
        }
        self.find_ways(|node| node.apart.is_some());
        let own = (self.server.node.as_str(), self.card.process);
        let better = better_than(own, &nodes, &self.reached());
        let lasts = self.reach.lasts(better.is_some(), now_ms, OWNER_LEFT_MS);
        better.filter(|_| lasts)
    }

    /// Starts to connect to these nodes, unless a link exists already.
    pub(super) fn find_ways(&mut self, is_one: impl Fn(&Node) -> bool) {
        let Some(peers) = &self.peers else { return };
        let nodes = self.server.nodes.all();
        let is_one = |node: &&Node| node.is_reachable_beside(&self.server.node) && is_one(node);
        self.reach.ways =
            nodes.iter().filter(is_one).map(|node| (node.process, peers.link(&node.peer_address))).collect();
    }

    fn reached(&self) -> Vec<u128> {
        let mut reached: Vec<u128> =
            self.reach.ways.iter().filter(|(_, way)| way.is_connected()).map(|&(process, _)| process).collect();
        reached.sort_unstable();
        reached
    }

    /// Gives the register to `successor`, which most other nodes reach and this one cannot be reached by; or lets go of it.
    pub(super) async fn give_away(&mut self, shared: &Arc<Shared>, successor: &str) {
        tracing::warn!(successor, "most other nodes cannot reach this one: it hands over the register");
        self.reach = Reach::default();
        match self.hand_over(shared, Some(successor)).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(Unhanded::Unspoken(fault)) => tracing::info!(problem = fault.problem(), "it lets go of it"),
            Err(Unhanded::Barred(fault)) => {
                return tracing::warn!(problem = fault.problem(), "it keeps the register nevertheless");
            }
            Err(Unhanded::Kept(fault)) => tracing::info!(problem = fault.problem(), "it lets go of it"),
            Err(Unhanded::Orphaned(fault)) => {
                tracing::warn!(problem = fault.problem(), "nobody has taken it yet");
                return self.stay_off();
            }
        }
        self.wait("another node takes over", NotReadyReason::Moved);
        let quiet = async {
            all_run(&self.server.session_threads).await;
            shared.quiet().await;
        };
        if timeout(Duration::from_millis(HANDOVER_QUIET_MS), quiet).await.is_err() {
            tracing::warn!("it releases the register with requests under way");
        }
        self.server.metrics.owner.set(0);
        shared.retire("most other nodes cannot reach this one");
        self.tenure = None;
        self.stay_off();
        let_go(&*self.store).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::TcpListener;
    use tokio::runtime::Handle;

    use super::*;
    use crate::actors::clock::{Clock, ManualClock};
    use crate::core::types::WallTime;
    use crate::limits::PEER_HANDSHAKE_FRAME_BYTES_MAX;
    use crate::peer::frame::Frames;
    use crate::peer::secret::Secret;
    use crate::peer::{Identity, NodeId, Versions, handshake};
    use crate::serve::Hooks;
    use crate::server::session::idle_server;
    use crate::store::memory::MemoryStore;

    /// Node `n` is process `n`. A node with `reaches` is apart from the owner, 1, and reaches these.
    fn node(process: u128, reaches: Option<&[u128]>) -> Node {
        let apart = reaches.map(|reaches| Apart { owner: 1, reaches: reaches.to_vec() });
        let (version, address) = (String::new(), String::new());
        let (name, peer_address) = (process.to_string(), format!("10.0.0.{process}:7402"));
        Node { name, process, version, address, peer_address, draining: false, apart, age_ms: 500 }
    }

    fn better(seen: &[Node], reached: &[u128]) -> Option<String> {
        better_than(("1", 1), seen, reached)
    }

    #[test]
    fn an_owner_that_most_others_do_not_reach_gives_way_to_one_that_more_of_them_reach() {
        // The owner is cut off from two that reach each other.
        let seen = [node(1, None), node(2, Some(&[3])), node(3, Some(&[2]))];
        assert!(better(&seen, &[]).is_some());
        assert_eq!(better(&seen, &[2]).as_deref(), Some("2"), "one that it reaches itself");
        // Two nodes: there is no way to the owner, and one to the other.
        assert_eq!(better(&[node(1, None), node(2, Some(&[]))], &[2]).as_deref(), Some("2"));
    }

    #[test]
    fn where_no_other_node_is_reached_better_the_owner_stays() {
        // Nobody reaches anybody: the register would be no better off elsewhere, and would come back.
        assert_eq!(better(&[node(1, None), node(2, Some(&[]))], &[]), None);
        assert_eq!(better(&[node(1, None), node(2, Some(&[])), node(3, Some(&[]))], &[]), None);
        // Half of the others is not most of them.
        assert_eq!(better(&[node(1, None), node(2, None), node(3, Some(&[2]))], &[2, 3]), None);
        // One that is gone, one that is apart from another owner, one that is out of service.
        let mut seen = [node(1, None), node(2, Some(&[3])), node(3, Some(&[2]))];
        for node in &mut seen {
            node.age_ms = NODE_LEASE_MS + 1;
        }
        assert_eq!(better(&seen, &[2, 3]), None);
        let mut seen = [node(1, None), node(2, Some(&[3])), node(3, Some(&[2]))];
        for apart in seen.iter_mut().filter_map(|node| node.apart.as_mut()) {
            apart.owner = 9;
        }
        assert_eq!(better(&seen, &[2, 3]), None);
        let mut seen = [node(1, None), node(2, Some(&[]))];
        seen[1].draining = true;
        assert_eq!(better(&seen, &[2]), None);
    }

    /// A node that has followed an owner at this address for long, without a connection.
    async fn follower_of(address: SocketAddr) -> (Keeper, Arc<Link>) {
        let clock = Arc::new(ManualClock::new(WallTime(1_795_000_000_000), 1));
        let mut server = idle_server();
        Arc::get_mut(&mut server).expect("nobody else has it").clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let mut owner = node(1, None);
        owner.peer_address = address.to_string();
        server.nodes.seen(vec![owner]);
        let link = Link::start(&Handle::current(), address.to_string(), (Arc::new(own(2)), Versions::SPOKEN), secret());
        link.tried().await;
        let (owner, address) = ("1".into(), address.to_string().into());
        server.seat.become_role(Role::Follower { owner, address, link: Arc::clone(&link) });
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let mut keeper = Keeper::alone(server, Arc::new(MemoryStore::new(1)), hooks);
        keeper.tell_reach();
        clock.advance_ms(OWNER_APART_MS + 1);
        keeper.tell_reach();
        (keeper, link)
    }

    fn own(node: u128) -> Identity {
        let (name, build) = (node.to_string().into(), "0.1.0".into());
        Identity { node: NodeId(node), name, register: "r".into(), shards: 1, build }
    }

    fn secret() -> Secret {
        Secret::new(b"a secret of a cluster").unwrap()
    }

    /// Otherwise owners would give the register to nodes that were upgraded, before anybody asked them to.
    #[actix::test]
    async fn an_owner_that_shares_no_version_is_not_said_to_be_out_of_reach() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let later = Versions { lowest: Versions::SPOKEN.newest + 1, newest: Versions::SPOKEN.newest + 1 };
        let answering = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
                let _ = handshake::accept(&mut stream, &mut frames, (&own(1), later), &secret(), |_| true).await;
            }
        });
        let (keeper, link) = follower_of(address).await;
        assert!(link.no_common_version().is_some(), "{}", link.trouble());
        assert_eq!(keeper.card.apart, None);
        // Where nobody answers, it is.
        answering.abort();
        let _ = answering.await;
        let (keeper, _link) = follower_of(address).await;
        assert_eq!(keeper.card.apart, Some(Apart { owner: 1, reaches: Vec::new() }));
    }

    #[test]
    fn what_is_so_for_a_moment_does_not_last() {
        let mut reach = Reach::default();
        assert!(!reach.lasts(true, 1_000, 500));
        assert!(reach.lasts(true, 1_501, 500));
        assert!(!reach.lasts(false, 1_600, 500));
        assert!(!reach.lasts(true, 1_700, 500));
    }
}
