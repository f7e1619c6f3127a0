//! The register in the memory of a node that does not own it yet: what a node prepares when it is about to own it.
//!
//! Every shard is loaded as it is, whoever owns it, and then followed batch by batch as its log tells: by the same `apply` by
//! which the owner changes its memory. When this node takes the register over, only what was committed since the last look is
//! left to be read, however large the register is.
//!
//! A shard's log is a line of digests. If the log does not continue exactly where this memory stands (Redis went back, or the
//! log was trimmed), this memory is dropped, and the shard is loaded in the usual way. Nothing of it is served before the
//! take-over.
//!
//! Neighbours: `serve::warm` keeps it up to date, `service::start` takes it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::service::{Built, networks_of};
use crate::core::deployment::Deployment;
use crate::core::network::{Misfit, Network};
use crate::core::state::{Key, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::store::{Act, Batch, Followed, Head, ShardId, ShardImage, Store, StoreError, Token, chain};

/// All shards, in memory.
#[derive(Debug)]
pub struct Standby {
    shards: Vec<StandbyShard>,
}

/// One shard in memory, as of its head.
#[derive(Debug)]
pub struct StandbyShard {
    /// Up to where it is known.
    pub head: Head,
    networks: BTreeMap<NetworkId, Network>,
    /// Networks that cannot be served, each with what fits together of it.
    misfits: Vec<(Arc<Misfit>, Network)>,
    deployments: BTreeMap<NetworkId, Arc<Deployment>>,
}

impl Standby {
    /// Loads every shard, whoever owns it. `unloadable`: what its owner does not serve either, because it cannot be loaded.
    ///
    /// # Errors
    /// A sentence that says what cannot be read. Of what else cannot be loaded, too: its owner may serve it from memory, and
    /// this node would have to stop it.
    pub async fn load(store: &dyn Store, shards: u16, unloadable: &[NetworkId]) -> Result<Self, String> {
        let mut standby = Self { shards: Vec::with_capacity(shards.into()) };
        // One shard after the other: the image of a shard is as large as the networks built from it.
        for shard in (0..shards).map(ShardId) {
            let image = store.beside(shard).await.map_err(|error| chain(&error))?;
            let built = tokio::task::spawn_blocking(move || StandbyShard::of(shard, image)).await;
            let built = built.unwrap_or_else(|_| Err("the thread that builds the networks crashed".to_owned()))?;
            if let Some((misfit, _)) = built.misfits.iter().find(|(misfit, _)| !unloadable.contains(&misfit.id())) {
                return Err(format!("network {} cannot be loaded: {misfit}", misfit.id()));
            }
            standby.shards.push(built);
        }
        Ok(standby)
    }

    /// Applies what was committed since. Returns how many batches that was.
    ///
    /// # Errors
    /// A sentence: then this memory is worthless.
    pub async fn follow(&mut self, store: &dyn Store) -> Result<usize, String> {
        let mut taken = 0;
        let asked: Vec<_> = (0..).map(ShardId).zip(&self.shards).map(|(id, at)| store.follow(id, at.head)).collect();
        for (beside, followed) in self.shards.iter_mut().zip(asked) {
            let (batches, head) = followed
                .await
                .map_err(|error| chain(&error))?
                .ok_or(
                    "what was committed since does not continue what is known: another node took over, or the log is cut sooner than \
                     it is followed (raise `history.keep_bytes`)",
                )?;
            taken += batches.len();
            beside.take_in(&batches, head)?;
        }
        Ok(taken)
    }

    /// The shards, by number.
    pub(super) fn into_shards(self) -> Vec<StandbyShard> {
        self.shards
    }
}

impl StandbyShard {
    fn of(shard: ShardId, image: ShardImage) -> Result<Self, String> {
        let (head, deployments) = (image.head, image.deployments.iter().cloned().collect());
        // The generation floor, and since when it is served, are known when it is taken over.
        let Built { networks, misfits } = networks_of(vec![(shard, image)], Generation(0))?;
        let networks = networks.into_iter().map(|network| (network.config().id, network)).collect();
        Ok(Self { head, networks, misfits, deployments })
    }

    /// Applies the shard's last batches, as the store returned them, under the token by which it was taken over. None: the
    /// shard has to be loaded.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another node has taken it since.
    pub(super) fn caught_up(
        mut self,
        followed: Option<Followed>,
        shard: ShardId,
        token: Token,
    ) -> Result<Option<Self>, StoreError> {
        let Some((batches, head)) = followed else {
            tracing::warn!(shard = shard.0, "what was prepared of it does not fit any more; it is loaded");
            return Ok(None);
        };
        if head.token != token {
            return Err(StoreError::Fenced { shard, current: head.epoch });
        }
        match self.take_in(&batches, head) {
            Ok(()) => Ok(Some(self)),
            Err(problem) => {
                tracing::error!(shard = shard.0, problem, "what was prepared of it is worthless; it is loaded");
                Ok(None)
            }
        }
    }

    /// Its networks, served from now on, by id; and the records of its deployments.
    pub(super) fn served(self, floor: Generation) -> (Built, Vec<(NetworkId, Arc<Deployment>)>) {
        let since = self.head.time;
        let served = |mut network: Network| {
            network.serve_from(floor, since);
            network
        };
        let misfits = self.misfits.into_iter().map(|(misfit, in_part)| (misfit, served(in_part))).collect();
        let networks = self.networks.into_values().map(served).collect();
        (Built { networks, misfits }, self.deployments.into_iter().collect())
    }

    fn take_in(&mut self, batches: &[Batch], head: Head) -> Result<(), String> {
        let taken = catch_unwind(AssertUnwindSafe(|| {
            let acts = batches.iter().flat_map(|batch| batch.acts.iter().map(move |act| (act, batch.time)));
            acts.into_iter().try_for_each(|(act, time)| self.apply(act, time))
        }));
        taken.unwrap_or_else(|_| Err("what was committed since does not fit what is known".to_owned()))?;
        self.head = head;
        Ok(())
    }

    fn apply(&mut self, act: &Act, time: ShardTime) -> Result<(), String> {
        let id = act.network;
        if self.misfits.iter().any(|(misfit, _)| misfit.id() == id) {
            return Err(format!("network {id} is changed, and could not be loaded"));
        }
        for (at, step) in act.steps.iter().enumerate() {
            match (step, self.networks.get_mut(&id)) {
                (Step { key: Key::Deployment, state: Some(State::Deployment(record)), .. }, _) => {
                    self.deployments.insert(id, Arc::clone(record));
                }
                (Step { key: Key::Deployment, state: None, .. }, _) => drop(self.deployments.remove(&id)),
                (step, Some(network)) => drop(network.apply_before(step, act.steps.get(at + 1), time)),
                (Step { key: Key::Config, state: Some(State::Config(config)), .. }, None) => {
                    let made = Network::load(Arc::clone(config), Vec::new(), Vec::new(), Generation(0), time)
                        .map_err(|misfit| misfit.to_string())?;
                    self.networks.insert(id, made);
                }
                (step, None) => return Err(format!("network {id} is changed at {:?} and is not there", step.key)),
            }
        }
        if self.networks.get(&id).is_some_and(Network::is_gone) {
            self.networks.remove(&id);
        }
        Ok(())
    }
}
