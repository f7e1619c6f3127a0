//! Tests with faults of real processes: nodes and Redis are killed, stopped, cut off and emptied while clients work.
//! Everything that the clients were told is checked against the one promise: no address has two holders at one instant.
//!
//! `load` asks for what `asks` defines and records the answers in `record`; `checker` judges them. `redis`, `sentinels` and
//! `nodes` own the processes, `wire` the connections between them, `clock` their clocks; `run` puts all of that together.
//! Each test proves that its fault took hold, and prints the seed that repeats it. Short runs are tests. `any` draws from
//! most of the faults (`happens`, `happens_to_many`) and can also be run as a soak, over a Redis that keeps everything and
//! over set-ups that lose writes: `ALLOD_SOAK_SECONDS=3600 cargo test --test faults whatever_happens -- --nocapture`. Each
//! of its runs prints its seed first, and at its end what was asked for, how often each fault happened, and how many batches
//! Redis had lost and was given back.
//!
//! | subject | what happens to it |
//! | --- | --- |
//! | nodes | `several_nodes`, `one_node`: killed, stopped, restarted; `names`: two of one name; `secrets`: one without the secret |
//! | the network between them | `network`: traffic held one way or both, late or lost, for one pair alone; `slow`: a long way |
//! | Redis | `foreign`: another register in its place; `emptied`: by hand, and without its file; `headless`: one head of its register deleted; `several_nodes`, `rollback`: killed, stopped, back to older data, once, twice, past a take-over; `slow`: asleep, paused; `settings`: full, evicting; `disk`: a full disk |
//! | nodes over several Redis servers, and these | `cut_off`: nodes and Redis cut off from each other; `together`: the owner and the primary from all others; `set_ups`: killed, stopped; what a cluster lost, emptied; a replica cut off |
//! | a node that knows more | `third`: a rollback, another node goes on, and the node that knows more returns |
//! | how Redis is reached | `tls`: everything over TLS; a peer that is not trusted is refused |
//! | its replicas and slots | `disks`: their disks; `failover`: sentinels; `forks`: a failover that is undone; `degraded`: the replica is gone, and the node goes on without; `late`: another node goes on without the last changes; `redis_cluster`: a failover, a moved slot |
//! | the program | `upgrade`: exchanged for one with a later record format, and back |
//! | requests to one node itself | `orders`: without end |
//! | long work of a node | `midst`: stopped or cut off during a take-over or a drain |
//! | what commands show while a node hangs | `looks` |
//! | what nodes report | `ready`; `runbook`: the commands of the page on it; `stops`: reports to their supervisor |
//! | requests of one connection | `pipelined`: while the register is handed over, and while its owner is killed |
//! | replicas that are away | `replicas` (nothing is acknowledged), `degraded` (the disk of the node stands in) |
//! | the client library | `library`: answers lost, nodes killed and stopped |
//! | clocks | `clocks`: those of Redis and of nodes, forward and back |
//!
//! `watch` follows events, `deploys` competing runs, and `waits` clients that wait, over faults of nodes and of Redis.
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
mod headless;
mod late;
mod library;
mod load;
mod looks;
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
