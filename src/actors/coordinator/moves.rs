//! `subnet.move`: moves a subnet with everything in it from one network to another, in one commit.
//!
//! ```text
//! lock both ─▶ note in the catalog what the target takes ─▶ hold both ─▶ each decides ─▶ one joint unit ─▶ settle both
//! ```
//!
//! **The intent comes before the holds.** Noting it may have to wait for the intent of another act, and that act may wait for
//! a network whose holder waits for one of these. So a task that holds networks waits for nothing but networks.
//!
//! Review notes: is anything but a network awaited under the holds? Does a refusal leave by `seen_durably`?

use std::sync::Arc;

use super::configure::{comes_before_overlap, find_subnet};
use super::joint::{Holds, commit, lost_before, rank, seen_of};
use super::locked::{LockedAct, is_in_doubt};
use super::{Coordinator, Done, MOVE_WAIT_MAX, Tell};
use crate::actors::directory::{CatalogCheck, DurableNetwork, MovedSubnet};
use crate::actors::routes::Route;
use crate::actors::{Applied, Fault, mac_holder};
use crate::core::address::Cidr;
use crate::core::catalog::Intent;
use crate::core::command::{Command, Moved, SubnetRef};
use crate::core::outcome::Outcome;
use crate::core::refusal::Refusal;
use crate::core::state::SubnetConfig;
use crate::core::types::{Generation, ShardTime, SubnetId, Version};

impl Coordinator {
    /// `subnet.move`: moves everything in the subnet, in one commit.
    pub(super) async fn move_subnet(
        &self,
        from: &str,
        subnet: SubnetRef,
        to: &str,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) {
        let (networks, act) = match self.lock_both(from, to).await {
            Ok(locked) => locked,
            Err(fault) => return tell.tell(Err(fault)),
        };
        let seen = seen_of(&networks);
        let moved = match act {
            None => self.moved_nowhere(&networks[0], subnet, if_version, tell).await.map(|()| None),
            Some(act) => self.try_move(&networks, act, subnet, if_version, tell).await,
        };
        match moved {
            Ok(None) => {}
            Ok(Some(would_be)) => tell.tell(self.durable(seen).await.map(|()| Done::Outcome(would_be))),
            Err(fault) => {
                let fault = self.seen_durably(seen, fault).await;
                tell.tell(Err(mac_holder::named(&self.shared, fault, mac_holder::patience(&self.shared)).await));
            }
        }
    }

    /// Finds and locks the networks of these names; no lock is needed if they are one. A job that waited for the locks while
    /// one was renamed means the networks that have the names now, as in [`Coordinator::lock_named`].
    async fn lock_both(&self, from: &str, to: &str) -> Result<([Arc<Route>; 2], Option<LockedAct>), Box<Fault>> {
        let find = || Ok::<_, Box<Fault>>([self.route(from)?, self.route(to)?]);
        loop {
            let asked = find()?;
            let ids = asked.each_ref().map(|network| network.id);
            if ids[0] == ids[1] {
                return Ok((asked, None));
            }
            self.together(&asked, "to")?;
            let act = self.lock(ids.to_vec()).await?;
            let networks = find()?;
            if networks.each_ref().map(|network| network.id) == ids {
                return Ok((networks, Some(act)));
            }
        }
    }

    /// Moves the subnet and answers. For a dry run, returns the answer, which waits for what it saw.
    async fn try_move(
        &self,
        [from, to]: &[Arc<Route>; 2],
        mut act: LockedAct,
        subnet: SubnetRef,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) -> Result<Option<Outcome>, Box<Fault>> {
        let mut routes = vec![Arc::clone(from), Arc::clone(to)];
        routes.sort_by_key(|route| route.id);
        // Nobody else changes the subnet until the lock ends.
        let view = self.show(from).await?;
        let there = find_subnet(&view.subnets, &subnet);
        let known = there.map(|subnet| (subnet.id, subnet.cidr));
        // Before the networks are held: what this waits for may need one of them.
        let spaced = match known {
            Some(space) => self.space_in(&mut act, [from, to], space).await,
            None => Ok(()),
        };
        // Before the networks are held: a list that is still reading in them must be able to end.
        let moving = tokio::time::timeout(MOVE_WAIT_MAX, self.shared.moving.write()).await.map_err(|_| {
            let problem = "what goes through all networks does not end, and no subnet moves meanwhile".to_owned();
            Fault::Overloaded { problem, retry_after_ms: 500 }
        })?;
        let holds = Holds::of(&self.shared, &routes).await?;
        self.begin()?;
        let transaction = self.transaction();
        let leaving = |bytes_max| Command::MoveOut { subnet: subnet.clone(), if_version, bytes_max };
        // Whatever is in the way of the subnet itself is answered before anything in it is looked at.
        let left = holds.decide(self, from, leaving(None), transaction).await;
        if let Ok((_, Outcome::MovedOut(bare))) = &left
            && known != Some((bare.subnet.id, bare.subnet.cidr))
        {
            // The network was loaded again after something in doubt: what was noted is not what would move.
            let problem = "the subnet is not what it was a moment ago".to_owned();
            return Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }));
        }
        let judged = self.judge_bare(left.map(drop), &holds, [from, to], there, spaced).await;
        judged.map_err(|(fault, decided_by)| {
            decided_by.inspect(|network| self.note_answer(network, &fault));
            fault
        })?;
        let bytes_max = self.shared.info.move_bytes_max;
        let left = holds.decide(self, from, leaving(Some(bytes_max)), transaction).await;
        let (out, outcome) = left.inspect_err(|fault| self.note_answer(from, fault))?;
        let Outcome::MovedOut(moved) = outcome else { return Err(lost_before()) };
        let (id, cidr) = (moved.subnet.id, moved.subnet.cidr);
        let held = moved.held();
        let taken = holds.decide(self, to, Command::MoveIn(moved), transaction).await;
        let (into, outcome) = taken.inspect_err(|fault| self.note_answer(to, fault))?;
        let bytes = out.bytes + into.bytes;
        if bytes > bytes_max {
            let (count, first) = held;
            return Err(Refusal::TooMuchToMove { subnet: cidr, count, first, bytes, bytes_max }.into());
        }
        if self.dry_run {
            return Ok(Some(outcome));
        }
        // The place where the subnet may be now comes first: until that is listed, the place where it was guards its space.
        act.begins(&to.lane, false);
        act.begins(&from.lane, false);
        let committed = commit(&self.shared, holds, vec![out, into], None).await;
        let mut is_listed = false;
        match &committed {
            Ok(()) => {
                is_listed =
                    self.settle_as_is(&mut act, to, None).await && self.settle_as_is(&mut act, from, None).await;
            }
            Err(fault) if !is_in_doubt(fault) => act.came_to_nothing(),
            Err(_) => {}
        }
        let mut is_moved = committed.is_ok();
        let tells_where = || self.shared.moved(MovedSubnet { subnet: id, from: from.id, to: to.id });
        if is_listed {
            tells_where();
        }
        drop(moving);
        tell.tell(committed.map(|()| Done::Outcome(outcome)));
        let stored = act.settle_as_stored().await;
        is_moved |= stored.iter().any(|network| network.config.id == to.id && has(network, id));
        if is_moved && !is_listed {
            tells_where();
        }
        Ok(None)
    }

    /// Notes what the target takes. Refused if its realm has no space for it.
    async fn space_in(
        &self,
        act: &mut LockedAct,
        [from, to]: [&Arc<Route>; 2],
        (id, cidr): (SubnetId, Cidr),
    ) -> Result<(), Box<Fault>> {
        let intent = Intent { network: to.id, realm: to.realm.clone(), name: None, subnets: vec![(id, cidr)] };
        act.intend(CatalogCheck::Space(Some((from.id, id))), intent).await
    }

    /// Refuses whatever is in the way of the subnet itself, regardless of what lies in it: of the refusals of the network that
    /// has it, of the target, and of its realm for want of space, the first in the protocol's order. Also returns which
    /// network refuses; none if it is the catalog.
    async fn judge_bare<'a>(
        &self,
        left: Result<(), Box<Fault>>,
        holds: &Holds,
        [from, to]: [&'a Arc<Route>; 2],
        subnet: Option<&Arc<SubnetConfig>>,
        spaced: Result<(), Box<Fault>>,
    ) -> Result<(), (Box<Fault>, Option<&'a Arc<Route>>)> {
        let is_late =
            |fault: &Fault| matches!(fault, Fault::Refused(Refusal::Guarded { .. } | Refusal::VersionConflict { .. }));
        let left = left.map_err(|fault| (fault, Some(from)));
        let (true, Some(subnet)) = (left.as_ref().map_or_else(|(fault, _)| is_late(fault), |()| true), subnet) else {
            return left;
        };
        // Objections to reservations rank after what is refused here.
        let (entries, now) = (Vec::new(), ShardTime::default());
        let bare = Moved { subnet: Arc::clone(subnet), entries, now, next_generation: Generation(0) };
        let arriving = holds.decide(self, to, Command::MoveIn(Box::new(bare)), self.transaction()).await;
        match (arriving, spaced, left) {
            (Err(first), _, _) if comes_before_overlap(&first) => Err((first, Some(to))),
            (_, Err(overlap), _) => Err((overlap, None)),
            (Err(refused), Ok(()), Err((fault, _))) if rank(&refused) < rank(&fault) => Err((refused, Some(to))),
            (Err(refused), Ok(()), Ok(())) => Err((refused, Some(to))),
            (_, Ok(()), left) => left,
        }
    }

    /// Answers for a subnet that is already where it shall be: judged as a move, answered as it is.
    async fn moved_nowhere(
        &self,
        network: &Arc<Route>,
        subnet: SubnetRef,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) -> Result<(), Box<Fault>> {
        let item = self.item(Command::MoveOut { subnet, if_version, bytes_max: None }, true);
        let decided = self.ask_item(network, item).await.inspect_err(|fault| self.note_answer(network, fault))?;
        let Outcome::MovedOut(moved) = decided else { return Err(lost_before()) };
        tell.tell(Ok(Done::Outcome(Outcome::Subnet { subnet: moved.subnet, created: false })));
        Ok(())
    }
}

fn has(network: &DurableNetwork, subnet: SubnetId) -> bool {
    network.subnets.iter().any(|present| present.id == subnet)
}
