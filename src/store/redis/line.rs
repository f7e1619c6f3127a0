//! What this process knows of a shard's line: digests of the last batches that it sent, and what somebody was told of it.
//!
//! The head is Redis's; here is only what a script cannot compute (the digest of a batch follows from the one before, which
//! may still be under way) and what tells that Redis went back.
//!
//! **Told** is what was answered: a commit that was acknowledged, or a proof under which answers left. A take-over alone tells
//! nobody anything. But what another owner left is taken for told to somebody, once the take-over counts (as many replicas
//! have it as are wanted): who knows what that owner said.
//!
//! A line that went on elsewhere, without anything that was told on this one, is *cut*: the tenure is over for it, and the
//! shard is taken anew from where it stands (see `heal`).

use std::collections::VecDeque;

use super::journal::Point;
use super::shared::KnownLine;
use super::takes::Takes;
use crate::store::codec::Format;
use crate::store::{Batch, Digest, Epoch, Head, Seq, ShardId, Token, fence};

/// Batches whose digests are remembered. More than can be under way and sent again.
const REMEMBERED_BATCHES_MAX: usize = 64;

/// One shard.
#[derive(Debug, Clone)]
pub(super) struct RedisLine {
    epoch: Epoch,
    token: Token,
    /// Digest of the line up to a batch, ascending and dense; the first is the head that was taken, or older.
    known: VecDeque<(Seq, Digest)>,
    /// The last that somebody was told of, and the take-over under which it stood.
    told: (Point, Epoch),
    /// What another owner left, while its take-over does not count.
    left: Option<Point>,
    /// The token under which it is owned in the present tenure.
    owned: Option<Token>,
    /// The token of the tenure that was cut off.
    cut: Option<Token>,
    /// Whose line, as another one's, has everything that somebody was told of.
    reviewed: Option<Token>,
    /// What was found when the journal was asked of a head last.
    found: Option<Found>,
    /// In which records are written in the present tenure.
    format: Format,
    /// The last take-overs, as its head had them when it was taken.
    takes: String,
    /// What a process before this one acknowledged may be given up where nobody knows it: an operator says so, or somebody went on
    /// without it.
    given_up: bool,
}

/// What the journal said of a head of a shard that this process does not own. It stays so, whatever the journal forgets since:
/// whoever takes shard after shard need not go through it each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// This token is none of this process's.
    Others(Token),
    /// This process's own line leads through this head and this other point, which somebody was told of.
    OwnWay(Point, Point),
}

/// What a batch is sent with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lineage {
    /// Digest before it; none if it does not follow anything that was sent.
    pub(super) parent: Option<Digest>,
    /// Digest with it.
    pub(super) digest: Digest,
    /// What somebody was told of when it was sent: Redis must have at least that.
    pub(super) told: Seq,
    /// The take-over that was known when it was sent: Redis must have at least that.
    pub(super) epoch: Epoch,
}

impl RedisLine {
    /// A shard that was not taken yet.
    pub(super) fn new() -> Self {
        let (epoch, token, known) = (Epoch(0), Token(0), VecDeque::new());
        Self {
            epoch,
            token,
            known,
            told: (Point::NOWHERE, epoch),
            left: None,
            owned: None,
            cut: None,
            reviewed: None,
            found: None,
            format: Format::FIRST,
            takes: String::new(),
            given_up: false,
        }
    }

    /// A process before this one brought it here, told somebody of it, and ended: as if this one had, and had let go. Until it is
    /// taken, it may be `given_up` where nobody knows what of it is missing.
    pub(super) fn restore(&mut self, stands: Point, epoch: Epoch, given_up: bool) {
        (self.epoch, self.token, self.told) = (epoch, stands.token, (stands, epoch));
        self.given_up = given_up;
        self.known = VecDeque::from([(stands.seq, stands.digest)]);
    }

    /// Follows a take-over. Tells if the shard is behind what somebody was told of: Redis went back.
    pub(super) fn take(&mut self, head: &Head) -> Result<(), Seq> {
        let told = self.told.0.seq;
        if head.seq < told {
            return Err(told);
        }
        if self.token != head.token {
            let left = Point { token: head.parent, ..Point::of(head) };
            // What this process itself did last, told or not, is not another owner's.
            let own = head.parent == self.token && self.epoch > Epoch(0);
            self.left = if own { self.left } else { Some(left) };
            (self.epoch, self.token) = (head.epoch, head.token);
            self.known = VecDeque::from([(head.seq, head.digest)]);
        }
        (self.owned, self.cut, self.reviewed, self.found) = (Some(self.token), None, None, None);
        (self.format, self.given_up) = (head.format, false);
        Ok(())
    }

    /// What the head remembered of take-overs when it was taken.
    pub(super) fn remember(&mut self, takes: String) {
        self.takes = takes;
    }

    /// The same.
    pub(super) fn takes(&self) -> &str {
        &self.takes
    }

    /// The same, to be asked of; none where they cannot be read.
    pub(super) fn past(&self) -> Takes {
        Takes::parse(&self.takes).unwrap_or_default()
    }

    /// In which batches are written under the take-over that was seen last.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// The take-over under this token counts: what it found is to stay.
    pub(super) fn counts(&mut self, token: Token) {
        if token == self.token
            && let Some(left) = self.left.take()
        {
            // Whoever left it stood under the take-over before at most.
            self.told = (left, Epoch(self.epoch.0.saturating_sub(1)));
        }
    }

    /// The digests of a batch that is about to be sent, in the order of sending.
    pub(super) fn link(&mut self, batch: &Batch, bytes: &[u8]) -> Lineage {
        let Self { told: (Point { seq: told, .. }, _), epoch, .. } = *self;
        let unlinked = Lineage { parent: None, digest: Digest(0), told, epoch };
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
        Lineage { parent: Some(parent), digest, told, epoch }
    }

    /// Somebody is told that this stands. May he be? Not of a line that was cut off meanwhile.
    pub(super) fn tells(&mut self, stands: Point) -> bool {
        if stands.token == self.token && self.cut != Some(stands.token) {
            let told = self.told.0;
            if told.token != stands.token || told.seq < stands.seq {
                (self.told, self.left, self.reviewed) = ((stands, self.epoch), None, None);
            }
        }
        self.cut != Some(stands.token)
    }

    /// It goes on from here, without what this process sent last, of which nobody was told: the tenure is over.
    pub(super) fn cut(&mut self, head: &Head) {
        self.cut = self.cut.or(Some(self.token));
        (self.epoch, self.token, self.left, self.found) = (head.epoch, head.token, None, None);
        // Nothing that is still to be sent follows it.
        self.known.clear();
        // Whoever asks under the token of the tenure is refused.
        self.owned = self.owned.map(|_| Token(0));
    }

    /// Another owner's goes on from further back than somebody was told: the tenure is over.
    pub(super) fn part(&mut self, head: &Head) {
        let token = self.token;
        self.cut(head);
        // What was told is still looked for on that line (see `late`).
        self.token = token;
    }

    /// What this process sent behind that, and did not hear of, is on the line of who owns it now: he may have told somebody.
    pub(super) fn learns(&mut self, point: Point, epoch: Epoch) {
        if self.told.0.seq < point.seq {
            self.told = (point, epoch);
        }
    }

    /// The line of the owner of this token has everything that somebody was told of.
    pub(super) fn review(&mut self, token: Token) {
        self.reviewed = Some(token);
    }

    /// What the journal said when it was asked.
    pub(super) fn finds(&mut self, found: Found) {
        self.found = Some(found);
    }

    /// The line of this head has not, but for what leads to a point of an epoch, and that was put aside: nobody need look for it
    /// there any more.
    pub(super) fn forget(&mut self, head: &Head, stays: (Point, Epoch)) {
        (self.told, self.left, self.reviewed) = (stays, None, Some(head.token));
    }

    /// The token under which the shard is owned, if it is; one that nobody has if it was cut off.
    pub(super) fn mine(&mut self) -> Option<Token> {
        self.owned
    }

    /// The tenure is over. What was told in it is still remembered. The token under which its lease can be ended: all of them
    /// end together or none, so one that was cut off, which nobody has, must not be named among them.
    pub(super) fn let_go(&mut self) -> Option<Token> {
        self.owned.take().filter(|token| *token != Token(0))
    }

    /// What is known of it.
    pub(super) fn known(&self, shard: ShardId) -> KnownLine {
        let &Self { epoch, token, told: (told, told_epoch), owned, cut, reviewed, found, given_up, .. } = self;
        KnownLine { shard, epoch, token, told, told_epoch, owned: owned.is_some(), cut, reviewed, found, given_up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(epoch: u64, token: u128, parent: u128, seq: u64) -> Head {
        let digest = Digest(u128::from(seq) * 7);
        Head {
            epoch: Epoch(epoch),
            token: Token(token),
            parent: Token(parent),
            seq: Seq(seq),
            digest,
            ..Head::default()
        }
    }

    fn told(line: &RedisLine) -> (u128, u64, u64) {
        let KnownLine { told, told_epoch, .. } = line.known(ShardId(0));
        (told.token.0, told.seq.0, told_epoch.0)
    }

    #[test]
    fn a_take_over_alone_tells_nobody_and_what_another_owner_left_is_told_when_it_counts() {
        let mut line = RedisLine::new();
        line.take(&head(3, 2, 1, 5)).unwrap();
        assert_eq!(told(&line), (0, 0, 0), "it may be lost again");
        line.counts(Token(9));
        assert_eq!(told(&line), (0, 0, 0), "another one counts");
        line.counts(Token(2));
        assert_eq!(told(&line), (1, 5, 2));
        // An own one: what is found there was this process's, and nobody was told of it.
        line.take(&head(4, 3, 2, 6)).unwrap();
        line.counts(Token(3));
        assert_eq!(told(&line), (1, 5, 2));
        assert!(line.tells(Point::of(&head(4, 3, 2, 6))));
        assert_eq!(told(&line), (3, 6, 4));
        // What is told late of a tenure before is no news.
        assert!(line.tells(Point::of(&head(3, 2, 1, 9))));
        assert_eq!(told(&line), (3, 6, 4));
        assert_eq!(line.take(&head(5, 4, 3, 5)), Err(Seq(6)));
    }

    #[test]
    fn what_was_cut_off_is_owned_by_nobody_tells_nothing_and_links_nothing() {
        let mut line = RedisLine::new();
        line.take(&head(3, 2, 1, 5)).unwrap();
        line.counts(Token(2));
        let batch = Batch {
            shard: ShardId(0),
            epoch: Epoch(3),
            token: Token(2),
            seq: Seq(7),
            time: crate::core::types::ShardTime(0),
            generation: crate::core::types::Generation(0),
            acts: Vec::new(),
        };
        // Also where it goes on under the very token: a take-over of which only one of two servers knew when.
        for token in [1, 2] {
            let mut line = line.clone();
            line.cut(&head(2, token, 1, 6));
            assert_eq!((line.mine(), told(&line)), (Some(Token(0)), (1, 5, 2)));
            assert!(line.link(&batch, b"bytes").parent.is_none());
            assert!(!line.tells(Point::of(&head(3, 2, 1, 6))));
            assert_eq!((line.let_go(), line.mine()), (None, None));
            line.take(&head(3, 5, token, 6)).unwrap();
            assert_eq!((line.mine(), told(&line)), (Some(Token(5)), (1, 5, 2)));
            assert!(line.tells(Point::of(&head(3, 5, token, 6))));
        }
    }
}
