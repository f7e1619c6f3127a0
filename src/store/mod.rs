//! The storage of the register: the contract that every store fulfils, in prose and as a trait.
//!
//! A shard's state is a set of keys (see [`crate::core::state::Key`]) and a *head*. Changes come as **batches**. A batch has
//! a name (token, seq, digest), and its content never changes:
//!
//! - **Fence.** A batch is applied only if its token is the one that the last [`Store::take`] of its shard drew, and its seq
//!   is the head's plus one. A batch with another token or epoch, or with other content under a used seq, is refused whole
//!   ([`CommitError::Fenced`]). A seq beyond the next one is a [`StoreError::Gap`]; this happens when the batch before it
//!   was refused for lack of room. In all these cases nothing is written.
//! - **Chain.** digest(n) = hash(digest(n-1), bytes of batch n). If the same bytes are sent again after an unknown outcome,
//!   the store recognises them by token, seq and digest, and answers that they are applied. It refuses other content under
//!   the same seq.
//! - **Expectation.** Each step says which mark (generation or version) it expects to replace. A store that can compare does
//!   so before it writes anything ([`CommitError::Mismatch`]): the memory store and Redis do. The embedded store compares
//!   when it loads or merges, and treats a mismatch as damage.
//! - **All or nothing.** [`Store::commit`] takes one batch for each of several shards. A store whose
//!   [`StoreInfo::commits_shards_together`] is true applies all of them or none; any other store is given one batch at a time.
//! - **Order.** Batches of one shard take effect in the order of the calls.
//! - **Durable.** `Ok` means that the batch survives whatever [`StoreInfo::durability`] says.
//! - **History.** The batches themselves, with who, when and why, are kept in order. Within retention, compaction of state
//!   never removes them.
//!
//! Life of an `ip.allocate`, step 6 of 8 (see [`crate`]). Before: `actors::committer`, which calls the store. Inside:
//! `batch` defines what is committed, `error` why a commit failed, and `codec` how batches are written; `memory`, `embedded`
//! and `redis` implement the contract.

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

/// A node, as the other nodes know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCard {
    /// Its name. No two nodes have the same name at the same time.
    pub name: String,
    /// Identifies the process: random, drawn when it starts.
    pub process: u128,
    /// The version of the program that it runs.
    pub version: String,
    /// Where the other nodes reach it; empty if they cannot.
    pub peer_address: String,
    /// Where clients reach it.
    pub address: String,
    /// The node was taken out of service: it should own nothing while another node can.
    pub draining: bool,
    /// Set once the node has had no way to the owner for long.
    pub apart: Option<Apart>,
}

/// What a node reports after it has had no way to the owner of the register for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The process that it cannot reach.
    pub owner: u128,
    /// The processes that it reaches.
    pub reaches: Vec<u128>,
}

/// A node that was seen in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNode {
    /// The node.
    pub card: NodeCard,
    /// How long ago it was seen, by the store's time.
    pub age_ms: u64,
}

/// Who owns the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Name of the node.
    pub name: Arc<str>,
    /// The process that owns it.
    pub process: u128,
    /// Where the other nodes reach it; empty if they cannot.
    pub address: Arc<str>,
}

/// A network as it was loaded.
#[derive(Debug, Clone)]
pub struct NetworkImage {
    /// Configuration.
    pub config: Arc<NetworkConfig>,
    /// Subnets, in no particular order.
    pub subnets: Vec<Arc<SubnetConfig>>,
    /// What is stored for its addresses, ascending.
    pub entries: Entries,
}

/// A shard as it was loaded.
#[derive(Debug)]
pub struct ShardImage {
    /// Its head; the next commit follows it.
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
    /// The sentence, without its full stop, that says there is no room for more.
    pub full: &'static str,
    /// Identity of the register: random, made at first start.
    pub register: u128,
    /// Number of shards, fixed at first start.
    pub shards: u16,
    /// Does one call of [`Store::commit`] apply the batches of several shards together?
    pub commits_shards_together: bool,
    /// Does holding the store open prove ownership, so that answers without a change need no fence check?
    pub ownership_is_standing: bool,
    /// Can it lose all its data while its owner lives? Then the owner writes the register anew ([`Store::anew`]).
    pub may_be_emptied: bool,
    /// The size limit, in bytes, of one act, which must become durable as a whole, as [`Act::bytes_max`] counts it; at most
    /// [`limits::ACT_BYTES_MAX`](crate::limits::ACT_BYTES_MAX).
    pub act_bytes_max: usize,
    /// The size limit, in bytes, of the move of a subnet, because a larger one would keep everybody else waiting; at most
    /// `act_bytes_max`.
    pub move_bytes_max: usize,
    /// The register that this one was copied from, until an operator accepts the copy. The copy lacks whatever was granted
    /// since, so the server must not choose an address for anybody.
    pub restored_from: Option<u128>,
}

impl StoreInfo {
    /// The size limit, in bytes, of one commit of a request that can be split into parts. Nobody should wait longer for it
    /// than for the move of a subnet, nor as long as that if the store would accept more.
    pub fn parted_bytes_max(&self) -> usize {
        self.move_bytes_max.min(crate::limits::PARTED_BYTES_MAX)
    }
}

/// Whether the store can take changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreHealth {
    /// All is well.
    Ready,
    /// Accepts only changes that let go: there is no room for more.
    Full,
    /// Accepts only changes that let go, but not for lack of room: [`Store::obstacle`] says why. This may pass.
    Hindered,
    /// Accepts nothing any more; the process must be restarted.
    Failed,
}

/// Figures of a store for `/metrics`. All counters start with the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Groups made durable, each by one flush.
    pub flushes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Bytes that the store occupies on disk.
    pub disk_bytes: u64,
    /// Compactions finished.
    pub compactions: u64,
    /// Compactions that failed and will be tried again.
    pub compaction_failures: u64,
    /// Damaged segments of history that were given up; their files stay beside the others.
    pub given_up_segments: u64,
    /// Damaged snapshots; their files stay beside the others. The log had everything that led to them.
    pub given_up_snapshots: u64,
    /// Replicas that must have a change before it is acknowledged.
    pub replicas_wanted: u64,
    /// How many replicas answered last.
    pub replicas_answering: u64,
    /// Batches that the store had lost and was given again.
    pub healed_batches: u64,
    /// Are changes acknowledged although too few replicas have them?
    pub degraded: bool,
    /// Bytes of changes that were acknowledged that way, and stay on this machine's disk until enough replicas have them.
    pub redo_bytes: u64,
    /// Whether Redis has an append-only file; none if the store is not Redis, or Redis cannot be asked.
    pub appends: Option<bool>,
    /// When the last certificate authority trusted for Redis expires, in seconds since 1970; none without TLS, or if the
    /// operating system decides whom to trust.
    pub ca_ends: Option<u64>,
    /// When the certificate that Redis is shown expires, in seconds since 1970; none if it is shown none.
    pub certificate_ends: Option<u64>,
}

/// Batches, and the head after the last of them.
pub type Followed = (Vec<Batch>, Head);

/// An answer that comes later.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Keeps the register. The text of the module says what each call promises.
pub trait Store: Send + Sync + 'static {
    /// Describes the store.
    fn info(&self) -> StoreInfo;

    /// Whether the store can accept changes now. Cheap, because it is asked for every message.
    fn health(&self) -> StoreHealth;

    /// Why no node could become the owner of the register now, as far as known: a sentence without its full stop.
    fn bars_taking(&self) -> Option<Arc<str>> {
        None
    }

    /// Why the store accepts only changes that let go, while it does: a sentence without its full stop.
    fn obstacle(&self) -> Arc<str> {
        self.info().full.into()
    }

    /// While the store is full: is it short of room? If not, there is another reason, which more room does not remove.
    fn lacks_room(&self) -> bool {
        true
    }

    /// While the store is full: how many bytes changes that let go may still take, as [`Act::bytes_max`] counts them,
    /// including [`size::BESIDE_ACTS`] for the batch around them. None if the store is not full, or no bound is known.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Why the last attempt to reach the store failed: a sentence without its full stop. None while the store answers, and
    /// for a store that need not be reached.
    fn unreached(&self) -> Option<Arc<str>> {
        None
    }

    /// Did the last attempt to reach the store fail? Looked at for every message.
    fn is_unreached(&self) -> bool {
        self.unreached().is_some()
    }

    /// What turned out to be damaged or unreadable in the files of the store while it serves. It goes on, but its next start
    /// will refuse these files.
    fn damage(&self) -> Option<Arc<str>> {
        None
    }

    /// Why the store failed for good, if it did and can say so.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }

    /// Figures since the start.
    fn figures(&self) -> StoreFigures;

    /// Becomes the owner of a shard: the epoch rises, and the given token, which must be fresh random bits, becomes the
    /// owner's. This is durable when the call answers. From then on batches under an older token are refused.
    ///
    /// # Errors
    /// [`StoreError::Held`] while another node owns the shard; [`StoreError::Fenced`] if it was taken through this object
    /// before, and another node has taken it since; other errors if the store cannot be reached or written.
    fn take(&self, shard: ShardId, token: Token) -> Later<Result<Head, StoreError>>;

    /// Loads a shard that was taken under `token`. Every record is checked, and none is dropped silently.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a record cannot be trusted; [`StoreError::Fenced`] if another node has taken the shard
    /// meanwhile; other errors if the store cannot be reached or read, which may be tried again.
    fn load(&self, shard: ShardId, token: Token) -> Later<Result<ShardImage, StoreError>>;

    /// Loads a shard while another node may own it and commit to it: the image has all that was committed up to its head.
    /// This repairs nothing in the store.
    ///
    /// # Errors
    /// As for [`Store::load`]; [`StoreError::Invalid`] if the store cannot be read this way.
    fn beside(&self, shard: ShardId) -> Later<Result<ShardImage, StoreError>> {
        let text = format!("shard {} cannot be read beside its owner", shard.0);
        Box::pin(std::future::ready(Err(StoreError::Invalid(text.into()))))
    }

    /// What was committed after a head, oldest first, and the head as it is now. None if the line of the shard does not
    /// continue that head, or part of it is no longer kept: then the shard must be loaded.
    ///
    /// # Errors
    /// As for [`Store::history`].
    fn follow(&self, shard: ShardId, from: Head) -> Later<Result<Option<Followed>, StoreError>> {
        let _ = (shard, from);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Announces that the caller commits from now on, on the runtime that calls this, which has I/O and time. The store may
    /// run there whatever a commit needs. Called while nothing is under way.
    fn commits_from_here(&self) {}

    /// Commits one batch for each of several shards. Batches take effect in the order of the calls; the caller may have
    /// several calls under way.
    ///
    /// # Errors
    /// [`CommitError::NotApplied`]: nothing was written, and the same bytes may be sent again. [`CommitError::Unknown`]: the
    /// batches may have been written; the same bytes are sent again, or the shards are taken again. [`CommitError::Fenced`]:
    /// another node owns a shard, and the caller is no longer its owner. [`CommitError::Mismatch`]: the store holds
    /// something else than was expected; nothing was written, and what the caller knows of that network is wrong.
    fn commit(&self, batches: Arc<[Batch]>) -> Later<Result<Vec<Committed>, CommitError>>;

    /// Proves that the named batches are durable as configured (replicas, append-only file), and that the tokens are still
    /// the owners'. Stores that confirm with the commit answer at once.
    ///
    /// # Errors
    /// [`CommitError::Fenced`], [`CommitError::NotApplied`] and [`CommitError::Unknown`], as for [`Store::commit`]: no
    /// answer that depends on the proof may leave.
    fn confirm(&self, batches: Vec<(ShardId, Token, Seq, Digest)>) -> Later<Result<(), CommitError>>;

    /// Checks that everything this node acknowledged is in the register, which other nodes own now. Whatever is missing is
    /// put aside (see [`Store::late`]).
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if something is missing and nobody knows what.
    fn review(&self) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What was put aside and not yet dealt with, across restarts; oldest first.
    fn late(&self) -> Vec<Arc<Late>> {
        Vec::new()
    }

    /// How many batches are to be put aside and cannot be, because they cannot be written down.
    fn late_unwritten(&self) -> u64 {
        0
    }

    /// Saves which claims of a late journal were answered ([`Late::answered`]), so that they are not made again after a restart.
    ///
    /// # Errors
    /// The answers are in memory only, and saving them may be tried again.
    fn keep_answered(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        let _ = late;
        Box::pin(std::future::ready(Ok(())))
    }

    /// The whole journal was given to the owner of the register, which has made it durable.
    ///
    /// # Errors
    /// The journal stays put aside.
    fn dealt_with(&self, late: &Arc<Late>) -> Later<Result<(), StoreError>> {
        let _ = late;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Did the store find that all its data is gone, and has it not come back? A store that found this while this node owned
    /// the register accepts nothing any more.
    fn was_emptied(&self) -> bool {
        false
    }

    /// Begins the register anew in a store that was emptied: under the same identity, each shard at the given time, after
    /// the last batch that anybody was told of, and owned by the caller. Nobody else can take it until it is written and
    /// posted. An unfinished earlier attempt of this process is removed.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] if the store holds something else; [`StoreError::Invalid`] if this kind of store is never
    /// emptied; [`StoreError::Io`] and [`StoreError::Full`] for what may pass.
    fn anew(&self, times: Vec<ShardTime>) -> Later<Result<moving::Begun, StoreError>> {
        let _ = times;
        let text = "this store is not written from memory".into();
        Box::pin(std::future::ready(Err(StoreError::Invalid(text))))
    }

    /// The register that was begun [`anew`](Store::anew) is complete: what this process remembers of the old one is needed
    /// no longer.
    fn written_anew(&self) {}

    /// Says whether another node is reading the register in order to take it over. While it is, the part of the log that it
    /// has not read is kept, within bounds.
    fn is_read_beside(&self, is_read: bool) {
        let _ = is_read;
    }

    /// Sets how the other nodes know this node from now on.
    fn introduce(&self, card: NodeCard) {
        let _ = card;
    }

    /// Tells the other nodes that this node is here, or gone, and learns which nodes there are.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process with this node's name was seen a moment ago.
    fn meet(&self, here: bool) -> Later<Result<Vec<SeenNode>, StoreError>> {
        let _ = here;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Who owns the register, by the lease of its first shard; none if the lease is over or was ended. Does not take anything.
    fn holder(&self) -> Later<Result<Option<Holder>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Extends the lease of every shard that was taken through this object, so that no other node may take it. A lease
    /// decides who may try to take a shard, never who may write: the token decides that.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one of the shards was taken over meanwhile.
    fn renew(&self) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the lease of every shard that was taken through this object, so that the next owner need not wait for it to run out.
    fn release(&self) -> Later<Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The batches of these stretches as they were written: in order within each shard, and across shards in the order of
    /// commits as far as the store knows it. The answer ends with the batch that reaches `bytes`; a caller that got any
    /// batches asks again from there. Batches older than retention are left out, so the first one of a shard may be later
    /// than asked for. The answer may contain batches that were applied but not confirmed: the reader must choose `until`
    /// accordingly.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a record cannot be trusted, [`StoreError::Invalid`] for a shard that does not exist.
    fn recorded(&self, stretches: Vec<Stretch>, bytes: usize) -> Later<Result<Vec<RecordedBatch>, StoreError>>;

    /// Reads one piece of the data that the next start will read and [`Store::beside`] does not, and compares it with what
    /// is known of it. The first call starts at 0, each later one where the last answer says; none means that there is no
    /// more. For damaged files, [`Store::damage`] reports it from then on as well.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], also if the piece says something else than is known; other errors if it cannot be read.
    fn reread(&self, from: u64) -> Later<Result<Option<u64>, StoreError>> {
        let _ = from;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The batches of a shard after `after`, oldest first, at most `limit`; the head tells where the line ends.
    ///
    /// # Errors
    /// As for [`Store::recorded`].
    fn history(&self, shard: ShardId, after: Seq, limit: usize) -> Later<Result<Vec<Batch>, StoreError>> {
        let recorded = self.recorded(vec![history::next(shard, after, limit)], usize::MAX);
        Box::pin(async move { recorded.await?.iter().take(limit).map(RecordedBatch::decode).collect() })
    }

    /// Where on this machine files may lie that belong to the register and can be made anew; none if nowhere.
    fn directory(&self) -> Option<PathBuf> {
        None
    }

    /// Writes and releases everything; further commits are refused. Waits for work that has begun.
    fn close(&self) -> Later<()>;
}
