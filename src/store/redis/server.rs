//! How Redis is configured: what prevents a start, what deserves a warning, and what an acknowledged change survives, in words.
//!
//! Asked at the start, and again by `watch`. If INFO or CONFIG is not permitted, this is reported and nothing is assumed;
//! what was seen before still counts. A question that got no answer is another matter: what replicas are waited for, and how,
//! is settled once, by what a start learns. So a start fails with that question, and is tried again; `watch` asks again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::RedisOptions;
use super::failed::strange;
use super::link::Link;
use super::refusal::joined;
use super::replicas::ReplicaWait;
use crate::store::StoreError;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The longest record that fits into a compact hash.
pub(super) const COMPACT_VALUE_BYTES: usize = 256;
/// The most records that one hash has: see `LEAF_MAX` in the script.
pub(super) const COMPACT_FIELDS: usize = 96;
/// The settings by which hashes are compact, and to what they are raised (see `probe`). The second one leaves room for the
/// records that are put into a hash before it is split.
pub(super) const LEAST: [(&str, usize); 2] =
    [("hash-max-listpack-value", COMPACT_VALUE_BYTES), ("hash-max-listpack-entries", 2 * COMPACT_FIELDS)];

/// What Redis says about itself.
#[derive(Debug, Default)]
pub(super) struct ServerFacts {
    facts: HashMap<String, String>,
    /// Is INFO permitted?
    info: bool,
}

/// A setting or a condition of Redis that should not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// No register can be kept in this way: a start is refused.
    pub refuses: bool,
    /// What it is and what to do, as a fragment that follows "Redis".
    pub problem: String,
}

/// Memory of Redis in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// How much it uses.
    pub used: u64,
    /// How much it may use: `maxmemory`, or all the memory of its machine.
    pub limit: u64,
    /// Is `maxmemory` set?
    pub set: bool,
}

/// A connected replica, as INFO describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FollowingReplica {
    /// `host:port`.
    pub(super) address: String,
    /// `online`, or how far it has come towards that.
    pub(super) state: String,
    /// Bytes of changes that it has not acknowledged yet.
    pub(super) behind: Option<u64>,
}

fn refused(place: &Arc<str>, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Foreign(format!("Redis at {place} {problem}").into())
}

impl ServerFacts {
    /// Asks Redis, and refuses one that cannot keep a register.
    pub(super) async fn look(link: &mut Link, replicas: u32) -> Result<Self, StoreError> {
        let place = Arc::clone(link.name());
        let server = Self::facts(link).await?;
        if !server.is_known() {
            tracing::warn!(
                redis = %place,
                "INFO is not permitted: whether Redis keeps what it is given, and never evicts, cannot be checked"
            );
        }
        server.check(&place, replicas, link.place().is_in_cluster())?;
        Ok(server)
    }

    /// Asks for everything that is permitted.
    ///
    /// # Errors
    /// A question got no answer, so the facts would not be all that Redis tells.
    pub(super) async fn facts(link: &mut Link) -> Result<Self, StoreError> {
        let mut server = Self::default();
        server.learn(link).await?;
        Ok(server)
    }

    /// The same up to the first question without an answer, for one who asks again soon.
    pub(super) async fn facts_for_now(link: &mut Link) -> Self {
        let mut server = Self::default();
        // What is not known stays as it was seen before.
        let _ = server.learn(link).await;
        server
    }

    async fn learn(&mut self, link: &mut Link) -> Result<(), StoreError> {
        *self = Self::told(link, &[]).await?;
        let settings = ["appendfsync", "maxmemory-policy", "cluster-require-full-coverage"];
        for name in settings.into_iter().chain(LEAST.map(|(name, _)| name)) {
            if let Some(value) = setting(link, name).await? {
                self.facts.insert(name.to_owned(), value);
            }
        }
        if self.appends() == Some(true) {
            let mut command = Cmd::new();
            command.arg("COMMAND").arg("INFO").arg("WAITAOF");
            if let Some(Value::Array(values)) = link.ask_if_permitted(command, ANSWER_WITHIN).await?
                && let [Value::Array(_)] = &values[..]
            {
                self.facts.insert("waitaof".to_owned(), "1".to_owned());
            }
        }
        Ok(())
    }

    /// Asks for what may change from one second to the next: memory and replicas.
    pub(super) async fn now(link: &mut Link) -> Result<Self, StoreError> {
        Self::told(link, &["server", "memory", "replication"]).await
    }

    pub(super) async fn of_memory(link: &mut Link) -> Result<Self, StoreError> {
        Self::told(link, &["memory"]).await
    }

    /// The answer to INFO, if it is permitted.
    async fn told(link: &mut Link, sections: &[&str]) -> Result<Self, StoreError> {
        let mut info = Cmd::new();
        info.arg("INFO").arg(sections);
        match link.ask_if_permitted(info, ANSWER_WITHIN).await? {
            Some(Value::BulkString(bytes)) => {
                let text = String::from_utf8_lossy(&bytes);
                let pairs = text.lines().filter_map(|line| line.split_once(':'));
                let facts = pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
                Ok(Self { facts, info: true })
            }
            Some(_) => Err(strange(link.name(), "INFO is none")),
            None => Ok(Self::default()),
        }
    }

    /// Does Redis refuse changes that take memory? By its own count, which leaves out buffers for replicas and for its file.
    /// None if this is not known.
    pub(super) fn is_full(&self) -> Option<bool> {
        let bytes = |name: &str| self.fact(name).and_then(|bytes| bytes.parse::<u64>().ok());
        let (used, may) = (bytes("used_memory")?, bytes("maxmemory")?);
        let counted = used.saturating_sub(bytes("mem_not_counted_for_evict").unwrap_or(0));
        Some(may > 0 && counted > may)
    }

    /// What it does when its memory is full; none if this is not known.
    pub(super) fn policy(&self) -> Option<&str> {
        self.fact("maxmemory-policy").or_else(|| self.fact("maxmemory_policy"))
    }

    /// The policy by which it may evict records, if it may.
    pub(super) fn evicting(&self) -> Option<&str> {
        self.policy().filter(|&policy| policy != "noeviction")
    }

    pub(super) fn appends(&self) -> Option<bool> {
        self.fact("aof_enabled").map(|enabled| enabled == "1")
    }

    pub(super) fn flushes(&self) -> Option<bool> {
        self.fact("appendfsync").map(|how| how == "always")
    }

    /// A setting that is a number.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.fact(name)?.parse().ok()
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// How replicas are awaited. On disk only if Redis flushes each change before it answers: with a flush once a second
    /// each answer would have to wait for it, and such a Redis is meant to lose a second when the power fails.
    pub(super) fn waiting(&self) -> ReplicaWait {
        match (self.fact("waitaof"), self.flushes()) {
            (Some("1"), Some(true)) => ReplicaWait::Disk,
            _ => ReplicaWait::Memory,
        }
    }

    /// Does it flush its append-only file once a second, and can it say when it has? Then what must not be lost can wait for
    /// that.
    pub(super) fn flushes_in_a_moment(&self) -> bool {
        self.fact("waitaof") == Some("1") && self.fact("appendfsync") == Some("everysec")
    }

    /// How many replicas must have a change: as many as the options say, or as many as follow now.
    ///
    /// # Errors
    /// As many as follow, and Redis does not say how many that are.
    pub(super) fn wanted_replicas(&self, place: &Arc<str>, options: &RedisOptions) -> Result<u32, StoreError> {
        if !options.replicas_that_follow {
            return Ok(options.replicas);
        }
        self.following_replicas().ok_or_else(|| {
            refused(
                place,
                "does not say how many replicas follow it, and each step of a move must be on all of them: let its user ask \
                 (`ACL SETUSER … +info`), or say how many there are by `--redis-replicas COUNT`",
            )
        })
    }

    /// How many replicas have everything except what is on its way to them; none if this is not known.
    fn following_replicas(&self) -> Option<u32> {
        let follows = |at: &u32| {
            let replica = self.fact(&format!("slave{at}"));
            replica.is_some_and(|replica| replica.split(',').any(|fact| fact == "state=online"))
        };
        Some((0..self.connected_replicas()?).filter(follows).count() as u32)
    }

    /// The connected replicas; none if this is not known.
    pub(super) fn followers(&self) -> Option<Vec<FollowingReplica>> {
        let end = self.fact("master_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
        let follower = |at: u32| {
            let facts = self.fact(&format!("slave{at}"))?;
            let fact = |name: &str| facts.split(',').find_map(|fact| fact.strip_prefix(name)?.strip_prefix('='));
            let address = joined(fact("ip")?, fact("port")?);
            let offset = fact("offset").and_then(|offset| offset.parse::<u64>().ok());
            let behind = end.zip(offset).map(|(end, offset)| end.saturating_sub(offset));
            Some(FollowingReplica { address, state: fact("state").unwrap_or("unknown").to_owned(), behind })
        };
        Some((0..self.connected_replicas()?).filter_map(follower).collect())
    }

    /// Identifies the run of the server.
    pub(super) fn run(&self) -> Option<&str> {
        self.fact("run_id")
    }

    fn connected_replicas(&self) -> Option<u32> {
        self.fact("connected_slaves").and_then(|count| count.parse().ok())
    }

    /// Refuses a server that cannot keep a register, and logs the other findings as warnings.
    pub(super) fn check(&self, place: &Arc<str>, replicas: u32, in_cluster: bool) -> Result<(), StoreError> {
        for finding in self.findings(replicas, in_cluster) {
            if finding.refuses {
                return Err(refused(place, finding.problem));
            }
            tracing::warn!(redis = %place, "Redis {}", finding.problem);
        }
        Ok(())
    }

    /// All findings; those that prevent a start come first.
    pub(super) fn findings(&self, replicas: u32, in_cluster: bool) -> Vec<Finding> {
        let refusals = self.refusals(in_cluster).into_iter().map(|problem| Finding { refuses: true, problem });
        let warnings = [self.settings(in_cluster), self.troubles(), self.replication(replicas)].concat();
        refusals.chain(warnings.into_iter().map(|problem| Finding { refuses: false, problem })).collect()
    }

    fn refusals(&self, in_cluster: bool) -> Vec<String> {
        let mut found = Vec::new();
        let major = self.version().and_then(|(_, version)| version.split('.').next()?.parse::<u32>().ok());
        if let Some(major) = major.filter(|&major| major < 7) {
            found.push(format!("is version {major}; the store needs 7.0 or later, or Valkey"));
        }
        if self.fact("role") == Some("slave") {
            found.push("is a replica, which takes no changes; name its primary by `--redis URL`".to_owned());
        }
        match self.fact("cluster_enabled") {
            Some("1") if !in_cluster => found.push(
                "is part of a cluster; name some of its servers by `--redis redis+cluster://HOST:PORT,HOST:PORT` \
                 (over TLS `rediss+cluster://`)"
                    .to_owned(),
            ),
            Some("0") if in_cluster => {
                found.push("is not a cluster; name the server by `--redis redis://HOST:PORT/0`".to_owned());
            }
            Some(_) | None => {}
        }
        if let Some(policy) = self.evicting() {
            found.push(format!(
                "may throw records away when its memory is full (maxmemory-policy {policy}), and an address would be given \
                 twice; set `maxmemory-policy noeviction`"
            ));
        }
        found
    }

    fn settings(&self, in_cluster: bool) -> Vec<String> {
        let mut found = Vec::new();
        if in_cluster && self.fact("cluster-require-full-coverage") == Some("yes") {
            found.push(
                "refuses the register while any other slot of the cluster has no server either; set \
                 `cluster-require-full-coverage no`"
                    .to_owned(),
            );
        }
        if self.appends() == Some(false) {
            found.push(
                "has no append-only file: a restart of Redis loses what came after its last snapshot, acknowledged or not; \
                 set `appendonly yes`"
                    .to_owned(),
            );
        }
        found
    }

    /// What is going wrong there now.
    fn troubles(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, what) in [
            ("aof_last_write_status", "could not write its append-only file"),
            ("aof_last_bgrewrite_status", "could not rewrite its append-only file"),
            ("rdb_last_bgsave_status", "could not write its last snapshot"),
        ] {
            if self.fact(name).is_some_and(|status| status != "ok") {
                found.push(format!(
                    "{what} ({name}), and may refuse changes; its log says why, for example a full disk"
                ));
            }
        }
        match self.memory() {
            Some(Memory { used, limit, set: true }) if self.is_full() == Some(true) => found.push(format!(
                "has no memory left: it uses {used} of the {limit} bytes that it may (maxmemory), and what takes an address is \
                 refused; raise it by `redis-cli config set maxmemory BYTES` and in its file"
            )),
            Some(Memory { used, limit, set: true }) if used > limit / 10 * 9 => found.push(format!(
                "uses {} of the {} MB that it may (maxmemory): beyond, what takes an address is refused; raise `maxmemory`, or \
                 lower `history.keep_bytes`",
                used / 1_000_000,
                limit / 1_000_000
            )),
            Some(Memory { used, limit, set: false }) if used > limit / 2 => found.push(format!(
                "uses {} of the {} MB of its machine, and as much again while it rewrites a file; give it more memory",
                used / 1_000_000,
                limit / 1_000_000
            )),
            Some(_) | None => {}
        }
        found
    }

    fn replication(&self, replicas: u32) -> Vec<String> {
        let Some(connected) = self.connected_replicas() else { return Vec::new() };
        let has = if connected == 1 { "has a replica".to_owned() } else { format!("has {connected} replicas") };
        let found = if connected > 0 && replicas == 0 {
            format!(
                "{has}, and no change waits for them: a failover loses what was acknowledged last, unless the node that owns \
                 the register lives to mend it; set `store.redis_replicas` to how many may be promoted"
            )
        } else if connected < replicas {
            format!(
                "{has}, fewer than are waited for ({replicas}): until they are there nothing is acknowledged, or, with \
                 `store.redis_degrade`, what is on the disk of the node"
            )
        } else if connected > replicas {
            format!(
                "{has}, more than are waited for ({replicas}): if one of the others is promoted, what was acknowledged last \
                 may be lost; set `store.redis_replicas` to how many may be promoted"
            )
        } else {
            return Vec::new();
        };
        vec![found]
    }

    /// Its name and its version. Valkey reports as `redis_version` the version with which it is compatible.
    fn version(&self) -> Option<(&'static str, &str)> {
        let valkey = self.fact("valkey_version").map(|version| ("Valkey", version));
        valkey.or_else(|| self.fact("redis_version").map(|version| ("Redis", version)))
    }

    /// What it is, for people: `Valkey 8.0.1`.
    pub(super) fn engine(&self) -> String {
        self.version()
            .map_or_else(|| "a server of unknown version".to_owned(), |(name, version)| format!("{name} {version}"))
    }

    pub(super) fn memory(&self) -> Option<Memory> {
        let bytes = |name: &str| self.fact(name).and_then(|bytes| bytes.parse::<u64>().ok());
        let (used, set) = (bytes("used_memory")?, bytes("maxmemory").filter(|&bytes| bytes > 0));
        let limit = set.or_else(|| bytes("total_system_memory"))?;
        Some(Memory { used, limit, set: set.is_some() })
    }

    /// Is INFO permitted?
    pub(super) fn is_known(&self) -> bool {
        self.info
    }

    pub(super) fn durability(&self, replicas: u32, degrade: bool, in_cluster: bool) -> String {
        self.durability_by(self.waiting(), replicas, degrade, in_cluster)
    }

    /// The same if replicas are awaited in this way, whatever the present configuration would suggest.
    pub(super) fn durability_by(&self, by: ReplicaWait, replicas: u32, degrade: bool, in_cluster: bool) -> String {
        let mut survives = self.survives(by, replicas);
        if degrade {
            survives.push_str(", or must be on the disk of the node that owns the register, while fewer answer");
        }
        if in_cluster { format!("{survives}; the register lies in one slot of a Redis cluster") } else { survives }
    }

    fn survives(&self, by: ReplicaWait, replicas: u32) -> String {
        let own = match (self.fact("aof_enabled"), self.fact("appendfsync")) {
            (Some("1"), Some("always")) => {
                "loss of power of Redis's machine: each change is flushed to its disk before it is acknowledged"
            }
            (Some("1"), Some("everysec")) => {
                "a crash of Redis; when its machine loses power, the last second or two of changes may be lost"
            }
            (Some("1"), Some(_)) => {
                "a crash of Redis; when its machine loses power, whatever its kernel had not written is lost"
            }
            (Some("1"), None) => "a crash of Redis; how often its append-only file is flushed cannot be asked",
            (Some("0"), _) => {
                "nothing that ends Redis: it has no append-only file and keeps changes up to its last snapshot, if it makes any"
            }
            (Some(_), _) | (None, _) => "what Redis is set to survive, which cannot be asked: INFO is not permitted",
        };
        let of = |count: u32| if count == 1 { "1 replica".to_owned() } else { format!("{count} replicas") };
        if replicas > 0 {
            let how = match by {
                ReplicaWait::Memory => "has it",
                ReplicaWait::Disk => "has it on disk",
            };
            return format!(
                "{own}; and a failover to a replica that {how}: {} must, before a change is acknowledged",
                of(replicas)
            );
        }
        match self.connected_replicas() {
            Some(count) if count > 0 => {
                format!("{own}; {}, not waited for: a failover may lose what was acknowledged", of(count))
            }
            Some(_) | None => own.to_owned(),
        }
    }
}

/// A setting of Redis; none if it does not tell.
async fn setting(link: &mut Link, name: &str) -> Result<Option<String>, StoreError> {
    let mut command = Cmd::new();
    command.arg("CONFIG").arg("GET").arg(name);
    Ok(match link.ask_if_permitted(command, ANSWER_WITHIN).await? {
        Some(Value::Array(values)) => match &values[..] {
            [_, Value::BulkString(value)] => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        },
        Some(_) | None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(facts: &[(&str, &str)]) -> ServerFacts {
        ServerFacts {
            info: !facts.is_empty(),
            facts: facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    #[test]
    fn what_cannot_keep_a_register_is_refused_with_what_to_do() {
        let place: Arc<str> = "127.0.0.1:6379".into();
        for (facts, said) in [
            (("maxmemory_policy", "allkeys-lru"), "noeviction"),
            (("maxmemory-policy", "volatile-ttl"), "noeviction"),
            (("redis_version", "6.2.14"), "7.0"),
            (("role", "slave"), "primary"),
            (("cluster_enabled", "1"), "redis+cluster://"),
        ] {
            let error = server(&[facts]).check(&place, 0, false).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("127.0.0.1:6379"), "{error}");
        }
        server(&[("redis_version", "7.0.15"), ("role", "master"), ("maxmemory_policy", "noeviction")])
            .check(&place, 0, false)
            .unwrap();
        let error = server(&[("cluster_enabled", "0")]).check(&place, 0, true).unwrap_err().to_string();
        assert!(error.contains("is not a cluster"), "{error}");
        server(&[("cluster_enabled", "1")]).check(&place, 0, true).unwrap();
        // Facts that are not known do not prevent a start.
        server(&[]).check(&place, 1, false).unwrap();
    }

    #[test]
    fn what_redis_suffers_from_is_found_with_what_to_do() {
        let found = |facts: &[(&str, &str)], replicas: u32| -> Vec<String> {
            let findings = server(facts).findings(replicas, false);
            assert!(findings.iter().all(|finding| !finding.refuses));
            findings.into_iter().map(|finding| finding.problem).collect()
        };
        for (facts, replicas, said) in [
            (&[("aof_enabled", "0")][..], 0, "appendonly yes"),
            (&[("rdb_last_bgsave_status", "err")], 0, "rdb_last_bgsave_status"),
            (&[("aof_last_write_status", "err")], 0, "append-only file"),
            (&[("used_memory", "95000000"), ("maxmemory", "100000000")], 0, "95 of the 100 MB"),
            (&[("used_memory", "100000001"), ("maxmemory", "100000000")], 0, "config set maxmemory"),
            (
                &[("used_memory", "100000001"), ("maxmemory", "100000000"), ("mem_not_counted_for_evict", "2")],
                0,
                "100 of the 100 MB",
            ),
            (
                &[("used_memory", "60000000"), ("maxmemory", "0"), ("total_system_memory", "100000000")],
                0,
                "as much again",
            ),
            (&[("connected_slaves", "1")], 0, "no change waits for them"),
            (&[("connected_slaves", "0")], 1, "fewer than are waited for (1)"),
            (&[("connected_slaves", "2")], 1, "more than are waited for (1)"),
        ] {
            let found = found(facts, replicas);
            assert!(found.len() == 1 && found[0].contains(said), "{said}: {found:?}");
        }
        let healthy = [
            ("aof_enabled", "1"),
            ("rdb_last_bgsave_status", "ok"),
            ("connected_slaves", "1"),
            ("used_memory", "5"),
            ("maxmemory", "100"),
        ];
        assert_eq!(found(&healthy, 1), Vec::<String>::new());
        assert_eq!(found(&[], 3), Vec::<String>::new(), "what cannot be asked is not assumed");
    }

    #[test]
    fn replicas_are_named_with_how_far_they_are_behind() {
        let followers = server(&[
            ("connected_slaves", "2"),
            ("master_repl_offset", "1300"),
            ("slave0", "ip=10.0.0.2,port=6379,state=online,offset=1234,lag=0"),
            ("slave1", "ip=2001:db8::2,port=6380,state=wait_bgsave,offset=0,lag=0"),
        ])
        .followers();
        let of = |address: &str, state: &str, behind| FollowingReplica {
            address: address.to_owned(),
            state: state.to_owned(),
            behind: Some(behind),
        };
        let found = [of("10.0.0.2:6379", "online", 66), of("[2001:db8::2]:6380", "wait_bgsave", 1300)];
        assert_eq!(followers.as_deref(), Some(&found[..]));
        assert_eq!(server(&[]).followers(), None);
    }

    #[test]
    fn durability_says_what_may_be_lost() {
        let said = |facts: &[(&str, &str)]| server(facts).durability(0, false, false);
        assert!(said(&[("aof_enabled", "1"), ("appendfsync", "always")]).starts_with("loss of power"));
        assert!(said(&[("aof_enabled", "1"), ("appendfsync", "everysec")]).contains("last second"));
        assert!(said(&[("aof_enabled", "0")]).starts_with("nothing"));
        assert!(said(&[("aof_enabled", "0"), ("connected_slaves", "2")]).contains("2 replicas, not waited for"));
        assert!(said(&[]).contains("cannot be asked"));
        let said = |facts: &[(&str, &str)]| server(facts).durability(2, false, false);
        let memory = [("aof_enabled", "1"), ("appendfsync", "always")];
        assert!(said(&memory).contains("a replica that has it: 2 replicas must"), "{}", said(&memory));
        let disk = [memory[0], memory[1], ("waitaof", "1")];
        assert!(said(&disk).contains("has it on disk"), "{}", said(&disk));
    }

    #[test]
    fn valkey_is_told_by_its_own_version() {
        assert_eq!(server(&[("redis_version", "7.0.15")]).engine(), "Redis 7.0.15");
        assert_eq!(server(&[("redis_version", "7.2.4"), ("valkey_version", "8.0.1")]).engine(), "Valkey 8.0.1");
        assert_eq!(server(&[]).engine(), "a server of unknown version");
    }

    /// With a flush once a second each answer would have to wait for it.
    #[test]
    fn replicas_are_waited_for_on_disk_where_redis_itself_flushes_each_change() {
        let waiting = |facts: &[(&str, &str)]| server(facts).waiting();
        assert_eq!(waiting(&[("appendfsync", "always"), ("waitaof", "1")]), ReplicaWait::Disk);
        assert_eq!(waiting(&[("appendfsync", "everysec"), ("waitaof", "1")]), ReplicaWait::Memory);
        assert_eq!(waiting(&[("appendfsync", "always")]), ReplicaWait::Memory);
    }
}
