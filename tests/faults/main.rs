//! Faults, with real processes: nodes and Redis are killed, stopped, cut off and emptied while clients work, and everything
//! that the clients were told is held against the one promise: no address has two holders at one instant.
//!
//! `load` asks for what `asks` has and writes down, `record` keeps, `checker` judges; `redis`, `sentinels` and `nodes` own the
//! processes, `wire` what is between them, `clock` their clocks; `run` is all of that together. Each test proves that its fault
//! took hold, and prints the seed that begins it again. Short runs are tests; `any` draws from most of the faults (`happens`,
//! `happens_to_many`) and is also a soak, over a Redis that keeps everything and over set-ups that lose what was written:
//! `ALLOD_SOAK_SECONDS=3600 cargo test --test faults whatever_happens -- --nocapture`. Each prints its seed first, and at its end
//! what was asked for, what happened how often, and how many batches Redis had lost and was given back.
//!
//! | who | what happens to it |
//! | --- | --- |
//! | nodes | `several_nodes`, `one_node`: killed, stopped, restarted; `names`: two of one name; `secrets`: one without the secret |
//! | what is between them | `network`: held one way or both, late or lost, one pair alone; `slow`: a long way |
//! | Redis | `foreign`: another register in its place; `emptied`: by hand, and without its file; `several_nodes`, `rollback`: killed, stopped, back to older data, once, twice, past a take-over; `slow`: asleep, paused; `settings`: full, evicting; `disk`: a full disk |
//! | nodes over several Redis, and these | `cut_off`: of either from the other; `together`: the owner and the primary from all others; `set_ups`: killed, stopped; what a cluster lost, emptied; a replica cut off |
//! | who knows better | `third`: a rollback, another node goes on, and whoever knows of more returns |
//! | how it is reached | `tls`: over TLS, all of it, and whoever is not trusted is refused |
//! | its replicas and slots | `disks`: their disks; `failover`: sentinels; `forks`: a failover that is taken back; `degraded`: gone, and gone on without; `late`: another node goes on without the last changes; `redis_cluster`: a failover, a moved slot |
//! | the program | `upgrade`: exchanged for one with a later format of records, and back |
//! | what a node is asked itself | `orders`: without end |
//! | what a node is in the midst of | `midst`: a take-over, a drain |
//! | what nodes say of themselves | `ready`; what the page says to type then, `runbook`; and to their supervisors: `stops` |
//! | one connection's requests in a row | `pipelined`: while the register is handed over, and while its owner is killed |
//! | replicas that are away | `replicas` (nothing is acknowledged), `degraded` (the disk of the node stands in) |
//! | what the client library asks | `library`: answers lost, nodes killed and stopped |
//! | clocks | `clocks`: those of Redis and of nodes, forward and back |
//!
//! `watch` follows events, `deploys` runs that compete and `waits` those who wait, over faults of nodes and of Redis.
#![allow(clippy::duplicate_mod, reason = "what starts a Redis is shared by stores and by processes")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

#[path = "../support/authority.rs"]
mod authority;
#[path = "../e2e/client.rs"]
#[allow(dead_code, reason = "shared with the tests of one process")]
mod client;
#[path = "../it/sequences/published.rs"]
mod published;
#[path = "../store_contract/redis/server.rs"]
#[allow(dead_code, reason = "shared with the tests of the store")]
mod redis_server;
#[path = "../support/seed.rs"]
mod seed;
#[path = "../e2e/server.rs"]
#[allow(dead_code, reason = "shared with the tests of one process")]
mod server;

use redis_server::{Server as RedisServer, process};

mod any;
mod asks;
mod checker;
mod chores;
mod clock;
mod clocks;
#[path = "../store_contract/redis/clustered.rs"]
#[allow(dead_code, reason = "shared with the tests of the store")]
mod clustered;
mod cut_off;
mod degraded;
mod deploys;
mod disk;
mod disks;
mod drain;
mod emptied;
mod failover;
mod foreign;
mod forks;
mod happens;
mod happens_to_many;
mod late;
mod library;
mod load;
mod midst;
mod names;
mod network;
mod nodes;
mod one_node;
mod orders;
mod pipelined;
mod ready;
mod record;
mod redis;
mod redis_cluster;
mod replicas;
mod rollback;
mod run;
mod runbook;
mod secrets;
mod sentinels;
mod set_ups;
mod settings;
mod several_nodes;
mod slow;
mod stops;
mod third;
mod tls;
mod together;
mod upgrade;
mod waits;
mod watch;
mod wire;
