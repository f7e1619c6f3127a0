//! Redis was emptied, and the owner of the register still has it in memory. The register is begun anew in Redis, and then
//! written by the usual commits.
//!
//! ```text
//!  emptied ──`anew`──▶ heads at what was told, taken by nobody else ──commits──▶ complete ──`post`──▶ served
//! ```
//!
//! It stays the same register: its identity, its lines, the time of its shards and the order of its generations go on.
//! Its earlier history is gone. A node that finds it unfinished waits ([`MoveNotice::Anew`]). If the node that writes it
//! ends, nobody serves the unfinished register.
//!
//! **Once more.** Meanwhile Redis may be emptied again, or go back to a state in which only part was written, or an
//! answer may be lost. Then the register is begun again. If an unfinished one is there, it is removed first, provided
//! that this process began it. The heads show that: they name the tokens that were ended, and only this process ended
//! exactly those.
//!
//! Neighbours: `serve::anew` writes what was in memory; `heal` gives back what Redis lost if only the last batches are missing.

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
/// How many take-overs a head remembers.
const TAKES_KEPT: usize = 16;

#[derive(Debug)]
pub(super) struct Anew {
    register: u128,
    /// Name of the node that has the register in memory.
    by: String,
    /// The first head of each shard, from shard 0.
    heads: Vec<Head>,
    /// The last take-overs of each shard, newest first.
    takes: Vec<String>,
    /// Redis has something that this process did not write, so a person must decide.
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
        // Only the owner reads its directory, and it has the directory open; and nothing of the old register must be
        // replayed here.
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

/// Any other obstacle may pass: Redis is configured wrongly, or was emptied just now.
fn passes(error: StoreError) -> StoreError {
    match error {
        StoreError::Io { .. } | StoreError::Full => error,
        error => {
            let context = "beginning the register anew".into();
            StoreError::Io { context, source: Arc::new(io::Error::other(error.to_string())) }
        }
    }
}

/// The head with which a shard goes on: under a fresh token, at the last batch that clients were told of.
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

/// What this head remembers of take-overs, in the form in which `take.lua` writes it.
fn takes(shared: &RedisShared, shard: ShardId, head: &Head) -> Result<String, StoreError> {
    let this = format!("{} {} {}", head.epoch.0, scripts::hex(head.parent.0), head.seq.0);
    shared.line(shard, |line| {
        let before = line.takes().split(',').filter(|take| !take.is_empty()).take(TAKES_KEPT - 1);
        std::iter::once(this.as_str()).chain(before).collect::<Vec<_>>().join(",")
    })
}

impl Anew {
    /// Begins the register if Redis has nothing of it.
    pub(super) async fn begin(&self, link: &mut Link, shas: &Shas, keys: &Keys) -> Result<(), StoreError> {
        if link.place().is_in_cluster()
            && let Some(stray) = link.place().stray(true).await?
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

    /// A refusal that only a person can resolve, who must decide about the data in Redis.
    fn refused(&self, text: String) -> StoreError {
        self.is_refused.store(true, Ordering::Release);
        StoreError::Foreign(text.into())
    }

    /// Calls a script that acts only if nothing else is there. Returns whether it acted.
    async fn ask(&self, link: &mut Link, call: &ScriptCall) -> Result<bool, StoreError> {
        let answer = link.call(call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
        scripts::begun(answer).ok_or_else(|| failed::strange_script(link.name()))
    }

    /// Removes what this process began before, if that is what is there. Returns whether it was.
    async fn clear(&self, link: &mut Link, shas: &Shas, keys: &Keys) -> Result<bool, StoreError> {
        let mut cursor = String::from("0");
        // The first call only removes the heads: after that nothing that was sent earlier adds a key.
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

    fn notice(&self) -> String {
        MoveNotice::Anew { by: self.by.clone() }.text()
    }

    fn call(&self, shas: &Shas, keys: &Keys) -> Result<ScriptCall, StoreError> {
        let shards = (0..).map(ShardId).zip(&self.heads);
        let of_shards = shards.clone().flat_map(|(shard, _)| [keys.head(shard), keys.log(shard)]);
        let names: Vec<String> = std::iter::once(keys.register()).chain(of_shards).collect();
        let mut call = ScriptCall::new(shas, LoadedScript::Anew, &names);
        call.arg(scripts::hex(self.register)).arg(FORMAT).number(self.heads.len() as u64).number(now_ms());
        // No addresses, so that no other node takes this one for the owner and connects to it.
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

    /// Makes the shards this process's, as if it had taken them.
    pub(super) fn is_owned(&self, shared: &RedisShared) -> Result<(), StoreError> {
        for (shard, head) in (0..).map(ShardId).zip(&self.heads) {
            shared.line(shard, |line| {
                // The line was unknown, so it cannot be behind anything.
                let _ = line.take(head);
                line.counts(head.token);
            })?;
        }
        Ok(())
    }
}
