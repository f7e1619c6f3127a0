//! One look of the self-check at one shard: reads it, compares every network in it, and leaves out what was decided since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::deployments::{self, OddDeployment};
use crate::actors::StopReason;
use crate::actors::network::{Compare, Seen, StopAsOdd};
use crate::actors::routes::Route;
use crate::actors::service::{Built, Shared, networks_of};
use crate::core::address::Address;
use crate::core::network::{Network, Odd};
use crate::core::state::Key;
use crate::core::types::{Generation, Name, NetworkId, ShardTime};
use crate::store::{Batch, Head, Seq, ShardId, StoreError};

/// How many differences of a network are looked at. What was decided since is left out of them, and whatever is left stops the
/// network, so the others would say nothing new.
const ODD_MAX: usize = 100_000;
/// How long a look waits for decisions to be durable.
const DURABLE_WITHIN: Duration = Duration::from_secs(10);
const DURABLE_LOOKED_AT_EVERY: Duration = Duration::from_millis(5);
/// Batches of the log that are read at once.
const BATCHES_AT_ONCE: usize = 256;

/// The result of a look.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Networks with differences.
    pub odd: Vec<OddNetwork>,
    /// Number of networks of which nothing can be said now.
    pub skipped: usize,
    /// Records of deployments that are odd.
    pub deployments: Vec<OddDeployment>,
    /// How its head differs, in words.
    pub head: Option<String>,
}

impl Look {
    /// Is all of it as it should be, as far as it was looked at?
    pub(super) fn is_even(&self) -> bool {
        self.odd.is_empty() && self.deployments.is_empty() && self.head.is_none()
    }
}

/// A network whose memory differs from the store.
#[derive(Debug)]
pub(super) struct OddNetwork {
    /// The id of the network.
    pub id: NetworkId,
    /// The incarnation of the memory that was compared.
    incarnation: u64,
    name: Option<Name>,
    odd: BTreeSet<Odd>,
    /// The network as the store has it, if it has it.
    stored: Option<Arc<Network>>,
    /// The route of the network, whose memory has to be durable before anything is reported.
    route: Option<Arc<Route>>,
    enqueued: u64,
}

impl OddNetwork {
    /// Keeps only the differences that an earlier look at the same memory showed as well.
    pub(super) fn also_in(mut self, earlier: &[Self]) -> Option<Self> {
        let before = earlier.iter().find(|before| (before.id, before.incarnation) == (self.id, self.incarnation))?;
        self.odd.retain(|odd| before.odd.contains(odd));
        (!self.odd.is_empty()).then_some(self)
    }

    /// Has its actor stop the network. False: the actor is not available now.
    pub(super) async fn is_stopped(&self) -> bool {
        let Some(route) = &self.route else {
            // The store has a network that memory has not: nobody is served by it.
            let (network, name) = (self.id, self.name.as_ref().map(Name::as_str));
            tracing::error!(%network, name, "self-check: the store has a network that is not served; the next start would serve it");
            return true;
        };
        let (stopped, told) = oneshot::channel();
        let (incarnation, odd, stored) = (self.incarnation, self.odd.clone(), self.stored.clone());
        route.addr.try_send(StopAsOdd { incarnation, odd, stored, stopped }).is_ok() && told.await.is_ok()
    }
}

/// Looks at a shard once.
///
/// # Errors
/// The store cannot be read, or its contents cannot be built into networks.
pub(super) async fn look(shared: &Arc<Shared>, shard: ShardId) -> Result<Look, StoreError> {
    let mut image = shared.store.beside(shard).await?;
    let head = image.head;
    if head.epoch.0 != shared.epoch(shard) {
        // Another node has taken the shard, as this node is about to learn.
        return Err(StoreError::Fenced { shard, current: head.epoch });
    }
    confirmed(shared, shard, head.seq).await?;
    let mut look = Look { head: differs(shared, shard, &head), ..Look::default() };
    look.deployments = deployments::odd(shared, shard, std::mem::take(&mut image.deployments))?;
    let stored = networks_of(vec![(shard, image)], Generation(0));
    let Built { networks, misfits } = stored.map_err(|problem| StoreError::Damaged(problem.into()))?;
    let mut stored: BTreeMap<NetworkId, Arc<Network>> =
        networks.into_iter().map(|network| (network.config().id, Arc::new(network))).collect();
    let of_shard = |route: &Arc<Route>| route.lane.shard == shard;
    let served = shared.routes.all().into_iter().filter(of_shard).map(|route| route.id);
    let ids: BTreeSet<NetworkId> = stored.keys().copied().chain(served).collect();
    // What memory has of it may be whole, and a restart would lose that.
    let is_known = |id| stopped(shared, id) == Some(StopReason::Unloadable);
    if let Some((misfit, _)) = misfits.iter().find(|(misfit, _)| !is_known(misfit.id())) {
        let problem = format!("network {} cannot be loaded: {misfit}", misfit.id());
        return Err(StoreError::Damaged(problem.into()));
    }
    for id in ids {
        // A network without differences is dropped at once.
        match compare(shared, id, stored.remove(&id)).await {
            Some(odd) if odd.odd.is_empty() => {}
            Some(odd) => look.odd.push(odd),
            // A stopped network is not served.
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
    stopped(shared, id).is_some()
}

fn stopped(shared: &Shared, id: NetworkId) -> Option<StopReason> {
    shared.routes.by_id(id)?.published.stopped()
}

/// How a head that was read differs from where memory stands. What is committed meanwhile is compared with it by the store itself, and
/// writes it anew.
fn differs(shared: &Shared, shard: ShardId, head: &Head) -> Option<String> {
    let (tip, time, generation) = shared.feed.head(shard);
    let stored = (head.seq.0, head.digest.0, head.time, head.generation);
    if tip.seq != head.seq.0 || stored == (tip.seq, tip.digest, time, generation) {
        return None;
    }
    let in_words = |(digest, time, generation): (u128, ShardTime, Generation)| {
        format!("digest {digest:032x}, time {} and generation {}", time.0, generation.0)
    };
    Some(format!(
        "its head has at batch {} {}, and this server has {}",
        head.seq.0,
        in_words((head.digest.0, head.time, head.generation)),
        in_words((tip.digest, time, generation))
    ))
}

/// Waits until what was read is known to be durable: what was made by it is served only then.
async fn confirmed(shared: &Shared, shard: ShardId, seq: Seq) -> Result<(), StoreError> {
    let until = tokio::time::Instant::now() + DURABLE_WITHIN;
    if comes_until(until, || Seq(shared.feed.tip(shard).seq) >= seq).await {
        return Ok(());
    }
    Err(StoreError::Invalid("what was read of the shard is not confirmed yet".into()))
}

/// Waits until a condition holds, or the time is over. Returns whether it holds.
async fn comes_until(until: tokio::time::Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if tokio::time::Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(DURABLE_LOOKED_AT_EVERY).await;
    }
    true
}

/// Compares one network with its memory. None: that is not possible now.
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
        // A full mailbox belongs to a network that is too busy to be compared.
        route.addr.try_send(Compare { stored: odd.stored.clone(), after, told }).ok()?;
        let Seen { compared, enqueued, incarnation } = seen.await.ok()?;
        if after.is_some() && odd.incarnation != incarnation {
            return None;
        }
        odd.odd.extend(compared.odd);
        (odd.enqueued, odd.incarnation, after) = (enqueued, incarnation, compared.next);
        let odd_max = shared.hooks.odd_max.unwrap_or(ODD_MAX);
        if odd.odd.len() > odd_max && after.is_some() {
            tracing::warn!(network = %id, "self-check: only the first {odd_max} differences are looked at");
            after = None;
        }
        if after.is_none() {
            odd.route = Some(route);
            return Some(odd);
        }
    }
}

/// Waits until what these memories had is durable. Networks that are loaded again meanwhile, or not durable in time, are left
/// out.
async fn durable(odd: Vec<OddNetwork>) -> Vec<OddNetwork> {
    let until = tokio::time::Instant::now() + DURABLE_WITHIN;
    let mut durable = Vec::with_capacity(odd.len());
    for network in odd {
        let Some(route) = &network.route else {
            durable.push(network);
            continue;
        };
        let lane = &route.lane;
        // `settled` first: the committer raises the incarnation before it settles what was given up.
        let is_settled = comes_until(until, || lane.settled.load(Ordering::Acquire) >= network.enqueued).await;
        if is_settled && lane.incarnation.load(Ordering::Acquire) == network.incarnation {
            durable.push(network);
        }
    }
    durable
}

/// Leaves out what was changed after a place of the log, because it was changed since the store was read.
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
        // Counts cover all records.
        network.odd.retain(|odd| !matches!(odd, Odd::Counts(_)));
        for step in &act.steps {
            network.odd.remove(&Odd::Record(step.key));
        }
    }
}
