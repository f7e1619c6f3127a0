//! Is everything there that belongs to a shard? A key that reads as nothing is asked about once more, together with the
//! one that vouches for it (see `keys`), at one instant: beside commits it may have gone rightly in between.
//!
//! A Redis cluster whose slot was moved half-way and then taken up again serves what is left as if it were all; so does a
//! server that threw keys away. `commit.lua` asks the same before it writes.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::failed;
use super::keys::HashKind;
use super::link::Link;
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
    keys: Vec<(Voucher, String)>,
}

impl Empty {
    pub(super) fn new(shard: ShardId) -> Self {
        Self { shard, keys: Vec::new() }
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
        let Self { shard, keys } = self;
        for (voucher, key) in keys {
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.atomic();
            match &voucher {
                Voucher::Head => pipeline.cmd("HGET").arg(shared.keys.head(shard)).arg("networks"),
                Voucher::Networks(network, _) => {
                    pipeline.cmd("HGET").arg(shared.keys.networks(shard)).arg(network.to_string())
                }
                Voucher::Index(network, kind, low) => {
                    pipeline.cmd("ZSCORE").arg(shared.keys.index(shard, *kind, *network)).arg(&low[..])
                }
            };
            pipeline.cmd("EXISTS").arg(&key);
            let values = link.read(&pipeline, ANSWER_WITHIN).await?;
            let [said, Value::Int(there)] = &values[..] else {
                return Err(failed::strange(&shared.place, "an answer is no number"));
            };
            if *there == 0 && vouches(&voucher, said) {
                return Err(shared.lost(&key));
            }
        }
        Ok(())
    }
}

fn vouches(voucher: &Voucher, said: &Value) -> bool {
    match (voucher, said) {
        (_, Value::Nil) => false,
        (Voucher::Head, Value::BulkString(count)) => count != b"0",
        (Voucher::Networks(_, letter), Value::BulkString(kinds)) => {
            kinds.windows(letter.len()).any(|kind| kind == letter.as_bytes())
        }
        (Voucher::Head | Voucher::Networks(..) | Voucher::Index(..), _) => true,
    }
}
