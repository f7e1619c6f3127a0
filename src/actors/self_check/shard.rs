//! One look of the self-check at one shard: reads it, compares every network that it has, and leaves out what was decided since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::actors::network::{Compare, Seen, StopAsOdd};
use crate::actors::routes::Route;
use crate::actors::service::{Shared, networks_of};
use crate::core::address::Address;
use crate::core::network::{Network, Odd};
use crate::core::state::Key;
use crate::core::types::{Generation, Name, NetworkId};
use crate::store::{Batch, Seq, ShardId, StoreError};

/// More than so much that is odd in a network was decided since: it is not told apart.
const ODD_MAX: usize = 100_000;
/// How long a look waits for what was decided to be durable.
const DURABLE_WITHIN: Duration = Duration::from_secs(10);
const DURABLE_LOOKED_AT_EVERY: Duration = Duration::from_millis(5);
/// Batches of the log that are read at once.
const BATCHES_AT_ONCE: usize = 256;

/// What a look showed.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Networks with anything that is odd.
    pub odd: Vec<OddNetwork>,
    /// Networks of which nothing can be said now.
    pub skipped: usize,
}

/// A network in memory that is not what is stored.
#[derive(Debug)]
pub(super) struct OddNetwork {
    /// Which.
    pub id: NetworkId,
    /// Of which memory it is told.
    incarnation: u64,
    name: Option<Name>,
    odd: BTreeSet<Odd>,
    /// As the store has it, if it has it.
    stored: Option<Arc<Network>>,
    /// What is to be durable before anything is told.
    route: Option<Arc<Route>>,
    enqueued: u64,
}

impl OddNetwork {
    /// What of it an earlier look showed as well, of the same memory.
    pub(super) fn also_in(mut self, earlier: &[Self]) -> Option<Self> {
        let before = earlier.iter().find(|before| (before.id, before.incarnation) == (self.id, self.incarnation))?;
        self.odd.retain(|odd| before.odd.contains(odd));
        (!self.odd.is_empty()).then_some(self)
    }

    /// Has it stopped by its actor. False: that is not to be had now.
    pub(super) async fn is_stopped(&self) -> bool {
        let Some(route) = &self.route else {
            // Memory has not what the store has: nobody is served by it.
            let (network, name) = (self.id, self.name.as_ref().map(Name::as_str));
            tracing::error!(%network, name, "self-check: the store has a network that is not served; the next start would serve it");
            return true;
        };
        let (stopped, told) = oneshot::channel();
        let (incarnation, odd, stored) = (self.incarnation, self.odd.clone(), self.stored.clone());
        route.addr.try_send(StopAsOdd { incarnation, odd, stored, stopped }).is_ok() && told.await.is_ok()
    }
}

/// Looks once.
///
/// # Errors
/// The store cannot be read, or what it has makes no networks.
pub(super) async fn look(shared: &Arc<Shared>, shard: ShardId) -> Result<Look, StoreError> {
    let image = shared.store.beside(shard).await?;
    let head = image.head;
    if head.epoch.0 != shared.epoch(shard) {
        // Somebody else has taken it, which this node is about to learn.
        return Err(StoreError::Fenced { shard, current: head.epoch });
    }
    confirmed(shared, shard, head.seq).await?;
    let stored = networks_of(vec![(shard, image)], Generation(0));
    let stored = stored.map_err(|problem| StoreError::Damaged(problem.into()))?;
    let mut stored: BTreeMap<NetworkId, Arc<Network>> =
        stored.into_iter().map(|network| (network.config().id, Arc::new(network))).collect();
    let of_shard = |route: &Arc<Route>| route.lane.shard == shard;
    let served = shared.routes.all().into_iter().filter(of_shard).map(|route| route.id);
    let ids: BTreeSet<NetworkId> = stored.keys().copied().chain(served).collect();
    let mut look = Look::default();
    for id in ids {
        // What is the same is dropped at once.
        match compare(shared, id, stored.remove(&id)).await {
            Some(odd) if odd.odd.is_empty() => {}
            Some(odd) => look.odd.push(odd),
            // One that is stopped is not served.
            None => look.skipped += usize::from(!is_stopped(shared, id)),
        }
    }
    if look.odd.is_empty() {
        return Ok(look);
    }
    let asked = look.odd.len();
    look.odd = durable(std::mem::take(&mut look.odd)).await;
    look.skipped += asked - look.odd.len();
    leave_out_decided(shared, shard, head.seq, &mut look.odd).await?;
    Ok(look)
}

fn is_stopped(shared: &Shared, id: NetworkId) -> bool {
    shared.routes.by_id(id).is_some_and(|route| route.published.stopped().is_some())
}

/// Waits until what was read is known to be durable: what was made by it is served only then.
async fn confirmed(shared: &Shared, shard: ShardId, seq: Seq) -> Result<(), StoreError> {
    let until = tokio::time::Instant::now() + DURABLE_WITHIN;
    if comes_until(until, || Seq(shared.feed.tip(shard).seq) >= seq).await {
        return Ok(());
    }
    Err(StoreError::Invalid("what was read of the shard is not confirmed yet".into()))
}

/// Waits until it is so, or that time is over. Is it so?
async fn comes_until(until: tokio::time::Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if tokio::time::Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(DURABLE_LOOKED_AT_EVERY).await;
    }
    true
}

/// Compares one network with its memory. None: it cannot be now.
async fn compare(shared: &Shared, id: NetworkId, stored: Option<Arc<Network>>) -> Option<OddNetwork> {
    let route = shared.routes.by_id(id);
    let of_store = stored.as_ref().map(|stored| stored.config().name.clone());
    let name = of_store.or_else(|| route.as_ref()?.name.clone());
    let mut odd = OddNetwork { id, incarnation: 0, name, odd: BTreeSet::new(), stored, route: None, enqueued: 0 };
    let Some(route) = route else {
        // Memory has not what the store has.
        odd.odd.insert(Odd::Record(Key::Config));
        return odd.stored.is_some().then_some(odd);
    };
    let mut after: Option<Address> = None;
    loop {
        let (told, seen) = oneshot::channel();
        // A full mailbox is of one that is too busy to be compared.
        route.addr.try_send(Compare { stored: odd.stored.clone(), after, told }).ok()?;
        let Seen { compared, enqueued, incarnation } = seen.await.ok()?;
        if after.is_some() && odd.incarnation != incarnation {
            return None;
        }
        odd.odd.extend(compared.odd);
        if odd.odd.len() > ODD_MAX {
            return None;
        }
        (odd.enqueued, odd.incarnation, after) = (enqueued, incarnation, compared.next);
        if after.is_none() {
            odd.route = Some(route);
            return Some(odd);
        }
    }
}

/// Waits until what these memories had is durable. What is loaded again meanwhile, or is not durable in time, is left out.
async fn durable(odd: Vec<OddNetwork>) -> Vec<OddNetwork> {
    let until = tokio::time::Instant::now() + DURABLE_WITHIN;
    let mut durable = Vec::with_capacity(odd.len());
    for network in odd {
        let Some(route) = &network.route else {
            durable.push(network);
            continue;
        };
        let lane = &route.lane;
        // Settled first: the committer raises the incarnation before it settles what was given up.
        let is_settled = comes_until(until, || lane.settled.load(Ordering::Acquire) >= network.enqueued).await;
        if is_settled && lane.incarnation.load(Ordering::Acquire) == network.incarnation {
            durable.push(network);
        }
    }
    durable
}

/// What was changed behind a place of the log was changed since the store was read.
async fn leave_out_decided(
    shared: &Shared,
    shard: ShardId,
    behind: Seq,
    odd: &mut Vec<OddNetwork>,
) -> Result<(), StoreError> {
    let until = Seq(shared.feed.tip(shard).seq);
    let mut after = behind;
    let mut by_id: BTreeMap<NetworkId, &mut OddNetwork> = odd.iter_mut().map(|odd| (odd.id, odd)).collect();
    while after < until {
        let batches = shared.store.history(shard, after, BATCHES_AT_ONCE).await?;
        if batches.first().is_none_or(|first| first.seq.0 != after.0 + 1) {
            let text = "the log was cut while it was compared";
            return Err(StoreError::Invalid(text.into()));
        }
        for batch in &batches {
            after = batch.seq;
            leave_out(batch, &mut by_id);
        }
    }
    odd.retain(|network| !network.odd.is_empty());
    Ok(())
}

fn leave_out(batch: &Batch, odd: &mut BTreeMap<NetworkId, &mut OddNetwork>) {
    for act in &batch.acts {
        let Some(network) = odd.get_mut(&act.network) else { continue };
        // Counts are of all records.
        network.odd.retain(|odd| !matches!(odd, Odd::Counts(_)));
        for step in &act.steps {
            network.odd.remove(&Odd::Record(step.key));
        }
    }
}
