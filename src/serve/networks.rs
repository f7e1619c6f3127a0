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
                let hint = "see the file of `--networks`; `allod network dump` writes one that is right";
                return Err(CannotStart::new(problem, hint));
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
pub(super) async fn make_later(server: &Server, mut left: VecDeque<NetworkInput>) -> Infallible {
    let mut changes = server.seat.changes();
    while !left.is_empty() {
        match make_some(server, &mut left).await {
            Ok(()) => tracing::info!("the networks of the network file are made"),
            Err(Unmade::Now(problem)) => {
                tracing::debug!(problem, "waiting");
                // Also if the role stays, and what is behind it changes.
                let _ = timeout(LOOKS_EVERY, changes.changed()).await;
            }
            Err(Unmade::Refused(problem)) => {
                tracing::error!(problem, "a network of the network file is not made");
                left.pop_front();
            }
        }
    }
    std::future::pending().await
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
    use super::*;
    use crate::actors::{Applied, NotReadyReason, StopReason};
    use crate::core::refusal::Missing;

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

    #[tokio::test]
    async fn a_register_that_nobody_serves_just_now_is_no_fault_of_the_network_file() {
        let fault = Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 500 };
        for role in [Role::Between, Role::Waiting { why: "the store cannot be reached", fault }] {
            let Err(Unmade::Now(problem)) = make(&role, lan()).await else { panic!("{role:?}") };
            assert!(problem.starts_with("network `lan` of the network file: the "), "{problem}");
        }
    }
}
