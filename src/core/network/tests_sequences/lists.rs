//! Lists that are under way while everything changes: each shows what was there when it began.

use std::sync::Arc;

use crate::core::address::Address;
use crate::core::command::{Command, Context, Filter, ListRest, ListSlice};
use crate::core::network::Network;
use crate::core::outcome::{Outcome, Slice};
use crate::core::state::{Key, Reservation, Step};
use crate::limits::LIST_PAGE_RECORDS_MAX;

/// How many lists are under way at most.
const LISTS: usize = 4;
/// Records per slice.
const SLICE: usize = 2;

type Shown = Vec<(Address, Arc<Reservation>)>;

struct Listing {
    rest: Arc<ListRest>,
    after: Address,
    found: Shown,
    expected: Shown,
}

/// The lists of one network.
#[derive(Default)]
pub(super) struct Lists {
    begun: usize,
    under_way: Vec<Listing>,
}

fn shown(slice: Slice) -> Shown {
    slice.views.into_iter().map(|view| (view.address, view.reservation)).collect()
}

fn first(network: &Network, filter: &Filter, limit: usize, context: Context) -> (ListSlice, Slice) {
    let ask = ListSlice { filter: filter.clone(), after: None, limit, count_only: false };
    match network.decide(&Command::List(Box::new(ask.clone())), context).unwrap().outcome {
        Outcome::Listed { slice, .. } => (ask, slice),
        other => panic!("{other:?}"),
    }
}

impl Lists {
    /// Called after these steps: every list goes on, and another one begins.
    pub(super) fn go_on(&mut self, network: &mut Network, steps: &[Step], context: Context) {
        let ends_all = steps.iter().any(|step| !matches!(step.key, Key::Address(_)));
        self.under_way.retain_mut(|list| list.goes_on(network, ends_all));
        if self.under_way.len() < LISTS {
            self.begin(network, context);
        }
    }

    fn begin(&mut self, network: &mut Network, context: Context) {
        self.begun += 1;
        let (_, all) = first(network, &Filter::default(), LIST_PAGE_RECORDS_MAX, context);
        let one = all.views.get(self.begun % all.views.len().max(1)).map(|view| view.reservation.holder.clone());
        let filter = match self.begun % 3 {
            0 => Filter { owner: one.map(|holder| holder.owner), ..Filter::default() },
            1 => Filter { scope: one.map(|holder| holder.scope), ..Filter::default() },
            _ => Filter::default(),
        };
        let expected = shown(first(network, &filter, LIST_PAGE_RECORDS_MAX, context).1);
        let (ask, slice) = first(network, &filter, SLICE, context);
        if let Some(after) = slice.next {
            let rest = network.goes_on(&ask, context);
            self.under_way.push(Listing { rest, after, found: shown(slice), expected });
        } else {
            assert_eq!(shown(slice), expected);
        }
    }
}

impl Listing {
    /// Takes the next slice. Returns false if the list is over.
    fn goes_on(&mut self, network: &Network, ends_all: bool) -> bool {
        let Some(slice) = network.list_rest(&self.rest, self.after, SLICE) else {
            assert!(ends_all, "what was there when the list began is known until the configuration changes");
            return false;
        };
        assert!(!ends_all, "a filter or a view may look at what changed");
        let next = slice.next;
        self.found.extend(shown(slice));
        match next {
            Some(after) => self.after = after,
            None => assert_eq!(self.found, self.expected),
        }
        next.is_some()
    }
}
