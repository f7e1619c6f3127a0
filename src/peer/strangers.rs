//! Connections that have not introduced themselves: few from one address, few in all, and the oldest gives way.
//!
//! A node that knows the secret introduces itself within milliseconds, so it never stays among the strangers. And however
//! many connect and say nothing, the newest always has a place.
//!
//! Neighbours: `listener` takes a place for every connection until its handshake has ended.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::limits::{PEER_STRANGERS_MAX, PEER_STRANGERS_PER_ADDRESS_MAX};

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Vec<Stranger>>);

#[derive(Debug)]
struct Stranger {
    from: IpAddr,
    gives_way: CancellationToken,
}

/// A place among them; given back when it is dropped.
#[derive(Debug)]
pub(super) struct StrangerPlace {
    strangers: Arc<Strangers>,
    gives_way: CancellationToken,
}

/// What strangers are counted by: the address for IPv4; for IPv6 the /64 network that a host chooses its addresses from.
fn origin(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

impl Strangers {
    /// Adds a stranger. If there are too many, the oldest of the origin that has the most gives way.
    pub(super) fn enter(self: &Arc<Self>, address: SocketAddr) -> StrangerPlace {
        let (from, gives_way) = (origin(address), CancellationToken::new());
        let mut all = self.all();
        let count = |all: &[Stranger], from: IpAddr| all.iter().filter(|stranger| stranger.from == from).count();
        let crowd = if count(&all, from) >= PEER_STRANGERS_PER_ADDRESS_MAX {
            Some(from)
        } else if all.len() >= PEER_STRANGERS_MAX {
            all.iter().map(|stranger| stranger.from).max_by_key(|&from| count(&all, from))
        } else {
            None
        };
        if let Some(oldest) = all.iter().position(|stranger| Some(stranger.from) == crowd) {
            all.remove(oldest).gives_way.cancel();
        }
        all.push(Stranger { from, gives_way: gives_way.clone() });
        StrangerPlace { strangers: Arc::clone(self), gives_way }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StrangerPlace {
    /// Waits until this stranger has to give way to a later one.
    pub(super) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        // Cancelled first, so that `retain` finds this entry by its token. One that gave way before is no longer in the
        // list, and no other entry shares the token.
        self.gives_way.cancel();
        self.strangers.all().retain(|stranger| !stranger.gives_way.is_cancelled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 7_402)
    }

    #[test]
    fn the_oldest_of_an_address_that_has_too_many_gives_way() {
        let strangers = Arc::new(Strangers::default());
        let other = strangers.enter(at("10.0.0.1"));
        let mut crowd: Vec<StrangerPlace> =
            (0..PEER_STRANGERS_PER_ADDRESS_MAX).map(|_| strangers.enter(at("10.0.0.2"))).collect();
        crowd.push(strangers.enter(at("10.0.0.2")));
        let gone: Vec<bool> = crowd.iter().map(|place| place.gives_way.is_cancelled()).collect();
        assert!(gone[0] && gone[1..].iter().all(|gone| !gone), "{gone:?}");
        assert!(!other.gives_way.is_cancelled());
        drop(crowd);
        assert_eq!(strangers.all().len(), 1);
    }

    #[test]
    fn strangers_of_many_addresses_keep_nobody_out_who_comes_last() {
        let strangers = Arc::new(Strangers::default());
        // One network of IPv6 counts as one address: a host has as many of them as it likes.
        let network = |host: usize| at(&format!("2001:db8::{host:x}"));
        let crowd: Vec<StrangerPlace> = (1..=9).map(|host| strangers.enter(network(host))).collect();
        let others: Vec<StrangerPlace> =
            (0..PEER_STRANGERS_MAX).map(|host| strangers.enter(at(&format!("10.0.0.{host}")))).collect();
        assert_eq!(strangers.all().len(), PEER_STRANGERS_MAX);
        assert!(crowd[..8].iter().all(|place| place.gives_way.is_cancelled()), "of the largest crowd first");
        let last = strangers.enter(at("10.0.0.99"));
        assert!(!last.gives_way.is_cancelled());
        drop((crowd, others, last));
        assert_eq!(strangers.all().len(), 0);
    }
}
