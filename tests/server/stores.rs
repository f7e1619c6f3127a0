//! The store under tests that are not about stores: the embedded one, which is the product's default, or as
//! `ALLOD_TEST_STORE` says: `memory` or a server of `redis`.
//!
//! There is one Redis per process, and a prefix for each register, which it shares with nobody. `tests/run` runs the suite
//! over files and over Redis. Tests that are about a store, or bring their own, are the same with all of them.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use allod::store::Store;
use allod::store::embedded::{self, EmbeddedStore};
use allod::store::memory::MemoryStore;
use allod::store::redis::{RedisOptions, RedisStore};

use super::redis_server::process;

/// Ends `redis-server` when its stdin ends: together with the test process, however that ends.
const WITH_US: &str = r#""$@" </dev/null & server=$!; cat >/dev/null; kill $server; wait $server"#;

/// A Redis server that lives as long as this process.
struct Shared {
    port: u16,
    /// Kept because its stdin is the sign of life. A static is never dropped.
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

pub fn over_redis() -> bool {
    kind() == Kind::Redis
}

/// An empty register and its files, which must be kept as long as it is used.
pub fn store(shards: u16) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
    match kind() {
        Kind::Memory => (Arc::new(MemoryStore::new(shards)), None),
        Kind::Embedded => {
            let directory = tempfile::tempdir().unwrap();
            // Tests create hundreds of registers that hold little.
            let options = embedded::EmbeddedOptions { segment_bytes: 8 << 20, ..embedded::EmbeddedOptions::default() };
            (Arc::new(EmbeddedStore::open(directory.path(), shards, options).unwrap()), Some(directory))
        }
        Kind::Redis => (Arc::new(RedisStore::open(redis_options(shards)).unwrap()), None),
    }
}

/// An empty register that can be opened again and again, each time after the previous owner has stopped. For the memory
/// store, which cannot be reopened, it uses files.
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

/// An answer without a change waits for a proof of ownership, which is sent in the same order as commits. A hanging commit
/// therefore delays it, whichever network it is for. A real Redis that answers the one answers the other as well; here only
/// commits are held, so the delay shows.
pub const PROOF_WAITS: &str = "an answer's proof waits behind a commit that hangs, also one of another network";

/// Is the test about something that Redis does not have? Then this prints why, and the test ends.
pub fn not_over_redis(why: &str) -> bool {
    let exempt = over_redis();
    if exempt {
        // Not a skip: the test runs with the other store.
        let _ = writeln!(std::io::stderr(), "not over Redis: {why}");
    }
    exempt
}
