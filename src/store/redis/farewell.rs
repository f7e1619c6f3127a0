//! The last that is asked of Redis before this process ends: has it all that somebody was told of? What it lost is given back as
//! ever, and what others went on without is put aside; and it is noted how far that is, for the next start (see `identity`).
//! Where that cannot be known now (Redis is away, or another node gives back its part first) all that is remembered is left on
//! this machine's disk (see `redo`): its memory ends with the process, and nobody else knew.
//!
//! So also where the store stopped: Redis was emptied and nobody wrote it anew, or went back, or lost a part, or has another register.
//! Whoever brings its data back may bring an older copy. Where it went back, that is left which was not put aside, and what was noted
//! of it then stays. Not of a register that was moved: whoever moved it saw to that. Nor of one that this process wrote anew, which has
//! all of it; but how far it had been acknowledged is noted.

use std::time::Duration;

use super::failed::Failed;
use super::heal;
use super::late;
use super::link::Link;
use super::redo;
use super::shared::RedisShared;
use crate::store::{Seq, StoreError};

/// A stop has waited for Redis before this.
const LOOKS_WITHIN: Duration = Duration::from_secs(2);

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
                "it is not known whether Redis has all that this server acknowledged: the next start gives back what is missing"
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
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    late::review(shared, link).await
}
