//! Keeps the register ready in memory for a while, beside its owner, until this node takes it over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handover::guarded;
use crate::actors::nodes::NodeStanding;
use crate::actors::standby::Standby;
use crate::actors::{Applied, Fault};
use crate::server::steward::NodeOrder;
use crate::store::Store;

/// How often what the owner commits is taken in.
const FOLLOWS_EVERY: Duration = Duration::from_millis(20);
/// For how long it is kept when nobody asks for it: it is as large as the register.
const KEPT: Duration = Duration::from_secs(60);
/// How long whoever asks for it waits.
const GIVEN_WITHIN: Duration = Duration::from_secs(1);

/// The register, as far as it is ready. Dropped, it is forgotten.
#[derive(Debug)]
pub(super) struct Warm {
    wanted: oneshot::Sender<oneshot::Sender<Standby>>,
    /// Getting ready ends with this, too: it takes the memory of a register.
    _kept: DropGuard,
}

impl Warm {
    /// Begins to get ready, and answers the order when it is.
    pub(super) fn begin(store: Arc<dyn Store>, order: NodeOrder, standing: NodeStanding) -> Self {
        let (wanted, asked) = oneshot::channel();
        let forgotten = CancellationToken::new();
        actix::spawn(keep(store, order, standing, asked, forgotten.clone()));
        Self { wanted, _kept: forgotten.drop_guard() }
    }

    /// What is ready, if it still is.
    pub(super) async fn give(self) -> Option<Standby> {
        let (to, given) = oneshot::channel();
        self.wanted.send(to).ok()?;
        timeout(GIVEN_WITHIN, given).await.ok()?.ok()
    }
}

async fn keep(
    store: Arc<dyn Store>,
    order: NodeOrder,
    standing: NodeStanding,
    mut asked: oneshot::Receiver<oneshot::Sender<Standby>>,
    forgotten: CancellationToken,
) {
    let begun = Instant::now();
    tracing::info!("gets ready to take the register over");
    let ready = async {
        let mut standby = Standby::load(&*store, store.info().shards).await?;
        // Until little is left: loading took its time, and so did what was committed meanwhile.
        while standby.follow(&*store).await? > 0 && begun.elapsed() < KEPT {}
        Ok(standby)
    };
    let ready = tokio::select! {
        biased;
        ready = ready => ready,
        () = forgotten.cancelled() => {
            // Whoever asked goes on to the next node, and does not wait for this one.
            let problem = format!("node `{}` went out of service, or was asked to get ready once more", standing.node);
            return order.answer(Err(guarded(problem)));
        }
    };
    let mut standby = match ready {
        Ok(standby) => standby,
        Err(problem) => return order.answer(Err(unready(problem))),
    };
    // Loaded is not ready: it could not begin to own what it takes, and then nobody would.
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
                    // Who asked may not wait any more.
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
