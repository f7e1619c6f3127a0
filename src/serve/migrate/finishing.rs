//! Ends a move that broke off when the source was closed and the target not yet finished: is the target's content whole, and
//! is nothing else there?
//!
//! A target that says that it is unfinished may have been served all the same. *A register is moved to Redis and served;
//! Redis goes back to a state before the move was finished, and no node is left that would mark it as finished again. If
//! this were taken for a register that was never served, the source would be opened again and the target removed, and
//! whatever was granted since would be granted again.* So this looks whether anything was written after the copy. If the
//! copy is whole, it and what follows it are the register, and it is finished; if it is not, nothing is touched.
//!
//! Called by `migrate`.

use super::presence::{alone, leave, take_all};
use super::{CannotMove, MovedRegister, PATIENCE, last_of, post, post_whole};
use crate::actors::clock::Clock;
use crate::store::history::Stretch;
use crate::store::moving::{EPOCH_OF_FILLING, LastOf, Movable, MoveNotice, fingerprint};
use crate::store::{Digest, Head, Seq, ShardId, StoreError};

/// Bytes of history that are read at once.
const LOOKED_BYTES: usize = 1 << 20;

/// Finishes a target that was whole when the source was closed. Returns none if the target is not as it was then and never
/// was served: then the source is opened again, and has to be moved anew.
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
                    "{} was served after the register was moved there, and has since gone back to a state before the move was \
                     complete; nothing was changed, because what was granted there is recorded nowhere else",
                    target.place()
                );
                return Err(CannotMove::WentOn(text));
            }
            // The target is unfinished, and nobody wrote to it: the source is still the only register.
            post(source, None, Vec::new()).await?;
            return Ok(None);
        }
        // Posted again: it may have reached only the primary.
        post(source, notice, Vec::new()).await?;
        post_whole(target, ends, (PATIENCE, None)).await?;
        Ok(Some(MovedRegister { tally: None, register, generation }))
    };
    let finished = finished.await;
    leave(target).await;
    finished
}

/// How far the copy extends in a target.
struct Copied {
    /// The last batch of the copy in each shard; none if the history does not reach back that far.
    ends: Option<Vec<LastOf>>,
    /// Something was written after the copy.
    went_on: bool,
}

impl Copied {
    /// The copy is all that is there.
    fn all(ends: &[LastOf]) -> Self {
        Self { ends: Some(ends.to_vec()), went_on: false }
    }
}

/// Finds the end of the copy in the history of the target.
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
