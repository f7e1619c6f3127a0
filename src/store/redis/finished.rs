//! Removes the notice of a register that is served, once more. Redis went back to before the last step of the move that
//! brought the register there, or of writing it anew: the step that removed the notice. What was changed since is
//! replayed (see `heal`), and so must that step be. Otherwise the next start would be refused, and a new attempt to move
//! would remove the register.
//!
//! Only a process that has every shard under a token of its own does this. Nobody takes a shard to serve it while the
//! register is unfinished. So the register was complete when this process took the shards.

use super::heal;
use super::link::Link;
use super::moving;
use super::shared::RedisShared;
use crate::store::moving::{LastOf, MoveNotice};
use crate::store::{ShardId, StoreError};

/// How often this is tried while batches on another connection still move the shards.
const TRIES: u32 = 3;

/// Removes the notice, if the register has this one.
pub(super) async fn say(
    shared: &RedisShared,
    link: &mut Link,
    mut notice: Option<MoveNotice>,
) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        if notice.is_none() || !shared.serves() {
            return Ok(());
        }
        let Some(ends) = ends(shared, link, &mut notice).await? else { return Ok(()) };
        match moving::say(shared, link, None, &ends).await {
            Ok(()) => {
                tracing::warn!(
                    redis = %shared.place,
                    "Redis went back to before the register was finished; what was changed since is there again, and so is that"
                );
                shared.heals(0);
                return Ok(());
            }
            Err(StoreError::Fenced { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(heal::behind(shared))
}

/// Where all shards stand, if each stands under a token of this process; and updates the notice to what the register says now.
async fn ends(
    shared: &RedisShared,
    link: &mut Link,
    notice: &mut Option<MoveNotice>,
) -> Result<Option<Vec<LastOf>>, StoreError> {
    let all = (0..shared.info.shards).map(ShardId).collect();
    let found = heal::read(shared, link, all).await?;
    *notice = found.notice;
    let lines = shared.lines();
    let end = |(shard, head)| {
        let head = Option::filter(head, |head| {
            lines.iter().any(|line| line.shard == shard && heal::is_own(shared, line, head))
        })?;
        Some((shard, head.token, head.seq, head.digest))
    };
    Ok(found.heads.into_iter().map(end).collect())
}
