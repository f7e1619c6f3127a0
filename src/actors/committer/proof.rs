//! A group on its way to the store: what it writes, and at the same time the proof that this node still owns the shards for which
//! the group only has answers. Both begin together, so the proof began after every request that it stands for.

use std::sync::Arc;

use crate::store::{Batch, CommitError, Committed, Digest, Later, Seq, ShardId, Store, Token};

/// Begins both; the call is the place in the order of commits.
pub(super) fn send(
    store: &dyn Store,
    batches: Arc<[Batch]>,
    names: Vec<(ShardId, Token, Seq, Digest)>,
) -> Later<Result<Vec<Committed>, CommitError>> {
    if names.is_empty() {
        return store.commit(batches);
    }
    let proof = store.confirm(names);
    if batches.is_empty() {
        return Box::pin(async move { both(Ok(Vec::new()), proof.await) });
    }
    let commit = store.commit(batches);
    Box::pin(async move {
        let (committed, proved) = tokio::join!(commit, proof);
        both(committed, proved)
    })
}

/// What of a commit and of the proof beside it counts, when both have ended.
fn both<T>(committed: Result<T, CommitError>, proved: Result<(), CommitError>) -> Result<T, CommitError> {
    match (committed, proved) {
        (Ok(committed), Ok(())) => Ok(committed),
        // Something may have been written: it is not known to be the owner's last word.
        (Ok(_), Err(CommitError::NotApplied { cause })) => Err(CommitError::Unknown { cause }),
        (Ok(_), Err(error)) | (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Epoch, StoreError};

    #[test]
    fn a_commit_without_its_proof_is_unknown_and_never_not_applied() {
        let not_applied = || CommitError::NotApplied { cause: StoreError::Full };
        let fenced = || CommitError::Fenced { shard: ShardId(1), current: Epoch(2) };
        assert_eq!(both(Ok(7), Ok(())).ok(), Some(7));
        assert!(matches!(both(Ok(7), Err(not_applied())), Err(CommitError::Unknown { .. })));
        assert!(matches!(both(Ok(7), Err(fenced())), Err(CommitError::Fenced { .. })));
        assert!(matches!(both::<u8>(Err(not_applied()), Ok(())), Err(CommitError::NotApplied { .. })));
        assert!(matches!(both::<u8>(Err(not_applied()), Err(fenced())), Err(CommitError::NotApplied { .. })));
    }
}
