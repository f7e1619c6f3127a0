//! The register from the memory of its owner: for a store that was emptied, and no longer knows what it had.
//!
//! Review notes: is everything definite before the first network is asked? If one part cannot be had, is all of it discarded?

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use crate::actors::network::{GiveAway, Recall};
use crate::core::state::{Key, State};
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::store::ShardId;

/// How long what is under way may take to end once nothing is written any more.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How often requests that wait for capacity are told that nothing comes of it.
const TOLD_EVERY: Duration = Duration::from_millis(20);

/// Everything that was durable.
#[derive(Debug)]
pub struct RegisterMemory {
    /// Records by the id under which they are stored: that of a network, or of a deployment.
    pub records: Vec<(NetworkId, Vec<(Key, State)>)>,
    /// The time of each shard.
    pub times: Vec<ShardTime>,
    /// No generation up to this one may ever be given again.
    pub generation: Generation,
}

impl Shared {
    /// Ends the tenure like [`Shared::retire`], and returns what of the register is durable, as far as this node knows.
    ///
    /// # Errors
    /// A sentence that says whose memory is incomplete: then all of it is worthless.
    pub async fn recall(&self, problem: &str) -> Result<RegisterMemory, String> {
        let times = (0..self.info.shards).map(|shard| self.shard_time(ShardId(shard))).collect();
        // Before anything is asked: from here on nothing becomes durable any more, and what was under way is answered.
        self.end_commits(problem);
        let remembered = self.remembered().await;
        self.end_networks();
        let generation = self.generations.floor(self.clock.wall());
        remembered.map(|records| RegisterMemory { records, times, generation })
    }

    async fn remembered(&self) -> Result<Vec<(NetworkId, Vec<(Key, State)>)>, String> {
        let by = Instant::now() + ENDS_WITHIN;
        self.given_away.send_replace(true);
        self.jobs.close();
        // A job may have learned that something is durable, and not have put it yet where it is kept.
        while tokio::time::timeout(TOLD_EVERY, self.jobs.wait()).await.is_err() {
            for route in self.routes.all().iter().filter(|route| route.published.waits() > 0) {
                // A full mailbox belongs to a busy actor, which is told again; a closed one has nothing to give.
                let _ = route.addr.try_send(GiveAway);
            }
            if Instant::now() > by {
                return Err("what was asked of several networks does not end".to_owned());
            }
        }
        // The committer's mailbox closes after the last unit.
        self.drained().await;
        let routes = self.routes.all();
        let mut asked = Vec::with_capacity(routes.len());
        for route in &routes {
            let (told, all) = oneshot::channel();
            let sent = route.addr.try_send(Recall { told });
            asked.push((route.id, sent.is_ok().then_some(all)));
        }
        let mut records = Vec::with_capacity(asked.len());
        for (id, all) in asked {
            let lost = || format!("what network {id} had is not known in memory");
            let all = timeout_at(by, all.ok_or_else(lost)?).await;
            let all = all.map_err(|_| format!("network {id} does not tell what it had"))?.map_err(|_| lost())?;
            // Otherwise it did not exist yet, or is gone.
            if !all.is_empty() {
                records.push((id, all));
            }
        }
        let deployments = self.deployments.durable().into_iter();
        records.extend(deployments.map(|(id, record)| (id, vec![(Key::Deployment, State::Deployment(record))])));
        Ok(records)
    }
}
