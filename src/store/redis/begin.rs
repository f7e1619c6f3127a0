//! The start: is this the right server, and does it have the right register, complete? A register that does not exist is made.
//!
//! Called by `mod`; every refusal says what was found and what to do.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::anew::Anew;
use super::failed::{self, Failed};
use super::identity::IdentityFile;
use super::keys::{FORMAT, Keys};
use super::link::Link;
use super::redo::LeftJournal;
use super::scripts::{self, Initialised, LoadedScript, ScriptCall, Shas};
use super::server::ServerFacts;
use super::{RedisOptions, checks, moving, probe, reach};
use crate::limits::{SHARDS_MAX, SHARDS_OF_NEW};
use crate::store::codec::Format;
use crate::store::moving::{MoveNotice, Opening};
use crate::store::{ShardId, StoreError};

const START_WITHIN: Duration = Duration::from_secs(5);

/// Added to the message when a node that has a cluster secret, and so expects other nodes, begins a register.
const EXPECTS_OTHERS: &str = ". This node has a cluster secret: if other nodes were here before, this is not their register. Then stop \
                              it before it grants, and see whether Redis is the right one (`store.redis`, `store.prefix`) or was \
                              emptied: deploy/README.md has what to do, under \"Redis was emptied\"";

#[derive(Debug)]
pub(super) struct Begun {
    pub(super) server: ServerFacts,
    /// How many replicas must have a change.
    pub(super) replicas: u32,
    /// Redis keeps long records in its compact encoding, as far as is known.
    pub(super) is_compact: bool,
    pub(super) shas: Arc<Shas>,
    pub(super) register: u128,
    pub(super) shards: u16,
    pub(super) notice: Option<MoveNotice>,
    /// Redis had lost changes that an earlier process of this node acknowledged, and another node went on without them.
    pub(super) went_on: bool,
    /// Journals that nodes left on their disks and whose content is all in Redis, if the register is opened to be moved.
    pub(super) left_journals: Vec<LeftJournal>,
}

/// Checks the server, and opens or makes the register. A register that is to be begun `anew` is begun first.
pub(super) async fn begin(
    link: &mut Link,
    keys: &Keys,
    options: &RedisOptions,
    identity: Option<&IdentityFile>,
    anew: Option<&Anew>,
) -> Result<Begun, StoreError> {
    let shas = link.shas().await.map_err(Failed::into_error)?;
    let server = ServerFacts::look(link, options.replicas).await?;
    let is_compact = probe::keep_compact(link, &shas, keys, &server).await?;
    let replicas = server.wanted_replicas(link.name(), options)?;
    if let Some(anew) = anew {
        anew.begin(link, &shas, keys).await?;
    }
    let (wanted, making) = moving::prepare(link, keys, options).await?;
    let (made, looked_for) = match wanted {
        Some(shards) => (shards, shards),
        None => number(link, keys).await?,
    };
    let known = identity.and_then(IdentityFile::expected).filter(|_| !options.accept_new_store);
    let names: Vec<String> =
        std::iter::once(keys.register()).chain((0..looked_for).map(|shard| keys.head(ShardId(shard)))).collect();
    let may_make = match options.opening {
        Opening::Serve => known.is_none(),
        Opening::Target { .. } => true,
        Opening::Source | Opening::Unfinished(_) => false,
    };
    let notice = making.as_ref().map_or_else(String::new, MoveNotice::text);
    let call = |may_make: bool| {
        let mut call = ScriptCall::new(&shas, LoadedScript::Init, &names);
        call.arg(scripts::hex(rand::random::<u128>().max(1))).arg(FORMAT).number(made.into());
        call.number(now_ms()).arg(if may_make { "1" } else { "0" }).arg(&notice);
        call
    };
    let place = Arc::clone(link.name());
    let initialised = |value| scripts::initialised(value).ok_or_else(|| failed::strange_script(&place));
    let in_cluster = link.place().is_in_cluster();
    let value = link.call(&call(may_make && !in_cluster), START_WITHIN).await.map_err(Failed::into_error)?;
    let mut found = initialised(value)?;
    if in_cluster && may_make && found == Initialised::None {
        // Does the register not exist, or was it left behind on another server of the cluster?
        if let Some(stray) = link.place().stray(false).await? {
            return Err(broken_move(&place, keys, &stray, false));
        }
        let value = link.call(&call(true), START_WITHIN).await.map_err(Failed::into_error)?;
        found = initialised(value)?;
    }
    let said = if let Initialised::Register { notice, .. } = &found { notice.as_str() } else { "" };
    let notice = moving::check_notice(&place, keys, options, said)?;
    let (register, shards) = check_register(found, &place, in_cluster, keys, options, wanted, identity)?;
    let mut went_on = false;
    // After a register was moved away, nothing is acknowledged in it, so nothing new can be missing.
    let witnesses = if notice.is_none() { &options.witnesses[..] } else { &[] };
    for witness in witnesses {
        let identity = IdentityFile::read(witness)?;
        if identity.known == Some(register) {
            reach::check(link, keys, &identity, options.accept_rollback).await?;
            reach::check_stood(link, keys, &identity, options.accept_rollback).await?;
        }
    }
    let mut left_journals = Vec::new();
    for witness in &options.witnesses {
        let about = (witness.as_path(), register, notice.is_some());
        left_journals.extend(LeftJournal::find(link, keys, about, options.accept_rollback).await?);
    }
    if let Some(identity) = identity {
        let mut lost = Vec::new();
        // Nothing was acknowledged in another register.
        if identity.known == Some(register) {
            went_on = reach::check(link, keys, identity, options.accept_rollback).await?;
            lost = reach::check_stood(link, keys, identity, options.accept_rollback).await?;
        }
        identity.remember(register, options.accept_rollback, &lost)?;
    }
    Ok(Begun { server, replicas, is_compact, shas, register, shards, notice, went_on, left_journals })
}

/// If the configuration does not give the number of shards: how many are made if there is no register, and how many heads
/// are looked for. Asking an existing register for its number costs a call, but avoids a call that names keys which do not
/// exist: a Redis Cluster would put that call off for as long as it moves the slot. If there is no register, any head may
/// remain of an earlier one, and another node may be making one with any number right now. `init` decides who makes it, and
/// tells both nodes how many shards it has.
async fn number(link: &mut Link, keys: &Keys) -> Result<(u16, u16), StoreError> {
    let mut command = Cmd::new();
    command.arg("HGET").arg(keys.register()).arg("shards");
    let there = link.ask(command, START_WITHIN).await?;
    let there = redis::from_redis_value::<Option<u16>>(there).ok().flatten().filter(|&shards| shards > 0);
    Ok(there.map_or((SHARDS_OF_NEW, SHARDS_MAX), |shards| (shards, shards)))
}

/// Another server of the cluster has keys of the slot, as `stray` says. `is_held`: the register's own key is here.
pub(super) fn broken_move(place: &str, keys: &Keys, stray: &str, is_held: bool) -> StoreError {
    let prefix = keys.prefix();
    let (has, or) = if is_held { ("a register", "") } else { ("no register", "; or choose another `store.prefix`") };
    let text = format!(
        "Redis at {place} has {has} under `{prefix}`, but {stray}, which is not its own: the move of the slot broke off. End it \
         (`redis-cli --cluster fix`; where that finds nothing deploy/README.md has what to do, under \"On a Redis Cluster\"), and \
         start again{or}"
    );
    StoreError::Damaged(text.into())
}

/// The register's own key is gone, though this shard has a head.
pub(super) fn lost_register(place: &str, keys: &Keys, shard: ShardId, in_cluster: bool) -> StoreError {
    let (head, register, what) = (keys.head(shard), keys.register(), bring_back(in_cluster));
    StoreError::Damaged(format!("Redis at {place} has `{head}` but lost `{register}`; {what}").into())
}

/// This many of all shards have no head.
pub(super) fn lost_heads(place: &str, keys: &Keys, (lost, all): (u64, u64), in_cluster: bool) -> StoreError {
    let (prefix, what) = (keys.prefix(), bring_back(in_cluster));
    let text = format!(
        "Redis at {place} lost the heads of {lost} of the {all} shards of the register under `{prefix}`; {what}"
    );
    StoreError::Damaged(text.into())
}

/// What to do if a part of a register is gone.
fn bring_back(in_cluster: bool) -> &'static str {
    if in_cluster {
        "where the move of its slot broke off the rest is on another server of the cluster (`redis-cli --cluster fix` ends one); else \
         bring its data back"
    } else {
        "bring its data back"
    }
}

/// Checks that what `init` found is the register that this server should keep, and complete. Returns its identity and its
/// number of shards.
fn check_register(
    found: Initialised,
    place: &Arc<str>,
    in_cluster: bool,
    keys: &Keys,
    options: &RedisOptions,
    wanted: Option<u16>,
    identity: Option<&IdentityFile>,
) -> Result<(u128, u16), StoreError> {
    let prefix = keys.prefix();
    let reason = || identity.map_or_else(|| "this server kept one there".to_owned(), IdentityFile::reason);
    let (made, register, format, shards, heads) = match found {
        Initialised::Register { made, register, format, shards, heads, records, notice: _ } => {
            if records > Format::NEWEST.number().into() {
                return Err(checks::newer(place, prefix, records));
            }
            (made, register, format, shards, heads)
        }
        Initialised::None => {
            let or_moved = if in_cluster {
                ", or the move of its slot broke off (`redis-cli --cluster fix` ends one)"
            } else {
                ""
            };
            let text = format!(
                "Redis at {place} has no register under `{prefix}`, and {}: Redis was emptied, or is another one{or_moved}. If a \
                 node that served it still runs, leave that one running: it may be writing it again from memory. Otherwise bring its \
                 data back, or name the right one by `--redis URL`; `--accept-new-store` begins an empty register",
                reason()
            );
            return Err(StoreError::Damaged(text.into()));
        }
        Initialised::Heads(shard) => {
            return Err(lost_register(place, keys, ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), in_cluster));
        }
    };
    if format != FORMAT {
        let text = format!(
            "Redis at {place} has a register of format {format} under `{prefix}`, which this version of allod does not \
             know; start a newer one, or choose another `store.prefix`"
        );
        return Err(StoreError::Foreign(text.into()));
    }
    if let Some(wanted) = wanted.filter(|&wanted| shards != u64::from(wanted)) {
        let text = format!(
            "Redis at {place} has a register of {shards} shards under `{prefix}`, which is fixed at its first start, and \
             the configuration says {wanted}; leave `store.shards` out, or set it to {shards}, or choose another \
             `store.prefix`"
        );
        return Err(StoreError::Foreign(text.into()));
    }
    let Some(count) = u16::try_from(shards).ok().filter(|_| heads == shards) else {
        return Err(lost_heads(place, keys, (shards.saturating_sub(heads), shards), in_cluster));
    };
    let known = identity.and_then(IdentityFile::expected).filter(|_| !options.accept_new_store);
    if let Some(known) = known.filter(|&known| known != register) {
        let text = format!(
            "Redis at {place} has another register under `{prefix}` than this node's, and {}: {register:032x}, not \
             {known:032x}. Name the right one by `--redis URL`; `--accept-new-store` takes this one",
            reason()
        );
        return Err(StoreError::Foreign(text.into()));
    }
    if made {
        let register = format!("{register:032x}");
        let expects = if options.expects_others { EXPECTS_OTHERS } else { "" };
        tracing::info!(
            redis = %place, prefix, register, shards,
            "began a new, empty register: every address is free in it{expects}"
        );
    }
    Ok((register, count))
}

#[expect(clippy::disallowed_methods, reason = "when the register was made, for people")]
pub(super) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Old data that is brought back, or an empty register, would make an end of what is only elsewhere, or only in memory.
    #[test]
    fn whoever_finds_no_register_is_told_where_it_may_still_be_before_old_data_is_brought_back() {
        let keys = Keys::new("allod").unwrap();
        let said = |in_cluster| {
            let options = RedisOptions::new("redis://127.0.0.1/0".to_owned(), 1);
            let found = check_register(Initialised::None, &"h".into(), in_cluster, &keys, &options, None, None);
            found.unwrap_err().to_string()
        };
        for (said, may_be_elsewhere) in [(said(true), true), (said(false), false)] {
            assert_eq!(said.contains("`redis-cli --cluster fix`"), may_be_elsewhere, "{said}");
            let (running, bring) = (said.find("leave that one running"), said.find("bring its data back"));
            assert!(running.is_some() && running < bring, "{said}");
        }
    }
}
