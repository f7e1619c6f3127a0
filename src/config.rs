//! The configuration of the server: defaults ← file (TOML) ← environment ← flags, checked before any port is opened.
//!
//! A wrong value is refused with its key, the value and what is allowed; an unknown key with the nearest known one.
//! `config/server.toml` documents every key; a test compares it with the defaults here.
//!
//! Neighbours: `allowed` knows which values are valid, `origin` where a value comes from, `unheeded` which settings would be
//! ignored, `syntax` what is wrong with a file that is not TOML. `serve` takes the configuration; `cli` names the file and
//! the flags.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use config::{Environment, File, FileFormat};
use serde::{Deserialize, Serialize};

mod allowed;
mod origin;
mod syntax;
mod unheeded;

pub use origin::Origin;

use crate::limits;
use crate::store::redis::TlsFiles;

/// `[server]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address of the JSON-RPC port.
    pub listen: String,
    /// Address of the HTTP port.
    pub http_listen: String,
    /// Allows `listen` and `http_listen` on other addresses than loopback ones.
    pub insecure_listen: bool,
    /// Name of this server.
    pub node: String,
    /// Reactor threads; 0 means half of the processors, but at least 2 if there are 2.
    pub threads: u64,
    /// Longest line.
    pub max_line_bytes: u64,
    /// Longest body.
    pub max_body_bytes: u64,
    /// Open connections.
    pub max_connections: u64,
    /// See `config/server.toml`.
    pub max_behind_bytes: u64,
    /// See `config/server.toml`.
    pub idle_timeout_seconds: u64,
    /// See `config/server.toml`.
    pub slow_client_seconds: u64,
    /// See `config/server.toml`.
    pub partial_line_seconds: u64,
    /// See `config/server.toml`.
    pub shutdown_seconds: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7400".to_owned(),
            http_listen: "127.0.0.1:7401".to_owned(),
            insecure_listen: false,
            node: String::new(),
            threads: 0,
            max_line_bytes: limits::LINE_BYTES_MAX as u64,
            max_body_bytes: limits::BODY_BYTES_MAX as u64,
            max_connections: limits::CONNECTIONS_MAX as u64,
            max_behind_bytes: limits::BEHIND_BYTES_MAX as u64,
            idle_timeout_seconds: 3_600,
            slow_client_seconds: 30,
            partial_line_seconds: 30,
            shutdown_seconds: 10,
        }
    }
}

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Files in a directory.
    Embedded,
    /// A Redis or Valkey server.
    Redis,
    /// Nothing; the register is not kept.
    Memory,
}

/// `[store]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The kind of store.
    pub kind: StoreKind,
    /// The directory of the store's files.
    pub directory: PathBuf,
    /// Number of shards, fixed at first use; 0 means as many as the register has. See [`Store::shards`].
    pub shards: u64,
    /// URL of Redis.
    pub redis: String,
    /// The certificate authorities that sign for Redis over TLS; if empty, those that the system trusts.
    pub redis_ca: PathBuf,
    /// The certificate shown to Redis over TLS; if empty, none.
    pub redis_certificate: PathBuf,
    /// See `config/server.toml`.
    pub redis_key: PathBuf,
    /// The prefix of all keys in Redis; written in braces there.
    pub prefix: String,
    /// See `config/server.toml`.
    pub redis_replicas: u64,
    /// See `config/server.toml`.
    pub redis_degrade: bool,
    /// See `config/server.toml`.
    pub redis_heal_bytes: u64,
    /// The format in which records are to be written; 0 means that of the register.
    pub record_format: u64,
    /// Seconds between two self-checks; 0 means that none is made.
    pub self_check_seconds: u64,
    /// The flags for this start.
    #[serde(skip)]
    pub once: Once,
}

/// What an operator says for one start only: flags of `allod serve` that are not keys of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::Args)]
pub struct Once {
    /// Grant addresses automatically again in a restored register
    #[arg(long)]
    pub accept_restored: bool,
    /// Use what Redis holds now, even if that is another register or nothing
    #[arg(long)]
    pub accept_new_store: bool,
    /// Continue from what Redis holds, although changes that this server acknowledged are missing. It grants at once: keep
    /// clients away until the addresses in use have been claimed
    #[arg(long)]
    pub accept_rollback: bool,
    /// Continue without damaged history, if a snapshot has everything that it led to; its files are kept beside the others.
    /// No state is given up
    #[arg(long)]
    pub give_up_history: bool,
    /// Continue without a damaged snapshot, if the log has everything that led to it; the file is kept beside the others. No
    /// state is given up
    #[arg(long)]
    pub give_up_snapshot: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            kind: StoreKind::Embedded,
            directory: PathBuf::from("allod-data"),
            shards: 0,
            redis: "redis://127.0.0.1:6379/0".to_owned(),
            redis_ca: PathBuf::new(),
            redis_certificate: PathBuf::new(),
            redis_key: PathBuf::new(),
            prefix: "allod".to_owned(),
            redis_replicas: 0,
            redis_degrade: false,
            redis_heal_bytes: 64 << 20,
            record_format: 0,
            self_check_seconds: 86_400,
            once: Once::default(),
        }
    }
}

impl Store {
    /// The number of shards that the register must have. `None` means whatever it has, and a new one gets
    /// [`limits::SHARDS_OF_NEW`].
    pub fn shards(&self) -> Option<u16> {
        // A number beyond the limit was refused before.
        u16::try_from(self.shards).ok().filter(|&shards| shards > 0)
    }

    /// The files that TLS to Redis needs.
    pub fn tls_files(&self) -> TlsFiles {
        TlsFiles { ca: self.redis_ca.clone(), certificate: self.redis_certificate.clone(), key: self.redis_key.clone() }
    }
}

/// `[metrics]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// How many networks have rows of their own in a scrape: those with the least free space.
    pub networks_max: usize,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { networks_max: 10_000 }
    }
}

/// `[history]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct History {
    /// Changes that are older than this may be forgotten.
    pub keep_seconds: u64,
    /// Changes beyond this many bytes may be forgotten; 0 means an amount that suits the store.
    pub keep_bytes: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { keep_seconds: 30 * 86_400, keep_bytes: 0 }
    }
}

impl History {
    /// How many bytes of changes this store keeps.
    pub fn bytes_in(&self, store: StoreKind) -> u64 {
        match (self.keep_bytes, store) {
            (0, StoreKind::Embedded) => 10 << 30,
            (0, StoreKind::Redis) => 1 << 30,
            (0, StoreKind::Memory) => 64 << 20,
            (bytes, _) => bytes,
        }
    }
}

/// `[cluster]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Address of the port for other nodes.
    pub listen: String,
    /// Where other nodes reach this one.
    pub advertise: String,
    /// The file with the secret that all nodes share.
    pub secret_file: PathBuf,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { listen: "127.0.0.1:7402".to_owned(), advertise: String::new(), secret_file: PathBuf::new() }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Level or filter.
    pub level: String,
    /// Text or JSON.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// The whole configuration, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Ports and bounds.
    pub server: Server,
    /// The store.
    pub store: Store,
    /// How much of the history is kept.
    pub history: History,
    /// Other nodes.
    pub cluster: Cluster,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// Logs.
    pub log: Log,
}

/// The sources of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file, if one was named: its path and text.
    pub file: Option<(PathBuf, String)>,
    /// The environment. Most of it is not ours, and need not be text.
    pub environment: HashMap<OsString, OsString>,
    /// Flags as keys and values: `("server.listen", "127.0.0.1:0")`.
    pub flags: Vec<(String, String)>,
    /// The directory in `/proc` of the process that sees the named files. `None` means this process.
    pub process: Option<PathBuf>,
}

impl Sources {
    /// Gathers the named file, the environment of the process, and these flags.
    ///
    /// # Errors
    /// A sentence, if the file cannot be read.
    pub fn gather(file: Option<PathBuf>, flags: Vec<(String, String)>) -> Result<Self, String> {
        let file = match file {
            None => None,
            Some(path) => Some((path.clone(), Self::text(&path, &path)?)),
        };
        Ok(Self { file, environment: std::env::vars_os().collect(), flags, process: None })
    }

    /// Where this process finds a file that the server's process calls `path`: in a container that one sees other files.
    pub fn seen(&self, path: &Path) -> PathBuf {
        match &self.process {
            Some(process) if !path.as_os_str().is_empty() => match path.strip_prefix("/") {
                Ok(beneath) => process.join("root").join(beneath),
                Err(_) => process.join("cwd").join(path),
            },
            Some(_) | None => path.to_owned(),
        }
    }

    /// The variables that are ours: those that name a table. `ALLOD_SERVER` alone belongs to a client.
    fn settings(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.environment.iter().filter(|(name, _)| {
            let name = name.to_string_lossy();
            name.starts_with("ALLOD_") && name.contains("__")
        })
    }

    /// The text of the file `named`, which is found at `there`: another process may see it elsewhere.
    ///
    /// # Errors
    /// Those of [`Sources::gather`].
    pub fn text(named: &Path, there: &Path) -> Result<String, String> {
        std::fs::read_to_string(there)
            .map_err(|error| format!("cannot read the configuration {}: {error}", named.display()))
    }
}

impl Config {
    /// Loads the configuration: defaults ← file ← environment ← flags.
    ///
    /// # Errors
    /// Sentences, one per line: each names the key, the value and what is allowed.
    pub fn load(sources: &Sources) -> Result<Self, String> {
        let mut builder = config::Config::builder();
        let mut problems = Vec::new();
        if let Some((path, text)) = &sources.file {
            // Parsed separately first, so that an error names the file and the line. And a flag or a variable replaces a
            // value that the file gives in place of its table, so that such a value would go unnoticed.
            let table: toml::Table = toml::from_str(text).map_err(|error| syntax::no_toml(path, text, &error))?;
            problems.extend(serde_json::to_value(table).iter().flat_map(no_tables));
            builder = builder.add_source(File::from_str(text, FileFormat::Toml));
        }
        let ours = sources.settings().filter_map(|(name, value)| match (name.to_str(), value.to_str()) {
            (Some(name), Some(value)) => Some((name.to_owned(), value.to_owned())),
            _ => {
                problems.push(format!("`{}` is not UTF-8, as all settings must be", name.to_string_lossy()));
                None
            }
        });
        let ours = ours.collect();
        let environment = Environment::with_prefix("ALLOD").prefix_separator("_").separator("__");
        // Values are not parsed: a text that looks like a number would change, as 1.10 to 1.1.
        builder = builder.add_source(environment.source(Some(ours)));
        for (key, value) in &sources.flags {
            builder = builder
                .set_override(key.as_str(), value.as_str())
                .map_err(|error| format!("`{key}` cannot be set: {error}"))?;
        }
        problems.extend(sources.environment.keys().filter_map(|name| near_miss(name.to_str()?)));
        let built = builder.build().map_err(|error| error.to_string())?;
        let tree: serde_json::Value =
            built.clone().try_deserialize().map_err(|error| format!("the configuration cannot be read: {error}"))?;
        problems.extend(unknown_keys(&tree));
        problems.extend(allowed::mistyped(&tree));
        if problems.is_empty() {
            let config: Self =
                built.try_deserialize().map_err(|error| format!("the configuration is wrong: {error}"))?;
            problems = config.problems();
            problems.extend(config.unheeded(sources));
            problems.extend(config.unfit_files(|path| sources.seen(path)));
            if problems.is_empty() {
                return Ok(config);
            }
        }
        let told: Vec<String> = problems.into_iter().map(|problem| sources.with_variable(problem)).collect();
        Err(told.join("\n"))
    }

    /// Name of this server: the configured one, or the machine's.
    pub fn node(&self) -> String {
        if self.server.node.is_empty() {
            return rustix::system::uname().nodename().to_string_lossy().into_owned();
        }
        self.server.node.clone()
    }

    /// How many reactor threads to start.
    pub fn threads(&self) -> usize {
        match usize::try_from(self.server.threads).unwrap_or(1) {
            0 => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                (processors / 2).max(processors.min(2))
            }
            threads => threads,
        }
    }
}

/// The problem with a variable that would be one of our keys but for an underscore: it would be ignored, and the server
/// would start with another store than was meant.
fn near_miss(name: &str) -> Option<String> {
    let given = name.strip_prefix("ALLOD_")?.to_lowercase();
    let key = known_keys().into_iter().find(|key| key.replace('.', "_") == given)?;
    let variable = variable_of(&key);
    Some(format!("`{name}` sets nothing: two underscores separate a table from its key; did you mean `{variable}`?"))
}

/// The environment variable that sets a key.
fn variable_of(key: &str) -> String {
    format!("ALLOD_{}", key.replace('.', "__").to_uppercase())
}

/// Every known key.
fn known_keys() -> Vec<String> {
    leaves(&serde_json::to_value(Config::default()).unwrap_or_default())
}

/// The full keys of all values that are not tables: `server.listen`.
fn leaves(tree: &serde_json::Value) -> Vec<String> {
    fn below(path: &str, tree: &serde_json::Value, keys: &mut Vec<String>) {
        match tree.as_object() {
            Some(members) => {
                for (name, value) in members {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    below(&path, value, keys);
                }
            }
            None => keys.push(path.to_owned()),
        }
    }
    let mut keys = Vec::new();
    below("", tree, &mut keys);
    keys
}

/// Problems with values that stand where a table of keys belongs.
fn no_tables(tree: &serde_json::Value) -> Vec<String> {
    let known = known_keys();
    let given = leaves(tree).into_iter().filter(|key| is_table(&known, key));
    given.map(|key| format!("`{key}` is a table: write `[{key}]`, and its keys below")).collect()
}

fn is_table(known: &[String], key: &str) -> bool {
    known.iter().any(|known| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

fn unknown_keys(tree: &serde_json::Value) -> Vec<String> {
    let known = known_keys();
    leaves(tree)
        .into_iter()
        .filter(|key| !key.is_empty() && !known.contains(key) && !is_table(&known, key))
        .map(|key| {
            // A key with a letter or two wrong is a slip of the nearest key; one with an extra word at its end is a slip,
            // however long that is.
            let goes_on = |known: &&String| key.strip_prefix(known.as_str()).is_some_and(|rest| rest.starts_with('_'));
            let begun = known.iter().filter(goes_on).max_by_key(|known| known.len());
            let near = known.iter().min_by_key(|known| distance(known, &key));
            let within = |edits: usize| near.filter(|near| distance(near, &key) <= edits.min(near.len() / 2));
            match within(2).or(begun).or(within(usize::MAX)) {
                Some(near) => format!("there is no key `{key}`; did you mean `{near}`?"),
                None => format!("there is no key `{key}`; config/server.toml lists all"),
            }
        })
        .collect()
}

/// The edit distance: how many characters to insert, remove or replace to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Config::load(&Sources {
            file: Some((PathBuf::from("test.toml"), text.to_owned())),
            environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            flags: flags.iter().map(own).collect(),
            process: None,
        })
    }

    #[test]
    fn the_shipped_file_holds_every_key_at_its_default() {
        let text = include_str!("../config/server.toml");
        assert_eq!(load(text, &[], &[]).unwrap(), Config::default());
        let mut keys = leaves(&serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap());
        keys.sort();
        let mut known = known_keys();
        known.sort();
        assert_eq!(keys, known);
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = "[server]\nthreads = 1\nmax_connections = 10\nlisten = \"127.0.0.1:1\"\n";
        let environment =
            [("ALLOD_SERVER__THREADS", "2"), ("ALLOD_SERVER__MAX_CONNECTIONS", "20"), ("ALLOD_SERVER", "x")];
        let config = load(file, &environment, &[("server.threads", "3")]).unwrap();
        assert_eq!(config.server.threads, 3);
        assert_eq!(config.server.max_connections, 20);
        assert_eq!(config.server.listen, "127.0.0.1:1");
    }

    #[test]
    fn a_variable_with_one_underscore_for_two_is_refused_and_others_are_not_ours() {
        let problem = load("", &[("ALLOD_STORE_KIND", "redis")], &[]).unwrap_err();
        assert_eq!(
            problem,
            "`ALLOD_STORE_KIND` sets nothing: two underscores separate a table from its key; did you mean `ALLOD_STORE__KIND`?"
        );
        load("", &[("ALLOD_SERVER", "x"), ("ALLOD_STORE", "y"), ("ALLOD_NODE_KIND", "z")], &[]).unwrap();
    }

    #[test]
    fn a_variable_that_is_no_text_is_refused_by_name_where_it_is_a_setting_and_else_passed_over() {
        use std::os::unix::ffi::OsStringExt;
        let load = |pairs: &[(&str, &[u8])]| {
            let own = |(name, value): &(&str, &[u8])| (OsString::from(name), OsString::from_vec(value.to_vec()));
            Config::load(&Sources { environment: pairs.iter().map(own).collect(), ..Sources::default() })
        };
        let config = load(&[("X", b"\xff"), ("ALLOD_SERVER", b"\xff"), ("ALLOD_SERVER__NODE", b"n")]).unwrap();
        assert_eq!(config.server.node, "n");
        let problem = load(&[("ALLOD_STORE__REDIS", b"redis://u:word\xff@h/0"), ("ALLOD_SERVER__NODE", b"n")]);
        assert_eq!(problem.unwrap_err(), "`ALLOD_STORE__REDIS` is not UTF-8, as all settings must be");
    }

    #[test]
    fn no_number_of_shards_is_asked_for_unless_one_is_set() {
        assert_eq!(load("", &[], &[]).unwrap().store.shards(), None);
        assert_eq!(load("[store]\nshards = 0\n", &[], &[]).unwrap().store.shards(), None);
        let set = [("ALLOD_STORE__SHARDS", "16")];
        assert_eq!(load("[store]\nshards = 8\n", &set, &[]).unwrap().store.shards(), Some(16));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let problem = load("[server]\nlissten = \"127.0.0.1:1\"\n", &[], &[]).unwrap_err();
        assert_eq!(problem, "there is no key `server.lissten`; did you mean `server.listen`?");
        let problem = load("[store]\nredis_url = \"redis://127.0.0.1\"\n", &[], &[]).unwrap_err();
        assert_eq!(problem, "there is no key `store.redis_url`; did you mean `store.redis`?");
        // Also if the part before the extra word is a key by itself.
        for (slip, meant) in [
            ("redis_replica", "redis_replicas"),
            ("redis_certifcate", "redis_certificate"),
            ("redis_degraded", "redis_degrade"),
        ] {
            let problem = load(&format!("[store]\n{slip} = 1\n"), &[], &[]).unwrap_err();
            assert_eq!(problem, format!("there is no key `store.{slip}`; did you mean `store.{meant}`?"));
        }
    }

    #[test]
    fn a_value_where_a_table_belongs_is_refused_whatever_flags_put_there() {
        for flags in [&[][..], &[("server.listen", "127.0.0.1:1")]] {
            let problem = load("server = 5\n[log]\nlevel = \"info\"\n", &[], flags).unwrap_err();
            assert_eq!(problem, "`server` is a table: write `[server]`, and its keys below");
            assert!(load("[server]\n", &[], flags).is_ok());
        }
    }

    #[test]
    fn a_wrong_value_names_key_value_and_range() {
        let problem = load("[server]\nthreads = 65\n", &[], &[]).unwrap_err();
        assert_eq!(problem, "`server.threads` is 65; it must be 0 to 64");
        assert!(
            load("[server]\nlisten = \"here\"\n", &[], &[]).unwrap_err().starts_with("`server.listen` is \"here\"")
        );
        for level in ["a=b=c", "loud", "debgu"] {
            let refused = load(&format!("[log]\nlevel = \"{level}\"\n"), &[], &[]).unwrap_err();
            assert!(refused.starts_with(&format!("`log.level` is {level:?}; it must be `off`")), "{refused}");
            let by_variable = load("", &[("ALLOD_LOG__LEVEL", level)], &[]).unwrap_err();
            assert_eq!(by_variable, format!("{refused} (set by ALLOD_LOG__LEVEL)"));
        }
    }

    #[test]
    fn other_than_loopback_needs_the_flag() {
        let open = "[server]\nlisten = \"0.0.0.0:7400\"\n";
        assert!(load(open, &[], &[]).unwrap_err().contains("--insecure-listen"));
        assert!(load(open, &[], &[("server.insecure_listen", "true")]).is_ok());
    }
}
