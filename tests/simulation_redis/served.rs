//! What the server does for whom: kept for the judge, and noted in the trace.

use allod::core::state::{Entry, Key, State, Step};
use allod::core::types::NetworkId;
use allod::store::Batch;
use allod::store::codec::decode_batch;

use super::redis::{Reply, Words};
use super::world::World;

/// Arguments of a commit before its batches, and of a batch before its groups (see `commit.lua`).
const BEFORE_BATCHES: usize = 3;
const BEFORE_GROUPS: usize = 11;
/// First words of the answers of scripts that run every second, and would only fill the trace.
const EVERYDAY: [&str; 2] = ["nodes", "leased"];

/// What was granted: network and generation.
pub type Grants = Vec<(NetworkId, u64)>;

/// Carries out a command that arrives, perhaps after its connection has ended. Returns the answer, and what it says was
/// granted.
pub fn carry_out(world: &World, words: &Words, (node, process): (usize, u64), is_orphan: bool) -> (Reply, Grants) {
    let reply = world.server.borrow_mut().execute(words, world.redis_ms());
    let said = said(&reply);
    let mut grants = Grants::new();
    if let Some(commit) = Commit::of(words) {
        world.note(|| format!("node-{node} commits {}: {}", commit.shown(), shown(&reply)));
        if said != Some("applied") {
            world.hit("commit refused");
            return (reply, grants);
        }
        if is_orphan {
            world.hit("applied after its connection ended");
        }
        world.writes(process);
        let mut writers = world.writers.borrow_mut();
        for (network, generation, _) in commit.grants() {
            writers.entry((network, generation)).or_insert(process);
            grants.push((network, generation));
        }
        if let Some(ms) = world.cuts_next_ms.take().filter(|_| !is_orphan) {
            world.hit("cut off with a batch under way");
            world.under_way.set(Some(world.server.borrow().changed));
            world.cut(node, ms);
        }
    } else if words[0] == b"EVALSHA" && !reads(words) && said.is_none_or(|said| !EVERYDAY.contains(&said)) {
        world.note(|| format!("node-{node} calls {}: {}", keys_of(words), shown(&reply)));
        if said == Some("taken") {
            world.writes(process);
        }
    }
    (reply, grants)
}

/// Does the command only read a log?
fn reads(words: &Words) -> bool {
    words.get(3).is_some_and(|key| key.ends_with(b":log"))
}

/// The first word of a script's answer.
fn said(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Array(all) => match all.first() {
            Some(Reply::Bulk(said)) => std::str::from_utf8(said).ok(),
            _ => None,
        },
        _ => None,
    }
}

fn keys_of(words: &Words) -> String {
    let count: usize = words.get(2).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0);
    let all = words[3..3 + count].iter().map(|key| String::from_utf8_lossy(key).into_owned());
    all.collect::<Vec<_>>().join(" ")
}

fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Array(all) => all.iter().take(7).map(shown).collect::<Vec<_>>().join(" "),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).chars().take(34).collect(),
        Reply::Int(number) => number.to_string(),
        Reply::Nil => "-".to_owned(),
        Reply::Status(text) => (*text).to_owned(),
        Reply::Error(text) => text.clone(),
    }
}

struct Commit(Vec<Batch>);

impl Commit {
    fn of(words: &Words) -> Option<Self> {
        let is_commit = words.len() > 4 && words[0] == b"EVALSHA" && words[3].ends_with(b":guard");
        if !is_commit {
            return None;
        }
        let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<usize>().ok();
        let args = &words[3 + number(&words[2])?..];
        let (mut at, mut batches) = (BEFORE_BATCHES, Vec::new());
        for _ in 0..number(&args[0])? {
            batches.push(decode_batch(&args[at + 7]).ok()?);
            at += BEFORE_GROUPS + number(&args[at + 9])?;
        }
        Some(Self(batches))
    }

    fn steps(&self) -> impl Iterator<Item = (NetworkId, &Step)> {
        let acts = self.0.iter().flat_map(|batch| &batch.acts);
        acts.flat_map(|act| act.steps.iter().map(move |step| (act.network, step)))
    }

    /// What is held after it: network, generation, and a text that says who holds what.
    fn grants(&self) -> impl Iterator<Item = (NetworkId, u64, String)> {
        self.steps().filter_map(|(network, step)| match (&step.state, step.key) {
            (Some(State::Entry(Entry::Held(held))), Key::Address(address)) => {
                Some((network, held.generation.0, format!("{}={address}", held.holder.owner)))
            }
            _ => None,
        })
    }

    fn shown(&self) -> String {
        let batch = |batch: &Batch| format!("shard {} seq {} epoch {}", batch.shard.0, batch.seq.0, batch.epoch.0);
        let batches: Vec<String> = self.0.iter().map(batch).collect();
        let grants: Vec<String> = self.grants().map(|(_, generation, what)| format!("{what} g{generation}")).collect();
        format!("{} ({} steps) [{}]", batches.join(", "), self.steps().count(), grants.join("; "))
    }
}
