//! The last take-overs of a shard, as its head remembers them. They tell whether a batch is on the present line if the log
//! no longer has it.
//!
//! Pure. `take.lua` writes them; `heal` asks. A head has the take-overs of the line on which it stands: a failover that
//! forgets batches also forgets their take-overs.

use super::journal::Point;
use crate::store::{Epoch, Head, Seq, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PastTakeOver {
    /// The epoch that it began.
    epoch: Epoch,
    /// The token that it ended.
    parent: Token,
    /// The last batch under that token.
    seq: Seq,
}

/// Newest first. Some may be missing: those before the last sixteen, and those of releases that noted none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Takes(Vec<PastTakeOver>);

impl Takes {
    /// `EPOCH PARENT SEQ,…`
    pub(super) fn parse(text: &str) -> Option<Self> {
        let take = |text: &str| {
            let mut words = text.split(' ');
            let epoch = Epoch(words.next()?.parse().ok()?);
            let parent = Token(u128::from_str_radix(words.next()?, 16).ok()?);
            let seq = Seq(words.next()?.parse().ok()?);
            words.next().is_none().then_some(PastTakeOver { epoch, parent, seq })
        };
        text.split(',').filter(|text| !text.is_empty()).map(take).collect::<Option<_>>().map(Self)
    }

    /// Did one of them end the token of this batch at this batch or a later one?
    pub(super) fn lead_through(&self, batch: Point) -> bool {
        self.0.iter().any(|take| take.parent == batch.token && batch.seq <= take.seq)
    }

    pub(super) fn ended(&self) -> impl Iterator<Item = Token> {
        self.0.iter().map(|take| take.parent)
    }

    /// The token of an epoch on this line, if it is remembered.
    pub(super) fn token_in(&self, epoch: Epoch) -> Option<Token> {
        self.0.iter().find(|take| take.epoch.0 == epoch.0 + 1).map(|take| take.parent)
    }

    /// Does the line of this head go through a batch that was written in this epoch? None if this is not known.
    pub(super) fn have(&self, batch: Point, epoch: Epoch, head: &Head) -> Option<bool> {
        // The content of a batch never changes under its token.
        if head.token == batch.token {
            return Some(head.seq >= batch.seq);
        }
        if head.epoch <= epoch {
            return Some(false);
        }
        if let Some(take) = self.0.iter().find(|take| take.parent == batch.token) {
            return Some(take.seq >= batch.seq);
        }
        // Epochs rise by one, so on this line that epoch belonged to another token.
        self.token_in(epoch).map(|_| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Digest;

    fn have(takes: &str, head: (u64, u128, u64), batch: (u64, u128, u64)) -> Option<bool> {
        let head = Head { epoch: Epoch(head.0), token: Token(head.1), seq: Seq(head.2), ..Head::default() };
        let (epoch, token, seq) = (Epoch(batch.0), Token(batch.1), Seq(batch.2));
        Takes::parse(takes).unwrap().have(Point { token, seq, digest: Digest(0) }, epoch, &head)
    }

    #[test]
    fn a_batch_is_on_the_line_whose_next_take_over_found_it() {
        // Token a wrote 1 to 9 in epoch 1, b 10 to 20 in epoch 2, c 21 and on in epoch 3.
        let takes = "3 b 20,2 a 9,1 0 0";
        let head = (3, 0xc, 400);
        for (batch, there) in [
            ((3, 0xc, 400), true),
            ((3, 0xc, 401), false),
            ((2, 0xb, 20), true),
            ((2, 0xb, 10), true),
            ((2, 0xb, 21), false),
            ((1, 0xa, 9), true),
            ((1, 0xa, 10), false),
            // Owners that held these epochs on a line that was cut off.
            ((2, 0xd, 15), false),
            ((1, 0xd, 5), false),
            ((3, 0xd, 30), false),
            ((4, 0xd, 30), false),
        ] {
            assert_eq!(have(takes, head, batch), Some(there), "{batch:?}");
        }
    }

    #[test]
    fn what_is_older_than_what_is_kept_is_not_known_nor_what_another_release_did() {
        let head = (5, 0xe, 400);
        assert_eq!(have("", head, (4, 0xd, 40)), None);
        assert_eq!(have("", head, (5, 0xe, 40)), Some(true));
        // Epoch 4 was begun by a release that noted nothing, so it is unknown who held epoch 3 until then.
        let takes = "5 d 40,3 b 20";
        assert_eq!(have(takes, head, (4, 0xd, 40)), Some(true));
        assert_eq!(have(takes, head, (3, 0xc, 30)), None);
        assert_eq!(have(takes, head, (2, 0xb, 21)), Some(false));
        assert_eq!(have(takes, head, (1, 0xa, 5)), None);
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["5", "5 d", "x d 40", "5 x 40", "5 d 40 1", "5 d 40;4 c 3"] {
            assert_eq!(Takes::parse(text), None, "{text}");
        }
    }
}
