//! `subnet.move`: with all that lies in it, from one network to another, in one commit.
//!
//! ```text
//! lock both ─▶ note in the catalog what the target takes ─▶ hold both ─▶ each decides ─▶ one joint unit ─▶ settle both
//! ```
//!
//! **The intent comes before the holds.** It may wait for the intent of another act, and that act for a network that
//! somebody holds who waits for one of these: who holds networks waits for nothing but networks.
//!
//! Review notes: is anything awaited under the holds that is no network? Does a refusal leave by `seen_durably`?

use std::sync::Arc;

use super::configure::{comes_before_overlap, find_subnet};
use super::joint::{Holds, commit, lost_before, rank, seen_of};
use super::locked::{LockedAct, is_in_doubt};
use super::{Coordinator, Done, Tell};
use crate::actors::directory::{CatalogCheck, DurableNetwork, MovedSubnet};
use crate::actors::routes::Route;
use crate::actors::{Applied, Fault, mac_holder};
use crate::core::address::Cidr;
use crate::core::catalog::Intent;
use crate::core::command::{Command, Moved, SubnetRef};
use crate::core::outcome::Outcome;
use crate::core::refusal::Refusal;
use crate::core::types::{Generation, ShardTime, SubnetId, Version};

impl Coordinator {
    /// `subnet.move`: with all that lies in it, in one commit.
    pub(super) async fn move_subnet(
        &self,
        from: &str,
        subnet: SubnetRef,
        to: &str,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) {
        let routes: Vec<Arc<Route>> = [from, to].into_iter().filter_map(|text| self.shared.routes.find(text)).collect();
        let seen = seen_of(&routes);
        match self.try_move(from, subnet, to, if_version, tell).await {
            Ok(None) => {}
            Ok(Some(would_be)) => tell.tell(self.durable(seen).await.map(|()| Done::Outcome(would_be))),
            Err(fault) => {
                let fault = self.seen_durably(seen, fault).await;
                tell.tell(Err(mac_holder::named(&self.shared, fault, mac_holder::patience()).await));
            }
        }
    }

    /// Moves it and tells so. Of a dry run it is answered what would be told, which waits for what it saw.
    async fn try_move(
        &self,
        from: &str,
        subnet: SubnetRef,
        to: &str,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) -> Result<Option<Outcome>, Box<Fault>> {
        let (from, to) = (self.route(from)?, self.route(to)?);
        if from.id == to.id {
            return self.moved_nowhere(&from, subnet, if_version, tell).await.map(|()| None);
        }
        let mut routes = vec![Arc::clone(&from), Arc::clone(&to)];
        routes.sort_by_key(|route| route.id);
        self.together(&routes, "to")?;
        let mut act = self.lock(routes.iter().map(|route| route.id).collect()).await?;
        // Nobody else changes what it is until the lock ends.
        let view = self.show(&from).await?;
        let known = find_subnet(&view.subnets, &subnet).map(|subnet| (subnet.id, subnet.cidr));
        // Before the networks are held: what it waits for may need one of them.
        let spaced = match known {
            Some(space) => self.space_in(&mut act, [&from, &to], space).await,
            None => Ok(()),
        };
        // Before the networks are held: a list that reads on in them must be able to end.
        let moving = self.shared.moving.write().await;
        let holds = Holds::of(&self.shared, &routes).await?;
        let transaction = self.transaction();
        let leaving = Command::MoveOut { subnet: subnet.clone(), if_version };
        let (out, outcome) = match holds.decide(self, &from, leaving, transaction).await {
            Ok(decided) => decided,
            Err(fault) => {
                let (fault, decided_by) = self.refused_to_leave(fault, &holds, [&from, &to], &subnet, spaced).await;
                if let Some(network) = decided_by {
                    self.note_answer(network, &fault);
                }
                return Err(fault);
            }
        };
        let Outcome::MovedOut(moved) = outcome else { return Err(lost_before()) };
        let (id, cidr) = (moved.subnet.id, moved.subnet.cidr);
        if known != Some((id, cidr)) {
            // It was loaded again behind something in doubt: what is noted is not what would move.
            let problem = "the subnet is not what it was a moment ago".to_owned();
            return Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }));
        }
        let held = moved.held();
        let taken = holds.decide(self, &to, Command::MoveIn(moved), transaction).await;
        // Of what the target refuses and what its realm has no space for, the first in the protocol's order is answered.
        let taken = match taken {
            Err(fault) if comes_before_overlap(&fault) => {
                self.note_answer(&to, &fault);
                return Err(fault);
            }
            taken => taken,
        };
        spaced?;
        let (into, outcome) = taken.inspect_err(|fault| self.note_answer(&to, fault))?;
        let (bytes, bytes_max) = (out.bytes + into.bytes, self.shared.info.move_bytes_max);
        if bytes > bytes_max {
            let (count, first) = held;
            return Err(Refusal::TooMuchToMove { subnet: cidr, count, first, bytes, bytes_max }.into());
        }
        if self.dry_run {
            return Ok(Some(outcome));
        }
        // Where it may be now comes first: until that is listed, where it was guards its space.
        act.begins(&to.lane, false);
        act.begins(&from.lane, false);
        let committed = commit(&self.shared, holds, vec![out, into], None).await;
        let mut is_listed = false;
        match &committed {
            Ok(()) => {
                is_listed =
                    self.settle_as_is(&mut act, &to, None).await && self.settle_as_is(&mut act, &from, None).await;
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

    /// Notes what the target takes. Refused: its realm has no space for it.
    async fn space_in(
        &self,
        act: &mut LockedAct,
        [from, to]: [&Arc<Route>; 2],
        (id, cidr): (SubnetId, Cidr),
    ) -> Result<(), Box<Fault>> {
        let intent = Intent { network: to.id, realm: to.realm.clone(), name: None, subnets: vec![(id, cidr)] };
        act.intend(CatalogCheck::Space(Some((from.id, id))), intent).await
    }

    /// What is answered where the network that has the subnet refuses: what the target refuses, where that comes first. And
    /// which network it is that refuses so; none where it is the catalog.
    async fn refused_to_leave<'a>(
        &self,
        fault: Box<Fault>,
        holds: &Holds,
        [from, to]: [&'a Arc<Route>; 2],
        subnet: &SubnetRef,
        spaced: Result<(), Box<Fault>>,
    ) -> (Box<Fault>, Option<&'a Arc<Route>>) {
        let late = matches!(*fault, Fault::Refused(Refusal::Guarded { .. } | Refusal::VersionConflict { .. }));
        let transaction = self.transaction();
        let Ok((_, Outcome::Network(view))) = holds.decide(self, from, Command::Show, transaction).await else {
            return (fault, Some(from));
        };
        let Some(subnet) = find_subnet(&view.subnets, subnet).filter(|_| late) else {
            return (fault, Some(from));
        };
        // What stands against reservations comes behind what was refused already.
        let (entries, now) = (Vec::new(), ShardTime::default());
        let bare = Moved { subnet: Arc::clone(subnet), entries, now, next_generation: Generation(0) };
        let arriving = holds.decide(self, to, Command::MoveIn(Box::new(bare)), transaction).await;
        match arriving {
            Err(first) if comes_before_overlap(&first) => (first, Some(to)),
            arriving => match (spaced, arriving) {
                (Err(overlap), _) => (overlap, None),
                (Ok(()), Err(refused)) if rank(&refused) < rank(&fault) => (refused, Some(to)),
                (Ok(()), _) => (fault, Some(from)),
            },
        }
    }

    /// A subnet that is where it shall be: judged as a move, answered as it is.
    async fn moved_nowhere(
        &self,
        network: &Arc<Route>,
        subnet: SubnetRef,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) -> Result<(), Box<Fault>> {
        let item = self.item(Command::MoveOut { subnet, if_version }, true);
        let decided = self.ask_item(network, item).await.inspect_err(|fault| self.note_answer(network, fault))?;
        let Outcome::MovedOut(moved) = decided else { return Err(lost_before()) };
        tell.tell(Ok(Done::Outcome(Outcome::Subnet { subnet: moved.subnet, created: false })));
        Ok(())
    }
}

fn has(network: &DurableNetwork, subnet: SubnetId) -> bool {
    network.subnets.iter().any(|present| present.id == subnet)
}
