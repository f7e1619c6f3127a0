//! The register that all nodes of a simulation share, as a replicated store keeps it. It has the rules of `store::fence`,
//! leases by the store's own time, and writes that a failover may lose until they are confirmed.
//!
//! It is pure: the world says what time it is and when something is confirmed. Each of the [`Rules`] can be switched off, to
//! show that the judge sees what happens without it.
//!
//! It keeps each shard's line of batches from the beginning, for watches and for `truth`, which judges answers.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use allod::core::network::Entries;
use allod::core::state::{Entry, Key, State, Step};
use allod::core::types::NetworkId;
use allod::limits::NODE_LEASE_MS;
use allod::store::history::{RecordedBatch, Stretch};
use allod::store::{
    Act, Batch, CommitError, Committed, Digest, Epoch, Head, NetworkImage, Seq, ShardId, ShardImage, StoreError, Token,
    TransactionId,
};
use xxhash_rust::xxh3::Xxh3;

/// Batches of a line that are recognised when they arrive again.
const REMEMBERED_BATCHES_MAX: usize = 64;

/// What the register insists on: everything, except in negative controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Only the owner's token writes.
    pub token: bool,
    /// A batch with a used number is taken for the same batch only if its bytes are the same, and a batch must follow the
    /// one that its writer means, by digest and by time. Without this rule token and number identify a batch.
    pub digest: bool,
    /// Nothing that is answered can be lost.
    pub confirmation: bool,
    /// An answer without a write waits for a proof of ownership.
    pub check: bool,
    /// What is stored is compared with what the batch expects.
    pub expectations: bool,
    /// All acts of a commit are applied, or none. Without this rule an act over several networks changes only the first of
    /// them.
    pub whole: bool,
}

impl Rules {
    pub const ALL: Rules =
        Rules { token: true, digest: true, confirmation: true, check: true, expectations: true, whole: true };
}

/// A process that talks to the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Its handle, which is a new one after each start.
    pub handle: u64,
    pub name: Arc<str>,
}

/// A batch as it is sent, with its bytes' digest and the digest of the line that it continues.
#[derive(Debug, Clone)]
pub struct Sealed {
    pub batch: Batch,
    /// None if it follows nothing that its sender knows.
    pub parent: Option<Digest>,
    pub bytes: Arc<[u8]>,
}

/// The kind of a write, for the trace and the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Take,
    Commit,
    Lease,
}

#[derive(Debug, Clone)]
struct Shard {
    head: Head,
    owner: Option<Who>,
    lease_ends_ms: u64,
    recent: VecDeque<(Token, Seq, Digest, Digest)>,
    networks: BTreeMap<NetworkId, BTreeMap<Key, State>>,
}

/// A batch of a shard's line.
#[derive(Debug, Clone)]
pub struct Written {
    /// Digest of the line up to and including this batch.
    pub digest: Digest,
    pub batch: Batch,
    bytes: Arc<[u8]>,
    /// The number of this write among all writes of the register.
    position: u64,
    /// Since when it can no longer be lost, in the world's stamps.
    pub confirmed_ns: Option<u64>,
}

/// What stood before an unconfirmed write.
#[derive(Debug)]
struct Version {
    position: u64,
    write: Write,
    before: Vec<Rc<Shard>>,
}

#[derive(Debug)]
pub struct Register {
    pub rules: Rules,
    shards: Vec<Rc<Shard>>,
    unconfirmed: VecDeque<Version>,
    position: u64,
    /// Leases that expired and blocks that were given, for the counters.
    pub expired: u64,
    pub blocks: u64,
    /// The node that took a shard under each token.
    takers: HashMap<Token, Arc<str>>,
    lines: Vec<Vec<Written>>,
    /// Batches that a failover cut off: shard and number.
    cut: BTreeSet<(u16, u64)>,
    /// The networks that each act over several networks was meant to change.
    meant: BTreeMap<u128, BTreeSet<NetworkId>>,
}

enum Verdict {
    Next(Digest),
    Applied(Digest),
    /// Written by a node that is not the owner, while the token rule is off.
    Intruder,
}

pub fn digest(parent: Digest, bytes: &[u8]) -> Digest {
    let mut hash = Xxh3::new();
    hash.update(&parent.0.to_be_bytes());
    hash.update(bytes);
    Digest(hash.digest128())
}

impl Shard {
    fn new() -> Self {
        Self {
            head: Head::default(),
            owner: None,
            lease_ends_ms: 0,
            recent: VecDeque::new(),
            networks: BTreeMap::new(),
        }
    }

    fn judge(&self, rules: Rules, sealed: &Sealed) -> Result<Verdict, CommitError> {
        let Sealed { batch, parent, bytes } = sealed;
        let fenced = CommitError::Fenced { shard: batch.shard, current: self.head.epoch };
        if self.head.epoch == Epoch(0) {
            return Err(fenced);
        }
        if batch.token != self.head.token || batch.epoch != self.head.epoch {
            return if rules.token { Err(fenced) } else { Ok(Verdict::Intruder) };
        }
        if batch.seq <= self.head.seq {
            let known = self.recent.iter().find(|&&(token, seq, ..)| (token, seq) == (batch.token, batch.seq));
            return match known {
                Some(&(_, _, before, after)) if !rules.digest || digest(before, bytes) == after => {
                    Ok(Verdict::Applied(after))
                }
                _ => Err(fenced),
            };
        }
        if batch.seq.0 > self.head.seq.0 + 1 {
            let cause = StoreError::Gap { shard: batch.shard, last: self.head.seq };
            return Err(CommitError::NotApplied { cause });
        }
        if rules.digest && *parent != Some(self.head.digest) {
            return Err(fenced);
        }
        if rules.digest && (batch.time < self.head.time || batch.generation < self.head.generation) {
            let cause = StoreError::Invalid("its time or its generation is lower than that of the batch before".into());
            return Err(CommitError::NotApplied { cause });
        }
        Ok(Verdict::Next(digest(self.head.digest, bytes)))
    }

    /// Compares what each step expects with what stands there, at the place of the step in the batch, also for blocks.
    fn expects(&self, batch: &Batch) -> Result<(), CommitError> {
        let mut changed: BTreeMap<NetworkId, BTreeMap<Key, State>> = BTreeMap::new();
        for act in &batch.acts {
            let keys = changed
                .entry(act.network)
                .or_insert_with(|| self.networks.get(&act.network).cloned().unwrap_or_default());
            for step in &act.steps {
                let found = keys.get(&step.key).map(State::mark);
                let in_the_way = found.is_none().then(|| covering(keys, step)).flatten();
                if found != step.expect || in_the_way.is_some() {
                    return Err(CommitError::Mismatch {
                        shard: batch.shard,
                        seq: batch.seq,
                        network: act.network,
                        key: step.key,
                        expected: step.expect,
                        found: in_the_way.or(found),
                    });
                }
                put(keys, step);
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) {
        for act in &batch.acts {
            let keys = self.networks.entry(act.network).or_default();
            act.steps.iter().for_each(|step| put(keys, step));
            if keys.is_empty() {
                self.networks.remove(&act.network);
            }
        }
    }
}

/// The batch without what acts over several networks do in any but the first.
fn halved(batch: &Batch, meant: &BTreeMap<u128, BTreeSet<NetworkId>>) -> Batch {
    let is_first = |act: &Act| {
        let networks = act.transaction.and_then(|TransactionId(transaction)| meant.get(&transaction));
        networks.and_then(BTreeSet::first).is_none_or(|first| *first == act.network)
    };
    Batch { acts: batch.acts.iter().filter(|act| is_first(act)).cloned().collect(), ..batch.clone() }
}

fn put(keys: &mut BTreeMap<Key, State>, step: &Step) {
    match &step.state {
        Some(state) => keys.insert(step.key, state.clone()),
        None => keys.remove(&step.key),
    };
}

fn gives_block(step: &Step) -> bool {
    matches!(&step.state, Some(State::Entry(Entry::Held(held))) if held.prefix_length < 32)
}

/// A feigned refusal of a commit: the register claims to find something else than the commit expects, although all is as
/// expected. A store says no more than this, whatever is wrong.
pub fn mismatch(sealed: &[Sealed]) -> Option<CommitError> {
    let has_steps = |one: &&Sealed| one.batch.acts.iter().any(|act| !act.steps.is_empty());
    let Batch { shard, seq, acts, .. } = &sealed.iter().rfind(has_steps)?.batch;
    let (network, step) = acts.iter().find_map(|act| Some((act.network, act.steps.first()?)))?;
    let found = Some(step.expect.map_or(1, |mark| mark + 1));
    Some(CommitError::Mismatch { shard: *shard, seq: *seq, network, key: step.key, expected: step.expect, found })
}

/// The mark of the entry that covers an address which a step gives away.
fn covering(keys: &BTreeMap<Key, State>, step: &Step) -> Option<u64> {
    let range = |key: &Key, state: &State| match (key, state) {
        (&Key::Address(address), State::Entry(Entry::Held(held))) => {
            allod::core::address::Cidr::new(address, held.prefix_length).map(|cidr| cidr.range())
        }
        _ => None, // Holds nothing.
    };
    let wanted = range(&step.key, step.state.as_ref()?)?;
    keys.iter().find(|(key, state)| range(key, state).is_some_and(|held| held.overlaps(wanted))).map(|(_, s)| s.mark())
}

fn image(keys: &BTreeMap<Key, State>) -> Option<NetworkImage> {
    let mut image: Option<NetworkImage> = None;
    let (mut subnets, mut entries) = (Vec::new(), Vec::new());
    for (key, state) in keys {
        match (key, state) {
            (_, State::Config(config)) => {
                image =
                    Some(NetworkImage { config: Arc::clone(config), subnets: Vec::new(), entries: Entries::default() });
            }
            (_, State::Subnet(subnet)) => subnets.push(Arc::clone(subnet)),
            (&Key::Address(address), State::Entry(entry)) => entries.push((address, entry.clone())),
            _ => {} // The codec refuses such a pair.
        }
    }
    image.map(|image| NetworkImage { subnets, entries: entries.into(), ..image })
}

impl Register {
    pub fn new(shards: u16, rules: Rules) -> Self {
        let lines = (0..shards).map(|_| Vec::new()).collect();
        let shards = (0..shards).map(|_| Rc::new(Shard::new())).collect();
        Self {
            rules,
            shards,
            unconfirmed: VecDeque::new(),
            position: 0,
            expired: 0,
            blocks: 0,
            takers: HashMap::new(),
            lines,
            cut: BTreeSet::new(),
            meant: BTreeMap::new(),
        }
    }

    /// The line of each shard, as it is now.
    pub fn lines(&self) -> &[Vec<Written>] {
        &self.lines
    }

    /// Shards whose line has batches of three nodes, each of which went on from what the one before had left.
    pub fn with_three_owners(&self) -> usize {
        let owners = |line: &&Vec<Written>| {
            line.iter().filter_map(|written| self.takers.get(&written.batch.token)).collect::<BTreeSet<_>>().len()
        };
        self.lines.iter().map(|line| owners(&line)).filter(|owners| *owners >= 3).count()
    }

    /// The networks that each act over several was meant to change, whatever became of the act.
    pub fn meant(&self) -> &BTreeMap<u128, BTreeSet<NetworkId>> {
        &self.meant
    }

    /// Did a failover cut off anything at this place, or after it?
    pub fn was_cut_behind(&self, shard: u16, seq: u64) -> bool {
        self.cut.range((shard, seq)..=(shard, u64::MAX)).next().is_some()
    }

    /// Batches of the stretches in the order in which they were written, up to so many bytes.
    pub fn recorded(&self, stretches: &[Stretch], bytes: usize) -> Vec<RecordedBatch> {
        let of = |stretch: &Stretch| {
            let line = &self.lines[usize::from(stretch.shard.0)];
            let (after, until) = (stretch.after, stretch.until);
            line.iter().filter(move |written| written.batch.seq > after && written.batch.seq <= until)
        };
        let mut wanted: Vec<&Written> = stretches.iter().flat_map(of).collect();
        wanted.sort_by_key(|written| (written.position, written.batch.shard));
        let (mut recorded, mut read) = (Vec::new(), 0);
        for written in wanted {
            if !recorded.is_empty() && read >= bytes {
                break;
            }
            let Batch { shard, seq, .. } = written.batch;
            read += written.bytes.len();
            recorded.push(RecordedBatch {
                shard,
                seq,
                digest: Some(written.digest),
                bytes: Arc::clone(&written.bytes),
            });
        }
        recorded
    }

    /// The number of writes so far: an answer waits until the last of them is confirmed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many writes a failover may lose.
    pub fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    fn write(&mut self, write: Write) {
        self.position += 1;
        self.unconfirmed.push_back(Version { position: self.position, write, before: self.shards.clone() });
    }

    fn shard(&self, shard: ShardId) -> &Shard {
        &self.shards[usize::from(shard.0)]
    }

    fn change(&mut self, shard: ShardId) -> &mut Shard {
        Rc::make_mut(&mut self.shards[usize::from(shard.0)])
    }

    /// From now on everything up to this position survives a failover.
    pub fn confirm(&mut self, position: u64, now_ns: u64) {
        for line in &mut self.lines {
            let fresh = line.iter_mut().rev().take_while(|written| written.confirmed_ns.is_none());
            for written in fresh.filter(|written| written.position <= position) {
                written.confirmed_ns = Some(now_ns);
            }
        }
        while self.unconfirmed.front().is_some_and(|version| version.position <= position) {
            self.unconfirmed.pop_front();
        }
    }

    /// Loses the last `lost` writes, and returns what they were.
    pub fn fail_over(&mut self, lost: usize) -> Vec<Write> {
        let mut writes = Vec::new();
        for _ in 0..lost {
            if let Some(version) = self.unconfirmed.pop_back() {
                self.shards = version.before;
                writes.push(version.write);
            }
        }
        for (shard, line) in self.shards.iter().zip(&mut self.lines) {
            while let Some(last) =
                line.pop_if(|last| (last.batch.seq, last.digest) != (shard.head.seq, shard.head.digest))
            {
                self.cut.insert((last.batch.shard.0, last.batch.seq.0));
            }
        }
        writes
    }

    /// Takes a shard over. `before`: the caller has already taken the shard through this handle.
    pub fn take(
        &mut self,
        now_ms: u64,
        who: &Who,
        shard: ShardId,
        token: Token,
        before: bool,
    ) -> Result<Head, StoreError> {
        let present = self.shard(shard);
        let own = present.owner.as_ref() == Some(who);
        if before && !own {
            return Err(StoreError::Fenced { shard, current: present.head.epoch });
        }
        if let Some(owner) = present.owner.as_ref().filter(|_| !own && present.lease_ends_ms > now_ms) {
            let left_ms = present.lease_ends_ms - now_ms;
            return Err(StoreError::Held { shard, owner: owner.name.clone(), address: "".into(), left_ms });
        }
        self.write(Write::Take);
        self.takers.insert(token, Arc::clone(&who.name));
        let shard = self.change(shard);
        if token != shard.head.token {
            let Head { epoch, token: parent, .. } = shard.head;
            shard.head = Head { epoch: Epoch(epoch.0 + 1), token, parent, ..shard.head };
        }
        (shard.owner, shard.lease_ends_ms) = (Some(who.clone()), now_ms + NODE_LEASE_MS);
        Ok(shard.head)
    }

    pub fn load(&self, shard: ShardId, token: Token) -> Result<ShardImage, StoreError> {
        let present = self.shard(shard);
        if present.head.token != token {
            return Err(StoreError::Fenced { shard, current: present.head.epoch });
        }
        let networks = present.networks.values().filter_map(image).collect();
        let record = |(id, keys): (&NetworkId, &BTreeMap<Key, State>)| match keys.get(&Key::Deployment) {
            Some(State::Deployment(record)) => Some((*id, Arc::clone(record))),
            _ => None,
        };
        let deployments = present.networks.iter().filter_map(record).collect();
        Ok(ShardImage { head: present.head, networks, deployments })
    }

    /// Is any of these acts over several networks?
    pub fn is_joint(&self, sealed: &[Sealed]) -> bool {
        let mut networks: BTreeMap<u128, BTreeSet<NetworkId>> = BTreeMap::new();
        for act in sealed.iter().flat_map(|one| &one.batch.acts).filter(|act| !act.steps.is_empty()) {
            if let Some(TransactionId(transaction)) = act.transaction {
                networks.entry(transaction).or_default().insert(act.network);
            }
        }
        networks.values().any(|networks| networks.len() > 1)
    }

    /// Notes which networks each act over several is meant to change.
    fn note_meant(&mut self, sealed: &[Sealed]) {
        for act in sealed.iter().flat_map(|one| &one.batch.acts).filter(|act| !act.steps.is_empty()) {
            if let Some(TransactionId(transaction)) = act.transaction {
                self.meant.entry(transaction).or_default().insert(act.network);
            }
        }
    }

    /// Applies all of the batches or none. Also tells whether any of them was applied before.
    pub fn commit(&mut self, sealed: &[Sealed]) -> Result<(Vec<Committed>, bool), CommitError> {
        self.note_meant(sealed);
        let mut verdicts = Vec::with_capacity(sealed.len());
        for one in sealed {
            let shard = self.shard(one.batch.shard);
            let verdict = shard.judge(self.rules, one)?;
            if self.rules.expectations && !matches!(verdict, Verdict::Applied(_)) {
                shard.expects(&one.batch)?;
            }
            verdicts.push(verdict);
        }
        let again = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Applied(_)));
        if verdicts.iter().any(|verdict| !matches!(verdict, Verdict::Applied(_))) {
            self.write(Write::Commit);
        }
        let mut committed = Vec::with_capacity(sealed.len());
        let position = self.position;
        for (Sealed { batch, bytes, .. }, verdict) in sealed.iter().zip(verdicts) {
            let (shard, seq) = (batch.shard, batch.seq);
            if !matches!(verdict, Verdict::Applied(_)) {
                self.expired += batch.acts.iter().filter(|act| act.by == "lease").count() as u64;
                self.blocks +=
                    batch.acts.iter().flat_map(|act| &act.steps).filter(|step| gives_block(step)).count() as u64;
            }
            let whole = if self.rules.whole { batch.clone() } else { halved(batch, &self.meant) };
            let present = self.change(shard);
            let digest = match verdict {
                Verdict::Applied(digest) => digest,
                Verdict::Intruder => {
                    present.apply(batch);
                    present.head.digest
                }
                Verdict::Next(digest) => {
                    let batch = whole;
                    present.apply(&batch);
                    if present.recent.len() == REMEMBERED_BATCHES_MAX {
                        present.recent.pop_front();
                    }
                    present.recent.push_back((batch.token, seq, present.head.digest, digest));
                    let Batch { time, generation, .. } = batch;
                    present.head = Head { seq, digest, time, generation, ..present.head };
                    let (bytes, confirmed_ns) = (Arc::clone(bytes), None);
                    let written = Written { digest, batch, bytes, position, confirmed_ns };
                    self.lines[usize::from(shard.0)].push(written);
                    digest
                }
            };
            committed.push(Committed { shard, seq, digest });
        }
        Ok((committed, again))
    }

    /// Is each of these batches on its line, and its token the owner's?
    pub fn check(&self, names: &[(ShardId, Token, Seq, Digest)]) -> Result<(), CommitError> {
        for &(shard, token, seq, digest) in names {
            let present = self.shard(shard);
            let Head { epoch: current, seq: last, digest: latest, .. } = present.head;
            let on_line = (last, latest) == (seq, digest)
                || present.recent.iter().any(|&(_, at, before, after)| {
                    (at, after) == (seq, digest) || (at.0, before) == (seq.0 + 1, digest)
                });
            if self.rules.check && !(present.head.token == token && on_line) {
                return Err(CommitError::Fenced { shard, current });
            }
        }
        Ok(())
    }

    /// Extends the leases of these shards, all of them or none.
    pub fn renew(&mut self, now_ms: u64, shards: &[(ShardId, Token)]) -> Result<(), StoreError> {
        for &(shard, token) in shards {
            let present = self.shard(shard);
            if present.head.token != token {
                return Err(StoreError::Fenced { shard, current: present.head.epoch });
            }
        }
        self.write(Write::Lease);
        for &(shard, _) in shards {
            self.change(shard).lease_ends_ms = now_ms + NODE_LEASE_MS;
        }
        Ok(())
    }

    /// Ends the leases of those shards that are still under these tokens.
    pub fn release(&mut self, shards: &[(ShardId, Token)]) {
        self.write(Write::Lease);
        for &(shard, token) in shards {
            if self.shard(shard).head.token == token {
                self.change(shard).lease_ends_ms = 0;
            }
        }
    }

    /// Everything that is held: network, first and last address, generation, owner and slot.
    pub fn held(&self) -> Vec<(NetworkId, String, u64, String, String)> {
        let mut held = Vec::new();
        for (id, keys) in self.shards.iter().flat_map(|shard| &shard.networks) {
            for (key, state) in keys {
                if let (Key::Address(address), State::Entry(Entry::Held(one))) = (key, state) {
                    let (owner, slot) = (one.holder.owner.as_str().to_owned(), one.holder.slot.as_str().to_owned());
                    held.push((*id, address.to_string(), one.generation.0, owner, slot));
                }
            }
        }
        held
    }
}
