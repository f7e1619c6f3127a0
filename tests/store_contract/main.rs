//! The store contract as one suite for every store, and for the embedded store whatever a disk can do to it.
//!
//! `suite` is the contract. `crash` makes each disk operation fail in turn and cuts the power. `damage` changes bytes and
//! files behind the store's back; `given_up` goes on without damaged history, `lost_snapshot` without a damaged snapshot.
//! `room` fills the disk. `large` has more records than a start assembles on one thread. `redis` does to a Redis server
//! whatever operators, crashes and replication do. `power` cuts the power after a restart, `moved_away` moves the directory,
//! and `moving` moves registers between the two stores. `ALLOD_SEED` replays a random test.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

#[path = "../support/seed.rs"]
mod seed;

mod crash;
mod damage;
mod disk;
mod given_up;
mod large;
mod lost_snapshot;
mod moved_away;
mod moving;
mod power;
mod records;
mod redis;
mod room;
mod suite;
mod work;
