//! Lists that look at many networks: each network by itself, in bounded slices, so that none waits for another.
//!
//! Lists are sorted by network name, then by address; whatever existed throughout is listed exactly once. `walk` decides which
//! network comes next.

use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use tokio::sync::oneshot;

use super::configure::is_gone;
use super::walk::Walk;
use super::{Coordinator, Done, Elsewhere, ListOrder, ListPlace, Outcomes, lost};
use crate::actors::Fault;
use crate::actors::directory::CatalogQuestion;
use crate::actors::events::Cursor;
use crate::actors::network::ListOn;
use crate::actors::routes::Route;
use crate::actors::sending;
use crate::core::address::{Address, Range};
use crate::core::catalog::ListRow;
use crate::core::command::{Command, Filter, ListSlice};
use crate::core::outcome::{AddressState, Lookup, NetworkView, Outcome, Slice, UsageReport};
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Name, NetworkId, Place, Scope, labels_pass};
use crate::limits::{LIST_CHANGES_KEPT_MAX, LIST_SLICE_RECORDS_MAX};

/// After how long a list of a network begins again once it was given up. After the last of these it is refused.
const LIST_BEGINS_AGAIN_AFTER_MS: [u64; 4] = [5, 50, 250, 1_000];

impl Coordinator {
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
        // Whatever is shown is shown as it is at this moment, or later.
        let begin = self.shared.feed.end();
        let empty = || ListPage { limit, count_only, ..ListPage::default() };
        let Some(route) = only else {
            return Ok(self.list_all(realm.as_ref(), &filter, after.as_ref(), empty()).await?.done(begin));
        };
        let mut page = empty();
        if realm.as_ref().is_none_or(|realm| *realm == route.realm) {
            if after.as_ref().is_some_and(|after| after.id != route.id) {
                let problem = "belongs to the list of another network, or of one that had this name before; begin again without it";
                return Err(Refusal::invalid("after", problem).into());
            }
            self.list_in_one(&route, &filter, after.and_then(|after| after.address), &mut page).await?;
        } else {
            // Another realm has nothing to list, but a subnet or pool that does not exist is still reported as missing.
            let mut unseen = ListPage::default();
            self.list_in_one(&route, &filter, None, &mut unseen).await?;
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
        mut page: ListPage,
    ) -> Result<ListPage, Box<Fault>> {
        let mut walk = Walk::from(self, place).holding(filter.scope.as_ref(), filter.owner.as_ref());
        while !page.is_full()
            && let Some(row) = walk.next_row().await?
        {
            if realm.is_some_and(|realm| *realm != row.listing.realm) {
                continue;
            }
            let after = place.filter(|place| place.id == row.listing.id).and_then(|place| place.address);
            let Some(parts) = &row.parts else {
                let Some(route) = self.route_of(&row.listing) else { continue };
                self.list_among(&route, filter, after, &mut page).await?;
                page.goes_by(route.id, None, &row);
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
                self.list_among(&route, &filter, after, &mut page).await?;
                page.goes_by(*network, Some(range), &row);
            }
        }
        page.order.naming = walk.naming;
        Ok(page)
    }

    /// Adds to the page what one of many networks holds.
    async fn list_among(
        &self,
        route: &Arc<Route>,
        filter: &Filter,
        after: Option<Address>,
        page: &mut ListPage,
    ) -> Result<(), Box<Fault>> {
        match self.list_in(route, filter, after, page).await {
            // A subnet or pool that only some networks have; or the network was deleted during the walk.
            Err(fault) if is_gone(&fault) => Ok(()),
            listed => listed.inspect_err(|fault| self.note_answer(route, fault)),
        }
    }

    /// Adds what the only network that was asked for holds. If the network refuses, that is the answer.
    async fn list_in_one(
        &self,
        route: &Arc<Route>,
        filter: &Filter,
        after: Option<Address>,
        page: &mut ListPage,
    ) -> Result<(), Box<Fault>> {
        self.list_in(route, filter, after, page).await.inspect_err(|fault| self.note_answer(route, fault))
    }

    /// Does not count refusals yet: they may be ignored, and no client sees them.
    async fn list_in(
        &self,
        route: &Arc<Route>,
        filter: &Filter,
        after: Option<Address>,
        page: &mut ListPage,
    ) -> Result<(), Box<Fault>> {
        if page.is_full() {
            return Ok(());
        }
        let (views, count, at) = (page.views.len(), page.count, page.at);
        let mut pauses = LIST_BEGINS_AGAIN_AFTER_MS.into_iter();
        while !self.list_whole(route, filter, after, page).await? {
            page.views.truncate(views);
            (page.count, page.at) = (count, at);
            let Some(pause) = pauses.next() else { return Err(self.changes_too_much(route).await) };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Ok(())
    }

    async fn changes_too_much(&self, route: &Arc<Route>) -> Box<Fault> {
        let name = match self.name_of(route).await {
            Ok(name) => name,
            Err(fault) => return fault,
        };
        let problem = format!(
            "network `{name}` changed too much while it was listed, {} times over: its configuration, or more than \
             {LIST_CHANGES_KEPT_MAX} of its reservations; ask again, or for a part of it",
            1 + LIST_BEGINS_AGAIN_AFTER_MS.len()
        );
        Box::new(Fault::Overloaded { problem, retry_after_ms: 1_000 })
    }

    /// Lists the network as it was at the first slice, however much changes meanwhile. False: that is no longer known.
    async fn list_whole(
        &self,
        route: &Arc<Route>,
        filter: &Filter,
        after: Option<Address>,
        page: &mut ListPage,
    ) -> Result<bool, Box<Fault>> {
        let ask = ListSlice { filter: filter.clone(), after, limit: page.room(), count_only: page.count_only };
        let first = self.ask_item(route, self.item(Command::List(Box::new(ask)), true)).await?;
        let Outcome::Listed { slice, at, rest } = first else { return Ok(true) };
        // What changes from here on is reported to watchers.
        page.at = page.at.or(at.map(|at| *at));
        let mut next = page.take(slice);
        while let Some(after) = next
            && !page.is_full()
        {
            let rest = rest.as_ref().ok_or_else(lost)?;
            let (told, listed) = oneshot::channel();
            let ask = ListOn { rest: Arc::clone(rest), after, limit: page.room(), told };
            sending::post(&self.shared, route, ask)?;
            let Ok(listed) = listed.await else { return Ok(false) };
            next = page.take(listed?);
        }
        Ok(true)
    }

    /// `ip.find`, and `ip.get` in a realm.
    pub(super) async fn find(&self, realm: Option<Name>, address: Address) -> Outcomes {
        let mut found: Vec<Lookup> = Vec::new();
        for listing in self.listings(CatalogQuestion::Holding(realm, address)).await? {
            let Some(route) = self.route_of(&listing) else { continue };
            match self.ask(&route, Command::Get(address)).await {
                Ok(Outcome::Lookup(lookup)) => found.push(*lookup),
                Ok(_) => {}
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(Done::Found(found_once(found)))
    }

    /// Sends a command to the one network in which this scope holds an address. Networks of different realms may hold the same
    /// address: then it is not guessed which is meant.
    pub(super) async fn located(&self, address: Address, scope: &Scope, command: Command) -> Outcomes {
        let mut found: Option<(Arc<Route>, Name)> = None;
        for listing in self.listings(CatalogQuestion::Holding(None, address)).await? {
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
            *hint = Some(format!("scope `{scope}` holds nothing there; name the network to see who holds it"));
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
        let mut networks: Vec<ShownNetwork> = Vec::new();
        let mut walk = Walk::after(self, after.as_ref());
        while let Some(ListRow { name, listing, .. }) = walk.next_row().await? {
            order.naming = walk.naming;
            if listing.closed != deleted || realm.is_some_and(|realm| *realm != listing.realm) {
                continue;
            }
            let Some(route) = self.route_of(&listing) else { continue };
            let behind = || ListPlace { name: name.clone(), id: listing.id, address: None, naming: walk.naming };
            let view = match self.ask(&route, Command::Show).await {
                Ok(Outcome::Network(view)) => view,
                // A list without a network that is only being loaded would be wrong.
                Err(fault) if !is_gone(&fault) => return end_before(fault, networks, order, behind()),
                Ok(_) | Err(_) => continue,
            };
            let tagged = |(key, value): &(CompactString, Option<CompactString>)| {
                labels_pass(&view.config.tags, key, value.as_deref())
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
                    Err(fault) if !is_gone(&fault) => return end_before(fault, networks, order, behind()),
                    // It was deleted after it was shown.
                    Ok(_) | Err(_) => continue,
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

/// A network of a list, with its usage if that was asked for.
type ShownNetwork = (NetworkView, Option<UsageReport>);

/// Ends a list of networks at one that refuses. The page ends before a stopped network; if the page begins with it, the
/// refusal says where the list continues after it: a client that wants everything available need not do without the others.
fn end_before(mut fault: Box<Fault>, networks: Vec<ShownNetwork>, order: ListOrder, behind: ListPlace) -> Outcomes {
    if let Fault::Stopped { next, .. } = &mut *fault {
        if let Some((last, _)) = networks.last() {
            let next = Some(order.behind(&last.config, None));
            return Ok(Done::Networks { networks, next, order });
        }
        *next = Some(Box::new(behind));
    }
    Err(fault)
}

#[derive(Default)]
struct ListPage {
    views: Vec<crate::core::outcome::View>,
    count: u64,
    limit: usize,
    count_only: bool,
    /// The place of the first slice in the history of its network.
    at: Option<Place>,
    order: ListOrder,
}

impl ListPage {
    /// Was one more found than the page shows? It only shows that this is not the last page.
    fn is_full(&self) -> bool {
        !self.count_only && self.views.len() > self.limit
    }

    /// How many records the next slice may show.
    fn room(&self) -> usize {
        if self.count_only { LIST_SLICE_RECORDS_MAX } else { self.limit + 1 - self.views.len() }
    }

    /// Adds a slice, and returns where the next one begins.
    fn take(&mut self, slice: Slice) -> Option<Address> {
        self.views.extend(slice.views);
        self.count += slice.count;
        slice.next
    }

    /// Notes where this range of a network is listed, if the last views are of it.
    fn goes_by(&mut self, network: NetworkId, range: Option<Range>, row: &ListRow) {
        let Some(last) = self.views.last().filter(|last| last.network.id == network) else { return };
        if network != row.listing.id || last.network.name != row.name {
            let place = (row.name.clone(), row.listing.id);
            self.order.elsewhere.push(Elsewhere { network, range, place });
        }
    }

    /// Removes the one too many, and notes where the next page begins: after the last one shown.
    fn done(mut self, cursor: Cursor) -> Done {
        let is_full = self.is_full();
        self.views.truncate(self.limit);
        let last = self.views.last().filter(|_| is_full);
        let next = last.map(|last| self.order.behind(&last.network, Some(last.address)));
        Done::Listed { views: self.views, count: self.count, next, order: self.order, cursor }
    }
}

/// Removes networks that do not have the address if another network of the realm has it: the target of a moving subnet is
/// listed before it has the subnet, so that its space is guarded.
fn found_once(mut found: Vec<Lookup>) -> Vec<Lookup> {
    let has = |lookup: &Lookup| lookup.state != AddressState::Unknown;
    let realms: Vec<Name> =
        found.iter().filter(|lookup| has(lookup)).map(|lookup| lookup.network.realm.clone()).collect();
    found.retain(|lookup| has(lookup) || !realms.contains(&lookup.network.realm));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::state::NetworkConfig;
    use crate::store::codec::samples::sample_config;

    #[test]
    fn a_network_that_a_subnet_is_about_to_move_to_is_not_found_beside_the_one_that_has_it() {
        let lookup = |network: u128, realm: &str, state| {
            let realm = realm.parse().unwrap();
            let network = Arc::new(NetworkConfig { realm, ..sample_config(NetworkId(network)) });
            Lookup { network, state, reservation: None }
        };
        let (held, free, unknown) = (AddressState::Held, AddressState::Free, AddressState::Unknown);
        let found = vec![
            lookup(1, "moves", unknown),
            lookup(2, "moves", held),
            lookup(3, "nobody", unknown),
            lookup(4, "other", free),
            lookup(5, "other", unknown),
        ];
        let left: Vec<_> = found_once(found).into_iter().map(|lookup| (lookup.network.id.0, lookup.state)).collect();
        assert_eq!(left, [(2, held), (3, unknown), (4, free)]);
    }
}
