//! Takes every shard, loads those that are not ready, in parallel, and builds the networks.

use std::sync::{Arc, Mutex, PoisonError};

use super::{CannotOwn, Unloadable};
use crate::actors::clock::Clock;
use crate::actors::standby::{Standby, StandbyShard};
use crate::core::deployment::Deployment;
use crate::core::network::{Misfit, Network};
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::store::{Head, NetworkImage, ShardId, ShardImage, Store, StoreError, Token, chain};

/// A shard that was taken.
pub(super) enum TakenShard {
    /// It was loaded.
    Loaded(ShardImage),
    /// It was ready in memory, and was brought up to date with the last commits.
    Ready(StandbyShard),
}

impl TakenShard {
    pub(super) fn head(&self) -> Head {
        match self {
            TakenShard::Loaded(image) => image.head,
            TakenShard::Ready(beside) => beside.head,
        }
    }
}

/// Takes all shards, then loads all that are not ready. All shards are asked for before the first is awaited: the store takes
/// them with one flush and reads its log once for many. The first shard alone decides between nodes: the node that has it
/// takes the others.
pub(super) async fn take_and_load(
    store: &dyn Store,
    clock: &dyn Clock,
    shards: u16,
    standby: Option<Standby>,
) -> Result<Vec<(ShardId, TakenShard)>, CannotOwn> {
    let describe = |shard: ShardId, error: StoreError| match error {
        StoreError::Held { owner, address, left_ms, .. } => CannotOwn::Held { owner, address, left_ms },
        StoreError::Fenced { .. } => CannotOwn::Overtaken(chain(&error)),
        error if error.is_another_first() => CannotOwn::NotFirst(chain(&error)),
        StoreError::Io { .. } => CannotOwn::Unreachable(chain(&error)),
        StoreError::Full => CannotOwn::Full(format!("shard {} cannot be taken: {}", shard.0, store.obstacle())),
        error => {
            let problem = format!("shard {} cannot be loaded: {}", shard.0, chain(&error));
            CannotOwn::Damaged(Unloadable::because(&error, problem))
        }
    };
    let tokens: Vec<(ShardId, Token)> = (0..shards).map(|shard| (ShardId(shard), Token(clock.entropy()))).collect();
    let mut others = tokens.iter();
    if let Some(&(first, token)) = others.next() {
        let head = store.take(first, token).await.map_err(|error| describe(first, error))?;
        tracing::info!(format = %head.format, "records are written in this format");
    }
    let taking: Vec<_> = others.map(|&(shard, token)| (shard, store.take(shard, token))).collect();
    for (shard, taken) in taking {
        taken.await.map_err(|error| describe(shard, error))?;
    }
    let mut ready = standby.map(Standby::into_shards).unwrap_or_default().into_iter();
    let catching_up: Vec<_> = tokens
        .into_iter()
        .map(|(shard, token)| (shard, token, ready.next().map(|beside| (store.follow(shard, beside.head), beside))))
        .collect();
    let mut loading = Vec::with_capacity(catching_up.len());
    for (shard, token, ready) in catching_up {
        let ready = match ready {
            Some((followed, beside)) => {
                let followed = followed.await.map_err(|error| describe(shard, error))?;
                beside.caught_up(followed, shard, token).map_err(|error| describe(shard, error))?
            }
            None => None,
        };
        loading.push((shard, ready.ok_or_else(|| store.load(shard, token))));
    }
    let mut taken = Vec::with_capacity(loading.len());
    for (shard, ready) in loading {
        let of_shard = match ready {
            Ok(beside) => TakenShard::Ready(beside),
            Err(image) => TakenShard::Loaded(image.await.map_err(|error| describe(shard, error))?),
        };
        taken.push((shard, of_shard));
    }
    Ok(taken)
}

/// The records of deployments, each with the id under which it is stored.
pub(super) type DeploymentRecords = Vec<(NetworkId, Arc<Deployment>)>;

/// Networks that were built.
#[derive(Debug, Default)]
pub(in crate::actors) struct Built {
    /// Those that can be served, by id.
    pub networks: Vec<Network>,
    /// Those that cannot, each with what fits together of it.
    pub misfits: Vec<(Arc<Misfit>, Network)>,
}

impl Built {
    fn add(&mut self, other: Built) {
        self.networks.extend(other.networks);
        self.misfits.extend(other.misfits);
    }
}

/// Builds everything that was taken, ready to be served, and the records of deployments.
pub(super) async fn networks_and_records(
    taken: Vec<(ShardId, TakenShard)>,
    floor: Generation,
) -> (Result<Built, String>, DeploymentRecords) {
    let (mut images, mut ready, mut records) = (Vec::new(), Built::default(), Vec::new());
    for (shard, taken) in taken {
        match taken {
            TakenShard::Loaded(mut image) => {
                records.append(&mut image.deployments);
                images.push((shard, image));
            }
            TakenShard::Ready(beside) => {
                let (of_shard, mut records_of_it) = beside.served(floor);
                ready.add(of_shard);
                records.append(&mut records_of_it);
            }
        }
    }
    let all = || images.iter().flat_map(|(_, image)| &image.networks);
    let few = all().count() < NETWORKS_A_THREAD_MIN;
    let short = all().map(|network| network.entries.len()).sum::<usize>() < RECORDS_ELSEWHERE_MIN;
    let built = if few && short {
        Ok(networks_of(images, floor))
    } else {
        // Not on this thread, which has a lease to keep.
        tokio::task::spawn_blocking(move || networks_of(images, floor)).await
    };
    let crashed = || Err("the thread that builds the networks crashed".to_owned());
    let built = built.unwrap_or_else(|_| crashed()).map(|mut built| {
        built.add(ready);
        built.networks.sort_unstable_by_key(|network| network.config().id);
        built
    });
    (built, records)
}

/// From this many networks on, a further thread for building them is worth its cost.
const NETWORKS_A_THREAD_MIN: usize = 64;
/// Records that take some milliseconds to be built into networks: from this many on, even one network is built on another
/// thread.
const RECORDS_ELSEWHERE_MIN: usize = 10_000;

/// Builds the networks of all images, on as many threads as there are processors.
///
/// # Errors
/// A thread crashed.
pub(in crate::actors) fn networks_of(images: Vec<(ShardId, ShardImage)>, floor: Generation) -> Result<Built, String> {
    let of_shard = |(_, image): (ShardId, ShardImage)| {
        let time = image.head.time;
        image.networks.into_iter().map(move |network| (time, network))
    };
    let images: Vec<(ShardTime, NetworkImage)> = images.into_iter().flat_map(of_shard).collect();
    let useful = images.len() / NETWORKS_A_THREAD_MIN;
    let others = std::thread::available_parallelism().map_or(1, usize::from).min(useful).saturating_sub(1);
    let left = Mutex::new(images.into_iter());
    let build = || {
        let mut built = Built::default();
        loop {
            // Only `next` is called under the lock.
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((time, image)) = next else { return Ok(built) };
            match Network::load(image.config, image.subnets, image.entries, floor, time) {
                Ok(network) => built.networks.push(network),
                Err(misfit) => {
                    let in_part = misfit.in_part(floor, time);
                    built.misfits.push((misfit.into(), in_part));
                }
            }
        }
    };
    let parts: Vec<Result<Built, String>> = std::thread::scope(|scope| {
        let building: Vec<_> = (0..others).map(|_| scope.spawn(build)).collect();
        let own = build();
        let crashed = || Err("a thread that builds networks crashed".to_owned());
        building.into_iter().map(|part| part.join().unwrap_or_else(|_| crashed())).chain([own]).collect()
    });
    let mut all = Built::default();
    for part in parts {
        all.add(part?);
    }
    all.networks.sort_unstable_by_key(|network| network.config().id);
    Ok(all)
}
