//! Redis was emptied, and whoever owned the register has it in memory: it is begun anew there, to be written by the usual commits.
//!
//! ```text
//!  emptied ──`anew`──▶ heads behind what was told, taken by nobody else ──commits──▶ whole ──`post`──▶ served
//! ```
//!
//! It stays the register that it was: its identity, its lines, its shards' times and the order of its generations go on. Its
//! history before that is gone. Whoever finds it unfinished waits ([`MoveNotice::Anew`]); what a node left unfinished that ended
//! meanwhile nobody serves.
//!
//! Neighbours: `serve::anew` writes what was in memory; `heal` gives back what only the last batches lack.

use std::sync::Arc;
use std::time::Duration;

use super::begin::now_ms;
use super::connect::RedisWay;
use super::failed::{self, Failed};
use super::keys::{FORMAT, Keys};
use super::link::Link;
use super::scripts::{self, LoadedScript, ScriptCall, Shas};
use super::shared::RedisShared;
use super::{RedisOptions, RedisStore};
use crate::core::types::{Generation, ShardTime};
use crate::limits::NODE_LEASE_MS;
use crate::store::codec::encode_batch;
use crate::store::moving::{Begun, MoveNotice, Opening};
use crate::store::{Batch, Epoch, Head, ShardId, StoreError, Token};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// So many take-overs a head remembers.
const TAKES_KEPT: usize = 16;

/// A register that is begun anew.
#[derive(Debug)]
pub(super) struct Anew {
    register: u128,
    /// Name of the node that has it in memory.
    by: String,
    /// Where its shards begin, from shard 0.
    heads: Vec<Head>,
    /// The last take-overs of each, that one first.
    takes: Vec<String>,
}

impl RedisStore {
    /// See [`Store::anew`](crate::store::Store::anew).
    pub(super) async fn begin_anew(
        shared: &RedisShared,
        options: RedisOptions,
        way: Option<Arc<dyn RedisWay>>,
        times: &[ShardTime],
    ) -> Result<Begun, StoreError> {
        let (register, by) = (shared.info.register, shared.card().name);
        let heads = times.iter().enumerate().map(|(at, &time)| head(shared, ShardId(at as u16), time));
        let heads = heads.collect::<Result<Vec<_>, _>>()?;
        let takes = (0..).map(ShardId).zip(&heads).map(|(shard, head)| takes(shared, shard, head));
        let takes = takes.collect::<Result<Vec<_>, _>>()?;
        // Only its owner reads what lies in the directory, which it has open; and nothing of it is played again.
        let options =
            RedisOptions { opening: Opening::Unfinished(register), directory: None, heal_bytes: 0, ..options };
        let anew = Arc::new(Anew { register, by, heads: heads.clone(), takes });
        let store = match way {
            Some(way) => Self::open_or_begin_over(options, way, Some(anew)).await?,
            None => {
                let beginning = tokio::task::spawn_blocking(move || Self::open_or_begin(options, Some(anew)));
                let crashed = |_| Err(StoreError::Poisoned("what begins it anew crashed".into()));
                beginning.await.unwrap_or_else(crashed)?
            }
        };
        Ok(Begun { store: Box::new(store), heads })
    }
}

/// The head with which a shard goes on: under a fresh token, behind what somebody was told of.
fn head(shared: &RedisShared, shard: ShardId, time: ShardTime) -> Result<Head, StoreError> {
    let (known, format) = shared.line(shard, |line| (line.known(shard), line.format()))?;
    Ok(Head {
        epoch: Epoch(known.epoch.0 + 1),
        token: Token(rand::random::<u128>().max(1)),
        parent: known.token,
        seq: known.told.seq,
        digest: known.told.digest,
        time,
        generation: Generation(0),
        format,
    })
}

/// What its head remembers of take-overs, as `take.lua` writes it.
fn takes(shared: &RedisShared, shard: ShardId, head: &Head) -> Result<String, StoreError> {
    let this = format!("{} {} {}", head.epoch.0, scripts::hex(head.parent.0), head.seq.0);
    shared.line(shard, |line| {
        let before = line.takes().split(',').filter(|take| !take.is_empty()).take(TAKES_KEPT - 1);
        std::iter::once(this.as_str()).chain(before).collect::<Vec<_>>().join(",")
    })
}

impl Anew {
    /// Begins it, where nothing of it is.
    pub(super) async fn begin(&self, link: &mut Link, shas: &Shas, keys: &Keys) -> Result<(), StoreError> {
        if link.place().is_in_cluster()
            && let Some(stray) = link.place().stray().await?
        {
            let at = link.name();
            let text = format!("Redis at {at} was not emptied: {stray} is on another server, where a move broke off");
            return Err(StoreError::Foreign(text.into()));
        }
        let answer = link.call(&self.call(shas, keys)?, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
        match scripts::begun(answer) {
            Some(true) => Ok(()),
            Some(false) => {
                let text = format!("Redis at {} has something of a register under `{}`", link.name(), keys.prefix());
                Err(StoreError::Foreign(text.into()))
            }
            None => Err(failed::strange(link.name(), "the script answered something else")),
        }
    }

    fn call(&self, shas: &Shas, keys: &Keys) -> Result<ScriptCall, StoreError> {
        let shards = (0..).map(ShardId).zip(&self.heads);
        let of_shards = shards.clone().flat_map(|(shard, _)| [keys.head(shard), keys.log(shard)]);
        let names: Vec<String> = std::iter::once(keys.register()).chain(of_shards).collect();
        let mut call = ScriptCall::new(shas, LoadedScript::Anew, &names);
        call.arg(scripts::hex(self.register)).arg(FORMAT).number(self.heads.len() as u64).number(now_ms());
        // No other node is to reach this one as the owner.
        call.arg(MoveNotice::Anew { by: self.by.clone() }.text()).arg(&self.by).arg("").arg("").number(NODE_LEASE_MS);
        for ((shard, head), takes) in shards.zip(&self.takes) {
            let &Head { epoch, token, parent, seq, digest, time, generation, format } = head;
            let last =
                Batch { shard, epoch: Epoch(epoch.0 - 1), token: parent, seq, time, generation, acts: Vec::new() };
            let mut bytes = Vec::new();
            encode_batch(&last, format, &mut bytes)
                .map_err(|error| StoreError::Invalid(format!("the last batch of shard {} {error}", shard.0).into()))?;
            call.number(epoch.0).arg(scripts::hex(token.0)).arg(scripts::hex(parent.0)).number(seq.0);
            call.arg(scripts::hex(digest.0)).number(time.0).number(format.number().into()).arg(takes).arg(bytes);
        }
        Ok(call)
    }

    /// The shards are this process's, as if it had taken them.
    pub(super) fn is_owned(&self, shared: &RedisShared) -> Result<(), StoreError> {
        for (shard, head) in (0..).map(ShardId).zip(&self.heads) {
            shared.line(shard, |line| {
                // A line that nobody knew before is behind nothing.
                let _ = line.take(head);
                line.counts(head.token);
            })?;
        }
        Ok(())
    }
}
