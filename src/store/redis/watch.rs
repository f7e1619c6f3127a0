//! The task that looks whether Redis is still what it was: once a second which server the sentinels or the cluster name, every few
//! seconds whose register is there, what Redis is set to and which replicas follow it; the last, and whether its memory is full, once a
//! second while it is full or too few replicas are there. On a connection of its own.
//!
//! A setting that cannot keep a register refuses grants while it lasts; one that keeps less than before is warned of. What
//! cannot be asked is as it was seen last: no answer says that records are kept. Whether a server that was just connected to throws
//! records away is seen before that (`heal`).

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::sync::mpsc;

use super::link::Link;
use super::place::RedisPlace;
use super::replicas::ReplicaWait;
use super::server::ServerFacts;
use super::shared::RedisShared;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// Settings are asked for at every so manieth look.
const SETTINGS_EVERY: u32 = 3;

/// Runs until the other end of the channel is gone.
pub(super) async fn run(shared: Arc<RedisShared>, place: RedisPlace, mut link: Link, mut over: mpsc::Receiver<()>) {
    let mut looks = 0u32;
    let mut flushed = None;
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
            let server = ServerFacts::now(&mut link).await;
            shared.sees_memory(server.is_full());
            shared.sees_followers(&server);
            continue;
        }
        // Also where nothing is asked of it: what is not owned, and not looked at for a while.
        let mut whose = Cmd::new();
        whose.arg("HMGET").arg(shared.keys.register()).arg("register");
        if let Ok(answer) = link.ask(whose, ANSWER_WITHIN).await {
            // What is wrong stops the store by itself.
            drop(shared.is_own_register(&answer));
        }
        let server = ServerFacts::facts(&mut link).await;
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
    }
}
