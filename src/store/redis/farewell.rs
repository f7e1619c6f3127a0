//! The last question to Redis before this process ends: does it have everything that clients were told of? What it lost is
//! given back as usual, and what others went on without is put aside. Then it is noted how far that is, for the next start
//! (see `identity`). If this cannot be answered now (Redis is away, or another node gives back its part first), all that is
//! remembered is left on this machine's disk (see `redo`): the memory ends with the process, and nobody else has it.
//!
//! *An owner and its primary are cut off from all others, and no replica is waited for: the owner acknowledges, and is
//! stopped. The primary has everything, but nobody goes on from it.* So if replicas are not waited for, the present
//! followers must have everything, and most of those who say who the primary is must answer; otherwise everything is left on
//! disk, too. *A replica was promoted. Before the old primary, or any other server that the sentinels know, follows it, its
//! owner grants and is stopped. The server that was away is promoted next.* So if somebody decides who the primary is, all
//! servers that they know must follow, and at least one; and followers of another run of Redis count as missing.
//!
//! The same goes for a store that stopped because Redis was emptied and not written anew, went back, lost a part, or has
//! another register: whoever brings the data back may bring an older copy. If Redis went back, what was not put aside is
//! left, and the earlier note of it stays. It does not go for a register that was moved, as the move took care of that; nor
//! for one that this process wrote anew, which has everything: of that only how far it had been acknowledged is noted.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::failed::Failed;
use super::heal;
use super::late;
use super::link::Link;
use super::probe;
use super::redo;
use super::server::ServerFacts;
use super::shared::RedisShared;
use crate::store::{Seq, StoreError};

/// Kept short, because a stop has already waited for Redis before this.
const LOOKS_WITHIN: Duration = Duration::from_secs(2);
/// How long replicas are waited for: those that follow closely have everything within a moment.
const REPLICAS_WITHIN: Duration = Duration::from_millis(300);

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
    // In any case: perhaps not everything is remembered any more, or the disk has no room for more than this note.
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

/// Checks that Redis has everything, or that what it lacks is put aside. A store that stopped is not asked: what Redis has
/// now is not the register that it had. But if Redis went back it is asked, because what it lacks may have been put aside.
async fn has_everything(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    if !shared.has_gone_back() {
        shared.sound()?;
    }
    let (_, number) = heal::ready(shared, link).await.map_err(Failed::into_error)?;
    late::review(shared, link).await?;
    outlives_a_failover(shared, link).await?;
    // Another server may have become the primary, and nobody has looked at its data.
    if link.number() == number { Ok(()) } else { Err(lacks(shared, "its primary was replaced meanwhile".to_owned())) }
}

/// The error if it is not known that every server that may be the next primary has everything.
fn lacks(shared: &RedisShared, why: String) -> StoreError {
    let context = format!("asking who else has what is in Redis at {}", shared.place).into();
    StoreError::Io { context, source: Arc::new(std::io::Error::other(why)) }
}

/// Does every server that may be the next primary have everything? If replicas are waited for, they have whatever was
/// acknowledged.
async fn outlives_a_failover(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    if shared.waits() {
        return Ok(());
    }
    let lacks = |why| lacks(shared, why);
    if !link.place().is_named_by_most().await {
        return Err(lacks("most of those who say who the primary is do not answer".to_owned()));
    }
    shared.sees_followers(&ServerFacts::now(link).await?);
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
    match probe::probe_then(link, &shared.shas, &shared.keys, wait).await.map_err(Failed::into_error)? {
        Ok(Value::Int(have)) if usize::try_from(have).is_ok_and(|have| have >= following) => Ok(()),
        Ok(Value::Int(have)) => Err(lacks(format!("{following} replicas follow, and {have} have everything"))),
        Ok(_) => Err(lacks("replicas are waited for, and not counted".to_owned())),
        Err(error) => Err(lacks(error.to_string())),
    }
}
