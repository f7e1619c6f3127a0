//! `scope.list`: scopes by name, a page at a time, each with what it holds in one network or in all of them.
//!
//! A page needs of each network only its first scopes after the page before. They are read slice by slice, up to the last name
//! that the page may have: the more networks have been read, the less is read of the next one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::configure::is_gone;
use super::walk::Walk;
use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::Fault;
use crate::actors::routes::Route;
use crate::core::command::Command;
use crate::core::outcome::{Outcome, ScopeUsage};
use crate::core::types::Scope;

/// The first scopes after a place, as far as networks were read. At most one more than a page shows, which tells that there is
/// a next page.
struct Sums {
    limit: usize,
    by_name: BTreeMap<Scope, ScopeUsage>,
}

impl Coordinator {
    /// `scope.list`.
    pub(super) async fn scopes(&self, only: Option<&str>, after: Option<Scope>, limit: usize) -> Outcomes {
        let mut sums = Sums { limit, by_name: BTreeMap::new() };
        if let Some(text) = only {
            self.sum_scopes(&self.route(text)?, after, &mut sums).await?;
            return Ok(sums.done());
        }
        let mut walk = Walk::after(self, None);
        while let Some(listing) = walk.next().await? {
            let Some(route) = self.route_of(&listing) else { continue };
            match self.sum_scopes(&route, after.clone(), &mut sums).await {
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(sums.done())
    }

    /// Adds what a network holds of the scopes that the page may have.
    async fn sum_scopes(
        &self,
        route: &Arc<Route>,
        mut after: Option<Scope>,
        sums: &mut Sums,
    ) -> Result<(), Box<Fault>> {
        loop {
            let limit = sums.limit + 1;
            let Outcome::Scopes { page, more } = self.ask(route, Command::Scopes { after, limit }).await? else {
                return Err(lost());
            };
            let last = page.last().map(|usage| usage.scope.clone());
            let mut are_wanted = true;
            for usage in page {
                are_wanted = sums.add(usage);
            }
            if !more || !are_wanted || last.is_none() {
                return Ok(());
            }
            after = last;
        }
    }
}

impl Sums {
    /// Adds what a scope holds in one more network. False: the page is full of scopes before it, and so for all that follow.
    fn add(&mut self, usage: ScopeUsage) -> bool {
        if let Some(sum) = self.by_name.get_mut(&usage.scope) {
            sum.reservations += usage.reservations;
            // Over several realms they may be more than the number can count.
            sum.addresses = sum.addresses.saturating_add(usage.addresses);
            sum.obsolete += usage.obsolete;
            sum.unbound += usage.unbound;
            return true;
        }
        if self.by_name.len() > self.limit && self.by_name.last_key_value().is_some_and(|(last, _)| *last < usage.scope)
        {
            return false;
        }
        self.by_name.insert(usage.scope.clone(), usage);
        if self.by_name.len() > self.limit + 1 {
            self.by_name.pop_last();
        }
        true
    }

    fn done(mut self) -> Done {
        let more = self.by_name.len() > self.limit;
        if more {
            // Its holdings elsewhere may not be included.
            self.by_name.pop_last();
        }
        Done::Scopes { page: self.by_name.into_values().collect(), more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(scope: &str, reservations: u64) -> ScopeUsage {
        let scope = scope.parse().unwrap();
        ScopeUsage { scope, reservations, addresses: reservations.into(), obsolete: 0, unbound: 0 }
    }

    #[test]
    fn no_more_is_kept_than_a_page_shows_and_one_and_each_of_a_page_is_counted_in_every_network() {
        let mut sums = Sums { limit: 2, by_name: BTreeMap::new() };
        assert!(["d", "e", "f"].into_iter().all(|scope| sums.add(usage(scope, 1))));
        assert!(!sums.add(usage("g", 1)), "nothing behind it is asked for");
        assert!(["b", "d", "e"].into_iter().all(|scope| sums.add(usage(scope, 10))));
        assert!(!sums.add(usage("f", 10)));
        assert_eq!(sums.by_name.len(), 3);
        let Done::Scopes { page, more } = sums.done() else { panic!() };
        assert_eq!((page, more), (vec![usage("b", 10), usage("d", 11)], true));
    }

    #[test]
    fn the_last_page_has_none_behind_it() {
        let mut sums = Sums { limit: 2, by_name: BTreeMap::new() };
        assert!(["a", "b"].into_iter().all(|scope| sums.add(usage(scope, 1))));
        assert_eq!(sums.done(), Done::Scopes { page: vec![usage("a", 1), usage("b", 1)], more: false });
    }
}
