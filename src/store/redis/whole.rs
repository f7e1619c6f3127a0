//! Is everything there that belongs to a shard? A key that reads as nothing is asked about once more, together with the
//! one that vouches for it (see `keys`), at one instant: beside commits it may have gone rightly in between.
//!
//! A Redis cluster whose slot was moved half-way and then taken up again serves what is left as if it were all; so does a
//! server that threw keys away. `commit.lua` asks the same before it writes.

use std::time::Duration;

use super::failed::{self, Failed};
use super::keys::HashKind;
use super::link::Link;
use super::scripts::{self, LoadedScript, ScriptCall, Vouched};
use super::shared::RedisShared;
use crate::core::types::NetworkId;
use crate::store::{ShardId, StoreError};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What vouches for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Voucher {
    /// The head: are there networks?
    Head,
    /// `networks`: has this one anything of that letter?
    Networks(NetworkId, &'static str),
    /// The index of a network: has it this hash?
    Index(NetworkId, HashKind, Vec<u8>),
}

/// The keys of a shard that read as nothing.
#[derive(Debug)]
pub(super) struct Empty {
    shard: ShardId,
    /// It is read by whoever serves it, who has it in memory.
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

    /// A network has nothing of this letter; `kinds` is what it should have.
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
            let strange = || failed::strange(&shared.place, "the script answered something else");
            match scripts::vouched(answer).ok_or_else(strange)? {
                Vouched::Gone(Some(said)) if vouches(&voucher, &said) => {
                    return Err(if is_served { shared.lacks(&key) } else { shared.lost(&key) });
                }
                Vouched::There | Vouched::Gone(_) => {}
            }
        }
        Ok(())
    }
}

fn vouches(voucher: &Voucher, said: &[u8]) -> bool {
    match voucher {
        Voucher::Head => said != b"0",
        Voucher::Networks(_, letter) => said.windows(letter.len()).any(|kind| kind == letter.as_bytes()),
        Voucher::Index(..) => true,
    }
}
