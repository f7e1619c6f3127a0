//! What this process knows of a shard's line: digests of the last batches that it sent, and how far they were acknowledged.
//!
//! The head is Redis's; here is only what a script cannot compute (the digest of a batch follows from the one before, which
//! may still be under way) and what tells that Redis went back.

use std::collections::VecDeque;

use super::shared::Known;
use crate::store::{Batch, Digest, Epoch, Head, Seq, ShardId, Token, fence};

/// Batches whose digests are remembered. More than can be under way and sent again.
const REMEMBERED_BATCHES_MAX: usize = 64;

/// One shard.
#[derive(Debug, Clone)]
pub(super) struct Line {
    epoch: Epoch,
    token: Token,
    /// Digest of the line up to a batch, ascending and dense; the first is the head that was taken, or older.
    known: VecDeque<(Seq, Digest)>,
    acknowledged: Seq,
    /// It was taken in the present tenure.
    owned: bool,
}

/// What a batch is sent with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Digest before it; none if it does not follow anything that was sent.
    pub(super) parent: Option<Digest>,
    /// Digest with it.
    pub(super) digest: Digest,
    /// What was acknowledged when it was sent: Redis must have at least that.
    pub(super) acknowledged: Seq,
    /// The take-over that was known when it was sent: Redis must have at least that.
    pub(super) epoch: Epoch,
}

impl Line {
    /// A shard that was not taken yet.
    pub(super) fn new() -> Self {
        Self { epoch: Epoch(0), token: Token(0), known: VecDeque::new(), acknowledged: Seq(0), owned: false }
    }

    /// Follows a take-over. Tells if the shard is behind what it was: Redis went back.
    pub(super) fn take(&mut self, head: &Head) -> Result<(), Seq> {
        if head.seq < self.acknowledged || head.epoch < self.epoch {
            return Err(self.acknowledged);
        }
        if self.token != head.token {
            *self = Self {
                epoch: head.epoch,
                token: head.token,
                known: VecDeque::from([(head.seq, head.digest)]),
                acknowledged: head.seq,
                owned: true,
            };
        }
        self.owned = true;
        Ok(())
    }

    /// The digests of a batch that is about to be sent, in the order of sending.
    pub(super) fn link(&mut self, batch: &Batch, bytes: &[u8]) -> Link {
        let Self { acknowledged, epoch, .. } = *self;
        let unlinked = Link { parent: None, digest: Digest(0), acknowledged, epoch };
        if batch.token != self.token {
            return unlinked;
        }
        let Some(before) = batch.seq.0.checked_sub(1) else { return unlinked };
        let Some(&(_, parent)) = self.known.iter().find(|(seq, _)| seq.0 == before) else { return unlinked };
        let digest = fence::digest(parent, bytes);
        let again = self.known.iter().any(|known| *known == (batch.seq, digest));
        if !again {
            // What was behind it under the same numbers was refused, or will be.
            self.known.retain(|(seq, _)| *seq < batch.seq);
            if self.known.len() == REMEMBERED_BATCHES_MAX {
                self.known.pop_front();
            }
            self.known.push_back((batch.seq, digest));
        }
        Link { parent: Some(parent), digest, acknowledged, epoch }
    }

    /// A batch was acknowledged.
    pub(super) fn acknowledge(&mut self, token: Token, seq: Seq) {
        if token == self.token {
            self.acknowledged = self.acknowledged.max(seq);
        }
    }

    /// The token under which the shard is owned, if it is.
    pub(super) fn mine(&mut self) -> Option<Token> {
        self.owned.then_some(self.token)
    }

    /// The tenure is over. What was acknowledged in it is still remembered.
    pub(super) fn let_go(&mut self) -> Option<Token> {
        let mine = self.mine();
        self.owned = false;
        mine
    }

    /// The last batch that was acknowledged, if its digest is still remembered.
    pub(super) fn acknowledged_digest(&self) -> Option<(Seq, Digest)> {
        self.known.iter().find(|(seq, _)| *seq == self.acknowledged).copied()
    }

    /// What is known of it.
    pub(super) fn known(&self, shard: ShardId) -> Known {
        let &Self { epoch, token, acknowledged, owned, .. } = self;
        Known { shard, epoch, token, acknowledged, owned }
    }
}
