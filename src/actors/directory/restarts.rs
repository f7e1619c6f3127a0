//! Restarts a network whose actor died: once, however many find it dead, and with growing pauses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{Directory, listing_of};
use crate::actors::StopReason;
use crate::actors::committer::Reload;
use crate::actors::network::Loaded;
use crate::actors::published::Published;
use crate::actors::routes::{Lane, Permits, Route};
use crate::core::network::Network;

const RESTART_AFTER: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(10)];

/// How often a network was restarted recently, and when.
#[derive(Debug)]
pub(super) struct Restart {
    times: usize,
    last: Instant,
    /// What stopped it before the store had something of it that cannot be loaded.
    stopped: Option<StopReason>,
}

/// What a network is started again from.
enum Found {
    /// Its dead actor had it, was stopped, and showed it.
    Left(Box<Network>),
    Stored(Loaded),
}

impl Directory {
    /// Starts it again, from the store where it was not stopped, unless that is under way. What stopped it stops it still: only a
    /// start of the server decides that it goes on.
    pub(super) fn restart(&mut self, dead: &Route, ctx: &mut Context<Self>) {
        if !self.starting.insert(dead.id) {
            return;
        }
        // What the dead actor decided and nobody has handed in yet, for example under a hold, comes to nothing: the next actor
        // does not know of it.
        dead.lane.incarnation.fetch_add(1, Ordering::AcqRel);
        let now = Instant::now();
        let restart = self.restarts.entry(dead.id).or_insert(Restart { times: 0, last: now, stopped: None });
        if now - restart.last > Duration::from_secs(60) {
            restart.times = 0;
        }
        let pause = RESTART_AFTER[restart.times.min(RESTART_AFTER.len() - 1)];
        restart.times += 1;
        restart.last = now;
        let left = dead.published.take_left();
        dead.published.note_loading(left.is_none());
        let from = if left.is_some() { "what it had in memory, and stays stopped" } else { "the store" };
        tracing::error!(network = %dead.id, ?pause, "a network's actor died; it is started again from {from}");
        let lane = Arc::new(Lane::new(dead.id, dead.lane.shard));
        let (permits, published) = (Arc::clone(&dead.permits), Arc::clone(&dead.published));
        let shared = Arc::clone(&self.shared);
        let find = async move {
            tokio::time::sleep(pause).await;
            if let Some(network) = left {
                return (lane, Some(Found::Left(network)));
            }
            let (to, loaded) = oneshot::channel();
            shared.reload(Reload { lane: Arc::clone(&lane), to });
            (lane, loaded.await.ok().map(Found::Stored))
        };
        let id = dead.id;
        ctx.spawn(find.into_actor(self).map(move |(lane, found), act, ctx| {
            let loaded = match found {
                // Without an answer the tenure is over.
                None => return,
                Some(Found::Left(network)) => {
                    act.starting.remove(&id);
                    return act.started_again(*network, lane, published, permits);
                }
                Some(Found::Stored(loaded)) => loaded,
            };
            let Some(image) = loaded.image else {
                act.starting.remove(&id);
                return act.remove(id);
            };
            let now = act.shared.shard_time(lane.shard);
            let mut restart = act.restarts.get_mut(&id);
            let before = restart.as_mut().and_then(|restart| restart.stopped.take());
            let stopped = published.stopped().and_then(StopReason::without_memory).or(before);
            match Network::load(image.config, image.subnets, image.entries, loaded.floor, now) {
                Ok(network) => {
                    act.starting.remove(&id);
                    published.note_stopped(stopped);
                    act.started_again(network, lane, published, permits);
                }
                Err(misfit) => {
                    tracing::error!(network = %id, problem = misfit.to_string(), "what the store has of it cannot be loaded");
                    // Once it can be, what stopped it stops it still.
                    restart.into_iter().for_each(|restart| restart.stopped = stopped);
                    published.note_loading(false);
                    published.note_stopped(Some(StopReason::Unloadable));
                    // Tried again with the longest pause; meanwhile the mailbox is closed and requests are `not_ready`.
                    ctx.run_later(RESTART_AFTER[3], move |act, ctx| {
                        act.starting.remove(&id);
                        if let Some(route) = act.shared.routes.by_id(id) {
                            act.restart(&route, ctx);
                        }
                    });
                }
            }
        }));
    }

    fn started_again(&mut self, network: Network, lane: Arc<Lane>, published: Arc<Published>, permits: Arc<Permits>) {
        self.catalog.put(listing_of(network.config(), network.subnets()));
        // What the dead actor claimed and never made durable belongs to nobody.
        let config = network.config();
        self.shared.macs.replace(&config.realm, config.id, network.macs());
        self.shared.recorded.replace(&config.realm, config.id, network.recorded());
        let mut route = self.shared.start_network(network, lane, published);
        route.permits = permits;
        self.shared.metrics.restarts.inc();
        self.shared.routes.publish(route);
    }
}
