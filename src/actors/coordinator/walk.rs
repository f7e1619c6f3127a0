//! Walks over all networks in order of their names, page by page, by the names that they had when the walk began.
//!
//! Before: `lists`, `release` and `deploy`. After: the directory, which knows the names, and the networks, which are asked
//! whether they hold anything of an owner.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use super::{Coordinator, ListPlace, lost};
use crate::actors::routes::Route;
use crate::actors::sending::send;
use crate::actors::{Fault, Item, Reply, Told};
use crate::core::catalog::{ListRow, Listing, Naming};
use crate::core::command::{Command, Filter, ListSlice};
use crate::core::outcome::{Outcome, Slice};
use crate::core::refusal::Refusal;
use crate::core::types::{Name, NetworkId, Owner, Scope};

/// Listings asked for at once.
const PAGE: usize = 256;

/// Networks in order of name, page by page; with a scope or owner, only those that may hold something of it.
pub(super) struct Walk<'a> {
    coordinator: &'a Coordinator,
    scope: Option<Scope>,
    owner: Option<Owner>,
    /// Include what a release of the owner would release besides holdings: what is promised to it.
    counts_promises: bool,
    /// The moment whose names the walk uses; none: that of its first step.
    pub(super) naming: Option<Naming>,
    /// The walk continues after what a client was already shown.
    is_continued: bool,
    from: Bound<(Name, NetworkId)>,
    page: std::vec::IntoIter<ListRow>,
    ended: bool,
}

/// The refusal to continue a list: what moved to before the place where it continues would be left out, and what moved to
/// after it shown twice.
fn forgotten() -> Box<Fault> {
    let problem = "continues a list that began before networks or subnets were created, removed, renamed or moved, and what \
     they were called then is no longer known: another node serves by now, the server was restarted, or there were too many \
     such changes. Begin again without it";
    Refusal::invalid("after", problem).into()
}

impl<'a> Walk<'a> {
    /// Begins after the network of an earlier page, or with the first one.
    pub(super) fn after(coordinator: &'a Coordinator, place: Option<&ListPlace>) -> Self {
        Self::begun(coordinator, place, Bound::Excluded)
    }

    /// Begins with the network of an earlier page, or with the first one.
    pub(super) fn from(coordinator: &'a Coordinator, place: Option<&ListPlace>) -> Self {
        Self::begun(coordinator, place, Bound::Included)
    }

    fn begun(
        coordinator: &'a Coordinator,
        place: Option<&ListPlace>,
        bound: impl Fn((Name, NetworkId)) -> Bound<(Name, NetworkId)>,
    ) -> Self {
        let naming = place.and_then(|place| place.naming);
        let from = place.map_or(Bound::Unbounded, |place| bound((place.name.clone(), place.id)));
        let page = Vec::new().into_iter();
        let is_continued = place.is_some();
        let (scope, owner, counts_promises) = (None, None, false);
        Self { coordinator, scope, owner, counts_promises, naming, is_continued, from, page, ended: false }
    }

    /// Skips networks that hold nothing of the scope and owner, if they are given.
    pub(super) fn holding(mut self, scope: Option<&Scope>, owner: Option<&Owner>) -> Self {
        (self.scope, self.owner) = (scope.cloned(), owner.cloned());
        self
    }

    /// Skips networks in which the scope, or its owner, would release nothing.
    pub(super) fn letting_go(mut self, scope: &Scope, owner: Option<&Owner>) -> Self {
        self.counts_promises = true;
        self.holding(Some(scope), owner)
    }

    pub(super) async fn next(&mut self) -> Result<Option<Listing>, Box<Fault>> {
        Ok(self.next_row().await?.map(|row| row.listing))
    }

    pub(super) async fn next_row(&mut self) -> Result<Option<ListRow>, Box<Fault>> {
        loop {
            if let Some(row) = self.page.next() {
                return Ok(Some(row));
            }
            if self.ended {
                return Ok(None);
            }
            let found = match self.coordinator.page(self.naming, self.from.clone(), PAGE).await? {
                Some(found) => Some(found),
                None if self.is_continued => return Err(forgotten()),
                // The walk began with this very request: it uses the present names.
                None => self.coordinator.page(None, self.from.clone(), PAGE).await?,
            };
            let (naming, page) = found.ok_or_else(lost)?;
            self.naming = Some(naming);
            self.ended = page.len() < PAGE;
            if let Some(last) = page.last() {
                self.from = Bound::Excluded((last.name.clone(), last.listing.id));
            }
            self.page = self.holders(page).await.into_iter();
        }
    }

    /// Those of a page that hold something of the scope and owner, or do not answer. All are asked at once: one after the
    /// other, ten thousand networks would take a good part of a second.
    async fn holders(&self, page: Vec<ListRow>) -> Vec<ListRow> {
        if self.scope.is_none() && self.owner.is_none() {
            return page;
        }
        // Parts that moved elsewhere may hold something that their network does not.
        let asked = |row: &ListRow| self.coordinator.route_of(&row.listing).filter(|_| row.parts.is_none());
        let routed = page.into_iter().map(|row| (asked(&row), row));
        let may_hold = |route: &Option<Arc<Route>>| match (route, &self.scope) {
            (Some(route), Some(scope)) => route.published.may_hold_of(scope),
            (None, _) | (_, None) => true,
        };
        let (routes, page): (Vec<_>, Vec<_>) = routed.filter(|(route, _)| may_hold(route)).unzip();
        let Some(owner) = &self.owner else { return page };
        let question = match &self.scope {
            // A limit of nothing releases nothing; the answer still tells whether there is more.
            Some(scope) if self.counts_promises => {
                Command::ReleaseOwner { scope: scope.clone(), owner: owner.clone(), limit: 0 }
            }
            scope => {
                let filter = Filter { scope: scope.clone(), owner: Some(owner.clone()), ..Filter::default() };
                Command::List(Box::new(ListSlice { filter, after: None, limit: 1, count_only: false }))
            }
        };
        let (outlet, mut answers) = crate::actors::outlet();
        for (ticket, route) in (0..).zip(&routes) {
            let Some(route) = route else { continue };
            let item = Item { ticket, ..self.coordinator.item(question.clone(), true) };
            send(&self.coordinator.shared, route, false, vec![item], &outlet, Instant::now());
        }
        drop(outlet);
        let mut holds = vec![true; page.len()];
        while let Some(told) = answers.recv().await {
            let Told::Replies(replies) = told else { continue };
            for Reply { ticket, answer } in replies {
                let has_none = match answer {
                    Ok(Outcome::Listed { slice: Slice { count, next, .. }, .. }) => count == 0 && next.is_none(),
                    Ok(Outcome::LetGo { more, .. }) => !more,
                    _ => false, // The network does not answer.
                };
                holds[ticket as usize] = !has_none;
            }
        }
        page.into_iter().zip(holds).filter(|(_, holds)| *holds).map(|(row, _)| row).collect()
    }
}

impl Coordinator {
    pub(super) fn route_of(&self, listing: &Listing) -> Option<Arc<Route>> {
        self.shared.routes.by_id(listing.id)
    }

    /// The name of a network, or the last name of a deleted one that is still remembered.
    pub(super) async fn name_of(&self, route: &Arc<Route>) -> Result<Name, Box<Fault>> {
        if let Some(name) = &route.name {
            return Ok(name.clone());
        }
        match self.ask_item(route, self.item(Command::Show, false)).await? {
            Outcome::Network(view) => Ok(view.config.name.clone()),
            _ => Err(lost()),
        }
    }
}
