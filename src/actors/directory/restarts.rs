//! Starts a network again whose actor died: once, whoever finds it dead, and with pauses that grow.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{Directory, listing_of};
use crate::actors::committer::Reload;
use crate::actors::published::Published;
use crate::actors::routes::{Lane, Permits, Route};
use crate::core::network::Network;

const RESTART_AFTER: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(10)];

/// How often a network was started again of late, and when.
#[derive(Debug)]
pub(super) struct Restart {
    times: usize,
    last: Instant,
}

impl Directory {
    /// Starts it again from the store, unless that is under way.
    pub(super) fn restart(&mut self, dead: &Route, ctx: &mut Context<Self>) {
        if !self.starting.insert(dead.id) {
            return;
        }
        // What the dead one decided and nobody has handed in yet, as under a hold, comes to nothing: the next one does not
        // know of it.
        dead.lane.incarnation.fetch_add(1, Ordering::AcqRel);
        let now = Instant::now();
        let restart = self.restarts.entry(dead.id).or_insert(Restart { times: 0, last: now });
        if now - restart.last > Duration::from_secs(60) {
            restart.times = 0;
        }
        let pause = RESTART_AFTER[restart.times.min(RESTART_AFTER.len() - 1)];
        restart.times += 1;
        restart.last = now;
        tracing::error!(network = %dead.id, ?pause, "a network's actor died; it is started again from the store");
        let lane = Arc::new(Lane::new(dead.id, dead.lane.shard));
        let (permits, published) = (Arc::clone(&dead.permits), Arc::clone(&dead.published));
        let shared = Arc::clone(&self.shared);
        let load = async move {
            tokio::time::sleep(pause).await;
            let (to, loaded) = oneshot::channel();
            shared.reload(Reload { lane: Arc::clone(&lane), to });
            (lane, loaded.await.ok())
        };
        let id = dead.id;
        ctx.spawn(load.into_actor(self).map(move |(lane, loaded), act, ctx| {
            // Without an answer the tenure is over.
            let Some(loaded) = loaded else { return };
            let Some(image) = loaded.image else {
                act.starting.remove(&id);
                return act.remove(id);
            };
            let now = act.shared.shard_time(lane.shard);
            match Network::load(image.config, image.subnets, image.entries, loaded.floor, now) {
                Ok(network) => {
                    act.starting.remove(&id);
                    act.started_again(network, lane, published, permits);
                }
                Err(problem) => {
                    tracing::error!(network = %id, problem, "what the store has of it cannot be loaded");
                    // Tried again with the longest pause; meanwhile its mailbox is closed and requests are `not_ready`.
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
        // What the dead one claimed and never made durable is nobody's.
        let config = network.config();
        self.shared.macs.replace(&config.realm, config.id, network.macs());
        self.shared.recorded.replace(&config.realm, config.id, network.recorded());
        let mut route = self.shared.start_network(network, lane, published);
        route.permits = permits;
        self.shared.metrics.restarts.inc();
        self.shared.routes.publish(route);
    }
}
