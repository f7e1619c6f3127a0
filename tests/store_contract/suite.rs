//! The contract. A store counts as one only if it is in the list at the end.

use std::path::Path;
use std::sync::Arc;

use allod::store::embedded::{EmbeddedOptions as Files, EmbeddedStore};
use allod::store::history::{RecordedBatch, Stretch};
use allod::store::memory::MemoryStore;
use allod::store::redis::{RedisOptions as Keys, RedisStore};
use allod::store::*;

use super::disk::SimDisk;
use super::redis::Server;
use super::redis::clustered::RedisCluster;
use super::work::*;

pub trait Subject {
    type Kept: Store;
    /// None if something it needs is missing on this machine, which was printed.
    fn open(&self) -> Option<Arc<Self::Kept>>;
    /// Keeps so many bytes of history.
    fn open_keeping(&self, bytes: u64) -> Option<Arc<Self::Kept>>;
}

pub struct Memory;
impl Subject for Memory {
    type Kept = MemoryStore;
    fn open(&self) -> Option<Arc<MemoryStore>> {
        Some(Arc::new(MemoryStore::new(SHARDS)))
    }
    fn open_keeping(&self, bytes: u64) -> Option<Arc<MemoryStore>> {
        Some(Arc::new(MemoryStore::keeping(SHARDS, bytes)))
    }
}

pub struct Embedded(SimDisk);
impl Subject for Embedded {
    type Kept = EmbeddedStore;
    fn open(&self) -> Option<Arc<EmbeddedStore>> {
        Some(Arc::new(open(&self.0).unwrap()))
    }
    fn open_keeping(&self, bytes: u64) -> Option<Arc<EmbeddedStore>> {
        let options = Files { history_bytes: bytes, ..options(&self.0) };
        Some(Arc::new(EmbeddedStore::open(Path::new(DIR), SHARDS, options).unwrap()))
    }
}

/// A server for each test, since every test begins with an empty register.
pub struct Redis(Option<Server>);
impl Subject for Redis {
    type Kept = RedisStore;
    fn open(&self) -> Option<Arc<RedisStore>> {
        self.0.as_ref().map(|server| Arc::new(server.open().unwrap()))
    }
    fn open_keeping(&self, bytes: u64) -> Option<Arc<RedisStore>> {
        let server = self.0.as_ref()?;
        Some(Arc::new(RedisStore::open(Keys { history_bytes: bytes, ..server.options() }).unwrap()))
    }
}

/// Redis as a cluster of one server, which restricts what scripts may do.
pub struct RedisSlots(Option<RedisCluster>);
impl Subject for RedisSlots {
    type Kept = RedisStore;
    fn open(&self) -> Option<Arc<RedisStore>> {
        self.0.as_ref().map(|cluster| Arc::new(RedisStore::open(Keys::new(cluster.url(), SHARDS)).unwrap()))
    }
    fn open_keeping(&self, bytes: u64) -> Option<Arc<RedisStore>> {
        let cluster = self.0.as_ref()?;
        let options = Keys { history_bytes: bytes, ..Keys::new(cluster.url(), SHARDS) };
        Some(Arc::new(RedisStore::open(options).unwrap()))
    }
}

pub fn token(number: u128) -> Token {
    Token(0x7000 + number)
}

fn a_new_register_is_empty(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    assert_eq!((head.epoch, head.seq, head.parent), (Epoch(1), Seq(0), Token(0)));
    let image = wait(store.load(ShardId(0), token(1))).unwrap();
    assert!(image.networks.is_empty());
    assert_eq!(image.head, head);
    assert_eq!(store.health(), StoreHealth::Ready);
    assert_eq!(store.info().shards, SHARDS);
}

fn what_was_committed_is_loaded(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let run = run(&*store, 40, 0x100);
    assert_eq!(run.acknowledged[0], 40);
    check(&*store, &run, 0x200, "same process");
}

fn what_is_read_beside_the_owner_is_what_it_would_load(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(1), token(1))).unwrap();
    let of = |image: ShardImage| {
        let networks = image.networks.into_iter();
        let all = |network: NetworkImage| (network.config, network.subnets, network.entries.into_iter().collect());
        (image.head, networks.map(all).collect::<Vec<(_, _, Vec<_>)>>())
    };
    assert!(wait(store.beside(ShardId(1))).unwrap().networks.is_empty());
    for steps in [vec![config_step(network(2))], vec![grant(7, 9, None)]] {
        let next = batch(&head, 1, steps);
        let committed = wait(store.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
        let beside = of(wait(store.beside(ShardId(1))).unwrap());
        assert_eq!(beside, of(wait(store.load(ShardId(1), token(1))).unwrap()));
        assert_eq!((beside.0.seq, beside.0.digest), (head.seq, head.digest));
    }
    let mut from = Some(0);
    while let Some(at) = from {
        from = wait(store.reread(at)).unwrap();
    }
    assert!(wait(store.beside(ShardId(SHARDS))).is_err());
}

/// The record is written, rewritten and removed, alone and together with networks.
fn the_record_of_a_deployment_is_kept_as_what_networks_have(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut offered: Vec<Batch> = Vec::new();
    for n in 0..40 {
        let mut next = batch(&head, 0, rows(n, 0, &offered));
        next.acts.push(record_act(n, 0, &offered));
        let committed = wait(store.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
        offered.push(next);
        if n % 7 == 0 {
            let image = wait(store.load(ShardId(0), token(1))).unwrap();
            assert_eq!(model_of(&image), model(&offered), "behind batch {n}");
        }
    }
}

fn a_take_over_fences_the_owner_before(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let old = wait(store.take(ShardId(0), token(1))).unwrap();
    let new = wait(store.take(ShardId(0), token(2))).unwrap();
    assert_eq!((new.epoch.0, new.parent), (old.epoch.0 + 1, old.token));
    let late = batch(&old, 0, vec![config_step(network(1))]);
    let refused = wait(store.commit([late.clone()].into()));
    assert!(matches!(refused, Err(CommitError::Fenced { current, .. }) if current == new.epoch), "{refused:?}");
    // The right epoch with the wrong token is fenced as well: the epoch only gives an order.
    let forged = Batch { epoch: new.epoch, ..late };
    assert!(matches!(wait(store.commit([forged].into())), Err(CommitError::Fenced { .. })));
    assert!(matches!(wait(store.load(ShardId(0), token(1))), Err(StoreError::Fenced { .. })));
    assert!(wait(store.history(ShardId(0), Seq(0), 10)).unwrap().is_empty());
}

fn taking_twice_with_one_token_is_taking_once(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let first = wait(store.take(ShardId(0), token(1))).unwrap();
    assert_eq!(wait(store.take(ShardId(0), token(1))).unwrap(), first);
}

fn a_batch_sent_again_is_applied_once(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(0), token(1))).unwrap();
    let first = batch(&head, 0, vec![config_step(network(1))]);
    let committed = wait(store.commit([first.clone()].into())).unwrap();
    follow(&mut head, &first, &committed[0]);
    let second = batch(&head, 0, vec![grant(7, 5, None)]);
    let after = wait(store.commit([second.clone()].into())).unwrap();
    // Both are sent again, the older one too: they were applied, and are not applied twice.
    assert_eq!(wait(store.commit([first.clone()].into())).unwrap(), committed);
    assert_eq!(wait(store.commit([second.clone()].into())).unwrap(), after);
    assert_eq!(wait(store.history(ShardId(0), Seq(0), 10)).unwrap(), [first, second]);
}

fn other_content_under_a_used_seq_is_refused(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    wait(store.commit([batch(&head, 0, vec![config_step(network(1))])].into())).unwrap();
    let other = batch(&head, 0, vec![config_step(network(1)), grant(7, 5, None)]);
    assert!(matches!(wait(store.commit([other].into())), Err(CommitError::Fenced { .. })));
    assert_eq!(wait(store.history(ShardId(0), Seq(0), 10)).unwrap().len(), 1);
}

fn a_gap_is_refused_and_named(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut ahead = batch(&head, 0, vec![config_step(network(1))]);
    ahead.seq = Seq(2);
    let refused = wait(store.commit([ahead].into()));
    let gap =
        |error: &CommitError| matches!(error, CommitError::NotApplied { cause: StoreError::Gap { last: Seq(0), .. } });
    assert!(refused.as_ref().is_err_and(gap), "{refused:?}");
}

fn the_digest_chains_the_line(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut digests = vec![head.digest];
    for n in 0..3 {
        let next = batch(&head, 0, rows(n, 0, &wait(store.history(ShardId(0), Seq(0), 10)).unwrap()));
        let committed = wait(store.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
        assert!(!digests.contains(&head.digest));
        digests.push(head.digest);
    }
    assert_eq!(wait(store.take(ShardId(0), token(2))).unwrap().digest, head.digest);
    let name = (ShardId(0), token(2), head.seq, head.digest);
    wait(store.confirm(vec![name])).unwrap();
    let wrong = (ShardId(0), token(2), head.seq, Digest(1));
    assert!(matches!(wait(store.confirm(vec![wrong])), Err(CommitError::Fenced { .. })));
    let old = (ShardId(0), token(1), head.seq, head.digest);
    assert!(matches!(wait(store.confirm(vec![old])), Err(CommitError::Fenced { .. })));
}

fn calls_take_effect_in_their_order(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(0), token(1))).unwrap();
    // Each batch is given before the previous one is answered.
    let mut answers = Vec::new();
    let mut offered = Vec::new();
    for n in 0..50 {
        let next = batch(&head, 0, rows(n, 0, &offered));
        (head.seq, head.time, head.generation) = (next.seq, next.time, next.generation);
        offered.push(next.clone());
        answers.push(store.commit([next].into()));
    }
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(wait(answer).unwrap()[0].seq.0, n as u64 + 1);
    }
    assert_eq!(wait(store.history(ShardId(0), Seq(0), 100)).unwrap(), offered);
}

fn a_joint_commit_is_all_or_nothing(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let first = wait(store.take(ShardId(0), token(1))).unwrap();
    let second = wait(store.take(ShardId(1), token(2))).unwrap();
    let good = batch(&first, 0, vec![config_step(network(1))]);
    let mut bad = batch(&second, 1, vec![config_step(network(2))]);
    bad.token = token(9);
    for batches in [vec![good.clone(), bad.clone()], vec![bad, good.clone()]] {
        assert!(matches!(wait(store.commit(batches.into())), Err(CommitError::Fenced { .. })));
    }
    assert!(wait(store.history(ShardId(0), Seq(0), 10)).unwrap().is_empty());
    let twice = wait(store.commit([good.clone(), good.clone()].into()));
    assert!(matches!(twice, Err(CommitError::NotApplied { cause: StoreError::Invalid(_) })), "{twice:?}");
    let other = batch(&second, 1, vec![config_step(network(2))]);
    assert_eq!(wait(store.commit([good, other].into())).unwrap().len(), 2);
}

fn what_cannot_be_read_back_is_refused(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut wrong = batch(&head, 0, vec![config_step(network(8))]);
    let refused = wait(store.commit([wrong.clone()].into()));
    assert!(matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Invalid(_) })), "{refused:?}");
    wrong.acts[0].network = network(8);
    wrong.generation.0 = 1 << 53;
    assert!(wait(store.commit([wrong].into())).is_err());
    wait(store.commit([batch(&head, 0, vec![config_step(network(1))])].into())).unwrap();
}

fn time_and_generations_never_go_back(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(0), token(1))).unwrap();
    let first = batch(&head, 0, vec![config_step(network(1))]);
    let committed = wait(store.commit([first.clone()].into())).unwrap();
    follow(&mut head, &first, &committed[0]);
    let next = batch(&head, 0, vec![]);
    let back = [Batch { time: ShardTime(0), ..next.clone() }, Batch { generation: Generation(0), ..next.clone() }];
    for batch in back {
        assert!(wait(store.commit([batch].into())).is_err());
    }
    // Batches without acts, or with acts without steps, are batches like others.
    wait(store.commit([next].into())).unwrap();
}

fn history_is_read_in_pages(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let run = run(&*store, 120, 0x100);
    let (mut after, mut read) = (Seq(0), Vec::new());
    loop {
        let page = wait(store.history(ShardId(0), after, 7)).unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = last.seq;
        read.extend(page);
    }
    assert_eq!(read, run.offered[0]);
}

/// All batches of some stretches, in calls of at most so many bytes.
fn recorded(store: &dyn Store, mut stretches: Vec<Stretch>, bytes: usize) -> Vec<RecordedBatch> {
    let mut read = Vec::new();
    loop {
        let page = wait(store.recorded(stretches.clone(), bytes)).unwrap();
        let longest = page.iter().map(|batch| batch.bytes.len()).max().unwrap_or(0);
        // A frame of the log may hold a batch of each shard.
        let all: usize = page.iter().map(|batch| batch.bytes.len()).sum();
        assert!(all <= bytes.saturating_add(2 * longest), "{all} bytes, {bytes} were asked for");
        for batch in &page {
            let of = stretches.iter_mut().find(|stretch| stretch.shard == batch.shard).unwrap();
            assert!(of.after < batch.seq && batch.seq <= of.until, "{:?} {:?}", of, batch.seq);
            of.after = batch.seq;
        }
        if page.is_empty() {
            return read;
        }
        read.extend(page);
    }
}

fn what_is_recorded_follows_the_line(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let run = run(&*store, 120, 0x100);
    let ends = [0, 1].map(|shard| wait(store.take(ShardId(shard), token(shard.into()))).unwrap());
    let all = |shard: u16, until: u64| Stretch { shard: ShardId(shard), after: Seq(0), until: Seq(until) };
    for bytes in [0, 1_000, usize::MAX] {
        let read = recorded(&*store, vec![all(0, u64::MAX), all(1, u64::MAX)], bytes);
        for shard in [0, 1] {
            let of_shard: Vec<&RecordedBatch> = read.iter().filter(|batch| batch.shard.0 == shard).collect();
            let batches: Vec<Batch> = of_shard.iter().map(|batch| batch.decode().unwrap()).collect();
            assert_eq!(batches, run.offered[usize::from(shard)]);
            let digest = of_shard.iter().fold(Digest(0), |digest, batch| {
                assert!(batch.follows(Digest(digest.0 ^ 1)).is_none(), "another line is told");
                batch.follows(digest).expect("it follows")
            });
            assert_eq!(digest, ends[usize::from(shard)].digest);
        }
    }
    let some = recorded(&*store, vec![Stretch { after: Seq(70), ..all(0, 77) }, all(1, 3)], 300);
    let names: Vec<(u16, u64)> = some.iter().map(|batch| (batch.shard.0, batch.seq.0)).collect();
    let of = |shard: u16| names.iter().filter(|name| name.0 == shard).map(|name| name.1).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), ((71..=77).collect(), (1..=3).collect()));
    assert!(recorded(&*store, vec![Stretch { after: Seq(77), ..all(0, 77) }], 300).is_empty());
}

fn history_ends_with_retention_and_never_in_the_middle(subject: &impl Subject) {
    let Some(store) = subject.open_keeping(20_000) else { return };
    let run = run(&*store, 600, 0x100);
    let last = run.offered[0].len() as u64;
    // Files are removed some time after they may be.
    for _ in 0..200 {
        let read = wait(store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
        let first = read.first().expect("the last ones are kept").seq.0;
        assert_eq!(read, run.offered[0][first as usize - 1..], "all from the first one that is kept");
        if first > 1 && first < last {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("nothing was removed");
}

fn a_closed_store_refuses(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    let before = store.commit([batch(&head, 0, vec![config_step(network(1))])].into());
    wait(store.close());
    wait(before).unwrap();
    assert_eq!(store.health(), StoreHealth::Failed);
    let refused = wait(store.commit([batch(&head, 0, vec![config_step(network(1))])].into()));
    assert!(matches!(refused, Err(CommitError::NotApplied { .. })), "{refused:?}");
    assert!(wait(store.take(ShardId(0), token(2))).is_err());
    wait(store.close());
}

fn a_shard_that_is_none_is_refused(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    assert!(wait(store.take(ShardId(SHARDS), token(1))).is_err());
    assert!(wait(store.load(ShardId(SHARDS), token(1))).is_err());
    assert!(wait(store.history(ShardId(SHARDS), Seq(0), 1)).is_err());
}

/// A store that compares before it writes refuses the batch; the others refuse to load it. None may let it pass.
fn an_expectation_that_fails_is_never_passed_on(subject: &impl Subject) {
    let Some(store) = subject.open() else { return };
    let mut head = wait(store.take(ShardId(0), token(1))).unwrap();
    let first = batch(&head, 0, vec![config_step(network(1)), grant(7, 5, None)]);
    let committed = wait(store.commit([first.clone()].into())).unwrap();
    follow(&mut head, &first, &committed[0]);
    let wrong = batch(&head, 0, vec![grant(7, 6, None)]);
    match wait(store.commit([wrong].into())) {
        Err(CommitError::Mismatch { expected: None, found: Some(5), .. }) => {}
        Ok(_) => {
            let image = wait(store.load(ShardId(0), token(1)));
            assert!(matches!(image, Err(StoreError::Damaged(_))), "{image:?}");
        }
        other => panic!("{other:?}"),
    }
}

macro_rules! store_suite {
    ($store:ident, $subject:expr, $($fact:ident),* $(,)?) => {
        mod $store {
            use super::*;
            $(#[test] fn $fact() { super::$fact(&$subject); })*
        }
    };
    ($($store:ident: $subject:expr),* $(,)?) => {
        $(store_suite!($store, $subject,
            the_record_of_a_deployment_is_kept_as_what_networks_have,
            a_new_register_is_empty, what_was_committed_is_loaded, what_is_read_beside_the_owner_is_what_it_would_load, a_take_over_fences_the_owner_before,
            taking_twice_with_one_token_is_taking_once, a_batch_sent_again_is_applied_once,
            other_content_under_a_used_seq_is_refused, a_gap_is_refused_and_named, the_digest_chains_the_line,
            calls_take_effect_in_their_order, a_joint_commit_is_all_or_nothing, what_cannot_be_read_back_is_refused,
            time_and_generations_never_go_back, history_is_read_in_pages, what_is_recorded_follows_the_line,
            history_ends_with_retention_and_never_in_the_middle, a_closed_store_refuses,
            a_shard_that_is_none_is_refused, an_expectation_that_fails_is_never_passed_on);)*
    };
}

use allod::core::types::{Generation, ShardTime};
store_suite!(
    memory: Memory,
    embedded: Embedded(SimDisk::default()),
    redis: Redis(Server::start(&[])),
    redis_cluster: RedisSlots(RedisCluster::start(1, 0, &[])),
);
