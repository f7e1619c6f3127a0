//! Where and how a register is kept in Redis.

use std::path::PathBuf;

use super::tls::TlsFiles;
use crate::limits::REDIS_MOVE_BYTES_MAX;
use crate::store::codec::Format;
use crate::store::moving::Opening;

/// Where and how a register is kept.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://[user:password@]host:port/database`, `redis+unix:///path`,
    /// `redis+sentinel://[user:password@]host:port,host:port/SERVICE/database`, or
    /// `redis+cluster://[user:password@]host:port,host:port`. Over TLS: `rediss://`, `rediss+sentinel://`, `rediss+cluster://`.
    pub url: String,
    /// Whom TLS trusts, and what it shows.
    pub tls: TlsFiles,
    /// What all keys begin with.
    pub prefix: String,
    /// Number of shards, fixed at first use. None: as many as the register has; a new one gets
    /// [`SHARDS_OF_NEW`](crate::limits::SHARDS_OF_NEW).
    pub shards: Option<u16>,
    /// Name of this server, for people who look at a head.
    pub owner: String,
    /// Where it is noted which register this server keeps; none: nowhere.
    pub directory: Option<PathBuf>,
    /// Directories of nodes that are not running: what they noted of this register as acknowledged must be there. They are read only.
    pub witnesses: Vec<PathBuf>,
    /// Another register than the one noted, or none, is taken for what it is.
    pub accept_new_store: bool,
    /// Changes that were acknowledged and are missing are given up.
    pub accept_rollback: bool,
    /// For how long batches stay in the history.
    pub history_seconds: u64,
    /// How many bytes of batches stay in the history, of all shards together.
    pub history_bytes: u64,
    /// In which format records are to be written from the next take-over on, once every node that is there reads it. None: in
    /// that of the register, and a new one in the newest.
    pub record_format: Option<Format>,
    /// What it is opened for.
    pub opening: Opening,
    /// Has it a secret that other nodes share? Then it says more where it begins a register: there may have been one.
    pub expects_others: bool,
    /// How many replicas must have a change before it is acknowledged.
    pub replicas: u32,
    /// As many as follow when it is opened, instead: for who does a thing once, and need not go on when one of them is gone.
    pub replicas_that_follow: bool,
    /// Is it acknowledged what fewer replicas have, once it is in a file of `directory`?
    pub degrade: bool,
    /// In how many bytes of memory the latest changes are kept, to be played again when Redis went back; 0: it is not healed.
    pub heal_bytes: usize,
    /// How many bytes of a commit a subnet may take that moves; see `StoreInfo::move_bytes_max`.
    pub move_bytes_max: usize,
}

impl RedisOptions {
    /// With the defaults of the configuration but for the number of shards; see [`RedisOptions::shards`].
    pub fn new(url: impl Into<String>, shards: impl Into<Option<u16>>) -> Self {
        Self {
            url: url.into(),
            tls: TlsFiles::default(),
            prefix: "allod".to_owned(),
            shards: shards.into(),
            owner: String::new(),
            directory: None,
            witnesses: Vec::new(),
            accept_new_store: false,
            accept_rollback: false,
            history_seconds: 30 * 86_400,
            history_bytes: 1 << 30,
            record_format: None,
            opening: Opening::Serve,
            expects_others: false,
            replicas: 0,
            replicas_that_follow: false,
            degrade: false,
            heal_bytes: 64 << 20,
            move_bytes_max: REDIS_MOVE_BYTES_MAX,
        }
    }
}
