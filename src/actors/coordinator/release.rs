//! `owner.release` and `scope.release`: release holdings in one network, or in many, each by itself, in bounded slices, so
//! that none waits for another.
//!
//! Requests that wait for capacity for the owner, or for any owner of the scope, end before anything is released
//! (`actors::waits`).
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
    /// Releases in one network, or in each, at most [`RELEASE_RECORDS_MAX`] in all. A failure after something was released
    /// does not undo that: if the rest was certainly not done, the answer tells what was released, and that there may be more.
    /// A client that asks for the rest is then told what is in the way.
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
                let done = format!(
                    "{} released, and they stay released (ask again for the rest)",
                    counted(released.len(), "address")
                );
                Err(Box::new(fault.after(&done)))
            }
        }
    }

    /// Was this refused because it is too much at once for the room left, and may less be taken? Releases in slices then
    /// continue in smaller ones.
    pub(super) fn is_too_much(&self, fault: &Fault) -> bool {
        !self.dry_run
            && self.shared.store.room().is_some()
            && matches!(fault, Fault::Unavailable { applied: Applied::No, .. })
    }

    /// Ends what waits for the owner, or for any of the scope, so that it gets nothing of what becomes free: nobody may be
    /// left to release it.
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
                // Deleted during the walk: nothing is held there.
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    /// Releases in one network. If asked by name, refused if the network was renamed by now; what was begun continues under
    /// any name.
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
