//! The store contract, as one suite for every store; and for the embedded store what only a disk can do to it.
//!
//! `suite` is the contract. `crash` fails each disk operation in turn and cuts the power. `damage` changes bytes and
//! files behind the store's back, and `given_up` goes on without what is damaged of history, `lost_snapshot`
//! without a snapshot that is. `room` fills the disk. `large` has as many records as only a start reads. `redis` does to a Redis server what happens to Redis servers. `moving` moves
//! registers between the two. `ALLOD_SEED` replays a random test.
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
