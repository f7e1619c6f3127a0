//! The record of a deployment: locked against other acts on it, found, written in one commit with what it is about; shown,
//! listed, and deleted; and compared with what the store has of it.
//!
//! Before: `deploy` and `settle`, and the self-check. After: `joint`, and the table in `actors::deployments`.
//!
//! Review notes: is the table written only behind an acknowledged commit? Does a refusal leave by `seen_durably`?

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::length::{AnswerLength, too_much_held};
use crate::actors::committer::{Reload, UnitPart};
use crate::actors::coordinator::configure::is_gone;
use crate::actors::coordinator::joint::{Holds, SeenMemories, commit};
use crate::actors::coordinator::locked::{LockedAct, is_in_doubt};
use crate::actors::coordinator::{Coordinator, Done, Outcomes, lost};
use crate::actors::deployments::KnownRecord;
use crate::actors::routes::Lane;
use crate::actors::service::Shared;
use crate::actors::{Applied, Fault, NotReadyReason};
use crate::core::command::{Command, Filter};
use crate::core::deployment::{Deployment, Settle, Stage};
use crate::core::outcome::Outcome;
use crate::core::plural::counted;
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Key, State, Step};
use crate::core::types::Scope;
use crate::limits::LIST_PAGE_RECORDS_MAX;
use crate::store;

/// What becomes of what was decided about a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// It is committed.
    Commit,
    /// It is only told, when all that it saw is durable.
    Look,
}

/// What a deployment, or the end of a plan, changes.
pub(super) struct DeploymentChange<'a> {
    /// What its networks decided.
    pub(super) parts: Vec<UnitPart>,
    /// Its record from then on; none: it has none any more.
    pub(super) record: Option<Arc<Deployment>>,
    /// What to do where it is more than everybody else should wait for.
    pub(super) fewer: &'a str,
}

/// A deployment that nobody else acts on.
pub(super) struct DeploymentSeat {
    pub(super) known: KnownRecord,
    _locked: LockedAct,
}

/// A record as it is in memory and in the store, where that is not the same.
pub(in crate::actors) struct ComparedRecord {
    pub(in crate::actors) memory: Option<Arc<Deployment>>,
    pub(in crate::actors) stored: Option<Arc<Deployment>>,
}

/// Compares a record with what the store has of it, while nobody else acts on the deployment. From what is another thing in memory
/// nothing goes on: it goes by the store from then on.
pub(in crate::actors) async fn compare_record(
    shared: &Arc<Shared>,
    name: &Scope,
) -> Result<Option<ComparedRecord>, Box<Fault>> {
    let asker = Coordinator::of_itself(shared);
    let DeploymentSeat { known, _locked } = asker.seat(name).await?;
    let stored = asker.reloaded(Arc::clone(&known.lane)).await?;
    if stored.record == known.record {
        return Ok(None);
    }
    let compared = ComparedRecord { memory: known.record, stored: stored.record.clone() };
    asker.knows(name, stored);
    Ok(Some(compared))
}

/// The refusal while it is not known what became of a change of the record.
fn unread(shared: &Shared) -> Box<Fault> {
    Box::new(match shared.unprovable() {
        None => Fault::NotReady { reason: NotReadyReason::Loading, retry_after_ms: 500 },
        Some(why) => Fault::Unavailable {
            applied: Applied::No,
            problem: format!("{why}: a change of the deployment is in doubt until that is over"),
        },
    })
}

impl Coordinator {
    /// Locks a deployment against other acts on it, and finds its record. Nobody waits for long for a record of which it is not
    /// known what became of it.
    pub(super) async fn seat(&self, name: &Scope) -> Result<DeploymentSeat, Box<Fault>> {
        let lane = self.known(name).lane;
        let mut lock = std::pin::pin!(self.lock(vec![lane.id]));
        let locked = loop {
            match timeout(self.shared.deferred_max(), &mut lock).await {
                Ok(locked) => break locked?,
                Err(_) if !self.known(name).stands() => return Err(unread(&self.shared)),
                // Another act on it takes long.
                Err(_) => {}
            }
        };
        // Whoever had it before us may have changed it.
        let known = self.known(name);
        if known.stands() {
            return Ok(DeploymentSeat { known, _locked: locked });
        }
        let found = self.found(name.clone(), known.lane, locked);
        match timeout(self.shared.deferred_max(), found).await {
            Ok(seat) => seat.unwrap_or_else(|_| Err(lost())),
            Err(_) => Err(unread(&self.shared)),
        }
    }

    /// The record as far as it is known.
    fn known(&self, name: &Scope) -> KnownRecord {
        self.shared.deployments.get(name, |id| self.shared.shard_of(id))
    }

    /// Reads the record from the store, however long that takes and whoever waits for it: so the next who asks finds it.
    fn found(
        &self,
        name: Scope,
        lane: Arc<Lane>,
        locked: LockedAct,
    ) -> oneshot::Receiver<Result<DeploymentSeat, Box<Fault>>> {
        let (told, found) = oneshot::channel();
        let (asker, token) = (Self::of_itself(&self.shared), self.shared.jobs.token());
        let reactor = self.shared.reactors()[0].clone();
        reactor.spawn(async move {
            let _token = token;
            let seat = asker.reloaded(lane).await.map(|known| {
                asker.knows(&name, known.clone());
                DeploymentSeat { known, _locked: locked }
            });
            // Where nobody waits any more, the lock is given back with it.
            let _ = told.send(seat);
        });
        found
    }

    /// This is what the store has.
    fn knows(&self, name: &Scope, known: KnownRecord) {
        match known.record {
            Some(_) => self.shared.deployments.put(name, known),
            None => self.shared.deployments.remove(name),
        }
    }

    /// A record as the store has it.
    async fn reloaded(&self, lane: Arc<Lane>) -> Result<KnownRecord, Box<Fault>> {
        let (to, loaded) = oneshot::channel();
        self.shared.reload(Reload { lane: Arc::clone(&lane), to });
        let loaded = loaded.await.map_err(|_| lost())?;
        Ok(KnownRecord { lane, record: loaded.deployment, incarnation: loaded.incarnation })
    }

    pub(super) fn missing(name: &Scope) -> Box<Fault> {
        let hint =
            "deployment.list shows the existing ones; scope.release releases what a scope holds without a deployment";
        let (missing, what) = (Missing::Deployment, format!("`{name}`"));
        Refusal::NotFound { missing, what, hint: Some(hint.to_owned()) }.into()
    }

    /// The record with what changes, as a part of a joint unit.
    fn record_part(&self, known: &KnownRecord, record: Option<&Arc<Deployment>>) -> UnitPart {
        let expect = known.record.as_ref().map(|record| record.version.0);
        let state = record.map(|record| State::Deployment(Arc::clone(record)));
        let act = store::Act {
            network: known.lane.id,
            wall: self.shared.clock.wall(),
            by: self.by.clone(),
            reason: self.reason.clone(),
            transaction: None,
            steps: vec![Step { key: Key::Deployment, expect, state, event: None }],
        };
        UnitPart::new(Arc::clone(&known.lane), known.incarnation, vec![act])
    }

    /// Claims what the record takes of a store that is full, as the networks claim for their parts: what finds no room, or is
    /// new while nothing new is taken, is refused before it is sent, and no network has to be loaded again.
    fn claim_room(&self, part: &mut UnitPart) -> Result<(), Box<Fault>> {
        for act in &part.acts {
            part.claimed.join(self.shared.reserve.claim_if_taken(&act.steps, &*self.shared.store)?);
        }
        Ok(())
    }

    /// Commits the networks' parts and the record, if it changes, and notes it. More than nobody else need wait for is refused,
    /// also where it is only looked what would be.
    pub(super) async fn conclude(
        &self,
        seat: &DeploymentSeat,
        holds: Holds,
        seen: SeenMemories,
        change: DeploymentChange<'_>,
        conclusion: Conclusion,
    ) -> Result<(), Box<Fault>> {
        let DeploymentChange { mut parts, record, fewer } = change;
        let known = &seat.known;
        let changed = record != known.record;
        if changed {
            parts.push(self.record_part(known, record.as_ref()));
        }
        let bytes: usize = parts.iter().map(UnitPart::parted_bytes).sum();
        let bytes_max = self.shared.info.parted_bytes_max();
        if bytes > bytes_max {
            let changes = counted(parts.iter().map(|part| part.changes).sum::<usize>(), "record");
            let problem = format!(
                "are too many: {changes} would change, which takes {bytes} bytes of one commit, for which everybody else would \
                 wait; at most {bytes_max} are allowed; {fewer}"
            );
            drop(holds);
            return Err(self.seen_durably(seen, Refusal::invalid("instances", problem).into()).await);
        }
        if conclusion == Conclusion::Look {
            drop(holds);
            return self.durable(seen).await;
        }
        if changed
            && let Some(part) = parts.last_mut()
            && let Err(fault) = self.claim_room(part)
        {
            drop(holds);
            return Err(fault);
        }
        let name = record.as_ref().or(known.record.as_ref()).map(|record| record.name.clone());
        let (Some(name), true) = (name, changed) else { return commit(&self.shared, holds, parts, None).await };
        // Its lane must be found again while nobody knows what became of the commit.
        self.shared.deployments.put(&name, known.clone());
        if let Err(fault) = commit(&self.shared, holds, parts, None).await {
            let is_none = known.record.is_none() && !is_in_doubt(&fault) && !known.lane.is_belied();
            // Of a name that came to nothing nothing is remembered: there may be ever new ones while nothing is taken.
            if is_none {
                self.shared.deployments.remove(&name);
            }
            return Err(fault);
        }
        match record {
            Some(record) => {
                let known = KnownRecord { record: Some(record), ..known.clone() };
                self.shared.deployments.put(&name, known);
            }
            None => self.shared.deployments.remove(&name),
        }
        Ok(())
    }

    /// `deployment.get`.
    pub(in crate::actors::coordinator) async fn deployment(&self, name: Scope) -> Outcomes {
        let known = self.known(&name);
        let known = if known.stands() { known } else { self.seat(&name).await?.known };
        let Some(record) = known.record else { return Err(Self::missing(&name)) };
        let (mut held, mut after, mut length) = (Vec::new(), None, AnswerLength::default());
        loop {
            let filter = Filter { scope: Some(name.clone()), ..Filter::default() };
            match self.list(None, None, filter, after, (LIST_PAGE_RECORDS_MAX, false)).await? {
                Done::Listed { views, next, .. } => {
                    views.iter().for_each(|view| length.add(view));
                    if !length.fits() {
                        return Err(too_much_held().into());
                    }
                    held.extend(views);
                    after = next;
                }
                _ => return Err(lost()),
            }
            if after.is_none() {
                break;
            }
        }
        let hindrance = self.hindrance(&record).await?;
        Ok(Done::Deployment(Deployment::clone(&record), held, hindrance))
    }

    /// Why a commit of the latest plan would be refused, if it has not ended.
    async fn hindrance(&self, record: &Deployment) -> Result<Option<String>, Box<Fault>> {
        if record.stage != Stage::Open {
            return Ok(None);
        }
        let ask = Settle::of(record, None, false);
        for (route, _) in self.networks_of(&record.name).await?.values() {
            let looked = self.ask_item(route, self.item(Command::Hindered(Box::new(ask.clone())), false)).await;
            match looked {
                Ok(Outcome::Hindered(None)) => {}
                Ok(Outcome::Hindered(hindrance)) => return Ok(hindrance),
                Ok(_) => return Err(lost()),
                // Deleted while we looked: nothing is promised there.
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(None)
    }

    /// `deployment.list`.
    pub(in crate::actors::coordinator) async fn deployments(&self, after: Option<Scope>, limit: usize) -> Outcomes {
        // All at once: a shard is read for all who ask for something of it meanwhile.
        let mut seats = JoinSet::new();
        for name in self.shared.deployments.doubtful() {
            let asker = Self::of_itself(&self.shared);
            seats.spawn(async move { asker.seat(&name).await.map(drop) });
        }
        while let Some(seat) = seats.join_next().await {
            seat.map_err(|_| lost())??;
        }
        let (page, more) = self.shared.deployments.page(after.as_ref(), limit);
        let next = page.last().filter(|_| more).map(|last| last.name.clone());
        Ok(Done::Deployments { page: page.iter().map(|record| Deployment::clone(record)).collect(), next })
    }

    /// `deployment.delete`: in slices, as `scope.release`; the record goes last.
    pub(in crate::actors::coordinator) async fn delete_deployment(&self, name: Scope) -> Outcomes {
        let seat = self.seat(&name).await?;
        if seat.known.record.is_none() {
            return Err(Self::missing(&name));
        }
        let command = |limit| Command::ReleaseScope { scope: name.clone(), limit };
        let done = self.release(None, (&name, None), command).await?;
        if let Done::Released { more: false, .. } = &done
            && !self.dry_run
        {
            self.begin()?;
            let holds = Holds::of(&self.shared, &[]).await?;
            let nothing_left = DeploymentChange { parts: Vec::new(), record: None, fewer: "" };
            self.conclude(&seat, holds, Vec::new(), nothing_left, Conclusion::Commit).await.map_err(|fault| {
                match *fault {
                    // What it held was let go all the same.
                    Fault::Unavailable { problem, .. } => {
                        Box::new(Fault::Unavailable { applied: Applied::Unknown, problem })
                    }
                    fault => Box::new(fault),
                }
            })?;
        }
        Ok(done)
    }
}
