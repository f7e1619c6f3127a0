//! Keeps the register loaded for a while, beside its owner, until this node takes it over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handover::guarded;
use crate::actors::nodes::NodeStanding;
use crate::actors::standby::Standby;
use crate::actors::{Applied, Fault};
use crate::core::types::NetworkId;
use crate::server::steward::NodeOrder;
use crate::store::Store;

/// How often the owner's new commits are read.
const FOLLOWS_EVERY: Duration = Duration::from_millis(20);
/// How long it is kept if nobody asks for it: it takes as much memory as a register.
const KEPT: Duration = Duration::from_secs(60);
/// How long the caller waits for it.
const GIVEN_WITHIN: Duration = Duration::from_secs(1);

/// The register, as far as it is loaded. Dropping this frees it.
#[derive(Debug)]
pub(super) struct Warm {
    wanted: oneshot::Sender<oneshot::Sender<Standby>>,
    /// Dropping this also cancels the loading, which takes the memory of a register.
    _kept: DropGuard,
}

impl Warm {
    /// Starts to load, and answers the order once the register is ready. `unloadable`: networks that its owner has stopped
    /// because they cannot be loaded.
    pub(super) fn begin(
        store: Arc<dyn Store>,
        order: NodeOrder,
        standing: NodeStanding,
        unloadable: Vec<NetworkId>,
    ) -> Self {
        let (wanted, asked) = oneshot::channel();
        let forgotten = CancellationToken::new();
        actix::spawn(keep(store, order, (standing, unloadable), asked, forgotten.clone()));
        Self { wanted, _kept: forgotten.drop_guard() }
    }

    /// The loaded register, if it still exists.
    pub(super) async fn give(self) -> Option<Standby> {
        let (to, given) = oneshot::channel();
        self.wanted.send(to).ok()?;
        timeout(GIVEN_WITHIN, given).await.ok()?.ok()
    }
}

async fn keep(
    store: Arc<dyn Store>,
    order: NodeOrder,
    (standing, unloadable): (NodeStanding, Vec<NetworkId>),
    mut asked: oneshot::Receiver<oneshot::Sender<Standby>>,
    forgotten: CancellationToken,
) {
    let begun = Instant::now();
    tracing::info!("gets ready to take the register over");
    let ready = async {
        let mut standby = Standby::load(&*store, store.info().shards, &unloadable).await?;
        // Until little is left: loading took some time, and so did reading what was committed meanwhile.
        while standby.follow(&*store).await? > 0 && begun.elapsed() < KEPT {}
        Ok(standby)
    };
    let ready = tokio::select! {
        biased;
        ready = ready => ready,
        () = forgotten.cancelled() => {
            // The node that asked goes on to the next candidate, and does not wait for this one.
            let problem = format!("node `{}` went out of service, or was asked to get ready once more", standing.node);
            return order.answer(Err(guarded(problem)));
        }
    };
    let mut standby = match ready {
        Ok(standby) => standby,
        Err(problem) => return order.answer(Err(unready(problem))),
    };
    // Loaded is not enough: this node could not begin to own what it takes, and then nobody would.
    if let Some(why) = store.bars_taking() {
        return order.answer(Err(unready(why.to_string())));
    }
    tracing::info!(took_ms = begun.elapsed().as_millis() as u64, "ready to take the register over");
    order.answer(Ok(standing));
    let end = Instant::now() + KEPT;
    while Instant::now() < end {
        tokio::select! {
            biased;
            asked = &mut asked => {
                if let Ok(to) = asked {
                    // The receiver may have given up.
                    let _ = to.send(standby);
                }
                return;
            }
            () = sleep(FOLLOWS_EVERY) => {}
        }
        if let Err(problem) = standby.follow(&*store).await {
            return tracing::warn!(problem, "what was ready of the register is forgotten");
        }
    }
    tracing::info!("what was ready of the register is forgotten: nobody has handed it over");
}

fn unready(problem: String) -> Box<Fault> {
    Box::new(Fault::Unavailable { applied: Applied::No, problem })
}
