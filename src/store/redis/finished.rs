//! A register that is served says again that it is unfinished: Redis went back to before the last word of the move that brought it
//! there, or of whoever wrote it anew. What was changed since is played again (see `heal`), and so that word must be, too: the next
//! start would be refused, and a move that is begun again would remove what is served.
//!
//! Only by who has every shard under a token of its own. Nobody takes a shard to serve it while the register is unfinished, so it
//! was finished when these were taken, and what they stand on is whole.

use super::heal;
use super::link::Link;
use super::moving;
use super::shared::RedisShared;
use crate::store::moving::{LastOf, MoveNotice};
use crate::store::{ShardId, StoreError};

/// How often it is said where the shards stand, while batches are on their way to them on another connection.
const TRIES: u32 = 3;

/// Says it, where the register has this notice.
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

/// Where all shards stand, if each stands under a token of this process; and what the register says now.
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
