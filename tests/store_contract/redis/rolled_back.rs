//! Nodes over a Redis that goes back again and again to where it was saved. In whatever order they change what they own,
//! hand it over and look again: while all of them live, nothing that was acknowledged is lost, and none of them stops.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use allod::store::redis::RedisOptions;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::*;

const NODES: usize = 3;
const SHARDS: u16 = 3;
const STEPS: usize = 25;
/// Longer than nodes wait for each other while nothing moves.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);

struct Run {
    server: Server,
    stores: Vec<RedisStore>,
    draws: SmallRng,
    owner: usize,
    heads: Vec<Head>,
    /// What is held in each shard.
    held: Vec<BTreeSet<Address>>,
    tokens: u128,
    said: Vec<String>,
    _directories: Vec<tempfile::TempDir>,
}

/// Asks again if a connection was replaced, or if something is given back first.
fn reached<T>(ask: impl Fn() -> Result<T, StoreError>) -> T {
    let end = Instant::now() + GOES_ON_WITHIN;
    loop {
        match ask() {
            Err(StoreError::Io { .. }) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            definite => return definite.unwrap(),
        }
    }
}

impl Run {
    fn begin(seed: u64) -> Option<Self> {
        let server = Server::start(&[])?;
        let _directories: Vec<_> = (0..NODES).map(|_| tempfile::tempdir().unwrap()).collect();
        let open = |directory: &tempfile::TempDir| {
            let options = RedisOptions { directory: Some(directory.path().to_owned()), ..server.options() };
            RedisStore::open(options).unwrap()
        };
        let stores = _directories.iter().map(open).collect();
        let held = vec![BTreeSet::new(); usize::from(SHARDS)];
        let mut run = Self {
            server,
            stores,
            draws: SmallRng::seed_from_u64(seed),
            owner: 0,
            heads: Vec::new(),
            held,
            tokens: 0,
            said: Vec::new(),
            _directories,
        };
        let () = run.server.ask(&["SAVE"]);
        run.takes(0);
        Some(run)
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        token(self.tokens)
    }

    fn takes(&mut self, owner: usize) {
        self.owner = owner;
        self.heads.clear();
        for shard in (0..SHARDS).map(ShardId) {
            let token = self.token();
            let head = reached(|| wait(self.stores[owner].take(shard, token)));
            self.heads.push(head);
        }
    }

    /// Changes some of the shards at once.
    fn commits(&mut self) {
        let mut shards: Vec<u16> = (0..SHARDS).collect();
        shards.shuffle(&mut self.draws);
        shards.truncate(self.draws.random_range(1..=usize::from(SHARDS)));
        let batches: Vec<Batch> = shards
            .iter()
            .map(|&shard| {
                let head = &self.heads[usize::from(shard)];
                if head.seq == Seq(0) {
                    return batch(head, shard, vec![config_step(network(u128::from(shard) + 1))]);
                }
                let address = format!("10.{shard}.{}.{}", head.seq.0 / 256, head.seq.0 % 256);
                self.held[usize::from(shard)].insert(parse(&address).0);
                let steps = vec![put(&address, 10 + head.seq.0, None)];
                let mut next = batch(head, shard, steps);
                next.acts.iter_mut().for_each(|act| act.network = network(u128::from(shard) + 1));
                next
            })
            .collect();
        let committed = reached(|| match wait(self.stores[self.owner].commit(batches.clone().into())) {
            Err(CommitError::NotApplied { cause } | CommitError::Unknown { cause }) => Err(cause),
            definite => Ok(definite.unwrap_or_else(|error| panic!("{error:?}"))),
        });
        for ((shard, next), committed) in shards.iter().zip(&batches).zip(&committed) {
            follow(&mut self.heads[usize::from(*shard)], next, committed);
        }
    }

    fn hands_over(&mut self) {
        reached(|| wait(self.stores[self.owner].release()));
        let next = (self.owner + self.draws.random_range(1..NODES)) % NODES;
        self.takes(next);
    }

    fn goes_back(&mut self) {
        self.server.kill();
        self.server.begin();
    }

    /// All nodes ask something, in any order, until the owner goes on.
    fn goes_on(&mut self) {
        let end = Instant::now() + GOES_ON_WITHIN;
        let mut left = self.draws.random_range(0..3);
        loop {
            assert!(Instant::now() < end, "nobody goes on");
            let node = self.draws.random_range(0..NODES);
            if node == self.owner {
                // While the owner gives back its first part the register is kept for it; another part may be another node's.
                match wait(self.stores[node].renew()).and_then(|()| self.loads()) {
                    Ok(()) => return,
                    Err(StoreError::Io { .. }) => {}
                    other => panic!("the owner is put out: {other:?}"),
                }
            } else {
                let token = self.token();
                let taken = wait(self.stores[node].take(ShardId(0), token));
                assert!(
                    matches!(taken, Err(StoreError::Io { .. } | StoreError::Held { .. })),
                    "node {node}: {taken:?}"
                );
            }
            if left > 0 && self.draws.random_bool(0.2) {
                left -= 1;
                self.said.push("goes back meanwhile".to_owned());
                self.goes_back();
            }
        }
    }

    fn loads(&self) -> Result<(), StoreError> {
        let load =
            |(shard, head): (u16, &Head)| wait(self.stores[self.owner].load(ShardId(shard), head.token)).map(drop);
        (0..SHARDS).zip(&self.heads).try_for_each(load)
    }

    fn is_whole(&self) {
        for (shard, head) in self.heads.iter().enumerate() {
            let image = reached(|| wait(self.stores[self.owner].load(ShardId(shard as u16), head.token)));
            assert_eq!(image.head, *head, "shard {shard}");
            let held: BTreeSet<Address> =
                image.networks.iter().flat_map(|network| network.entries.iter()).map(|entry| entry.0).collect();
            assert_eq!(held, self.held[shard], "shard {shard}");
        }
        for (node, store) in self.stores.iter().enumerate() {
            assert_eq!((store.health(), store.late().len()), (StoreHealth::Ready, 0), "node {node}");
        }
    }

    fn step(&mut self) {
        let drawn = self.draws.random_range(0..20);
        self.said.push(format!("{drawn} by {}", self.owner));
        match drawn {
            0..9 => self.commits(),
            9..12 => self.hands_over(),
            12..14 => {
                let (shard, token) = (self.draws.random_range(0..SHARDS), self.token());
                let head = reached(|| wait(self.stores[self.owner].take(ShardId(shard), token)));
                self.heads[usize::from(shard)] = head;
            }
            14..16 => {
                let () = self.server.ask(&["SAVE"]);
            }
            _ => {
                self.goes_back();
                self.goes_on();
                self.is_whole();
            }
        }
    }
}

#[test]
fn whatever_a_redis_that_went_back_lacks_the_nodes_that_live_give_back() {
    let first = crate::seed::seed();
    let end = Instant::now() + Duration::from_secs(crate::seed::number("ALLOD_SOAK_SECONDS").unwrap_or(5));
    let (mut seed, mut healed) = (first, 0);
    while seed == first || Instant::now() < end {
        println!("ALLOD_SEED={seed}");
        let Some(mut run) = Run::begin(seed) else { return };
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..STEPS).for_each(|_| run.step())));
        assert!(said.is_ok(), "ALLOD_SEED={seed}: {:?}", run.said);
        healed += run.stores.iter().map(|store| store.figures().healed_batches).sum::<u64>();
        seed = seed.wrapping_add(1);
    }
    assert!(healed > 0, "it never went back behind anything");
}

/// It could not be checked whether the line has what was told, so the attempt ended, and the next one took the shard from it.
#[test]
fn a_take_over_whose_check_failed_is_played_again_with_the_next_one() {
    let rights = ["--user", "allod", "on", ">secret", "~{allod}:*", "+@all"];
    let Some(mut server) = Server::start(&rights) else { return };
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let open = |owner: &str| {
        RedisStore::open(RedisOptions { owner: owner.to_owned(), url: url.clone(), ..server.options() }).unwrap()
    };
    let commits = |store: &RedisStore, head: &mut Head| {
        let at = head.seq.0;
        let step = if at == 0 { config_step(network(2)) } else { put(&format!("10.0.0.{at}"), 10 + at, None) };
        let mut next = batch(head, 1, vec![step]);
        next.acts.iter_mut().for_each(|act| act.network = network(2));
        let committed = reached(|| match wait(store.commit([next.clone()].into())) {
            Err(CommitError::NotApplied { cause } | CommitError::Unknown { cause }) => Err(cause),
            definite => Ok(definite.unwrap()),
        });
        follow(head, &next, &committed[0]);
    };
    let (store, other) = (open("one"), open("other"));
    let mut head = wait(store.take(ShardId(1), token(1))).unwrap();
    commits(&store, &mut head);
    wait(store.release()).unwrap();
    let mut its = wait(other.take(ShardId(1), token(2))).unwrap();
    commits(&other, &mut its);
    // This also looks whether the other one's line has what was told.
    let held = wait(store.take(ShardId(1), token(3)));
    assert!(matches!(held, Err(StoreError::Held { .. })), "{held:?}");
    wait(other.release()).unwrap();
    drop(other);
    let () = server.ask(&["SAVE"]);
    let () = server.ask(&["ACL", "SETUSER", "allod", "-xrange"]);
    let unknown = wait(store.take(ShardId(1), token(3)));
    assert!(matches!(unknown, Err(StoreError::Io { .. })), "{unknown:?}");
    let taken: String = server.ask(&["HGET", "{allod}:1:head", "token"]);
    assert_eq!(taken, format!("{:032x}", token(3).0), "it was not taken");
    wait(store.release()).unwrap();
    let () = server.ask(&["ACL", "SETUSER", "allod", "+xrange"]);
    head = wait(store.take(ShardId(1), token(4))).unwrap();
    commits(&store, &mut head);
    server.kill();
    server.begin();
    commits(&store, &mut head);
    assert_eq!((store.health(), store.figures().healed_batches, store.late().len()), (StoreHealth::Ready, 1, 0));
    assert_eq!(server.ask::<u64>(&["HGET", "{allod}:1:head", "seq"]), head.seq.0);
}
