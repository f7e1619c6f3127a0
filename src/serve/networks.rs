//! The networks of a network file (`--networks`): created if absent before the server is ready, here or at the owner of the
//! register.
//!
//! Obstacles that may pass by themselves are waited for, just as by a node that starts without such a file (`beginning`): a
//! replica that answers some seconds later, a register on its way from one node to the next. If one lasts, the supervisor
//! tries again. A refusal does not pass, and somebody must look at the file. Only an owner that shares no version of the protocol
//! with this node is not waited for, since it lets go of the register when its operator says so: the node listens and is not
//! ready (`beginning`), and makes the networks as soon as it can ask somebody. A refusal is only logged then: a node that ended
//! because of it might be the only one that can serve.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::cannot::{CannotBegin, CannotStart};
use super::keeper::{Keeper, Over};
use crate::actors::coordinator::{self, Job, Order};
use crate::actors::{Fault, Told, outlet};
use crate::config::StoreKind;
use crate::core::command::NetworkInput;
use crate::core::refusal::Refusal;
use crate::limits::{NODE_LEASE_MS, PEER_HANDSHAKE_MS};
use crate::peer::NO_CLIENT;
use crate::server::Server;
use crate::server::role::Role;

/// How long an obstacle to one network may last.
const PASSES_WITHIN_MS: u64 = 3 * NODE_LEASE_MS;
/// How often to try again once the node is up.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// What to do about a network that is refused.
const REFUSED: &str = "see the file of `--networks`; `allod network dump` writes one that is right";

/// Why a network was not created.
#[derive(Debug, PartialEq, Eq)]
enum Unmade {
    /// It cannot be created now.
    Now(String),
    /// It cannot be created as the file describes it.
    Refused(String),
}

/// Creates them, one after the other. Returns those that are left to [`make_later`].
pub(super) async fn make_all(
    server: &Arc<Server>,
    keeper: &mut Keeper,
    networks: Vec<NetworkInput>,
    store: StoreKind,
) -> Result<VecDeque<NetworkInput>, CannotStart> {
    let mut left = VecDeque::from(networks);
    // How many were left when the present obstacle was first met, and when that was.
    let mut since: Option<(usize, u64)> = None;
    loop {
        // A long file takes longer than a lease lasts.
        let problem = match keeper.meanwhile(make_some(server, &mut left)).await {
            Ok(()) => return Ok(left),
            Err(Unmade::Now(_)) if server.seat.role().unspoken().is_some() => return Ok(left),
            Err(Unmade::Now(problem)) => problem,
            Err(Unmade::Refused(problem)) => {
                return Err(CannotStart::new(problem, REFUSED));
            }
        };
        let now_ms = server.clock.lease_ms();
        let (_, since_ms) = since.filter(|(were_left, _)| *were_left == left.len()).unwrap_or((left.len(), now_ms));
        since = Some((left.len(), since_ms));
        if now_ms.saturating_sub(since_ms) > PASSES_WITHIN_MS {
            return Err(CannotStart::register(CannotBegin::Now(problem), store));
        }
        tracing::warn!(problem, "waiting");
        match keeper.look_again().await {
            None => {}
            Some(Over::Failed(problem) | Over::Emptied(_, problem)) => {
                return Err(CannotStart::register(CannotBegin::Now(problem), store));
            }
        }
    }
}

/// Creates those at the front, up to the first that cannot be created.
async fn make_some(server: &Server, left: &mut VecDeque<NetworkInput>) -> Result<(), Unmade> {
    while let Some(input) = left.front() {
        make(&server.seat.role(), input.clone()).await?;
        left.pop_front();
    }
    Ok(())
}

/// Creates what is left as soon as the register can be asked, for ever.
pub(super) async fn make_later(server: &Server, left: VecDeque<NetworkInput>) -> Infallible {
    if !left.is_empty() {
        make_left(server, left).await;
    }
    std::future::pending().await
}

/// Creates what is left, but for what is refused.
async fn make_left(server: &Server, mut left: VecDeque<NetworkInput>) {
    let mut changes = server.seat.changes();
    let mut refused = 0;
    while let Err(unmade) = make_some(server, &mut left).await {
        match unmade {
            Unmade::Now(problem) => {
                tracing::debug!(problem, "waiting");
                // Also if the role stays, and what is behind it changes.
                let _ = timeout(LOOKS_EVERY, changes.changed()).await;
            }
            Unmade::Refused(problem) => {
                tracing::error!(problem, hint = REFUSED, "a network of the network file is not made");
                left.pop_front();
                refused += 1;
            }
        }
    }
    match refused {
        0 => tracing::info!("the networks of the network file are made"),
        _ => tracing::warn!(refused, "the networks of the network file are made, except for those that were refused"),
    }
}

/// Whether a network of this name exists that differs from the network file.
fn is_there(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(Refusal::NameTaken { differs, .. }) if !differs.is_empty())
}

/// Whether it may pass without a change to the file.
fn may_pass(fault: &Fault) -> bool {
    match fault {
        Fault::Unavailable { .. } | Fault::StoreAway { .. } | Fault::NotReady { .. } => true,
        // A request that is longer than the limit is too long at any time.
        Fault::Overloaded { retry_after_ms, .. } => *retry_after_ms > 0,
        Fault::Refused(_)
        | Fault::Contested { .. }
        | Fault::Stopped { .. }
        | Fault::CursorLost { .. }
        | Fault::Internal { .. } => false,
    }
}

/// Creates a network if it is absent.
async fn make(role: &Role, input: NetworkInput) -> Result<(), Unmade> {
    let name = input.name.clone();
    let now = |why: &str| Unmade::Now(format!("network `{name}` of the network file: {why}"));
    let order = Order {
        job: Job::Create { input: Box::new(input), if_absent: true },
        by: "server".into(),
        reason: Some("network file".into()),
        deadline: None,
        dry_run: false,
        wait: None,
    };
    let (outlet, mut told) = outlet();
    match role {
        Role::Owner(shared) => coordinator::spawn(shared, 0, order, outlet),
        role @ Role::Follower { link, .. } => {
            if let Some(unspoken) = role.unspoken() {
                return Err(now(&unspoken));
            }
            // The link began to connect a moment ago.
            if !link.connected(Duration::from_millis(PEER_HANDSHAKE_MS)).await {
                return Err(now("the node that owns the register cannot be reached"));
            }
            link.job(NO_CLIENT, 0, order, &outlet);
            drop(outlet);
        }
        Role::Between => return Err(now("the register is being handed over from one node to another")),
        Role::Waiting { why, .. } => return Err(now(why)),
    }
    match told.recv().await {
        Some(Told::Job(_, Ok(_))) => Ok(()),
        // A restart is no time to refuse a network that somebody changed while the server ran: `network apply` is for that.
        Some(Told::Job(_, Err(fault))) if is_there(&fault) => {
            let difference = fault.problem();
            tracing::warn!(network = %name, difference, "left as it is: `allod network apply FILE` makes it what the network \
             file says");
            Ok(())
        }
        Some(Told::Job(_, Err(fault))) if may_pass(&fault) => Err(now(&fault.problem())),
        Some(Told::Job(_, Err(fault))) => {
            let error = crate::server::faults::error_of(&fault);
            Err(Unmade::Refused(format!("network `{name}` of the network file: {error}")))
        }
        Some(Told::Replies(_) | Told::Waits(_) | Told::Notice(_)) | None => Err(now("the server is stopping")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use serde_json::json;

    use super::*;
    use crate::actors::service::{self, Hooks, Parts};
    use crate::actors::{Applied, NotReadyReason, StopReason};
    use crate::core::refusal::Missing;
    use crate::server::session::idle_server;
    use crate::store::Store;
    use crate::store::chapters::Chapters;
    use crate::store::memory::MemoryStore;

    #[test]
    fn what_passes_by_itself_is_waited_for_and_a_refusal_is_not() {
        let problem = String::new();
        let passing = [
            Fault::Unavailable { applied: Applied::Unknown, problem: problem.clone() },
            Fault::StoreAway { problem: problem.clone() },
            Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 200 },
            Fault::Overloaded { problem: problem.clone(), retry_after_ms: 200 },
        ];
        assert!(passing.iter().all(may_pass));
        let refused: Box<Fault> = Refusal::not_found(Missing::Network, "lan").into();
        let stopped = Fault::Stopped { network: "lan".parse().unwrap(), why: StopReason::Crashes, next: None };
        let lasting = [*refused, Fault::Overloaded { problem, retry_after_ms: 0 }, stopped];
        assert!(!lasting.iter().any(may_pass));
    }

    fn lan() -> NetworkInput {
        NetworkInput {
            name: "lan".parse().unwrap(),
            realm: None,
            kind: None,
            l2: None,
            policy: None,
            cooldown_seconds: None,
            cooldown_yields: None,
            static_only: None,
            protected: None,
            limits: None,
            tags: None,
            description: None,
            subnets: None,
        }
    }

    /// A server that owns its register.
    async fn owner() -> Arc<Server> {
        let (server, store) = (idle_server(), Arc::new(MemoryStore::new(1)) as Arc<dyn Store>);
        let parts = Parts {
            store,
            clock: Arc::clone(&server.clock),
            metrics: Arc::clone(&server.metrics),
            reactors: vec![actix::Arbiter::current().into()],
            hooks: Hooks { without_index: true, ..Hooks::default() },
            behind_bytes: 1 << 20,
            chapters: Arc::new(Chapters::open(None, 1)),
            fatal: outlet().0,
            standby: None,
        };
        let shared = service::start(parts).await.unwrap();
        shared.serves();
        server.seat.become_role(Role::Owner(shared));
        server
    }

    #[actix::test]
    async fn a_network_file_is_not_said_to_be_made_if_one_of_its_networks_was_refused() {
        let server = owner().await;
        let subnet = json!({"cidr": "10.0.0.0/24", "tags": null});
        let odd = || serde_json::from_value(json!({"name": "odd", "tags": null, "subnets": [subnet, subnet]})).unwrap();
        for (left, refused) in
            [(vec![lan()], 0), (vec![odd(), lan()], 1), (vec![lan(), odd()], 1), (vec![odd(), odd()], 2)]
        {
            let said = Arc::new(tempfile::tempfile().unwrap());
            let telling = tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::clone(&said)).finish();
            let telling = tracing::subscriber::set_default(telling);
            make_left(&server, left.into()).await;
            drop(telling);
            let mut text = String::new();
            (&*said).rewind().unwrap();
            (&*said).read_to_string(&mut text).unwrap();
            let last = text.lines().last().unwrap_or_default();
            let says_all = last.contains(" INFO ") && last.ends_with("the networks of the network file are made");
            let says_some = last.contains(" WARN ")
                && last.ends_with(&format!("are made, except for those that were refused refused={refused}"));
            assert_eq!((says_all, says_some), (refused == 0, refused > 0), "{text}");
            assert_eq!(text.matches("`allod network dump` writes one that is right").count(), refused, "{text}");
        }
    }

    #[tokio::test]
    async fn a_register_that_nobody_serves_just_now_is_no_fault_of_the_network_file() {
        let fault = Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 500 };
        for role in [Role::Between, Role::Waiting { why: "the store cannot be reached", fault }] {
            let Err(Unmade::Now(problem)) = make(&role, lan()).await else { panic!("{role:?}") };
            assert!(problem.starts_with("network `lan` of the network file: the "), "{problem}");
        }
    }
}
