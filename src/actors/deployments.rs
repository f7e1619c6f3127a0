//! The records of all deployments, in memory: which plan is the latest, and how it ended.
//!
//! A table, and no actor: acts on one deployment are locked against each other by the directory, as acts on one network
//! are, so a record has one writer at a time. Everything in the table is durable. A record has a [`Lane`], as a network
//! has: when a commit is in doubt its incarnation rises, and the next act that needs the record loads it again.
//!
//! **A name without a record stays only while that is in doubt.** *The store takes nothing for an hour while somebody applies
//! deployments under ever new names: the table grows, and each later `deployment.list` waits for every one of them.* So a name is
//! removed when its commit certainly came to nothing, and when the store is found to have no record.
//!
//! Neighbours: `coordinator::deploy` writes it. Review notes: is a record put here only after its commit was acknowledged? Is a
//! name removed only when nobody has its lane any more?

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};

use super::routes::Lane;
use crate::core::deployment::{Deployment, DeploymentId};
use crate::core::types::{NetworkId, Scope, WallTime};
use crate::store::ShardId;

/// A record as it is known, and how much that is worth.
#[derive(Debug, Clone)]
pub struct KnownRecord {
    /// Its durable line.
    pub lane: Arc<Lane>,
    /// The record; none: there is no such deployment.
    pub record: Option<Arc<Deployment>>,
    /// Incarnation of the memory that it is of.
    pub incarnation: u64,
}

impl KnownRecord {
    /// Is it what the store has?
    pub fn stands(&self) -> bool {
        self.lane.incarnation.load(Ordering::Acquire) == self.incarnation
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Deployments {
    table: RwLock<BTreeMap<Scope, KnownRecord>>,
    /// Latest plan that a record had which is gone, or was replaced by an older one: no plan is given twice, whatever the clock
    /// says.
    floor: AtomicU64,
}

/// The id under which the record of a deployment is stored. The same name, the same id, for ever.
pub fn id_of(name: &Scope) -> NetworkId {
    let hash = Sha256::digest(name.as_str().as_bytes());
    let bits = hash.iter().take(16).fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
    DeploymentId(bits).as_network()
}

impl Deployments {
    /// Puts in what was loaded.
    ///
    /// # Errors
    /// A sentence naming a record that is stored under another id than its own.
    pub fn fill(
        &self,
        loaded: Vec<(NetworkId, Arc<Deployment>)>,
        shard: impl Fn(NetworkId) -> ShardId,
    ) -> Result<(), String> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for (id, record) in loaded {
            if id_of(&record.name) != id {
                return Err(format!("the record of deployment `{}` is stored under the id of another", record.name));
            }
            let lane = Arc::new(Lane::new(id, shard(id)));
            table.insert(record.name.clone(), KnownRecord { lane, record: Some(record), incarnation: 0 });
        }
        Ok(())
    }

    /// What is known of a deployment. One that was never heard of has no record.
    pub fn get(&self, name: &Scope, shard: impl Fn(NetworkId) -> ShardId) -> KnownRecord {
        let known = self.table.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        known.unwrap_or_else(|| {
            let id = id_of(name);
            KnownRecord { lane: Arc::new(Lane::new(id, shard(id))), record: None, incarnation: 0 }
        })
    }

    /// This is so now, durably; or a commit is on its way, and its lane must be found again.
    pub fn put(&self, name: &Scope, known: KnownRecord) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let latest = known.record.as_ref().map(|record| record.plan);
        let replaced = table.insert(name.clone(), known).and_then(|before| before.record);
        if let Some(before) = replaced.filter(|before| Some(before.plan) > latest) {
            self.floor.fetch_max(before.plan, Ordering::AcqRel);
        }
    }

    /// It was deleted, durably; or there is none, and nothing that is under way would make it.
    pub fn remove(&self, name: &Scope) {
        let gone = self.table.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(record) = gone.and_then(|known| known.record) {
            self.floor.fetch_max(record.plan, Ordering::AcqRel);
        }
    }

    /// A plan that was never given. `wall_ms` keeps it above those that this process knows nothing of: of deployments that
    /// were deleted before it began, or after a backup was made.
    pub fn next_plan(&self, before: Option<u64>, wall_ms: u64) -> u64 {
        let floor = self.floor.load(Ordering::Acquire);
        before.unwrap_or(0).max(floor).saturating_add(1).max(wall_ms)
    }

    /// Deployments by name, behind `after`: at most `limit`, and whether there are more.
    pub fn page(&self, after: Option<&Scope>, limit: usize) -> (Vec<Arc<Deployment>>, bool) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut records =
            table.range::<Scope, _>((from, Bound::Unbounded)).filter_map(|(_, known)| known.record.clone());
        let page = records.by_ref().take(limit).collect();
        (page, records.next().is_some())
    }

    /// All records, by the id under which each is stored. What is in doubt is as it was before.
    pub fn durable(&self) -> Vec<(NetworkId, Arc<Deployment>)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.values().filter_map(|known| Some((known.lane.id, known.record.clone()?))).collect()
    }

    /// What is known of those of a shard.
    pub fn of_shard(&self, shard: ShardId) -> Vec<(Scope, KnownRecord)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let of_it = table.iter().filter(|(_, known)| known.lane.shard == shard);
        of_it.map(|(name, known)| (name.clone(), known.clone())).collect()
    }

    /// How many are not committed, and since when the oldest of them is not.
    pub fn uncommitted(&self) -> (usize, Option<WallTime>) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let since = table.values().filter_map(|known| known.record.as_ref()?.uncommitted_since);
        since.fold((0, None), |(count, oldest), since| {
            (count + 1, Some(oldest.map_or(since, |oldest: WallTime| oldest.min(since))))
        })
    }

    /// Names of those whose record must be loaded again before it may be shown.
    pub fn doubtful(&self) -> Vec<Scope> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().filter(|(_, known)| !known.stands()).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_never_given_twice_also_of_a_deployment_that_was_deleted_within_a_millisecond() {
        let deployments = Deployments::default();
        let name: Scope = "shop".parse().unwrap();
        let plan = deployments.next_plan(None, 1_000);
        let record = Deployment {
            name: name.clone(),
            plan,
            wishes: 0,
            stage: crate::core::deployment::Stage::Open,
            uncommitted_since: None,
            settled: Vec::new(),
            version: crate::core::types::Version(1),
        };
        let known = deployments.get(&name, |_| ShardId(0));
        deployments.put(&name, KnownRecord { record: Some(Arc::new(record)), ..known });
        assert_eq!(deployments.next_plan(Some(plan), 1_000), plan + 1);
        deployments.remove(&name);
        assert!(deployments.next_plan(None, 1_000) > plan);
        assert!(deployments.next_plan(None, 10) > plan, "the clock went back");
    }

    /// Networks may still hold what the later one granted.
    #[test]
    fn a_plan_is_never_given_twice_also_where_its_record_was_replaced_by_an_older_one() {
        let deployments = Deployments::default();
        let name: Scope = "shop".parse().unwrap();
        let of = |plan: u64| {
            let version = crate::core::types::Version(1);
            let (stage, uncommitted_since) = (crate::core::deployment::Stage::Open, None);
            let record = Deployment {
                name: name.clone(),
                plan,
                wishes: 0,
                stage,
                uncommitted_since,
                settled: Vec::new(),
                version,
            };
            KnownRecord { record: Some(Arc::new(record)), ..deployments.get(&name, |_| ShardId(0)) }
        };
        deployments.put(&name, of(1_000));
        deployments.put(&name, of(900));
        assert!(deployments.next_plan(Some(900), 950) > 1_000, "the clock went back");
    }

    #[test]
    fn the_id_of_a_record_is_no_random_id_and_depends_on_the_name_alone() {
        let id = id_of(&"shop".parse().unwrap());
        assert_eq!(id, id_of(&"shop".parse().unwrap()));
        assert_ne!(id, id_of(&"Shop".parse().unwrap()));
        assert_eq!(id.to_string().as_bytes()[14], b'8');
    }
}
