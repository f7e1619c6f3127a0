//! Remembers where networks are served, as `moved` said.

use std::collections::HashMap;

/// How many networks are remembered. With one more, all are forgotten: each costs one redirect to learn again.
const ROUTES_MAX: usize = 4_096;

/// Addresses by the name that callers used for the network.
#[derive(Debug, Default)]
pub(super) struct Routes(HashMap<String, String>);

impl Routes {
    /// The address that serves the network, if it is known.
    pub(super) fn of(&self, network: &str) -> Option<&str> {
        self.0.get(network).map(String::as_str)
    }

    /// Notes that this address serves the network.
    pub(super) fn learn(&mut self, network: &str, address: &str) {
        if self.0.len() >= ROUTES_MAX && !self.0.contains_key(network) {
            self.0.clear();
        }
        self.0.insert(network.to_owned(), address.to_owned());
    }

    /// Notes that the network is served elsewhere.
    pub(super) fn forget(&mut self, network: &str) {
        self.0.remove(network);
    }

    /// Is any network served at this address?
    pub(super) fn lead_to(&self, address: &str) -> bool {
        self.0.values().any(|there| there == address)
    }

    /// Notes that nobody answers at this address.
    pub(super) fn forget_address(&mut self, address: &str) {
        self.0.retain(|_, there| there != address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_bounded_and_forgotten_with_their_address() {
        let mut routes = Routes::default();
        for at in 0..ROUTES_MAX {
            routes.learn(&format!("net-{at}"), "a:1");
        }
        routes.learn("net-0", "b:1");
        assert_eq!((routes.of("net-0"), routes.of("net-1")), (Some("b:1"), Some("a:1")));
        routes.forget_address("a:1");
        assert_eq!((routes.of("net-0"), routes.of("net-1")), (Some("b:1"), None));
        for at in 0..2 * ROUTES_MAX {
            routes.learn(&format!("other-{at}"), "a:1");
            assert!(routes.0.len() <= ROUTES_MAX);
        }
    }
}
