//! What is asked of the history: where a subscription begins, and the page behind a cursor.

use compact_str::CompactString;

use super::{Coordinator, Done, Outcomes};
use crate::actors::Fault;
use crate::actors::events::{self, Cursor, Filter};
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Name, NetworkId, Scope};

impl Coordinator {
    /// `events.watch`: which events are wanted, and from where on.
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
        let filter = Filter { network, realm, scope };
        let shard = network.map(|network| self.shared.shard_of(network));
        let cursor = match (since, shard) {
            (None, Some(shard)) => Cursor::new(false, [self.shared.feed.tip(shard)]),
            (None, None) => self.shared.feed.end(),
            (Some(since), Some(shard)) => since.of_shard(shard).ok_or_else(|| {
                let problem = "is of another network; take one of this network, or one over all networks";
                Box::<Fault>::from(Refusal::invalid("since", problem))
            })?,
            (Some(since), None) if !since.whole => {
                let problem = "is of one network; name that `network`, or take a cursor over all networks";
                return Err(Refusal::invalid("since", problem).into());
            }
            (Some(since), None) => since,
        };
        events::check(&self.shared, &filter, &cursor).await?;
        Ok(Done::Watching { filter, cursor })
    }

    /// A network that is there, or one that was: who goes on from a cursor is told its end.
    fn watched(&self, text: &str, was: bool) -> Result<NetworkId, Box<Fault>> {
        let there = self.shared.routes.find(text).map(|route| route.id);
        let gone = || text.parse::<NetworkId>().ok().filter(|_| was);
        there.or_else(gone).ok_or_else(|| Refusal::not_found(Missing::Network, text).into())
    }

    /// The events behind a cursor.
    pub(super) async fn events(&self, filter: &Filter, cursor: &Cursor, wait_ms: u64) -> Outcomes {
        Ok(Done::Events(Box::new(events::page(&self.shared, filter, cursor, wait_ms).await?)))
    }
}
