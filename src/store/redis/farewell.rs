//! The last that is asked of Redis before this process ends: has it all that somebody was told of? What it lost is given back as
//! ever, and what others went on without is put aside; and it is noted how far that is, for the next start (see `identity`).
//! Where that cannot be known now (Redis is away, or another node gives back its part first) all that is remembered is left on
//! this machine's disk (see `redo`): its memory ends with the process, and nobody else knew.
//!
//! *An owner and its primary are cut off from all others, and no replica is waited for: it acknowledges, and is stopped. The primary
//! has everything, and nobody goes on from it.* So where replicas are not waited for, it is asked whether those that follow have
//! everything, and whether most of those answer who say which server is the primary; else all of it is left, too. *A replica was promoted;
//! before the old primary follows it, or any that the sentinels know, its owner grants and is stopped. The one that was away is promoted
//! next.* So where somebody decides who the primary is, all that they know of must follow, and one at least; and those that followed
//! another run of Redis are missed, too.
//!
//! So also where the store stopped: Redis was emptied and nobody wrote it anew, or went back, or lost a part, or has another register.
//! Whoever brings its data back may bring an older copy. Where it went back, that is left which was not put aside, and what was noted
//! of it then stays. Not of a register that was moved: whoever moved it saw to that. Nor of one that this process wrote anew, which has
//! all of it; but how far it had been acknowledged is noted.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::failed::Failed;
use super::heal;
use super::late;
use super::link::Link;
use super::redo;
use super::server::{self, ServerFacts};
use super::shared::RedisShared;
use crate::store::{Seq, StoreError};

/// A stop has waited for Redis before this.
const LOOKS_WITHIN: Duration = Duration::from_secs(2);
/// How long replicas are waited for: those that follow closely have everything in a moment.
const REPLICAS_WITHIN: Duration = Duration::from_millis(300);

/// See the module's text.
pub(super) async fn say(shared: &RedisShared, link: &mut Link) {
    let has_told = shared.lines().iter().any(|line| line.told.seq > Seq(0));
    if !shared.serves() || !has_told || shared.has_moved_away() {
        return;
    }
    if shared.is_written_anew() {
        return shared.stands();
    }
    let problem = match tokio::time::timeout(LOOKS_WITHIN, has_everything(shared, link)).await {
        Ok(Ok(())) => return shared.stands(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "Redis does not answer".to_owned(),
    };
    // Also where not all of it is remembered, or the disk takes no more than this.
    shared.stands();
    match redo::leave(shared).await {
        Ok(None) => tracing::warn!(
            redis = %shared.place, problem,
            "it is not known whether Redis has all that this server acknowledged, and what that was is remembered no more: the next \
             start is refused where Redis has not"
        ),
        Ok(Some((changes, path))) => {
            let path = path.display();
            tracing::warn!(
                redis = %shared.place, %path, changes, problem,
                "it is not known whether Redis has all that this server acknowledged: the next start gives back what is missing. \
                 Of several nodes start first the one that says this, and the others when it is ready"
            );
        }
        Err(error) => {
            tracing::error!(
                redis = %shared.place, problem, %error,
                "it is not known whether Redis has all that this server acknowledged, and what it remembers cannot be kept: what \
                 Redis lost of it stays lost, where it is not behind what was noted"
            );
        }
    }
}

/// It has, or what it lacks is put aside. Of one that stopped this is not asked: what it has is not what it had. But of one that went
/// back it is: what it lacks may have been put aside.
async fn has_everything(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    if !shared.has_gone_back() {
        shared.sound()?;
    }
    let (_, number) = heal::ready(shared, link).await.map_err(Failed::into_error)?;
    late::review(shared, link).await?;
    outlives_a_failover(shared, link).await?;
    // Another server may be the primary by now, and nobody looked what that has.
    if link.number() == number { Ok(()) } else { Err(lacks(shared, "its primary was replaced meanwhile".to_owned())) }
}

/// Not all who may be the primary next are known to have everything.
fn lacks(shared: &RedisShared, why: String) -> StoreError {
    let context = format!("asking who else has what is in Redis at {}", shared.place).into();
    StoreError::Io { context, source: Arc::new(std::io::Error::other(why)) }
}

/// Does whoever may be the primary next have everything? Where replicas are waited for, they have what was acknowledged.
async fn outlives_a_failover(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    if shared.waits() {
        return Ok(());
    }
    let lacks = |why| lacks(shared, why);
    if !link.place().is_named_by_most().await {
        return Err(lacks("most of those who say who the primary is do not answer".to_owned()));
    }
    shared.sees_followers(&ServerFacts::now(link).await);
    let (following, gone) = shared.count_followers();
    if gone > 0 {
        return Err(lacks(format!("{gone} of its replicas are gone")));
    }
    match link.place().known_replicas() {
        Some(known) if known > following => {
            return Err(lacks(format!("{known} servers may be the primary next, and {following} follow it now")));
        }
        Some(_) if following == 0 => return Err(lacks("no replica follows it".to_owned())),
        None if following == 0 => return Ok(()),
        Some(_) | None => {}
    }
    let mut wait = Cmd::new();
    wait.arg("WAIT").arg(following).arg(REPLICAS_WITHIN.as_millis() as u64);
    match server::probe_then(link, &shared.shas, &shared.keys, wait).await.map_err(Failed::into_error)? {
        Ok(Value::Int(have)) if usize::try_from(have).is_ok_and(|have| have >= following) => Ok(()),
        Ok(Value::Int(have)) => Err(lacks(format!("{following} replicas follow, and {have} have everything"))),
        Ok(_) => Err(lacks("replicas are waited for, and not counted".to_owned())),
        Err(error) => Err(lacks(error.to_string())),
    }
}
