//! The task that checks whether Redis is still what it was. Once a second it asks which server the sentinels or the cluster
//! name. Every few seconds it asks which register is there, how Redis is configured and which replicas follow it; while the
//! memory is full or too few replicas are there, it asks for memory and replicas once a second. It has a connection of its own.
//!
//! A setting that cannot keep a register stops grants while it lasts; one that keeps less than before causes a warning, and so
//! does one by which long records take more memory, which is raised again.
//! Whatever cannot be asked is taken to be as it was last seen: silence does not mean that records are kept. Whether a newly
//! connected server may evict records is checked earlier (`heal`).

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::sync::mpsc;

use super::link::Link;
use super::place::RedisPlace;
use super::probe;
use super::replicas::ReplicaWait;
use super::server::ServerFacts;
use super::shared::RedisShared;

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// Settings are asked for at every n-th look.
const SETTINGS_EVERY: u32 = 3;

/// Runs until the other end of the channel is gone.
pub(super) async fn run(
    shared: Arc<RedisShared>,
    place: RedisPlace,
    mut link: Link,
    mut over: mpsc::Receiver<()>,
    is_compact: bool,
) {
    let mut looks = 0u32;
    let mut flushed = None;
    // Where a start could not raise them, neither can this.
    let mut raises = if is_compact { RAISES_MAX } else { 0 };
    while tokio::time::timeout(LOOKS_EVERY, over.recv()).await.is_err() {
        place.look().await;
        if let Some(tls) = place.tls() {
            tls.look().await;
        }
        shared.moves(place.moving());
        looks = looks.wrapping_add(1);
        let settings = looks.is_multiple_of(SETTINGS_EVERY);
        if !(settings || shared.may_be_full() || shared.lacks_replicas()) || link.connected().await.is_err() {
            continue;
        }
        if !settings {
            let server = ServerFacts::now(&mut link).await.unwrap_or_default();
            shared.sees_memory(server.is_full());
            shared.sees_followers(&server);
            continue;
        }
        // This also covers a node that does not own the register, and would not look at it otherwise.
        let mut whose = Cmd::new();
        whose.arg("HMGET").arg(shared.keys.register()).arg("register");
        if let Ok(answer) = link.ask(whose, ANSWER_WITHIN).await {
            // A wrong register stops the store by itself.
            drop(shared.is_own_register(&answer));
        }
        let server = ServerFacts::facts_for_now(&mut link).await;
        shared.sees_memory(server.is_full());
        shared.sees_followers(&server);
        if server.policy().is_some() {
            shared.evicts(server.evicting());
        }
        if server.is_known() {
            let (degrades, in_cluster) = (shared.stand_in().is_some(), place.is_in_cluster());
            let by = shared.waiting().unwrap_or(ReplicaWait::Memory);
            shared.sees_durability(server.durability_by(by, shared.replicas, degrades, in_cluster));
        }
        if server.appends().is_some_and(|appends| shared.sees_appends(appends)) {
            tracing::warn!(
                redis = %shared.place,
                "the append-only file of Redis was switched off: a restart of Redis loses what comes from now on, \
                 acknowledged or not; set `appendonly yes`"
            );
        }
        let flushes = server.flushes();
        if (flushed, flushes) == (Some(true), Some(false)) {
            tracing::warn!(
                redis = %shared.place,
                "Redis was set to flush its append-only file less often: what it acknowledges from now on may be lost when \
                 its machine loses power; set `appendfsync always`"
            );
        }
        flushed = flushes.or(flushed);
        raises = stays_compact(&mut link, &server, raises).await;
    }
}

/// How often in a row the settings are raised: where they are accepted and have no effect, not at every look.
const RAISES_MAX: u8 = 3;

/// Raises the settings for long records again: Redis was started anew, with those of its file, or another server is the primary
/// now. Where that is not permitted, it is tried once. Returns how often it may be tried until they are seen to be high.
async fn stays_compact(link: &mut Link, server: &ServerFacts, tries: u8) -> u8 {
    match probe::is_compact(server) {
        Some(false) if tries > 0 => {
            tracing::warn!(
                redis = %link.name(),
                "Redis is set to keep long records in about twice the memory: it was started with other settings, or is another server"
            );
            // Without an answer it is tried again. If they were raised, they may be too low again before the next look.
            if probe::raise(link, server).await.unwrap_or(true) { tries - 1 } else { 0 }
        }
        Some(true) => RAISES_MAX,
        Some(false) | None => tries,
    }
}
