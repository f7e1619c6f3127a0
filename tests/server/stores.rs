//! The store under a test that is not about stores: the embedded one, as is the default of the product, or with
//! `ALLOD_TEST_STORE` `memory` or a server of `redis`.
//!
//! One Redis for the process, and a prefix for each register: what is there is nobody else's. `tests/run` runs the suite
//! over files and over Redis. A test that is about a store, or brings one of its own, is the same with all.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use allod::store::Store;
use allod::store::embedded::{self, EmbeddedStore};
use allod::store::memory::MemoryStore;
use allod::store::redis::{RedisOptions, RedisStore};

use super::redis_server::process;

/// Ends `redis-server` when its stdin ends: with the process of the tests, however that ends.
const WITH_US: &str = r#""$@" </dev/null & server=$!; cat >/dev/null; kill $server; wait $server"#;

/// A Redis server that lives as long as this process.
struct Shared {
    port: u16,
    /// Held: its stdin is the sign of life. A static is never dropped.
    _shell: Child,
    _directory: tempfile::TempDir,
}

static REDIS: LazyLock<Shared> = LazyLock::new(|| {
    let port = process::ports::free_port();
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", WITH_US, "sh", process::program()]).args(process::arguments(port, directory.path()));
    let shell = process::spawn(shell.stdin(Stdio::piped()));
    process::wait(port);
    Shared { port, _shell: shell, _directory: directory }
});

static REGISTERS: AtomicU32 = AtomicU32::new(0);

/// What the tests run over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    Memory,
    Redis,
}

fn kind() -> Kind {
    match std::env::var("ALLOD_TEST_STORE").as_deref() {
        Err(_) | Ok("" | "embedded") => Kind::Embedded,
        Ok("memory") => Kind::Memory,
        Ok("redis") => Kind::Redis,
        Ok(other) => panic!("ALLOD_TEST_STORE is `{other}`; it may be `embedded`, `memory` or `redis`"),
    }
}

/// Do the tests run over Redis?
pub fn over_redis() -> bool {
    kind() == Kind::Redis
}

/// An empty register, and its files: to be kept for as long as it is used.
pub fn store(shards: u16) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
    match kind() {
        Kind::Memory => (Arc::new(MemoryStore::new(shards)), None),
        Kind::Embedded => {
            let directory = tempfile::tempdir().unwrap();
            // Hundreds of registers are made here, and hold little.
            let options = embedded::EmbeddedOptions { segment_bytes: 8 << 20, ..embedded::EmbeddedOptions::default() };
            (Arc::new(EmbeddedStore::open(directory.path(), shards, options).unwrap()), Some(directory))
        }
        Kind::Redis => (Arc::new(RedisStore::open(redis_options(shards)).unwrap()), None),
    }
}

/// An empty register that can be opened again and again, once whoever had it has stopped. What is in memory cannot: it is in
/// files then.
pub fn reopened(shards: u16) -> Box<dyn Fn() -> Arc<dyn Store>> {
    if kind() == Kind::Redis {
        let options = redis_options(shards);
        return Box::new(move || Arc::new(RedisStore::open(options.clone()).unwrap()));
    }
    let directory = tempfile::tempdir().unwrap();
    Box::new(move || {
        let options = embedded::EmbeddedOptions { segment_bytes: 8 << 20, ..embedded::EmbeddedOptions::default() };
        Arc::new(EmbeddedStore::open(directory.path(), shards, options).unwrap())
    })
}

/// An empty register in the Redis of this process.
pub fn redis_options(shards: u16) -> RedisOptions {
    let number = REGISTERS.fetch_add(1, Ordering::Relaxed);
    let mut options = RedisOptions::new(format!("redis://127.0.0.1:{}/", REDIS.port), shards);
    options.prefix = format!("test-{number}");
    options
}

/// The proof that an answer without a change waits for goes out in the same order as commits, so a commit that hangs holds
/// it up, whichever network it is of. A Redis that does not answer the one does not answer the other either; here, where
/// only commits are held, it shows.
pub const PROOF_WAITS: &str = "an answer's proof waits behind a commit that hangs, also one of another network";

/// Is the test about something that the store under it does not have? Then it says what, and the test ends.
pub fn not_over_redis(why: &str) -> bool {
    let exempt = over_redis();
    if exempt {
        // Not a skip: it runs with the other store.
        let _ = writeln!(std::io::stderr(), "not over Redis: {why}");
    }
    exempt
}
