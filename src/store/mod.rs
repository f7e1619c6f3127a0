//! What keeps the register: the contract that every store fulfils, in prose and as a trait.
//!
//! A shard's state is a set of keys (see [`crate::core::state::Key`]) and a *head*. Changes come as **batches**. A batch
//! has a name, (token, seq, digest), and one content for ever:
//!
//! - **Fence.** A batch is applied only if its token is the one that the last [`Store::take`] of its shard drew, and its
//!   seq is the head's plus one. Another token or epoch, or other content under a seq that was used, is refused whole
//!   ([`CommitError::Fenced`]); a seq beyond the next is [`StoreError::Gap`], as when the batch before it was refused for
//!   lack of room. Nothing is written then.
//! - **Chain.** digest(n) = hash(digest(n-1), bytes of batch n). The same bytes sent again after an unknown outcome are
//!   recognised by token, seq and digest, and answered as applied; another content under the same seq is refused.
//! - **Expectation.** Each step says which mark (generation or version) it expects to replace. A store that can compare
//!   does so before it writes anything ([`CommitError::Mismatch`]), as the memory store and Redis do; the embedded store
//!   compares when it loads or merges, and what does not fit is damage.
//! - **All or nothing.** [`Store::commit`] takes one batch for each of several shards. A store whose
//!   [`StoreInfo::commits_shards_together`] is true applies all of them or none; others are given one at a time.
//! - **Order.** Batches of one shard take effect in the order of the calls.
//! - **Durable.** `Ok` means that the batch survives whatever [`StoreInfo::durability`] says.
//! - **History.** The batches themselves, with who, when and why, are kept in order and compaction of state never
//!   removes them within retention.
//!
//! Life of an `ip.allocate`, step 6 of 8 (see [`crate`]). Before: `actors::committer`, which calls it. Inside: `batch` has
//! what is committed, `error` why it was not, and `codec` writes batches down; `memory`, `embedded` and `redis` implement the
//! contract.

mod batch;
pub mod chapters;
pub mod codec;
pub mod embedded;
mod error;
mod fence;
pub mod history;
mod image;
pub mod late;
pub(crate) mod lock;
pub mod memory;
pub mod moving;
pub mod owner;
pub mod redis;
pub mod size;
mod whole;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

pub use self::batch::{Act, Batch, Committed, Digest, Epoch, Head, Seq, ShardId, Token, TransactionId, step_lets_go};
pub use self::error::{CommitError, StoreError, chain};
use self::history::{RecordedBatch, Stretch};
use self::late::Late;
use crate::core::deployment::Deployment;
use crate::core::network::Entries;
use crate::core::state::{NetworkConfig, SubnetConfig};
use crate::core::types::{NetworkId, ShardTime};
use image::RecordImage;

/// A node, as the others know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCard {
    /// Its name, which no other node has at the same time.
    pub name: String,
    /// Which process it is: random, drawn at its start.
    pub process: u128,
    /// What it runs.
    pub version: String,
    /// Where the other nodes reach it; empty where they cannot.
    pub peer_address: String,
    /// Where clients reach it.
    pub address: String,
    /// It was taken out of service: it is to own nothing while another node can.
    pub draining: bool,
    /// It has had no way to the owner for long.
    pub apart: Option<Apart>,
}

/// What a node says that has had no way to the owner of the register for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// Which process it does not reach.
    pub owner: u128,
    /// Which processes it reaches.
    pub reaches: Vec<u128>,
}

/// A node that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNode {
    /// Which.
    pub card: NodeCard,
    /// How long ago, by the store's time.
    pub age_ms: u64,
}

/// Who owns the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Name of the node.
    pub name: Arc<str>,
    /// Which run of it.
    pub process: u128,
    /// Where the other nodes reach it; empty where they cannot.
    pub address: Arc<str>,
}

/// A network as it was loaded.
#[derive(Debug, Clone)]
pub struct NetworkImage {
    /// Configuration.
    pub config: Arc<NetworkConfig>,
    /// Subnets, in no particular order.
    pub subnets: Vec<Arc<SubnetConfig>>,
    /// What lies at its addresses, ascending.
    pub entries: Entries,
}

/// A shard as it was loaded.
#[derive(Debug)]
pub struct ShardImage {
    /// Its head; what is committed next follows it.
    pub head: Head,
    /// Its networks, by id.
    pub networks: Vec<NetworkImage>,
    /// Records of deployments, by the id under which each is stored.
    pub deployments: Vec<(NetworkId, Arc<Deployment>)>,
}

/// What a store is, for `server.info`, logs and the committer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// `embedded`, `memory`, ….
    pub kind: &'static str,
    /// What an acknowledged change survives, in words.
    pub durability: String,
    /// What says so when there is no room for more: a sentence without its full stop.
    pub full: &'static str,
    /// Identity of the register: random, made at first start.
    pub register: u128,
    /// Number of shards, fixed at first start.
    pub shards: u16,
    /// Does one call of [`Store::commit`] apply the batches of several shards together?
    pub commits_shards_together: bool,
    /// Is holding the store open proof of ownership, so that answers without a change need no fence check?
    pub ownership_is_standing: bool,
    /// Can it lose all that it has while its owner lives, who writes it anew then ([`Store::anew`])?
    pub may_be_emptied: bool,
    /// Bytes of what must become durable together, as [`Act::bytes_max`] counts them; at most
    /// [`limits::ACT_BYTES_MAX`](crate::limits::ACT_BYTES_MAX).
    pub act_bytes_max: usize,
    /// Bytes of the move of a subnet, where so much at once would keep everybody else waiting; at most `act_bytes_max`.
    pub move_bytes_max: usize,
    /// The register that this one was copied from, until an operator accepts the copy: what was granted since is not in
    /// it, so nothing may be chosen for anybody.
    pub restored_from: Option<u128>,
}

impl StoreInfo {
    /// Bytes of one commit of what can be asked for in parts: nobody need wait for more of it than for a subnet that moves, nor
    /// for as much as that where the store would take it.
    pub fn parted_bytes_max(&self) -> usize {
        self.move_bytes_max.min(crate::limits::PARTED_BYTES_MAX)
    }
}

/// Whether the store can take changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreHealth {
    /// All is well.
    Ready,
    /// Takes only what lets go: there is no room for more.
    Full,
    /// Takes only what lets go, and not for want of room: [`Store::obstacle`] says why. It may pass.
    Hindered,
    /// Takes nothing any more; the process must be restarted.
    Failed,
}

/// Figures of a store for `/metrics`. All count from the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Groups made durable, each by one flush.
    pub flushes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Bytes that the store takes on disk.
    pub disk_bytes: u64,
    /// Compactions finished.
    pub compactions: u64,
    /// Compactions that failed and will be tried again.
    pub compaction_failures: u64,
    /// Segments of history that were damaged and given up, and lie beside the others.
    pub given_up_segments: u64,
    /// Snapshots that were damaged, and lie beside the others: the log had all that led to them.
    pub given_up_snapshots: u64,
    /// Replicas that must have a change before it is acknowledged.
    pub replicas_wanted: u64,
    /// How many of them answered last.
    pub replicas_answering: u64,
    /// Batches that the store had lost, and was given again.
    pub healed_batches: u64,
    /// Is it acknowledged what too few replicas have?
    pub degraded: bool,
    /// Bytes of what was acknowledged so, and is on this machine's disk until enough replicas have it.
    pub redo_bytes: u64,
    /// Whether Redis has an append-only file; none where the store is no Redis, or that cannot be asked.
    pub appends: Option<bool>,
    /// When nobody is trusted any more who signs for Redis, in seconds since 1970; none without TLS, or where the system says whom.
    pub ca_ends: Option<u64>,
    /// When the certificate ends that Redis is shown, in seconds since 1970; none where it is shown none.
    pub certificate_ends: Option<u64>,
}

/// Batches, and the head behind the last of them.
pub type Followed = (Vec<Batch>, Head);

/// An answer that comes later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Keeps the register. See the module's text for what each call promises.
pub trait Store: Send + Sync + 'static {
    /// What it is.
    fn info(&self) -> StoreInfo;

    /// Whether it can take changes now. Cheap: asked for every message.
    fn health(&self) -> StoreHealth;

    /// Why nobody could begin to own the register now, as far as that is known: a sentence without its full stop.
    fn bars_taking(&self) -> Option<Arc<str>> {
        None
    }

    /// What stands in the way while it takes only what lets go: a sentence without its full stop.
    fn obstacle(&self) -> Arc<str> {
        self.info().full.into()
    }

    /// Is what stands in the way, while it is full, the want of room for more? Else it cannot go on for another reason, which
    /// more room does not end.
    fn lacks_room(&self) -> bool {
        true
    }

    /// Bytes that what lets go may still take while it is full, as [`Act::bytes_max`] counts them, and [`size::BESIDE_ACTS`]
    /// for what it is alone in. None while it is not full, and where no bound is known.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Why it was not reached by whoever asked it last: a sentence without its full stop. None while it answers, and where nobody
    /// has to reach it.
    fn unreached(&self) -> Option<Arc<str>> {
        None
    }

    /// Was it not reached by whoever asked it last? Looked at for every message.
    fn is_unreached(&self) -> bool {
        self.unreached().is_some()
    }

    /// What of its files turned out to be damaged, or not to be read, while it serves: it goes on, and its next start will refuse them.
    fn damage(&self) -> Option<Arc<str>> {
        None
    }

    /// What it failed of, if it failed for good and knows that in words.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }

    /// Figures since the start.
    fn figures(&self) -> StoreFigures;

    /// Becomes the owner of a shard: a higher epoch, and the token given, which must be fresh random bits. Durable when
    /// it answers. Batches under an older token are refused from then on.
    ///
    /// # Errors
    /// [`StoreError::Held`] while another node owns it; [`StoreError::Fenced`] if it was taken through this object before
    /// and somebody else took it since; others if the store cannot be reached or written.
    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>>;

    /// Loads a shard that was taken under `token`: every record checked, none dropped silently.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a record cannot be trusted; [`StoreError::Fenced`] if somebody else took it meanwhile; others if
    /// the store cannot be reached or read, which may be tried again.
    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>>;

    /// Loads a shard beside its owner, whoever that is, and beside its commits: all that was committed up to the head of the
    /// image. Nothing is mended in the store by it.
    ///
    /// # Errors
    /// As [`Store::load`]; [`StoreError::Invalid`] where a store cannot be read so.
    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        let text = format!("shard {} cannot be read beside its owner", shard.0);
        Box::pin(std::future::ready(Err(StoreError::Invalid(text.into()))))
    }

    /// What was committed behind a head, oldest first, and the head as it is now. None if what is there does not continue
    /// that head, or is not all kept any more: then the shard is to be loaded.
    ///
    /// # Errors
    /// As [`Store::history`].
    fn follow(&self, shard: ShardId, from: Head) -> Later<Result<Option<Followed>, StoreError>> {
        let _ = (shard, from);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whoever calls this commits from now on, on the runtime that it is called on, which has I/O and time: what a commit
    /// needs may be done there. Called while nothing is under way.
    fn commits_from_here(&self) {}

    /// Commits one batch for each of several shards. The order of calls is the order of effect; the caller may have
    /// several calls under way.
    ///
    /// # Errors
    /// [`CommitError::NotApplied`]: nothing of it is there, and the same bytes may be sent again. [`CommitError::Unknown`]: it may
    /// be there; the same bytes are sent again, or the shards are taken anew. [`CommitError::Fenced`]: somebody else owns a
    /// shard, and whoever called is its owner no more. [`CommitError::Mismatch`]: something else is stored than was expected;
    /// nothing of it is there, and what the caller knows of that network is wrong.
    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>>;

    /// Proves that the batches named are durable as configured (replicas, append-only file) and that the tokens are
    /// still the owners'. Stores that confirm with the commit answer at once.
    ///
    /// # Errors
    /// [`CommitError::Fenced`], [`CommitError::NotApplied`] and [`CommitError::Unknown`] as [`Store::commit`]: nothing that was to
    /// be proved by it may be told.
    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>>;

    /// Looks whether everything that this node acknowledged is in the register, which others own now. What is not is put
    /// aside (see [`Store::late`]).
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if something is missing and nobody knows what.
    fn review(&self) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What was put aside and nobody has dealt with, over restarts; oldest first.
    fn late(&self) -> Vec<Arc<Late>> {
        Vec::new()
    }

    /// What was answered of it ([`Late::answered`]) is kept, so that it is not asked again after a restart either.
    ///
    /// # Errors
    /// It is in memory only, and may be tried again.
    fn keep_answered(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        let _ = late;
        Box::pin(std::future::ready(Ok(())))
    }

    /// All of it was given to the owner of the register, which has it durably.
    ///
    /// # Errors
    /// It stays put aside.
    fn dealt_with(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        let _ = late;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Was all that it had found to be gone, and is it not there again? Where that was while this node owned the register, it
    /// takes nothing any more.
    fn was_emptied(&self) -> bool {
        false
    }

    /// Begins the register anew in a store that was emptied: under its identity, each shard at this time, behind the last batch
    /// of which somebody was told, and owned by the caller. Nobody else can take it before it was written and posted. What this
    /// process began so before, and did not finish, goes.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] if something else is there; [`StoreError::Invalid`] where a store is never emptied;
    /// [`StoreError::Io`] and [`StoreError::Full`] for what may pass.
    fn anew(&self, times: Vec<ShardTime>) -> Later<Result<moving::Begun, StoreError>> {
        let _ = times;
        let text = "this store is not written from memory".into();
        Box::pin(std::future::ready(Err(StoreError::Invalid(text))))
    }

    /// What was begun [`anew`](Store::anew) is whole: nobody need be left what this process remembers of what it had before.
    fn written_anew(&self) {}

    /// Another node reads the register beside this owner to take it over, or does not any more: what it has not read of the log
    /// stays meanwhile, within bounds.
    fn is_read_beside(&self, is_read: bool) {
        let _ = is_read;
    }

    /// How this node is known to the others from now on.
    fn introduce(&self, card: NodeCard) {
        let _ = card;
    }

    /// Tells the others that this node is here, or gone, and learns which nodes there are.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process of this node's name was seen a moment ago.
    fn meet(&self, here: bool) -> Later<Result<Vec<SeenNode>, StoreError>> {
        let _ = here;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Who owns the register, by the lease of its first shard; none if that is over or was ended. Takes nothing.
    fn holder(&self) -> Later<Result<Option<Holder>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Extends the lease of every shard that was taken through this object, so that nobody else may take it. A lease
    /// decides who may try, never who may write: that is the token's part.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one of them was taken over meanwhile.
    fn renew(&self) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the lease of every shard that was taken through this object: whoever comes next need not wait for its end.
    fn release(&self) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Batches of these stretches, as they were written: in order in each shard, and over the shards in the order of
    /// commits as far as the store knows it. Ends behind the batch with which `bytes` are reached; who gets any asks again
    /// behind them. What is older than retention is left out, so the first of a shard may be a later one than was asked for.
    /// What was applied and not confirmed may be among them: `until` is the reader's.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a record cannot be trusted, [`StoreError::Invalid`] for a shard that does not exist.
    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>>;

    /// Reads a piece of what the next start reads as well and [`Store::beside`] does not: the first from 0 on, then from what was
    /// answered on; none: there is no more. What is damaged is told by [`Store::damage`] from then on, too.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], or others if it cannot be read.
    fn reread(&self, from: u64) -> Later<Result<Option<u64>, StoreError>> {
        let _ = from;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Batches of a shard behind `after`, oldest first, at most `limit`; the head tells where the line ends.
    ///
    /// # Errors
    /// As of [`Store::recorded`].
    fn history(&self, shard: ShardId, after: Seq, limit: usize) -> Later<Result<Vec<Batch>, StoreError>> {
        let recorded = self.recorded(vec![history::next(shard, after, limit)], usize::MAX);
        Box::pin(async move { recorded.await?.iter().take(limit).map(RecordedBatch::decode).collect() })
    }

    /// Where on this machine files may lie that belong to the register and can be made anew; none: nowhere.
    fn directory(&self) -> Option<PathBuf> {
        None
    }

    /// Everything is written and released; further commits are refused. Waits for what was begun.
    fn close(&self) -> Later<()>;
}
