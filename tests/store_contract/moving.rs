//! A register is moved from files to Redis and back: completely, only into an empty place, and broken off at every call of
//! both stores.

mod begun;
mod forgotten;

use std::cell::Cell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allod::actors::clock::ManualClock;
use allod::actors::shard_of;
use allod::core::address::Address;
use allod::core::state::*;
use allod::core::types::*;
use allod::limits::NODE_LEASE_RENEWED_EVERY_MS;
use allod::serve::migrate::{self, CannotMove, MovedRegister};
use allod::store::codec::Format;
use allod::store::embedded::{EmbeddedOptions as Files, EmbeddedStore};
use allod::store::history::{RecordedBatch, Stretch};
use allod::store::moving::{LastOf, Movable, MoveNotice, Opening, Origin};
use allod::store::redis::{RedisOptions as Keys, RedisStore};
use allod::store::*;

use super::disk::SimDisk;
use super::records::{plain_network, plain_reservation, usual_holder};
use super::redis::Server;
use super::work::{DIR, Model, SHARDS, model_of, options, run, wait};

const NOW_MS: u64 = 1_795_262_400_000;

/// One end of a move.
#[derive(Clone)]
enum Place {
    Files(SimDisk),
    Keys(Rc<Server>, String),
}

impl Place {
    fn files() -> Self {
        Self::Files(SimDisk::default())
    }

    fn keys(server: &Rc<Server>, prefix: &str) -> Self {
        Self::Keys(Rc::clone(server), prefix.to_owned())
    }

    fn open(&self, shards: u16, opening: Opening) -> Result<Box<dyn Movable>, StoreError> {
        Ok(match self {
            Self::Files(disk) => {
                let files = Files { opening, segment_bytes: 128 << 10, ..options(disk) };
                Box::new(EmbeddedStore::open(std::path::Path::new(DIR), shards, files)?)
            }
            Self::Keys(server, prefix) => {
                let keys = Keys { prefix: prefix.clone(), opening, ..Keys::new(server.url(), shards) };
                Box::new(RedisStore::open(keys)?)
            }
        })
    }

    fn serve(&self, shards: u16) -> Result<Box<dyn Movable>, StoreError> {
        self.open(shards, Opening::Serve)
    }
}

fn clock() -> ManualClock {
    ManualClock::new(WallTime(NOW_MS), 7)
}

/// Moves the register as the command does.
fn moved(from: &Place, to: &Place, shards: u16) -> Result<MovedRegister, String> {
    let source = from.open(1, Opening::Source).map_err(|error| error.to_string())?;
    let moved = wait(migrate::run(&*source, &|opening| to.open(shards, opening), &clock(), &|_, _| {}));
    wait(source.close());
    moved.map_err(|error| error.to_string())
}

/// A network with every kind of record, in the shard where it belongs; its times are those of the shard.
fn network(number: u128, time: ShardTime) -> Vec<Step> {
    let id = NetworkId(number);
    let put = |key, state| Step { key, expect: None, state: Some(state), event: None };
    let closed = number.is_multiple_of(5);
    let config = NetworkConfig { closed, version: Version(3), ..plain_network(id, &format!("net-{number}")) };
    let mut steps = vec![put(Key::Config, State::Config(Arc::new(config)))];
    let held = |generation: u64, prefix_length| {
        plain_reservation(usual_holder(3, &format!("{generation:010}")), Generation(generation), prefix_length)
    };
    let entry = |address, entry| put(Key::Address(address), State::Entry(entry));
    let base = 0x0a00_0000 + (number as u32) * 0x1_0000;
    for at in 0..40 {
        let plain = held(1_000 + u64::from(at), 32);
        let lease = NonZeroU64::new(60).map(|ttl_seconds| Lease { ends: ShardTime(time.0 + 60_000), ttl_seconds });
        let mac = "aa:00:00:00:00:01".parse().ok().filter(|_| at == 7 && number == 1);
        let details = mac.map(|mac| Box::new(Details { mac: Some(mac), note: "a note".into(), ..Details::default() }));
        let held = Reservation { lease: lease.filter(|_| at % 3 == 0), details, ..plain };
        steps.push(entry(Address::V4(base + at), Entry::Held(Arc::new(held))));
    }
    steps.push(entry(Address::V4(base + 0x100), Entry::Held(Arc::new(held(2_000, 26)))));
    let released = Released {
        prefix_length: 32,
        last: usual_holder(3, "gone"),
        owner_uid: None,
        generation: Generation(2_001),
        released_at: ShardTime(time.0.saturating_sub(10)),
    };
    steps.push(entry(Address::V4(base + 0x200), Entry::Released(Arc::new(released))));
    let declined = Declined {
        prefix_length: 32,
        by: usual_holder(3, "bad"),
        generation: Generation(2_002),
        until: ShardTime(time.0 + 5_000),
        seen: "somebody answers".into(),
        promise: None,
    };
    steps.push(entry(Address::V4(base + 0x201), Entry::Declined(Arc::new(declined))));
    for at in 0..150u128 {
        let bits = (0x2001_0db8 << 96) + (number << 64) + at * 0x1_0001;
        steps.push(entry(Address::V6(bits), Entry::Held(Arc::new(held(3_000 + at as u64, 128)))));
    }
    steps
}

/// The time of each shard; the times differ by hours.
fn time_of(shard: ShardId) -> ShardTime {
    ShardTime(1_000 + 3_600_000 * u64::from(shard.0))
}

/// Twelve networks over the shards of a new register.
fn fill(place: &Place, shards: u16) {
    fill_with(place, shards, 12);
}

fn fill_with(place: &Place, shards: u16, networks: u128) {
    let store = place.serve(shards).unwrap();
    for shard in (0..shards).map(ShardId) {
        let mut head = wait(store.take(shard, Token(0x500 + u128::from(shard.0)))).unwrap();
        for number in (1..=networks).filter(|&number| shard_of(NetworkId(number), shards) == shard) {
            let act = Act {
                network: NetworkId(number),
                wall: WallTime(1),
                by: "test".into(),
                reason: None,
                transaction: None,
                steps: network(number, time_of(shard)),
            };
            let seq = Seq(head.seq.0 + 1);
            let (epoch, token) = (head.epoch, head.token);
            let (time, generation) = (time_of(shard), Generation(5_000));
            let batch = Batch { shard, epoch, token, seq, time, generation, acts: vec![act] };
            let committed = wait(store.commit([batch].into())).unwrap();
            head = Head { seq, digest: committed[0].digest, ..head };
        }
    }
    wait(store.release()).unwrap();
    wait(store.close());
}

/// Everything that is served there, with the remaining time of each lease and cooldown in place of its end; and the heads.
fn served(place: &Place, shards: u16) -> (Model, Vec<Head>) {
    let store = place.serve(shards).unwrap();
    let (mut all, mut heads) = (Model::new(), Vec::new());
    for shard in (0..shards).map(ShardId) {
        let token = Token(0x900 + u128::from(shard.0));
        wait(store.take(shard, token)).unwrap();
        let image = wait(store.load(shard, token)).unwrap();
        let now = image.head.time.0;
        for ((id, key), mut state) in model_of(&image) {
            assert_eq!(shard_of(id, shards), shard, "a network is where it is looked for");
            let left = |time: &mut ShardTime| time.0 = time.0 + (1 << 40) - now;
            match &mut state {
                State::Entry(Entry::Held(held)) => {
                    if let Some(lease) = &mut Arc::make_mut(held).lease {
                        left(&mut lease.ends);
                    }
                }
                State::Entry(Entry::Released(gone)) => left(&mut Arc::make_mut(gone).released_at),
                State::Entry(Entry::Declined(declined)) => left(&mut Arc::make_mut(declined).until),
                State::Config(_) | State::Subnet(_) | State::Deployment(_) => {}
            }
            all.insert((id, key), state);
        }
        heads.push(image.head);
    }
    wait(store.release()).unwrap();
    wait(store.close());
    (all, heads)
}

#[track_caller]
fn refused(place: &Place, shards: u16, words: &str) {
    match place.serve(shards) {
        Ok(_) => panic!("it is served"),
        Err(error) => assert!(error.to_string().contains(words), "{error}"),
    }
}

#[test]
fn a_register_moves_to_redis_and_back_with_everything_in_it() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (first, keys, last) = (Place::files(), Place::keys(&server, "moved"), Place::files());
    fill(&first, 3);
    let (before, heads) = served(&first, 3);
    assert_eq!(before.len(), 12 * 194);
    let to_redis = moved(&first, &keys, 5).unwrap();
    let tally = to_redis.tally.unwrap();
    assert_eq!((tally.networks, tally.held, tally.resting), (12, 12 * 191, 12 * 2));
    refused(&first, 3, &format!("moved to {}", server.url()));
    let (between, in_redis) = served(&keys, 5);
    assert!(between == before);
    // No earlier generation is given again, and no lease has become shorter.
    let highest = heads.iter().map(|head| head.generation).max().unwrap();
    assert!(in_redis.iter().all(|head| head.generation >= Generation((NOW_MS / 1_000) << 20)));
    assert!(in_redis.iter().all(|head| head.generation > highest));
    let back = moved(&keys, &last, 3).unwrap();
    assert_ne!(back.register, to_redis.register, "each is another register");
    assert!(back.generation > to_redis.generation);
    refused(&keys, 5, "moved to the directory");
    assert!(served(&last, 3).0 == before);
}

#[test]
fn a_place_that_holds_anything_is_not_moved_into() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (full, files) = (Place::files(), Place::files());
    let (keys, other) = (Place::keys(&server, "a"), Place::keys(&server, "b"));
    for place in [&full, &files, &keys] {
        fill(place, 3);
    }
    for (from, to) in [(&full, &files), (&full, &keys), (&keys, &files)] {
        let said = moved(from, to, 3).unwrap_err();
        assert!(said.contains("not empty") || said.contains("holds a register already"), "{said}");
        assert_eq!(served(to, 3).0, served(from, 3).0, "both are as they were");
    }
    // If there is nothing to move, no target is created.
    let nothing = Place::files();
    assert!(moved(&nothing, &other, 3).unwrap_err().contains("holds no register"));
    assert!(moved(&other, &nothing, 3).unwrap_err().contains("holds no register"));
    let there: Vec<String> = server.ask(&["KEYS", "{b}:*"]);
    assert_eq!(there, [""; 0]);
    // A register that was moved cannot be moved again.
    moved(&full, &other, 3).unwrap();
    let again = moved(&full, &Place::files(), 3).unwrap_err();
    assert!(again.contains("was moved to") && again.contains("`{b}:…`"), "{again}");
    assert!(moved(&full, &other, 3).unwrap_err().contains("was moved to"));
    served(&other, 3);
}

#[test]
fn a_register_that_is_served_is_not_moved_and_goes_on() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = (Place::files(), Place::keys(&server, "a"));
    fill(&keys, 3);
    let owner = keys.serve(3).unwrap();
    owner.introduce(NodeCard { name: "north".to_owned(), process: 7, ..NodeCard::default() });
    // Like a server, it is seen before it takes anything.
    wait(owner.meet(true)).unwrap();
    wait(owner.take(ShardId(0), Token(1))).unwrap();
    let lives = |renews: bool| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if renews {
                        wait(owner.renew()).unwrap();
                    }
                    wait(owner.meet(true)).unwrap();
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let said = moved(&keys, &files, 3).unwrap_err();
            done.store(true, Ordering::Relaxed);
            said
        })
    };
    let said = lives(true);
    assert!(said.contains("node north has") && said.contains("lives"), "{said}");
    // The node owns nothing now, but it is alive and may take its shards again at any time.
    wait(owner.release()).unwrap();
    let said = lives(false);
    assert!(said.contains("node north has") && said.contains("lives"), "{said}");
    wait(owner.meet(false)).unwrap();
    wait(owner.close());
    moved(&keys, &files, 3).unwrap();
    let locked = files.serve(3).unwrap();
    let said = moved(&files, &Place::keys(&server, "b"), 3).unwrap_err();
    assert!(said.contains("in use by"), "{said}");
    drop(locked);
}

/// A server that had opened the store before, and was suspended during the move.
#[test]
fn a_node_that_wakes_after_the_move_takes_no_shard_and_writes_nothing() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (keys, files) = (Place::keys(&server, "a"), Place::files());
    fill(&keys, 3);
    let asleep = keys.serve(3).unwrap();
    let head = wait(asleep.take(ShardId(0), Token(1))).unwrap();
    wait(asleep.release()).unwrap();
    moved(&keys, &files, 3).unwrap();
    let batch = Batch {
        shard: ShardId(0),
        epoch: head.epoch,
        token: head.token,
        seq: Seq(head.seq.0 + 1),
        time: head.time,
        generation: head.generation,
        acts: Vec::new(),
    };
    let refused = wait(asleep.commit([batch].into())).unwrap_err();
    assert!(matches!(refused, CommitError::Fenced { .. } | CommitError::NotApplied { .. }), "{refused:?}");
    for token in [1, 2] {
        let said = wait(asleep.take(ShardId(0), Token(token))).unwrap_err().to_string();
        assert!(said.contains("was moved to the directory"), "{said}");
    }
}

/// A store of which one call fails, before or after it takes effect; both stores of a move share the count.
struct Breaking {
    inner: Box<dyn Movable>,
    left: Arc<AtomicU64>,
    done: bool,
    /// How long it takes to post a notice of the move.
    says_in: Duration,
    /// Run once the target has noted that it is whole; the answer to that call is then lost.
    behind_the_end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

fn broken() -> StoreError {
    StoreError::Poisoned("broken off by the test".into())
}

impl Breaking {
    /// None while the call succeeds; otherwise whether the failing call still takes effect.
    fn breaks(&self) -> Option<bool> {
        let left = self.left.load(Ordering::SeqCst);
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        (left <= 1).then_some(self.done && left == 1)
    }

    fn call<T: Send + 'static, E: Send + 'static>(
        &self,
        error: fn(StoreError) -> E,
        call: impl FnOnce(&dyn Movable) -> Later<Result<T, E>>,
    ) -> Later<Result<T, E>> {
        match self.breaks() {
            None => call(&*self.inner),
            Some(false) => Box::pin(std::future::ready(Err(error(broken())))),
            Some(true) => {
                let called = call(&*self.inner);
                Box::pin(async move {
                    drop(called.await);
                    Err(error(broken()))
                })
            }
        }
    }
}

impl Store for Breaking {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }
    fn health(&self) -> StoreHealth {
        self.inner.health()
    }
    fn figures(&self) -> StoreFigures {
        self.inner.figures()
    }
    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>> {
        self.call(|error| error, |store| store.take(shard, token))
    }
    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>> {
        self.call(|error| error, |store| store.load(shard, token))
    }
    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>> {
        self.call(|cause| CommitError::NotApplied { cause }, |store| store.commit(batches))
    }
    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>> {
        self.inner.confirm(batches)
    }
    fn introduce(&self, card: NodeCard) {
        self.inner.introduce(card);
    }
    fn renew(&self) -> Later<Result<(), StoreError>> {
        self.inner.renew()
    }
    fn meet(&self, here: bool) -> Later<Result<Vec<SeenNode>, StoreError>> {
        self.inner.meet(here)
    }
    fn release(&self) -> Later<Result<(), StoreError>> {
        self.inner.release()
    }
    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>> {
        self.inner.recorded(stretches, bytes)
    }
    fn close(&self) -> Later<()> {
        self.inner.close()
    }
}

impl Movable for Breaking {
    fn place(&self) -> String {
        self.inner.place()
    }
    fn notice(&self) -> Option<MoveNotice> {
        self.inner.notice()
    }
    fn write_in(&self, format: Format) {
        self.inner.write_in(format);
    }
    fn post(&self, notice: Option<MoveNotice>, shards: Vec<LastOf>) -> Later<Result<(), StoreError>> {
        let behind = if notice.is_none() { self.behind_the_end.lock().unwrap().take() } else { None };
        let posted = self.call(|error| error, |store| store.post(notice, shards));
        let says_in = self.says_in;
        Box::pin(async move {
            let posted = posted.await;
            tokio::time::sleep(says_in).await;
            let Some(behind) = behind else { return posted };
            posted.unwrap();
            // Not on this thread, which must not block.
            std::thread::spawn(behind).join().unwrap();
            let source = Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            Err(StoreError::Io { context: "waiting for a replica".into(), source })
        })
    }
}

/// Once the source is closed nobody owns it, and a renewal of its lease is refused.
#[test]
fn a_move_goes_on_to_its_end_though_the_lease_of_the_source_is_not_to_be_kept_once_that_is_closed() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (keys, files) = (Place::keys(&server, "a"), Place::files());
    fill_with(&keys, 3, 3);
    let says_in = Duration::from_millis(2 * NODE_LEASE_RENEWED_EVERY_MS);
    let slow = |inner| Breaking {
        inner,
        left: Arc::new(AtomicU64::new(u64::MAX)),
        done: true,
        says_in,
        behind_the_end: Mutex::default(),
    };
    let source = slow(keys.open(1, Opening::Source).unwrap());
    let open = |opening| Ok(Box::new(slow(files.open(3, opening)?)) as Box<dyn Movable>);
    wait(migrate::run(&source, &open, &clock(), &|_, _| {})).unwrap();
    wait(source.close());
    served(&files, 3);
}

/// The replica that is waited for is late, and another node takes the register as soon as it is there.
#[test]
fn a_target_that_is_taken_before_it_is_known_that_it_said_that_it_is_whole_was_moved() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = (Place::files(), Place::keys(&server, "a"));
    fill(&files, 3);
    let source = files.open(3, Opening::Source).unwrap();
    let waits = Keys { prefix: "a".to_owned(), ..Keys::new(server.url(), 3) };
    let takes = move || {
        let store = RedisStore::open(waits).unwrap();
        for shard in 0..3 {
            // The lease of the move is no longer renewed.
            while matches!(wait(store.take(ShardId(shard), Token(7))), Err(StoreError::Held { .. })) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        wait(store.close());
    };
    let behind_the_end = Cell::new(Some(Box::new(takes) as Box<dyn FnOnce() + Send>));
    let open = |opening| {
        let (inner, left) = (keys.open(3, opening)?, Arc::new(AtomicU64::new(u64::MAX)));
        let behind_the_end = Mutex::new(behind_the_end.take());
        Ok(Box::new(Breaking { inner, left, done: true, says_in: Duration::ZERO, behind_the_end }) as Box<dyn Movable>)
    };
    let moved = wait(migrate::run(&*source, &open, &clock(), &|_, _| {}));
    assert!(moved.is_ok_and(|moved| moved.tally.is_some()), "it was moved, and is served");
    wait(source.close());
}

/// Breaks the move off at its n-th call. Returns whether it came that far.
fn breaks_off(from: &Place, to: &Place, n: u64, done: bool) -> bool {
    let left = Arc::new(AtomicU64::new(n));
    let breaking = |inner| Breaking {
        inner,
        left: Arc::clone(&left),
        done,
        says_in: Duration::ZERO,
        behind_the_end: Mutex::default(),
    };
    let source = breaking(from.open(1, Opening::Source).unwrap());
    let opened = Cell::new(0);
    let open = |opening| {
        opened.set(opened.get() + 1);
        Ok(Box::new(breaking(to.open(2, opening)?)) as Box<dyn Movable>)
    };
    let ended: Result<MovedRegister, CannotMove> = wait(migrate::run(&source, &open, &clock(), &|_, _| {}));
    assert!(opened.get() > 0);
    wait(source.close());
    ended.is_err()
}

fn broken_off_everywhere(place: impl Fn(u64) -> (Place, Place)) {
    let (mut n, mut closed, mut resumed) = (1, 0, 0);
    loop {
        let mut came_so_far = false;
        for done in [false, true] {
            let (from, to) = place(2 * n + u64::from(done));
            fill_with(&from, 3, 3);
            let before = served(&from, 3).0;
            came_so_far = breaks_off(&from, &to, n, done);
            let both = (from.serve(3).is_ok(), to.serve(2).is_ok());
            if !came_so_far {
                assert_eq!(both, (false, true), "it was moved");
                break;
            }
            assert!(both != (true, true), "both are served, broken off at call {n}");
            assert!(!both.1 || (done && !both.0), "the target is served before it is whole, at call {n}");
            closed += u32::from(both == (false, false));
            match moved(&from, &to, 2) {
                Ok(moved) => resumed += u32::from(moved.tally.is_none()),
                // Only the answer to the last call was lost.
                Err(said) => assert!(both.1 && said.contains("was moved to"), "at call {n}: {said}"),
            }
            refused(&from, 3, "was moved to");
            assert!(served(&to, 2).0 == before, "broken off at call {n}");
        }
        if !came_so_far {
            break;
        }
        n += 1;
    }
    assert!(n > 13, "only {n} calls");
    assert_eq!((closed, resumed), (2, 2), "between the notice of the one and the end of the other");
}

#[test]
fn broken_off_at_any_call_a_move_to_redis_is_served_nowhere_twice_and_can_be_made_again() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    broken_off_everywhere(|n| (Place::files(), Place::keys(&server, &format!("t{n}"))));
}

#[test]
fn broken_off_at_any_call_a_move_to_files_is_served_nowhere_twice_and_can_be_made_again() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    broken_off_everywhere(|n| (Place::keys(&server, &format!("t{n}")), Place::files()));
}

/// Redis lost its last second after the source was closed, so it no longer has what was compared.
#[test]
fn an_unfinished_target_that_lost_something_is_copied_anew() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = (Place::files(), Place::keys(&server, "a"));
    fill(&files, 3);
    let before = served(&files, 3).0;
    let calls = (1..).find(|&n| {
        assert!(breaks_off(&files, &keys, n, false));
        files.serve(3).is_err()
    });
    assert!(calls.is_some());
    let () = server.ask(&["HSET", "{a}:0:head", "seq", "0", "digest", &"0".repeat(32)]);
    let anew = moved(&files, &keys, 2).unwrap();
    assert!(anew.tally.is_some(), "it was not finished as it was");
    assert!(served(&keys, 2).0 == before);
    refused(&files, 3, "was moved to");
}

/// A move does not know the settings of the server, and may be refused or be a trial.
#[test]
fn a_register_that_is_opened_to_be_moved_keeps_its_history_however_little_would_be_kept() {
    let disk = SimDisk::default();
    let unmerged = Files { snapshot_log_bytes: 1 << 30, ..options(&disk) };
    let store = EmbeddedStore::open(std::path::Path::new(DIR), SHARDS, unmerged).unwrap();
    let run = run(&store, 200, 0x100);
    drop(store);
    let before: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
    let greedy = Files { opening: Opening::Source, history_bytes: 0, history_seconds: 0, ..options(&disk) };
    let source = EmbeddedStore::open(std::path::Path::new(DIR), SHARDS, greedy).unwrap();
    // Long enough for any merge that is due.
    for token in 0..200 {
        wait(source.take(ShardId(2), Token(0x9000 + token))).unwrap();
    }
    let history = wait(source.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
    assert_eq!(history.len(), run.offered[0].len());
    assert_eq!(source.figures().compactions, 0);
    drop(source);
    let after: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
    assert!(before.iter().all(|path| after.contains(path)), "{before:?} {after:?}");
}
