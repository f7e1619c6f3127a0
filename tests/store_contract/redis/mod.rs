//! What happens to Redis servers, and how the store reacts.
//!
//! - The contract with the scripts: `stories` of the fence and of expectations, `blocks`, and `differential`, which compares
//!   with the memory store.
//! - What is stored: `formats` of records, `layout`, `collation` (the order of addresses), `shards` (how many there are),
//!   `surplus` (changes that broke off), `whole` (missing keys).
//! - The server: `trouble` (operators, crashes, full memory), `rights` (what a user is no longer permitted), `cluster`.
//! - Durability: `replicas` that are waited for, `disks` that must have it, and `degraded`, when a local disk stands in for
//!   a replica.
//! - Redis went back: `healing` (what was lost), `kept` (who keeps the register meanwhile), `rolled_back` (both, in any
//!   order), `forks` (a failover that is undone).
//! - Redis was emptied: `anew` (written anew) and `brought_back` (an older copy is restored).
//! - `beside`: what another node reads.

mod anew;
mod beside;
mod blocks;
mod brought_back;
mod cluster;
pub mod clustered;
mod collation;
mod degraded;
mod differential;
mod disks;
mod forks;
mod formats;
mod healing;
mod kept;
mod layout;
mod replicas;
mod replicated;
mod rights;
mod rolled_back;
mod server;
mod shards;
mod stories;
mod surplus;
mod trouble;
mod whole;

pub use server::{Server, Server as RedisServer, process};

use std::collections::BTreeMap;
use std::sync::Arc;

use allod::core::address::Address;
use allod::core::state::*;
use allod::core::types::*;
use allod::store::redis::RedisStore;
use allod::store::*;

use crate::suite::token;
use crate::work::*;

/// A server, a store on it, and shard 0 with an empty network 1 in it.
pub struct Begun {
    pub server: Server,
    pub store: RedisStore,
    pub head: Head,
}

impl Begun {
    pub fn new(settings: &[&str]) -> Option<Self> {
        Some(Self::of(Server::start(settings)?))
    }

    pub fn of(server: Server) -> Self {
        let store = server.open().unwrap();
        let head = wait(store.take(ShardId(0), token(1))).unwrap();
        let mut begun = Self { server, store, head };
        begun.commit(vec![config_step(network(1))]).unwrap();
        begun
    }

    /// Commits one batch to shard 0, network 1, and follows it.
    pub fn commit(&mut self, steps: Vec<Step>) -> Result<(), CommitError> {
        self.commit_in(network(1), steps)
    }

    /// Does the same for another network of the shard.
    pub fn commit_in(&mut self, network: NetworkId, steps: Vec<Step>) -> Result<(), CommitError> {
        let mut next = batch(&self.head, 0, steps);
        next.acts[0].network = network;
        let committed = wait(self.store.commit([next.clone()].into()))?;
        follow(&mut self.head, &next, &committed[0]);
        Ok(())
    }

    pub fn load(&self) -> Model {
        let image = wait(self.store.load(ShardId(0), self.head.token)).unwrap();
        assert_eq!(image.head, self.head);
        model_of(&image)
    }

    pub fn held(&self) -> Vec<Address> {
        let address = |key: &(NetworkId, Key)| if let Key::Address(address) = key.1 { Some(address) } else { None };
        self.load().keys().filter_map(address).collect()
    }
}

pub fn entry(generation: u64, prefix_length: u8) -> Entry {
    Entry::Held(Arc::new(Reservation { prefix_length, ..held(generation) }))
}

/// Gives `10.0.0.0/26`, or an address, to somebody.
pub fn put(text: &str, generation: u64, expect: Option<u64>) -> Step {
    let (address, length) = parse(text);
    Step {
        key: Key::Address(address),
        expect,
        state: Some(State::Entry(entry(generation, length))),
        event: Some(Event { kind: EventKind::Granted, before: None }),
    }
}

pub fn gone(text: &str, expect: u64) -> Step {
    Step { key: Key::Address(parse(text).0), expect: Some(expect), state: None, event: None }
}

pub fn parse(text: &str) -> (Address, u8) {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: Address = address.parse().unwrap();
    (address, length.parse().unwrap_or(address.family().width()))
}
