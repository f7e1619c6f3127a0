//! A server of Redis in this process: its data, its clock, the number of its run, and earlier states to which it may go
//! back. `wire` has the connections.
//!
//! Its data is a value, and earlier values are kept for a while. A failover to a lagging replica, or a restart from an older
//! file, puts one of them back, under another run.

mod data;
mod reply;
mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use allod::core::state::{Entry, State};
use allod::core::types::NetworkId;
use allod::store::codec::decode_state;

pub use self::data::Data;
pub use self::reply::{Reply, Words, next_command};

use self::data::UNKNOWN;

/// How many changes can be lost at a time.
pub const COPIES_MAX: usize = 400;

#[derive(Debug, Default)]
pub struct Server {
    data: Data,
    /// The data before each of the last changes.
    copies: VecDeque<Data>,
    /// How often something was changed, including changes that are lost by now.
    pub changed: u64,
    pub run: u64,
    scripts: BTreeMap<String, Vec<u8>>,
    /// Faults of the simulation or of the store: an unknown command, or a script that failed.
    pub problems: Vec<String>,
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

impl Server {
    pub fn execute(&mut self, words: &Words, now_ms: u64) -> Reply {
        let before = (self.data.changes, self.data.clone());
        let reply = self.carry_out(words, now_ms);
        if let Reply::Error(error) = &reply
            && error.starts_with(UNKNOWN)
        {
            self.problems.push(error.clone());
        }
        if self.data.changes != before.0 {
            if self.copies.len() == COPIES_MAX {
                self.copies.pop_front();
            }
            self.copies.push_back(before.1);
            self.changed += 1;
        }
        reply
    }

    fn carry_out(&mut self, words: &Words, now_ms: u64) -> Reply {
        let name = text(&words[0]);
        let sub = words.get(1).map(|word| text(word)).unwrap_or_default();
        match (name.as_str(), sub.as_str()) {
            ("CLIENT", "SETINFO") => Reply::OK,
            ("ROLE", _) => Reply::Array(vec![Reply::bulk("master"), Reply::Int(0), Reply::Array(Vec::new())]),
            ("TIME", _) => script::time(now_ms),
            ("INFO", _) => Reply::bulk(self.info()),
            ("CONFIG", "GET") => {
                let name = words.get(2).map(|word| text(word)).unwrap_or_default();
                let value = match name.as_str() {
                    "appendfsync" => "everysec",
                    "maxmemory-policy" => "noeviction",
                    "cluster-require-full-coverage" => "yes",
                    "hash-max-listpack-value" => "256",
                    "hash-max-listpack-entries" => "512",
                    _ => return Reply::Error(format!("{UNKNOWN} CONFIG GET {name}")),
                };
                Reply::Array(vec![Reply::bulk(name), Reply::bulk(value)])
            }
            // Like the oldest version that is supported, which has no WAITAOF.
            ("COMMAND", "INFO") => Reply::Array(vec![Reply::Nil]),
            ("WAIT", _) => Reply::Int(0),
            ("SCRIPT", "LOAD") => {
                let name = script::name_of(&words[2]);
                self.scripts.insert(name.clone(), words[2].clone());
                Reply::bulk(name)
            }
            ("EVALSHA", name) => {
                let Some(script) = self.scripts.get(name) else {
                    return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
                };
                let count: usize = text(&words[2]).parse().unwrap();
                let (keys, args) = words[3..].split_at(count);
                let (reply, problem) = script::run(&mut self.data, now_ms, (name, script), keys, args);
                self.problems.extend(problem);
                reply
            }
            _ => self.data.execute(words),
        }
    }

    fn info(&self) -> String {
        [
            "redis_version:7.0.15",
            &format!("run_id:{:040x}", self.run + 1),
            "role:master",
            "connected_slaves:0",
            "cluster_enabled:0",
            "aof_enabled:1",
            "aof_last_write_status:ok",
            "rdb_last_bgsave_status:ok",
            "used_memory:1000000",
            "maxmemory:0",
            "maxmemory_policy:noeviction",
            "total_system_memory:1000000000",
        ]
        .join("\r\n")
    }

    /// Becomes another server, or the same one restarted, with the data before its last changes. Returns how many were lost.
    pub fn go_back(&mut self, changes: usize) -> usize {
        let kept = self.copies.len().saturating_sub(changes);
        let lost = self.copies.len() - kept;
        if let Some(before) = self.copies.drain(kept..).next() {
            self.data = before;
        }
        self.begin_run();
        lost
    }

    /// Its data now, to be put back later.
    pub fn copy(&self) -> Data {
        self.data.clone()
    }

    /// Becomes another server with this data.
    pub fn put_back(&mut self, data: Data) {
        self.data = data;
        self.copies.clear();
        self.begin_run();
    }

    /// The present data is safe: the server never goes back behind it.
    pub fn is_safe(&mut self) {
        self.copies.clear();
    }

    /// Empties the server while it runs: no connection breaks.
    pub fn flush(&mut self) {
        let before = std::mem::take(&mut self.data);
        self.copies.push_back(before);
    }

    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    fn begin_run(&mut self) {
        self.run += 1;
        self.scripts.clear();
    }

    /// A field of a head, or of the register's description.
    pub fn field(&self, key: &str, field: &str) -> Option<String> {
        self.data.field(&format!("{{allod}}:{key}"), field)
    }

    /// What is held there: network and generation.
    pub fn held(&self) -> BTreeSet<(NetworkId, u64)> {
        let mut held = BTreeSet::new();
        let of_both = [":4:", ":6:"].map(|kind| self.data.hashes("{allod}:", kind));
        for (name, records) in of_both.into_iter().flatten() {
            let Some(network) = name.split(':').nth(3).and_then(|id| id.parse().ok()) else { continue };
            for record in records {
                if let Ok(State::Entry(Entry::Held(one))) = decode_state(record) {
                    held.insert((network, one.generation.0));
                }
            }
        }
        held
    }

    /// How many changes must be lost to lose the last take-over of a shard; none if the server remembers no take-over.
    pub fn since_take_over(&self) -> Option<usize> {
        let epochs = |data: &Data| -> Vec<Option<String>> {
            (0..8).map(|shard| data.field(&format!("{{allod}}:{shard}:head"), "epoch")).collect()
        };
        let now = epochs(&self.data);
        let before = self.copies.iter().rev().position(|copy| epochs(copy) != now)?;
        // Not back to where nobody had taken anything, or where nothing existed.
        let copy = &self.copies[self.copies.len() - 1 - before];
        let taken = copy.field("{allod}:0:head", "epoch").is_some_and(|epoch| epoch != "0");
        taken.then_some(before + 1)
    }
}
