//! What looks at, or lets go in, many networks: each by itself, in bounded slices, so that none waits for another.
//!
//! `owner.release` and `scope.release` are atomic per network and repeatable. Lists go by network name, then address;
//! what existed throughout is listed exactly once.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compact_str::CompactString;

use super::configure::is_gone;
use super::{Coordinator, Done, Elsewhere, ListOrder, ListPlace, Outcomes};
use crate::actors::directory::Question;
use crate::actors::events::Cursor;
use crate::actors::routes::Route;
use crate::actors::{Fault, Item, Reply, Told};
use crate::core::address::{Address, Range};
use crate::core::catalog::{Listing, Naming, Stop};
use crate::core::command::{Command, Filter, ListSlice};
use crate::core::outcome::{Lookup, Outcome, ScopeUsage, UsageReport};
use crate::core::plural::counted;
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Name, NetworkId, Owner, Place, Scope};
use crate::limits::{BATCH_CHANGES_MAX, LIST_SLICE_RECORDS_MAX, RELEASE_RECORDS_MAX};

/// Listings asked for at once.
const PAGE: usize = 256;
/// How long a list waits for a subnet that moves; a move is one commit. Then it shows what it finds.
const MOVE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Networks in order of name, page by page; with a scope or owner, those that may hold something of it.
pub(super) struct Walk<'a> {
    coordinator: &'a Coordinator,
    scope: Option<Scope>,
    owner: Option<Owner>,
    /// The moment whose names it goes by; none: that of its first step.
    naming: Option<Naming>,
    from: Bound<(Name, NetworkId)>,
    page: std::vec::IntoIter<Stop>,
    ended: bool,
}

impl<'a> Walk<'a> {
    /// Behind the network of an earlier page, or from the first one on.
    pub(super) fn after(coordinator: &'a Coordinator, place: Option<&ListPlace>) -> Self {
        Self::begun(coordinator, place, Bound::Excluded)
    }

    /// From the network of an earlier page on, or from the first one on.
    fn from(coordinator: &'a Coordinator, place: Option<&ListPlace>) -> Self {
        Self::begun(coordinator, place, Bound::Included)
    }

    fn begun(
        coordinator: &'a Coordinator,
        place: Option<&ListPlace>,
        bound: impl Fn((Name, NetworkId)) -> Bound<(Name, NetworkId)>,
    ) -> Self {
        let naming = place.and_then(|place| place.naming);
        let from = place.map_or(Bound::Unbounded, |place| bound((place.name.clone(), place.id)));
        Self { coordinator, scope: None, owner: None, naming, from, page: Vec::new().into_iter(), ended: false }
    }

    /// Passes over networks that hold nothing of the scope and owner, where they are given.
    pub(super) fn holding(mut self, scope: Option<&Scope>, owner: Option<&Owner>) -> Self {
        (self.scope, self.owner) = (scope.cloned(), owner.cloned());
        self
    }

    pub(super) async fn next(&mut self) -> Result<Option<Listing>, Box<Fault>> {
        Ok(self.next_stop().await?.map(|stop| stop.listing))
    }

    async fn next_stop(&mut self) -> Result<Option<Stop>, Box<Fault>> {
        loop {
            if let Some(stop) = self.page.next() {
                return Ok(Some(stop));
            }
            if self.ended {
                return Ok(None);
            }
            let (naming, page) = self.coordinator.page(self.naming, self.from.clone(), PAGE).await?;
            self.naming = Some(naming);
            self.ended = page.len() < PAGE;
            if let Some(last) = page.last() {
                self.from = Bound::Excluded((last.name.clone(), last.listing.id));
            }
            self.page = self.holders(page).await.into_iter();
        }
    }

    /// Those of a page that hold something of the scope and owner, or do not tell. All are asked at once: one after the
    /// other, ten thousand networks would take a good part of a second.
    async fn holders(&self, page: Vec<Stop>) -> Vec<Stop> {
        if self.scope.is_none() && self.owner.is_none() {
            return page;
        }
        // What moved may hold something that its network does not.
        let asked = |stop: &Stop| self.coordinator.route_of(&stop.listing).filter(|_| stop.parts.is_none());
        let routed = page.into_iter().map(|stop| (asked(&stop), stop));
        let may_hold = |route: &Option<Arc<Route>>| match (route, &self.scope) {
            (Some(route), Some(scope)) => route.published.may_hold_of(scope),
            (None, _) | (_, None) => true,
        };
        let (routes, page): (Vec<_>, Vec<_>) = routed.filter(|(route, _)| may_hold(route)).unzip();
        let Some(owner) = &self.owner else { return page };
        let filter = Filter { scope: self.scope.clone(), owner: Some(owner.clone()), ..Filter::default() };
        let slice = ListSlice { filter, after: None, limit: 1, count_only: true };
        let (outlet, mut answers) = crate::actors::outlet();
        for (ticket, route) in (0..).zip(&routes) {
            let Some(route) = route else { continue };
            let item = Item { ticket, ..self.coordinator.item(Command::List(Box::new(slice.clone())), true) };
            super::send(&self.coordinator.shared, route, false, vec![item], &outlet, Instant::now());
        }
        drop(outlet);
        let mut holds = vec![true; page.len()];
        while let Some(told) = answers.recv().await {
            let Told::Replies(replies) = told else { continue };
            for Reply { ticket, answer } in replies {
                if let Ok(Outcome::Listed { count: 0, .. }) = answer {
                    holds[ticket as usize] = false;
                }
            }
        }
        page.into_iter().zip(holds).filter(|(_, holds)| *holds).map(|(stop, _)| stop).collect()
    }
}

impl Coordinator {
    pub(super) fn route_of(&self, listing: &Listing) -> Option<Arc<Route>> {
        self.shared.routes.by_id(listing.id)
    }

    /// Lets go in one network, or in each, at most [`RELEASE_RECORDS_MAX`] in all. What goes wrong after something was let
    /// go does not make that undone.
    pub(super) async fn release(
        &self,
        only: Option<&str>,
        (scope, owner): (&Scope, Option<&Owner>),
        command: impl Fn(usize) -> Command,
    ) -> Outcomes {
        let mut released = Vec::new();
        let ended = match only {
            Some(text) => self.release_in_one(text, &command, &mut released).await,
            None => self.release_in_each(scope, owner, &command, &mut released).await,
        };
        match ended {
            Ok(more) => Ok(Done::Released { released, more }),
            Err(fault) if released.is_empty() || self.dry_run => Err(fault),
            Err(fault) => {
                let done =
                    format!("{} released, which stays so (ask again for the rest)", counted(released.len(), "address"));
                Err(Box::new(fault.after(&done)))
            }
        }
    }

    async fn release_in_one(
        &self,
        text: &str,
        command: &impl Fn(usize) -> Command,
        released: &mut Vec<(Name, Address)>,
    ) -> Result<bool, Box<Fault>> {
        let route = self.route(text)?;
        let name = self.name_of(&route).await;
        self.release_in(&route, &name, command, released).await
    }

    async fn release_in_each(
        &self,
        scope: &Scope,
        owner: Option<&Owner>,
        command: &impl Fn(usize) -> Command,
        released: &mut Vec<(Name, Address)>,
    ) -> Result<bool, Box<Fault>> {
        let mut walk = Walk::after(self, None).holding(Some(scope), owner);
        while let Some(listing) = walk.next().await? {
            let Some(route) = self.route_of(&listing) else { continue };
            if released.len() >= RELEASE_RECORDS_MAX {
                return Ok(true);
            }
            match self.release_in(&route, &listing.name, command, released).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // Deleted while we walked: nothing is held there.
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    pub(super) async fn name_of(&self, route: &Arc<Route>) -> Name {
        match &route.name {
            Some(name) => name.clone(),
            None => match self.ask_item(route, self.item(Command::Show, false)).await {
                Ok(Outcome::Network(view)) => view.config.name.clone(),
                Ok(_) | Err(_) => route.realm.clone(),
            },
        }
    }

    async fn release_in(
        &self,
        route: &Arc<Route>,
        name: &Name,
        command: &impl Fn(usize) -> Command,
        released: &mut Vec<(Name, Address)>,
    ) -> Result<bool, Box<Fault>> {
        loop {
            let room = RELEASE_RECORDS_MAX - released.len();
            if room == 0 {
                return Ok(true);
            }
            let limit = if self.dry_run { room } else { room.min(BATCH_CHANGES_MAX) };
            match self.ask(route, command(limit)).await? {
                Outcome::LetGo { released: addresses, more } => {
                    released.extend(addresses.into_iter().map(|address| (name.clone(), address)));
                    if !more || self.dry_run {
                        return Ok(more);
                    }
                }
                _ => return Ok(false),
            }
        }
    }

    /// `ip.list`.
    pub(super) async fn list(
        &self,
        only: Option<&str>,
        realm: Option<Name>,
        filter: Filter,
        after: Option<ListPlace>,
        (limit, count_only): (usize, bool),
    ) -> Outcomes {
        let only = only.map(|text| self.route(text)).transpose()?;
        // Whatever is shown is shown as it is then, or later.
        let begin = self.shared.feed.end();
        let empty = || Page { limit, count_only, ..Page::default() };
        let Some(route) = only else {
            let _nothing_moves = tokio::time::timeout(MOVE_WAIT_MAX, self.shared.moving.read()).await;
            return Ok(self.list_all(realm.as_ref(), &filter, after.as_ref(), empty()).await?.done(begin));
        };
        let mut page = empty();
        if realm.as_ref().is_none_or(|realm| *realm == route.realm) {
            let after = after.filter(|after| after.id == route.id).and_then(|after| after.address);
            self.list_in(&route, &filter, after, &mut page).await?;
        } else {
            // In another realm nothing is listed, but a subnet or pool that is not there is still said to be missing.
            let mut unseen = Page::default();
            self.list_in(&route, &filter, None, &mut unseen).await?;
            page.at = unseen.at;
        }
        let at = page.at.unwrap_or_else(|| begin.place(route.lane.shard));
        Ok(page.done(Cursor::new(false, [at])))
    }

    /// A page of all networks.
    async fn list_all(
        &self,
        realm: Option<&Name>,
        filter: &Filter,
        place: Option<&ListPlace>,
        mut page: Page,
    ) -> Result<Page, Box<Fault>> {
        let mut walk = Walk::from(self, place).holding(filter.scope.as_ref(), filter.owner.as_ref());
        while !page.is_full()
            && let Some(stop) = walk.next_stop().await?
        {
            if realm.is_some_and(|realm| *realm != stop.listing.realm) {
                continue;
            }
            let after = place.filter(|place| place.id == stop.listing.id).and_then(|place| place.address);
            let Some(parts) = &stop.parts else {
                let Some(route) = self.route_of(&stop.listing) else { continue };
                self.list_among(&route, filter, after, &mut page).await?;
                page.goes_by(route.id, None, &stop);
                continue;
            };
            for (cidr, network) in parts.iter() {
                let range = cidr.range();
                let wanted = filter.range.map_or(Some(range), |asked| asked.intersection(range));
                let (Some(wanted), Some(route)) = (wanted, self.shared.routes.by_id(*network)) else { continue };
                if after.is_some_and(|after| wanted.last() <= after) || page.is_full() {
                    continue;
                }
                let filter = Filter { range: Some(wanted), ..filter.clone() };
                let after = after.filter(|after| wanted.contains(*after));
                self.list_among(&route, &filter, after, &mut page).await?;
                page.goes_by(*network, Some(range), &stop);
            }
        }
        page.order.naming = walk.naming;
        Ok(page)
    }

    /// The same for one of many networks.
    async fn list_among(
        &self,
        route: &Arc<Route>,
        filter: &Filter,
        after: Option<Address>,
        page: &mut Page,
    ) -> Result<(), Box<Fault>> {
        match self.list_in(route, filter, after, page).await {
            // A subnet or pool that only some networks have; or deleted while we walked.
            Err(fault) if is_gone(&fault) => Ok(()),
            listed => listed,
        }
    }

    async fn list_in(
        &self,
        route: &Arc<Route>,
        filter: &Filter,
        mut after: Option<Address>,
        page: &mut Page,
    ) -> Result<(), Box<Fault>> {
        while !page.is_full() {
            let room = if page.count_only { LIST_SLICE_RECORDS_MAX } else { page.limit + 1 - page.views.len() };
            let slice = ListSlice { filter: filter.clone(), after, limit: room, count_only: page.count_only };
            let listed = self.ask(route, Command::List(Box::new(slice))).await?;
            let Outcome::Listed { views, count, next, at } = listed else { return Ok(()) };
            // What changes between two slices is told to who watches from the first.
            page.at = page.at.or(at.map(|at| *at));
            page.views.extend(views);
            page.count += count;
            match next {
                Some(address) => after = Some(address),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// `ip.find`, and `ip.get` in a realm.
    pub(super) async fn find(&self, realm: Option<Name>, address: Address) -> Outcomes {
        let mut found: Vec<Lookup> = Vec::new();
        for listing in self.listings(Question::Holding(realm, address)).await? {
            let Some(route) = self.route_of(&listing) else { continue };
            match self.ask(&route, Command::Get(address)).await {
                Ok(Outcome::Lookup(lookup)) => found.push(*lookup),
                Ok(_) => {}
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(Done::Found(found))
    }

    /// A command for the one network in which this scope holds an address. Networks of different realms may hold the same:
    /// which of them is meant is not guessed.
    pub(super) async fn located(&self, address: Address, scope: &Scope, command: Command) -> Outcomes {
        let mut found: Option<(Arc<Route>, Name)> = None;
        for listing in self.listings(Question::Holding(None, address)).await? {
            let Some(route) = self.route_of(&listing) else { continue };
            let lookup = match self.ask(&route, Command::Get(address)).await {
                Ok(Outcome::Lookup(lookup)) => lookup,
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(_) | Err(_) => continue,
            };
            let holder = lookup.reservation.as_ref().filter(|view| view.address == address);
            if holder.is_some_and(|view| view.reservation.holder.scope == *scope) {
                if let Some((_, first)) = found {
                    let problem = format!(
                        "must be given: scope `{scope}` holds {address} in network `{first}` and in network `{}`",
                        listing.name
                    );
                    return Err(Refusal::invalid("network", problem).into());
                }
                found = Some((route, listing.name.clone()));
            }
        }
        if let Some((route, _)) = found {
            return self.ask(&route, command).await.map(Done::Outcome);
        }
        let mut refusal = Refusal::not_found(Missing::Reservation, address);
        if let Refusal::NotFound { hint, .. } = &mut refusal {
            *hint = Some(format!("nothing is held there in scope `{scope}`; name the network to see who holds it"));
        }
        Err(refusal.into())
    }

    /// `network.list`.
    pub(super) async fn networks(
        &self,
        realm: Option<&Name>,
        tag: Option<&(CompactString, Option<CompactString>)>,
        (usage, deleted): (bool, bool),
        after: Option<ListPlace>,
        limit: usize,
    ) -> Outcomes {
        let mut order = ListOrder::default();
        let mut networks: Vec<(crate::core::outcome::NetworkView, Option<UsageReport>)> = Vec::new();
        let mut walk = Walk::after(self, after.as_ref());
        while let Some(Stop { name, listing, .. }) = walk.next_stop().await? {
            order.naming = walk.naming;
            if listing.closed != deleted || realm.is_some_and(|realm| *realm != listing.realm) {
                continue;
            }
            let Some(route) = self.route_of(&listing) else { continue };
            let view = match self.ask(&route, Command::Show).await {
                Ok(Outcome::Network(view)) => view,
                // A list without a network that is only being loaded would be wrong.
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(_) | Err(_) => continue,
            };
            let tagged = |(key, value): &(CompactString, Option<CompactString>)| {
                view.config.tags.get(key).is_some_and(|present| value.as_ref().is_none_or(|value| value == present))
            };
            if !tag.is_none_or(tagged) {
                continue;
            }
            if networks.len() >= limit {
                let next = networks.last().map(|(view, _)| order.behind(&view.config, None));
                return Ok(Done::Networks { networks, next, order });
            }
            let report = match usage.then_some(self.ask(&route, Command::Usage)) {
                Some(asked) => match asked.await {
                    Ok(Outcome::Usage(report)) => Some(*report),
                    Ok(_) | Err(_) => None,
                },
                None => None,
            };
            if view.config.name != name {
                let (network, place) = (view.config.id, (name, view.config.id));
                order.elsewhere.push(Elsewhere { network, range: None, place });
            }
            networks.push((*view, report));
        }
        Ok(Done::Networks { networks, next: None, order })
    }

    /// `scope.list` over all networks.
    pub(super) async fn scopes(&self) -> Outcomes {
        let mut scopes: BTreeMap<Scope, ScopeUsage> = BTreeMap::new();
        let mut walk = Walk::after(self, None);
        while let Some(listing) = walk.next().await? {
            let Some(route) = self.route_of(&listing) else { continue };
            let here = match self.ask(&route, Command::Scopes).await {
                Ok(Outcome::Scopes(here)) => here,
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(_) | Err(_) => continue,
            };
            for usage in here {
                match scopes.get_mut(&usage.scope) {
                    Some(sum) => {
                        sum.reservations += usage.reservations;
                        sum.addresses += usage.addresses;
                        sum.obsolete += usage.obsolete;
                        sum.unbound += usage.unbound;
                    }
                    None => drop(scopes.insert(usage.scope.clone(), usage)),
                }
            }
        }
        Ok(Done::Scopes(scopes.into_values().collect()))
    }

    /// `cluster.conflicts` over all networks.
    pub(super) async fn conflicts(&self) -> Outcomes {
        let mut conflicts = Vec::new();
        let mut walk = Walk::after(self, None);
        while let Some(listing) = walk.next().await? {
            let Some(route) = self.route_of(&listing) else { continue };
            match self.ask(&route, Command::Conflicts).await {
                Ok(Outcome::Conflicts(here)) => conflicts.extend(here),
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Done::Conflicts(conflicts))
    }
}

#[derive(Default)]
struct Page {
    views: Vec<crate::core::outcome::View>,
    count: u64,
    limit: usize,
    count_only: bool,
    /// Where the first slice stands in the history of its network.
    at: Option<Place>,
    order: ListOrder,
}

impl Page {
    /// One more than the page shows was found: only so it is known not to be the last.
    fn is_full(&self) -> bool {
        !self.count_only && self.views.len() > self.limit
    }

    /// Where this of a network is listed, of which the last views are if there are any.
    fn goes_by(&mut self, network: NetworkId, range: Option<Range>, stop: &Stop) {
        let Some(last) = self.views.last().filter(|last| last.network.id == network) else { return };
        if network != stop.listing.id || last.network.name != stop.name {
            let place = (stop.name.clone(), stop.listing.id);
            self.order.elsewhere.push(Elsewhere { network, range, place });
        }
    }

    /// Takes away the one too many, and says where the next page begins: behind the last one shown.
    fn done(mut self, cursor: Cursor) -> Done {
        let is_full = self.is_full();
        self.views.truncate(self.limit);
        let last = self.views.last().filter(|_| is_full);
        let next = last.map(|last| self.order.behind(&last.network, Some(last.address)));
        Done::Listed { views: self.views, count: self.count, next, order: self.order, cursor }
    }
}
