//! What a committer does when a commit fails: it tries again, or gives up everything that depends on it and has it loaded again.
//!
//! Discarding a network raises the incarnation of its [`Lane`](crate::actors::routes::Lane) first, fails its answers, and
//! only then settles its units. Its actor is told, because nothing else may ever reach it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;

use super::unit::{Reload, Unit, UnitPart, line_of};
use super::{COMMIT_DEADLINE, Committer, Group, RETRY_AFTER, RETRY_AFTER_MAX};
use crate::actors::network::Loaded;
use crate::actors::stops::StopReason;
use crate::actors::{Applied, reserve, unproved};
use crate::core::types::NetworkId;
use crate::store::{Batch, CommitError, NetworkImage, Seq, ShardId, StoreError, StoreHealth, Token, chain};

impl Group {
    /// Is there no time for another attempt?
    fn is_over(&self) -> bool {
        Instant::now() + RETRY_AFTER >= self.ends
    }
}

/// What happened, without what that means for the last attempt: each of those who wait is told that for itself.
fn cause_of(error: &CommitError) -> String {
    match error {
        CommitError::NotApplied { cause } | CommitError::Unknown { cause } => chain(cause),
        CommitError::Fenced { .. } | CommitError::Mismatch { .. } => chain(error),
    }
}

impl Committer {
    /// The front group did not end well. What is behind it may still be under way: it is waited for, then all of it goes
    /// out again in order, or is given up.
    pub(super) fn failed(&mut self, error: &CommitError, ctx: &mut Context<Self>) {
        if self.shared.store.health() == StoreHealth::Failed {
            return self.stop(&format!("the store failed: {}", chain(error)));
        }
        let over = self.in_flight.front().is_some_and(Group::is_over);
        let (again, retake, applied) = match error {
            CommitError::NotApplied { cause: StoreError::Full } => (false, false, Applied::No),
            CommitError::NotApplied { .. } => (!over, false, Applied::No),
            CommitError::Unknown { .. } => (!over, true, Applied::Unknown),
            CommitError::Fenced { .. } if self.shared.info.ownership_is_standing => (false, true, Applied::Unknown),
            CommitError::Fenced { .. } => return self.stop(&chain(error)),
            CommitError::Mismatch { network, .. } => {
                // Memory and store disagree, so nothing that was decided beside it may be believed either, nor what only read.
                tracing::error!(%network, error = chain(error), "memory and store disagree");
                (false, false, Applied::No)
            }
        };
        if again {
            if !self.retrying {
                if let Some(unsaid) = self.retries.turn() {
                    tracing::warn!(error = chain(error), unsaid, "a commit is tried again");
                }
                self.retrying = true;
                ctx.run_later(RETRY_AFTER, Self::send_again);
            }
            return;
        }
        if self.in_flight.iter().any(|group| group.result.is_none()) {
            // What is behind it may have been applied: its answer, or its deadline, brings us here again.
            return;
        }
        let is_full = matches!(error, CommitError::NotApplied { cause: StoreError::Full });
        if is_full && self.cut() {
            return;
        }
        // An earlier attempt may have been applied, whatever became of the last one.
        let retake = retake || self.in_flight.iter().any(|group| group.doubtful && !group.stood());
        let applied = if retake { Applied::Unknown } else { applied };
        tracing::warn!(error = chain(error), ?applied, "a commit is given up; its networks are being loaded again");
        let problem = if is_full {
            // The store knows where there is no room, and what to do.
            reserve::nothing_new(&*self.shared.store)
        } else {
            // What stands in the way says more than that the time was over.
            self.shared.hindrance().map_or_else(|| cause_of(error), |why| why.to_string())
        };
        let all = matches!(error, CommitError::Mismatch { .. });
        self.discard(applied, &problem, (retake, all), ctx);
    }

    /// The front group writes nothing, and its proof is not to be had: what it was to answer is refused, and nothing is in doubt.
    /// What its networks have in memory stands as before; whether it is this owner's still, the next batch or proof says. Tells
    /// whether it is gone: it stays where it is tried again, and where somebody else has the shard.
    pub(super) fn is_without_proof(&mut self, error: &CommitError) -> bool {
        let is_undecided = matches!(error, CommitError::NotApplied { .. } | CommitError::Unknown { .. });
        if !is_undecided || self.shared.store.health() == StoreHealth::Failed {
            return false;
        }
        // Where it is known what stands in the way, trying again would only make everybody wait.
        let hindrance = self.shared.hindrance();
        let is_given_up = |group: &Group| hindrance.is_some() || group.is_over();
        if !self.in_flight.front().is_some_and(|group| group.batches.is_empty() && is_given_up(group)) {
            return false;
        }
        let problem = unproved(hindrance.as_deref().unwrap_or(&chain(error)));
        for unit in self.in_flight.pop_front().into_iter().flat_map(|group| group.units) {
            self.leave(&unit, |standing| standing.in_flight -= 1);
            self.refuse(unit, Applied::No, &problem);
        }
        true
    }

    /// Settles what was applied although something before it was not: of other shards, so of other networks. Answers that
    /// travelled with it and show networks of what was given up are given up, too.
    fn settle_beside(&mut self, stand: Vec<Group>, given_up: &[Group], problem: &str) {
        let lost: HashSet<NetworkId> = (given_up.iter().flat_map(|group| &group.units))
            .flat_map(|unit| unit.parts.iter().map(|part| part.lane.id))
            .collect();
        for group in stand {
            let committed: Vec<_> = group.result.iter().flatten().flatten().copied().collect();
            self.durable(&group, &committed);
            for unit in group.units {
                self.leave(&unit, |standing| standing.in_flight -= 1);
                if unit.parts.iter().any(|part| lost.contains(&part.lane.id)) {
                    self.give_up(unit, Applied::Unknown, problem);
                } else {
                    self.settle(unit);
                }
            }
        }
    }

    /// Certainly nothing of it was written: its number is free again.
    pub(super) fn take_back_number(&mut self, batch: &Batch) {
        if let Some(line) = self.lines.get_mut(&batch.shard) {
            line.seq = line.seq.min(Seq(batch.seq.0 - 1));
        }
    }

    fn send_again(&mut self, ctx: &mut Context<Self>) {
        self.retrying = false;
        // In order, and the same bytes: a group that was applied after all is recognised by the store.
        let mut numbers = Vec::new();
        for group in self.in_flight.iter_mut().filter(|group| !matches!(group.result, Some(Ok(_)))) {
            // The answer of the attempt before is not waited for any more: it may be that it was applied.
            group.doubtful |= group.result.is_none();
            numbers.push(group.number);
        }
        for number in numbers {
            self.send(number, ctx);
        }
        // What came meanwhile waited for it; all of what was to be sent again may have been given up since.
        self.pump(ctx);
    }

    /// Gives up everything under way and everything behind it, and makes the shards concerned usable again. Whatever is
    /// under way has its last answer: what was applied all the same stands, and of what was in doubt once nobody says that
    /// it did not happen. Networks of which nothing was to be written have lost nothing, unless `all` are not to be believed.
    fn discard(&mut self, applied: Applied, problem: &str, (retake, all): (bool, bool), ctx: &mut Context<Self>) {
        self.recovering = true;
        let (stand, groups): (Vec<Group>, Vec<Group>) = self.in_flight.drain(..).partition(Group::stood);
        self.settle_beside(stand, &groups, problem);
        // In one order, whatever the process: what a simulation saw can be seen again.
        let mut shards: BTreeSet<ShardId> = BTreeSet::new();
        for group in &groups {
            shards.extend(&group.proofs);
        }
        for batch in groups.iter().flat_map(|group| &*group.batches) {
            shards.insert(batch.shard);
            if !retake {
                self.take_back_number(batch);
            }
        }
        let queued = self.queue.take_all();
        // First every memory concerned is declared worthless, then anything is said.
        let under_way = groups.into_iter().flat_map(|group| group.units).map(|unit| (unit, applied, true));
        let behind = queued.into_iter().map(|unit| (unit, Applied::No, false));
        let units: Vec<(Unit, Applied, bool)> = under_way.chain(behind).collect();
        let given_up: Vec<&Unit> = units.iter().map(|(unit, ..)| unit).collect();
        if all {
            // What a network that differs from the store has in memory is all that is left of what was acknowledged there: it
            // is not given up for what was read in it.
            let is_shown = |unit: &&&Unit| unit.changes() == 0 && unit.parts.iter().all(|part| self.shows_memory(part));
            let wrong: Vec<&Unit> = given_up.iter().filter(|unit| !is_shown(unit)).copied().collect();
            wrong.iter().flat_map(|unit| &unit.parts).for_each(|part| part.lane.belie());
            wrong.iter().for_each(|unit| self.disown(unit))
        } else {
            self.disown_changed(&given_up)
        }
        for (unit, applied, sent) in units {
            self.leave(&unit, |standing| if sent { standing.in_flight -= 1 } else { standing.queued -= 1 });
            self.refuse(unit, applied, problem);
        }
        if retake {
            let tokens = shards.into_iter().map(|shard| (shard, Token(self.shared.clock.entropy())));
            self.take_anew(tokens.collect(), RETRY_AFTER, ctx);
        } else {
            self.recovered(ctx);
        }
    }

    /// Is its network stopped, and answered from memory?
    fn shows_memory(&self, part: &UnitPart) -> bool {
        let route = self.shared.routes.by_id(part.lane.id);
        route.and_then(|route| route.published.stopped()).is_some_and(StopReason::shows_memory)
    }

    /// Takes shards until it succeeds, each under one token: a take-over of which nobody knows is asked for again. What
    /// arrives meanwhile waits, at most [`COMMIT_DEADLINE`], however many shards there are.
    fn take_anew(&mut self, shards: Vec<(ShardId, Token)>, pause: Duration, ctx: &mut Context<Self>) {
        let (store, failures) = (Arc::clone(&self.shared.store), Arc::clone(&self.failures));
        let take = async move {
            let mut taken = Vec::new();
            let mut left = Vec::new();
            let end = Instant::now() + COMMIT_DEADLINE;
            for (shard, token) in shards {
                if Instant::now() >= end {
                    left.push((shard, token));
                    continue;
                }
                match tokio::time::timeout_at(end, store.take(shard, token)).await {
                    Ok(Ok(head)) => taken.push((shard, head)),
                    Ok(Err(error @ (StoreError::Fenced { .. } | StoreError::Held { .. }))) => {
                        return Err(chain(&error));
                    }
                    Ok(Err(error)) => {
                        if let Some(unsaid) = failures.turn() {
                            tracing::warn!(
                                shard = shard.0,
                                error = chain(&error),
                                unsaid,
                                "cannot take the shard anew yet"
                            );
                        }
                        left.push((shard, token));
                    }
                    Err(_) => left.push((shard, token)),
                }
            }
            Ok((taken, left))
        };
        ctx.spawn(take.into_actor(self).map(move |taken, act, ctx| {
            let (taken, left) = match taken {
                Ok(taken) => taken,
                // Somebody else owns it by now: nothing that this node knows of it is worth anything.
                Err(problem) => return act.stop(&problem),
            };
            for (shard, head) in taken {
                // Only networks with something in doubt are loaded again. The others, and the catalog, would go on from what
                // the store does not have any more: all of it is loaded by the next tenure.
                if act.lines.get(&shard).is_some_and(|line| head.seq < line.durable.0) {
                    return act.stop(&format!("shard {} lacks what was acknowledged of it", shard.0));
                }
                act.lines.insert(shard, line_of(&head));
                act.shared.note_epoch(shard, head.epoch);
                act.shared.feed.stands(shard, &head);
            }
            if act.shared.store.health() == StoreHealth::Failed {
                let why = act.shared.store.failure();
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                return act.stop(&format!("the store failed and cannot be taken anew{why}"));
            }
            if left.is_empty() {
                return act.recovered(ctx);
            }
            let waiting = act.queue.take_all();
            act.disown_changed(&waiting.iter().collect::<Vec<_>>());
            let hindrance = act.shared.hindrance();
            let problem = hindrance.as_deref().unwrap_or("the store cannot be reached");
            for unit in waiting {
                act.leave(&unit, |standing| standing.queued -= 1);
                act.refuse(unit, Applied::No, problem);
            }
            ctx.run_later(pause, move |act, ctx| act.take_anew(left, (pause * 2).min(RETRY_AFTER_MAX), ctx));
        }));
    }

    fn recovered(&mut self, ctx: &mut Context<Self>) {
        self.recovering = false;
        self.kick_reloads(ctx);
        self.pump(ctx);
        self.tell_drained();
    }

    /// Loads the shards of networks that asked and have nothing under way any more. One that could not be loaded just now rests first,
    /// whoever asks meanwhile.
    pub(super) fn kick_reloads(&mut self, ctx: &mut Context<Self>) {
        if self.recovering || self.reloads.is_empty() {
            return;
        }
        let mut of_shard: BTreeMap<ShardId, Vec<Reload>> = BTreeMap::new();
        let mut waiting = Vec::new();
        // Whoever asked may have learned it otherwise.
        for reload in self.reloads.drain(..).filter(|reload| !reload.to.is_closed()) {
            let shard = &reload.lane.shard;
            let is_put_off = self.loading.contains(shard) || self.resting.contains(shard);
            if is_put_off || self.networks.contains_key(&reload.lane.id) {
                waiting.push(reload);
            } else {
                of_shard.entry(reload.lane.shard).or_default().push(reload);
            }
        }
        self.reloads = waiting;
        for (shard, reloads) in of_shard {
            self.load(shard, reloads, ctx);
        }
    }

    fn load(&mut self, shard: ShardId, reloads: Vec<Reload>, ctx: &mut Context<Self>) {
        let Some(line) = self.lines.get(&shard).copied() else { return };
        self.loading.insert(shard);
        let load = self.shared.store.load(shard, line.token);
        ctx.spawn(load.into_actor(self).map(move |image, act, ctx| {
            act.loading.remove(&shard);
            match image {
                Ok(image) => {
                    act.shared.generations.note(image.head.generation);
                    let floor = act.shared.generations.floor(act.shared.clock.wall());
                    let mut networks: HashMap<NetworkId, NetworkImage> =
                        image.networks.into_iter().map(|network| (network.config.id, network)).collect();
                    let deployments: HashMap<NetworkId, _> = image.deployments.into_iter().collect();
                    let mut asked: HashMap<NetworkId, usize> = HashMap::new();
                    for reload in &reloads {
                        *asked.entry(reload.lane.id).or_default() += 1;
                    }
                    for Reload { lane, to } in reloads {
                        let incarnation = lane.incarnation.load(Ordering::Acquire);
                        // The network itself may ask, and an act that is in doubt about it: what it has is for all of them.
                        let others = asked.get_mut(&lane.id).map_or(0, |count| {
                            *count -= 1;
                            *count
                        });
                        let image =
                            if others > 0 { networks.get(&lane.id).cloned() } else { networks.remove(&lane.id) };
                        let deployment = deployments.get(&lane.id).cloned();
                        let loaded = Loaded { image, deployment, floor, incarnation };
                        if to.send(loaded).is_err() {
                            tracing::debug!(network = %lane.id, "nobody waits for the network any more");
                        }
                    }
                    act.kick_reloads(ctx);
                }
                // It was taken anew while this was under way.
                Err(StoreError::Fenced { .. })
                    if act.recovering || act.lines.get(&shard).is_some_and(|now| now.token != line.token) =>
                {
                    act.reloads.extend(reloads);
                    act.kick_reloads(ctx);
                }
                // Under another token than this one it is somebody else's, if only a late take-over of this node's own.
                Err(error @ StoreError::Fenced { .. }) => act.stop(&chain(&error)),
                Err(error) => {
                    if let Some(unsaid) = act.failures.turn() {
                        let error = chain(&error);
                        tracing::error!(shard = shard.0, error, unsaid, "the shard cannot be loaded; trying again");
                    }
                    act.reloads.extend(reloads);
                    act.resting.insert(shard);
                    ctx.run_later(RETRY_AFTER_MAX, move |act, ctx| {
                        act.resting.remove(&shard);
                        act.kick_reloads(ctx);
                    });
                }
            }
        }));
    }
}
