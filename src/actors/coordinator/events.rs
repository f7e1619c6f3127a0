//! Requests about the history: where a subscription begins, and the page after a cursor.

use std::sync::Arc;
use std::time::Instant;

use compact_str::CompactString;

use super::configure::is_gone;
use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::events::held::{HeldPage, HeldPlace, HeldQuestion};
use crate::actors::events::{self, Cursor, Filter, held, history};
use crate::actors::service::Shared;
use crate::actors::{Fault, NotReadyReason};
use crate::core::command;
use crate::core::outcome::View;
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Name, NetworkId, Scope, WallTime};
use crate::limits::{HISTORY_AHEAD_MS_MAX, HISTORY_AT_MAX, HISTORY_WALKS_MAX};

impl Coordinator {
    /// `events.watch`: which events are wanted, and from where.
    pub(super) async fn watch(
        &self,
        network: Option<CompactString>,
        (realm, scope): (Option<Name>, Option<Scope>),
        since: Option<Cursor>,
    ) -> Outcomes {
        let network = match network {
            Some(text) => Some(self.watched(&text, since.is_some())?),
            None => None,
        };
        let networks = network.map(|network| vec![network]);
        let filter = Filter { networks, realm, scope, ..Filter::default() };
        let shard = network.map(|network| self.shared.shard_of(network));
        let cursor = match (since, shard) {
            (None, Some(shard)) => Cursor::new(false, [self.shared.feed.tip(shard)]),
            (None, None) => self.shared.feed.end(),
            (Some(since), Some(shard)) => {
                since.of_shard(shard).ok_or_else(|| Box::<Fault>::from(events::of_another_network("since")))?
            }
            (Some(since), None) if !since.whole => {
                let problem = "belongs to one network; name that `network`, or use a cursor over all networks";
                return Err(Refusal::invalid("since", problem).into());
            }
            (Some(since), None) => since,
        };
        events::check(&self.shared, &filter, &cursor).await?;
        Ok(Done::Watching { filter, cursor })
    }

    /// Finds a network that exists, or with `was` one that existed: a client that continues from a cursor is told of its end.
    fn watched(&self, text: &str, was: bool) -> Result<NetworkId, Box<Fault>> {
        let there = self.shared.routes.find(text).map(|route| route.id);
        let gone = || text.parse::<NetworkId>().ok().filter(|_| was);
        there.or_else(gone).ok_or_else(|| Refusal::not_found(Missing::Network, text).into())
    }

    /// The events after a cursor. The client that waits for them may leave: then the wait ends.
    pub(super) async fn events(&self, filter: &Filter, cursor: &Cursor, wait_ms: u64) -> Outcomes {
        let left = async {
            match &self.wait {
                Some(wait) => wait.caller.left().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            page = events::page(&self.shared, filter, cursor, wait_ms) => Ok(Done::Events(Box::new(page?))),
            () = left => Err(Box::new(Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: 100 })),
        }
    }

    /// `events.history`.
    pub(super) async fn history(
        &self,
        network: Option<CompactString>,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Outcomes {
        let filter = self.of_networks(network, filter).await?;
        if filter.networks.is_none() && after.as_ref().is_some_and(|after| !after.whole) {
            let problem = "belongs to one network; name that `network`, or use a cursor over all networks";
            return Err(Refusal::invalid("after", problem).into());
        }
        let past = self.aside(move |shared| async move { history::past(&shared, &filter, after, limit).await });
        Ok(Done::Past(past.await?))
    }

    /// `events.history` with `at`.
    pub(super) async fn held_at(
        &self,
        network: Option<CompactString>,
        filter: Filter,
        at: WallTime,
        (after, limit): (Option<HeldPlace>, usize),
    ) -> Outcomes {
        let begun = Instant::now();
        if at.0 > self.shared.clock.wall().0.saturating_add(HISTORY_AHEAD_MS_MAX) {
            let problem = "lies in the future; leave it out for what is held now";
            return Err(Refusal::invalid("at", problem).into());
        }
        let walks = &self.shared.walks;
        let question = HeldQuestion { network: network.clone(), filter: filter.clone(), at };
        let (walk, is_kept) = walks.of(&question);
        let page = async {
            let mut walking = Arc::clone(&walk).lock_owned().await;
            if walking.begins(at, after.as_ref()) {
                let filter = self.of_networks(network, filter).await?;
                let now = self.held_now(&filter).await?;
                walking.begin(&self.shared, filter, at, now);
            }
            self.aside(move |shared| async move { walking.page(&shared, begun, (after, limit)).await }).await
        };
        let page = page.await;
        if !matches!(&page, Ok(HeldPage { next: Some(_), .. })) {
            walks.forget(&walk);
        } else if !is_kept {
            let problem = format!("{HISTORY_WALKS_MAX} requests of this kind are being worked on, and each takes long");
            return Err(Box::new(Fault::Overloaded { problem, retry_after_ms: 1_000 }));
        } else if walks.wants_sweeper() {
            self.sweep_walks();
        }
        Ok(Done::HeldAt(page?))
    }

    /// Drops what was read for clients that no longer ask, until nothing is left.
    fn sweep_walks(&self) {
        let shared = Arc::downgrade(&self.shared);
        actix::spawn(async move {
            while let Some(shared) = shared.upgrade()
                && let Some(more) = shared.walks.sweep()
            {
                drop(shared);
                tokio::time::sleep(more).await;
            }
        });
    }

    /// Adds to the filter the networks that a text names, now or in the past, and those of its realm.
    async fn of_networks(&self, network: Option<CompactString>, mut filter: Filter) -> Result<Filter, Box<Fault>> {
        self.shared.feed.read_up().await?;
        if let Some(text) = network {
            let networks = history::networks_of(&self.shared, &text);
            if networks.is_empty() {
                return Err(Refusal::not_found(Missing::Network, text).into());
            }
            filter.networks = Some(networks);
        }
        filter.of_realm = filter.realm.as_ref().map(|realm| self.shared.feed.names.in_realm(realm));
        Ok(filter)
    }

    /// What is held now of what the filter wants: it may have been granted before the history begins.
    async fn held_now(&self, filter: &Filter) -> Result<Vec<View>, Box<Fault>> {
        let Filter { networks, realm, address, owner, scope, .. } = filter;
        let found = match address {
            Some(address) => match self.find(realm.clone(), *address).await? {
                Done::Found(found) => found.into_iter().filter_map(|lookup| lookup.reservation).collect(),
                _ => Vec::new(),
            },
            None => {
                let held = command::Filter { owner: owner.clone(), scope: scope.clone(), ..command::Filter::default() };
                let mut found = Vec::new();
                match networks {
                    None => self.list_held(None, realm.clone(), held, &mut found).await?,
                    Some(networks) => {
                        // A network that is gone holds nothing.
                        for id in networks.iter().filter(|id| self.shared.routes.by_id(**id).is_some()) {
                            match self.list_held(Some(&id.to_string()), realm.clone(), held.clone(), &mut found).await {
                                Err(fault) if !is_gone(&fault) => return Err(fault),
                                Ok(()) | Err(_) => {}
                            }
                        }
                    }
                }
                if found.len() > HISTORY_AT_MAX {
                    return Err(held::too_much_held(filter));
                }
                found
            }
        };
        let wanted =
            |view: &View| filter.of_network(view.network.id) && filter.wants_holding(view.address, &view.reservation);
        Ok(found.into_iter().filter(wanted).collect())
    }

    /// Adds what one network, or all of them, hold, up to one more than an answer may list.
    async fn list_held(
        &self,
        network: Option<&str>,
        realm: Option<Name>,
        held: command::Filter,
        found: &mut Vec<View>,
    ) -> Result<(), Box<Fault>> {
        let room = (HISTORY_AT_MAX + 1).saturating_sub(found.len());
        if let Done::Listed { views, .. } = self.list(network, realm, held, None, (room, false)).await? {
            found.extend(views);
        }
        Ok(())
    }

    /// Runs an act that reads much, and from files, on a thread that nobody waits for.
    async fn aside<T, F>(&self, act: impl FnOnce(Arc<Shared>) -> F + Send + 'static) -> Result<T, Box<Fault>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Box<Fault>>>,
    {
        let shared = Arc::clone(&self.shared);
        let runtime = tokio::runtime::Handle::current();
        let done = tokio::task::spawn_blocking(move || runtime.block_on(act(shared))).await;
        done.unwrap_or_else(|_| Err(lost()))
    }
}
