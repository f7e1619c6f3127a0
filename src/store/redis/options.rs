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
    /// `redis+cluster://[user:password@]host:port,host:port`. With TLS: `rediss://`, `rediss+sentinel://`,
    /// `rediss+cluster://`.
    pub url: String,
    /// The files for TLS: which authorities are trusted, and the certificate of this server.
    pub tls: TlsFiles,
    /// The prefix of all keys.
    pub prefix: String,
    /// Number of shards, fixed at first use. None: an existing register keeps its number, and a new one gets
    /// [`SHARDS_OF_NEW`](crate::limits::SHARDS_OF_NEW).
    pub shards: Option<u16>,
    /// Name of this server, for people who look at a head.
    pub owner: String,
    /// The directory in which it is noted which register this server keeps; none: it is not noted.
    pub directory: Option<PathBuf>,
    /// Directories of nodes that are not running: what these noted as acknowledged in this register must be in Redis. They
    /// are only read.
    pub witnesses: Vec<PathBuf>,
    /// Accepts another register than the one that was noted, or the absence of one.
    pub accept_new_store: bool,
    /// Goes on without changes that were acknowledged and are missing.
    pub accept_rollback: bool,
    /// For how long batches stay in the history.
    pub history_seconds: u64,
    /// How many bytes of batches stay in the history, over all shards.
    pub history_bytes: u64,
    /// The format in which records are written from the next take-over on, once every node that is there reads it. None: an
    /// existing register keeps its format, and a new one gets the newest.
    pub record_format: Option<Format>,
    /// What the register is opened for.
    pub opening: Opening,
    /// Does this server have a secret that other nodes share? Then it warns when it begins a register, because there may
    /// have been one.
    pub expects_others: bool,
    /// How many replicas must have a change before it is acknowledged.
    pub replicas: u32,
    /// Instead, as many replicas as follow when it is opened: for a process that does one thing and need not go on if one of
    /// them is gone.
    pub replicas_that_follow: bool,
    /// May a change that fewer replicas have be acknowledged, once it is in a file of `directory`?
    pub degrade: bool,
    /// How many bytes of memory keep the latest changes, to replay them if Redis went back; 0: nothing is healed.
    pub heal_bytes: usize,
    /// How many bytes of a commit the move of a subnet may take; see `StoreInfo::move_bytes_max`.
    pub move_bytes_max: usize,
}

impl RedisOptions {
    /// The defaults of the configuration, except for the number of shards; see [`RedisOptions::shards`].
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
