//! `owner.release` and `scope.release`: what lets go in one network, or in many, each by itself, in bounded slices, so that
//! none waits for another.
//!
//! Requests that wait for capacity for the owner, or for any of the scope, end before anything is let go of (`actors::waits`).
//!
//! Atomic per network and repeatable. Before: the coordinator, and `deploy` for a deployment that is deleted.

use std::sync::Arc;

use super::configure::is_gone;
use super::locked::is_certainly_not_done;
use super::walk::Walk;
use super::{Coordinator, Done, Outcomes};
use crate::actors::routes::Route;
use crate::actors::{Applied, Fault};
use crate::core::address::Address;
use crate::core::command::Command;
use crate::core::outcome::Outcome;
use crate::core::plural::counted;
use crate::core::types::{Name, NetworkId, Owner, Scope};
use crate::limits::{BATCH_CHANGES_MAX, RELEASE_RECORDS_MAX};

impl Coordinator {
    /// Lets go in one network, or in each, at most [`RELEASE_RECORDS_MAX`] in all. What goes wrong after something was let
    /// go does not make that undone: where the rest was certainly not done, it is told what was, and that there may be more. Who asks
    /// for that is told then what stands in its way.
    pub(super) async fn release(
        &self,
        only: Option<&str>,
        (scope, owner): (&Scope, Option<&Owner>),
        command: impl Fn(usize) -> Command,
    ) -> Outcomes {
        let mut released = Vec::new();
        let ended = match only {
            Some(text) => self.release_in_one(text, (scope, owner), &command, &mut released).await,
            None => self.release_in_each(scope, owner, &command, &mut released).await,
        };
        match ended {
            Ok(more) => Ok(Done::Released { released, more }),
            Err(fault) if released.is_empty() || self.dry_run => Err(fault),
            Err(fault) if is_certainly_not_done(&fault) => Ok(Done::Released { released, more: true }),
            Err(fault) => {
                let done =
                    format!("{} released, which stays so (ask again for the rest)", counted(released.len(), "address"));
                Err(Box::new(fault.after(&done)))
            }
        }
    }

    /// Is so much refused at once for want of room, and may less be taken? What lets go in slices goes on in smaller ones then.
    pub(super) fn is_too_much(&self, fault: &Fault) -> bool {
        !self.dry_run
            && self.shared.store.room().is_some()
            && matches!(fault, Fault::Unavailable { applied: Applied::No, .. })
    }

    /// What waits for the owner, or for any of the scope, gets nothing more of what comes free: nobody may be left to let go of it.
    fn end_waits(&self, scope: &Scope, owner: Option<&Owner>, network: Option<NetworkId>) {
        if !self.dry_run {
            self.shared.waits.end(scope, owner, network);
        }
    }

    async fn release_in_one(
        &self,
        text: &str,
        (scope, owner): (&Scope, Option<&Owner>),
        command: &impl Fn(usize) -> Command,
        released: &mut Vec<(Name, Address)>,
    ) -> Result<bool, Box<Fault>> {
        let route = self.route(text)?;
        let name = self.name_of(&route).await?;
        self.end_waits(scope, owner, Some(route.id));
        self.release_in((&route, &name), route.is_called(text), command, released).await
    }

    async fn release_in_each(
        &self,
        scope: &Scope,
        owner: Option<&Owner>,
        command: &impl Fn(usize) -> Command,
        released: &mut Vec<(Name, Address)>,
    ) -> Result<bool, Box<Fault>> {
        self.end_waits(scope, owner, None);
        let mut walk = Walk::after(self, None).letting_go(scope, owner);
        while let Some(listing) = walk.next().await? {
            let Some(route) = self.route_of(&listing) else { continue };
            if released.len() >= RELEASE_RECORDS_MAX {
                return Ok(true);
            }
            match self.release_in((&route, &listing.name), false, command, released).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // Deleted while we walked: nothing is held there.
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    /// Asked by its name, it is refused where it is called otherwise by now; what was begun goes on whatever it is called.
    async fn release_in(
        &self,
        (route, name): (&Arc<Route>, &Name),
        mut by_name: bool,
        command: &impl Fn(usize) -> Command,
        released: &mut Vec<(Name, Address)>,
    ) -> Result<bool, Box<Fault>> {
        let mut slice = BATCH_CHANGES_MAX;
        loop {
            let room = RELEASE_RECORDS_MAX - released.len();
            if room == 0 {
                return Ok(true);
            }
            let limit = if self.dry_run { room } else { room.min(slice) };
            let item = self.item(command(limit), self.dry_run);
            let answer = match self.ask_and_wait_telling((route, by_name), item, || {}).await {
                Err(fault) if limit > 1 && self.is_too_much(&fault) => {
                    slice = limit / 2;
                    continue;
                }
                answer => answer?,
            };
            match answer {
                Outcome::LetGo { released: addresses, more } => {
                    by_name = false;
                    released.extend(addresses.into_iter().map(|address| (name.clone(), address)));
                    if !more || self.dry_run {
                        return Ok(more);
                    }
                }
                _ => return Ok(false),
            }
        }
    }
}
