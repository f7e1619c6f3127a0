//! Is everything there that belongs to a shard? A key that reads as nothing is asked about once more, together with the one
//! that vouches for it (see `keys`), at one instant: while commits go on, the key may have been removed rightly in between.
//!
//! A Redis cluster whose slot was moved half-way and then accepted again serves what is left as if it were everything; so
//! does a server that evicted keys. `commit.lua` checks the same before it writes.
//!
//! The register's key vouches for a head: if a head is missing although that key exists, somebody removed it. If the key is
//! missing, too, the owner may write both again from its memory (`shared::stopped`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::failed::{self, Failed};
use super::keys::HashKind;
use super::link::Link;
use super::scripts::{self, LoadedScript, ScriptCall, Vouched};
use super::shared::RedisShared;
use crate::core::types::NetworkId;
use crate::store::{ShardId, StoreError};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What vouches for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Voucher {
    /// The head: are there networks?
    Head,
    /// `networks`: does this network have anything of that letter?
    Networks(NetworkId, &'static str),
    /// The index of a network: does it have this hash?
    Index(NetworkId, HashKind, Vec<u8>),
}

/// The keys of a shard that read as nothing.
#[derive(Debug)]
pub(super) struct Empty {
    shard: ShardId,
    /// The reader serves the shard, and has it in memory.
    is_served: bool,
    keys: Vec<(Voucher, String)>,
}

impl Empty {
    pub(super) fn new(shard: ShardId, is_served: bool) -> Self {
        Self { shard, is_served, keys: Vec::new() }
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    /// There are no networks.
    pub(super) fn networks(&mut self, key: String) {
        self.keys.push((Voucher::Head, key));
    }

    /// A network has nothing of this letter; `kinds` says what it should have.
    pub(super) fn of_network(&mut self, network: NetworkId, letter: &'static str, kinds: &[u8], key: String) {
        if kinds.windows(letter.len()).any(|kind| kind == letter.as_bytes()) {
            self.keys.push((Voucher::Networks(network, letter), key));
        }
    }

    /// A hash has no fields.
    pub(super) fn hash(&mut self, network: NetworkId, kind: HashKind, low: &[u8], key: String) {
        self.keys.push((Voucher::Index(network, kind, low.to_vec()), key));
    }

    /// Refuses a key that is gone although it is vouched for.
    pub(super) async fn check(self, shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
        let Self { shard, is_served, keys } = self;
        for (voucher, key) in keys {
            let (by, kind, field) = match &voucher {
                Voucher::Head => (shared.keys.head(shard), "hash", b"networks".to_vec()),
                Voucher::Networks(network, _) => {
                    (shared.keys.networks(shard), "hash", network.to_string().into_bytes())
                }
                Voucher::Index(network, kind, low) => (shared.keys.index(shard, *kind, *network), "zset", low.clone()),
            };
            let mut call = ScriptCall::new(&shared.shas, LoadedScript::Vouch, &[by, key.clone()]);
            call.arg(kind).arg(field);
            let answer = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
            let strange = || failed::strange_script(&shared.place);
            match scripts::vouched(answer).ok_or_else(strange)? {
                Vouched::Gone([Some(said), _]) if vouches(&voucher, &said) => {
                    return Err(if is_served { shared.lacks(&key) } else { shared.lost(&key) });
                }
                Vouched::There | Vouched::Gone(_) => {}
            }
        }
        Ok(())
    }
}

/// Why the head of a shard is missing. An owner of the register has the shard in memory, and writes it again if it may.
pub(super) async fn missing(shared: &RedisShared, link: &mut Link, shard: ShardId) -> StoreError {
    if shared.owned().is_empty() { no_head(shared, link, shard).await } else { shared.absent(shard) }
}

/// The same for a node that does not have the shard in memory.
///
/// The heads are created, deleted and rewritten together with the register's key, in one call each time. So if that key says
/// at the same instant that it belongs to this register, and that nobody is rewriting it, somebody removed the head, and no
/// node will bring it back.
pub(super) async fn no_head(shared: &RedisShared, link: &mut Link, shard: ShardId) -> StoreError {
    if !shared.serves() {
        return shared.absent(shard);
    }
    let keys = [shared.keys.register(), shared.keys.head(shard)];
    let mut call = ScriptCall::new(&shared.shas, LoadedScript::Vouch, &keys);
    call.arg("hash").arg("register").arg("moved");
    let answer = match link.call(&call, ANSWER_WITHIN).await {
        Ok(answer) => answer,
        Err(failed) => return failed.into_error(),
    };
    match scripts::vouched(answer) {
        Some(Vouched::Gone([Some(register), None])) if register == scripts::hex(shared.info.register).as_bytes() => {
            shared.lost_head(shard)
        }
        Some(Vouched::Gone(_)) => shared.absent(shard),
        Some(Vouched::There) => back_again(shared, shard),
        None => failed::strange_script(&shared.place),
    }
}

/// The head was missing, and is there again: the caller retries.
fn back_again(shared: &RedisShared, shard: ShardId) -> StoreError {
    let context = format!("asking Redis at {}", shared.place).into();
    let text = format!("`{}` was gone a moment ago, and is there again", shared.keys.head(shard));
    StoreError::Io { context, source: Arc::new(io::Error::other(text)) }
}

fn vouches(voucher: &Voucher, said: &[u8]) -> bool {
    match voucher {
        Voucher::Head => said != b"0",
        Voucher::Networks(_, letter) => said.windows(letter.len()).any(|kind| kind == letter.as_bytes()),
        Voucher::Index(..) => true,
    }
}
