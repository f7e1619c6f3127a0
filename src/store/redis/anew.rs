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
//! **Once more.** Redis may be emptied again meanwhile, or go back to where part of it was written, or an answer may be lost. Then
//! it is begun again: what stands there unfinished goes, if it is this process's own, by the tokens that it ends. Nobody else ended
//! just those.
//!
//! Neighbours: `serve::anew` writes what was in memory; `heal` gives back what only the last batches lack.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::begin::now_ms;
use super::connect::RedisWay;
use super::failed::{self, Failed};
use super::keys::{FORMAT, Keys};
use super::link::Link;
use super::moving::keys_of_shards;
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
    /// Something else of a register is there.
    is_refused: AtomicBool,
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
        let anew = Arc::new(Anew { register, by, heads: heads.clone(), takes, is_refused: AtomicBool::new(false) });
        let begun = Arc::clone(&anew);
        let opened = match way {
            Some(way) => Self::open_or_begin_over(options, way, Some(begun)).await,
            None => {
                let beginning = tokio::task::spawn_blocking(move || Self::open_or_begin(options, Some(begun)));
                let crashed = |_| Err(StoreError::Poisoned("what begins it anew crashed".into()));
                beginning.await.unwrap_or_else(crashed)
            }
        };
        let store =
            opened.map_err(|error| if anew.is_refused.load(Ordering::Acquire) { error } else { passes(error) })?;
        Ok(Begun { store: Box::new(store), heads })
    }
}

/// Whatever else keeps it from being begun passes: Redis is set otherwise, or was emptied just now.
fn passes(error: StoreError) -> StoreError {
    match error {
        StoreError::Io { .. } | StoreError::Full => error,
        error => {
            let context = "beginning the register anew".into();
            StoreError::Io { context, source: Arc::new(io::Error::other(error.to_string())) }
        }
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
            let text = format!(
                "Redis at {at} was not emptied: {stray}, which is not its own, as the move of the slot broke off (`redis-cli \
                 --cluster fix` ends one)"
            );
            return Err(self.refused(text));
        }
        let is_begun = self.ask(link, &self.call(shas, keys)?).await?;
        if is_begun || (self.clear(link, shas, keys).await? && self.ask(link, &self.call(shas, keys)?).await?) {
            return Ok(());
        }
        let text = format!("Redis at {} has something of a register under `{}`", link.name(), keys.prefix());
        Err(self.refused(text))
    }

    /// It is for somebody else to say what becomes of what is there.
    fn refused(&self, text: String) -> StoreError {
        self.is_refused.store(true, Ordering::Release);
        StoreError::Foreign(text.into())
    }

    /// Calls a script that does something, unless something else is there.
    async fn ask(&self, link: &mut Link, call: &ScriptCall) -> Result<bool, StoreError> {
        let answer = link.call(call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
        scripts::begun(answer).ok_or_else(|| failed::strange(link.name(), "the script answered something else"))
    }

    /// Takes away what this process began before, if that is what is there. Tells whether it was.
    async fn clear(&self, link: &mut Link, shas: &Shas, keys: &Keys) -> Result<bool, StoreError> {
        let mut cursor = String::from("0");
        // Before anything is looked for: what was sent before adds nothing from here on.
        let mut gone = Vec::new();
        loop {
            if !self.ask(link, &self.clearing(shas, keys, (&gone, false))).await? {
                return Ok(false);
            }
            (cursor, gone) = keys_of_shards(link, keys, &cursor).await?;
            if cursor == "0" {
                return self.ask(link, &self.clearing(shas, keys, (&gone, true))).await;
            }
        }
    }

    fn clearing(&self, shas: &Shas, keys: &Keys, (gone, whole): (&[Vec<u8>], bool)) -> ScriptCall {
        let heads = (0..).map(ShardId).zip(&self.heads).map(|(shard, _)| keys.head(shard));
        let names: Vec<String> = std::iter::once(keys.register()).chain(heads).collect();
        let mut call = ScriptCall::new(shas, LoadedScript::Clear, &names);
        call.arg(scripts::hex(self.register)).arg(self.notice()).arg(if whole { "1" } else { "0" });
        for head in &self.heads {
            call.arg(scripts::hex(head.parent.0));
        }
        for name in gone {
            call.arg(name);
        }
        call
    }

    /// What it says of itself until it is whole.
    fn notice(&self) -> String {
        MoveNotice::Anew { by: self.by.clone() }.text()
    }

    fn call(&self, shas: &Shas, keys: &Keys) -> Result<ScriptCall, StoreError> {
        let shards = (0..).map(ShardId).zip(&self.heads);
        let of_shards = shards.clone().flat_map(|(shard, _)| [keys.head(shard), keys.log(shard)]);
        let names: Vec<String> = std::iter::once(keys.register()).chain(of_shards).collect();
        let mut call = ScriptCall::new(shas, LoadedScript::Anew, &names);
        call.arg(scripts::hex(self.register)).arg(FORMAT).number(self.heads.len() as u64).number(now_ms());
        // No other node is to reach this one as the owner.
        call.arg(self.notice()).arg(&self.by).arg("").arg("").number(NODE_LEASE_MS);
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
