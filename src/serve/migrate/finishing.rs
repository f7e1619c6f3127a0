//! The end of a move that was broken off when the source was closed and the target not yet finished: is what is there whole, and is
//! it all that there is?
//!
//! A target that says that it is unfinished may have been served all the same. *A register is moved to Redis and served; Redis goes
//! back to before the move was finished, and nobody lives who would say it again. Whoever takes it for what was never served opens the
//! source once more and removes it: what was granted since is granted again.* So it is looked whether anything was written behind the
//! copy. Where the copy is whole, what stands behind it is the register, and it is finished; where it is not, nothing is touched.
//!
//! Called by `migrate`.

use super::presence::{alone, leave, take_all};
use super::{CannotMove, MovedRegister, PATIENCE, last_of, post, post_whole};
use crate::actors::clock::Clock;
use crate::store::history::Stretch;
use crate::store::moving::{EPOCH_OF_FILLING, LastOf, Movable, MoveNotice, fingerprint};
use crate::store::{Digest, Head, Seq, ShardId, StoreError};

/// Bytes of history that are looked through at once.
const LOOKED_BYTES: usize = 1 << 20;

/// Finishes a target that was whole when the source was closed. None where it is not as it was then, and never was served: the
/// source is opened again, and is to be moved anew.
pub(super) async fn finish(
    source: &dyn Movable,
    target: &dyn Movable,
    clock: &dyn Clock,
) -> Result<Option<MovedRegister>, CannotMove> {
    let notice = source.notice();
    let Some(MoveNotice::Moved { register, fingerprint: whole, .. }) = notice else { return Ok(None) };
    alone(target).await?;
    let finished = async {
        let heads = take_all(target, clock).await?;
        let ends: Vec<LastOf> = heads.iter().map(last_of).collect();
        let generation = heads.iter().map(|(_, head)| head.generation).max().unwrap_or_default();
        let is_whole = |ends: &[LastOf]| fingerprint(ends) == whole && target.info().register == register;
        let Copied { ends: copied, went_on } =
            if is_whole(&ends) { Copied::all(&ends) } else { copied(target, &heads).await? };
        if !copied.is_some_and(|copied| is_whole(&copied)) {
            if went_on {
                let text = format!(
                    "{} was served after the register was moved there, and went back since to before all of it was there; \
                     nothing was changed, for what was granted there is nowhere else",
                    target.place()
                );
                return Err(CannotMove::WentOn(text));
            }
            // It is unfinished, and nobody wrote to it: the source is still the only register.
            post(source, None, Vec::new()).await?;
            return Ok(None);
        }
        // Once more: it may be closed at its primary only.
        post(source, notice, Vec::new()).await?;
        post_whole(target, ends, (PATIENCE, None)).await?;
        Ok(Some(MovedRegister { tally: None, register, generation }))
    };
    let finished = finished.await;
    leave(target).await;
    finished
}

/// How far the copy goes in a target.
struct Copied {
    /// Where it ends in each shard; none where the history does not reach back there.
    ends: Option<Vec<LastOf>>,
    /// Something was written behind it.
    went_on: bool,
}

impl Copied {
    /// It is all that is there.
    fn all(ends: &[LastOf]) -> Self {
        Self { ends: Some(ends.to_vec()), went_on: false }
    }
}

/// Reads it from the history of the target.
async fn copied(target: &dyn Movable, heads: &[(ShardId, Head)]) -> Result<Copied, StoreError> {
    let mut copied = Copied { ends: Some(Vec::new()), went_on: false };
    for (shard, head) in heads {
        let (mut end, mut stands) = (Some((Seq(0), Digest(0))), Seq(0));
        'line: while stands < head.seq {
            let stretch = Stretch { shard: *shard, after: stands, until: head.seq };
            let recorded = target.recorded(vec![stretch], LOOKED_BYTES).await?;
            let Some(last) = recorded.last() else { break };
            for batch in &recorded {
                let is_next = batch.seq.0 == stands.0 + 1;
                if batch.decode()?.epoch > EPOCH_OF_FILLING {
                    copied.went_on = true;
                    end = end.filter(|_| is_next);
                    break 'line;
                }
                end = batch.digest.map(|digest| (batch.seq, digest));
                stands = batch.seq;
            }
            stands = last.seq;
        }
        let end = end.map(|(seq, digest)| (*shard, head.token, seq, digest));
        copied.ends = copied.ends.take().zip(end).map(|(mut ends, end)| {
            ends.push(end);
            ends
        });
    }
    Ok(copied)
}
