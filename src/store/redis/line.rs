//! What this process knows of a shard's line: the digests of the last batches that it sent, and what clients were told of
//! the line.
//!
//! The head itself is in Redis. Here is only what a script cannot compute (the digest of a batch follows from the one
//! before, which may still be under way), and what shows that Redis went back.
//!
//! **Told** is what was answered: a commit that was acknowledged, or a proof on the strength of which answers left. A
//! take-over alone tells nobody anything. But what another owner left counts as told once the take-over counts, which is
//! when as many replicas have it as are wanted: nobody knows what that owner said.
//!
//! A line that went on elsewhere and lacks nothing that was told is *cut*: its tenure is over, and the shard is taken over
//! again from where it stands (see `heal`).

use std::collections::VecDeque;

use super::journal::Point;
use super::shared::KnownLine;
use super::takes::Takes;
use crate::store::codec::Format;
use crate::store::{Batch, Digest, Epoch, Head, Seq, ShardId, Token, fence};

/// How many batches' digests are remembered. More than can be under way and sent again.
const REMEMBERED_BATCHES_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct RedisLine {
    epoch: Epoch,
    token: Token,
    /// Digests of the line up to recent batches, ascending and dense; the first is at the head that was taken, or earlier.
    known: VecDeque<(Seq, Digest)>,
    /// The last point that clients were told of, and the epoch under which it stood.
    told: (Point, Epoch),
    /// The point that another owner left, as long as the take-over does not count yet.
    left: Option<Point>,
    /// The token under which the shard is owned in the present tenure.
    owned: Option<Token>,
    /// The token of the tenure that was cut off.
    cut: Option<Token>,
    /// The token of another owner whose line was found to have everything that clients were told of.
    reviewed: Option<Token>,
    /// What the journal said of a head when it was asked last.
    found: Option<Found>,
    /// The format in which records are written in the present tenure.
    format: Format,
    /// The last take-overs, as the head had them when the shard was taken.
    takes: String,
    /// If nobody knows what of the acknowledgements of an earlier process is missing, it may be given up: an operator said
    /// so, or another node went on without it.
    given_up: bool,
}

/// What the journal said of a head of a shard that this process does not own. The answer stays true, whatever the journal
/// forgets later, so a process that takes one shard after another need not search the journal each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// This token is not one of this process's.
    Others(Token),
    /// This process's own line leads through this head and this other point, which clients were told of.
    OwnWay(Point, Point),
}

/// The digests with which a batch is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lineage {
    /// The digest before it; none if it does not follow anything that was sent.
    pub(super) parent: Option<Digest>,
    /// The digest after it.
    pub(super) digest: Digest,
    /// What clients had been told of when it was sent: Redis must have at least that.
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

    /// An earlier process brought the shard here, told a client so, and ended. The line is then as if this process had done
    /// that and released the shard. Until the shard is taken, it may be `given_up` if nobody knows what of it is missing.
    pub(super) fn restore(&mut self, stands: Point, epoch: Epoch, given_up: bool) {
        (self.epoch, self.token, self.told) = (epoch, stands.token, (stands, epoch));
        self.given_up = given_up;
        self.known = VecDeque::from([(stands.seq, stands.digest)]);
    }

    /// Follows a take-over. An error means that the shard is behind what clients were told of: Redis went back.
    pub(super) fn take(&mut self, head: &Head) -> Result<(), Seq> {
        let told = self.told.0.seq;
        if head.seq < told {
            return Err(told);
        }
        if self.token != head.token {
            let left = Point { token: head.parent, ..Point::of(head) };
            // What a tenure of this process left is not another owner's, whether clients were told of all of it or not.
            let own = head.parent == self.token && self.epoch > Epoch(0);
            self.left = if own { self.left } else { Some(left) };
            (self.epoch, self.token) = (head.epoch, head.token);
            self.known = VecDeque::from([(head.seq, head.digest)]);
        }
        (self.owned, self.cut, self.reviewed, self.found) = (Some(self.token), None, None, None);
        (self.format, self.given_up) = (head.format, false);
        Ok(())
    }

    /// Sets what the head remembered of take-overs when the shard was taken.
    pub(super) fn remember(&mut self, takes: String) {
        self.takes = takes;
    }

    pub(super) fn takes(&self) -> &str {
        &self.takes
    }

    /// The same, parsed; empty if it cannot be read.
    pub(super) fn past(&self) -> Takes {
        Takes::parse(&self.takes).unwrap_or_default()
    }

    /// The format in which batches are written under the last take-over that was seen.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// The take-over under this token counts: what it found must stay.
    pub(super) fn counts(&mut self, token: Token) {
        if token == self.token
            && let Some(left) = self.left.take()
        {
            // Its epoch is at most the one before this take-over.
            self.told = (left, Epoch(self.epoch.0.saturating_sub(1)));
        }
    }

    /// The digests of a batch that is about to be sent. Called in the order of sending.
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
            // Batches that were sent before under this number or a later one were refused, or will be.
            self.known.retain(|(seq, _)| *seq < batch.seq);
            if self.known.len() == REMEMBERED_BATCHES_MAX {
                self.known.pop_front();
            }
            self.known.push_back((batch.seq, digest));
        }
        Lineage { parent: Some(parent), digest, told, epoch }
    }

    /// A client is about to be told that this stands. Is this allowed? Not for a line that was cut off meanwhile.
    pub(super) fn tells(&mut self, stands: Point) -> bool {
        if stands.token == self.token && self.cut != Some(stands.token) {
            let told = self.told.0;
            if told.token != stands.token || told.seq < stands.seq {
                (self.told, self.left, self.reviewed) = ((stands, self.epoch), None, None);
            }
        }
        self.cut != Some(stands.token)
    }

    /// The shard goes on from here without what this process sent last, of which no client was told: the tenure is over.
    pub(super) fn cut(&mut self, head: &Head) {
        self.cut = self.cut.or(Some(self.token));
        (self.epoch, self.token, self.left, self.found) = (head.epoch, head.token, None, None);
        // Nothing that is still to be sent follows this.
        self.known.clear();
        // Callers under the token of that tenure are refused.
        self.owned = self.owned.map(|_| Token(0));
    }

    /// The shard goes on without part of what this process did, under another owner or on a fork: the tenure is over.
    pub(super) fn part(&mut self, head: &Head) {
        let token = self.token;
        self.cut(head);
        // What was told is still looked for on that line (see `late`).
        self.token = token;
    }

    /// The present owner's line has what this process sent after that and got no answer to. That owner may have told a client.
    pub(super) fn learns(&mut self, point: Point, epoch: Epoch) {
        if self.told.0.seq < point.seq {
            self.told = (point, epoch);
        }
    }

    /// The line of the owner of this token has everything that clients were told of.
    pub(super) fn review(&mut self, token: Token) {
        self.reviewed = Some(token);
    }

    /// Remembers what the journal said when it was asked.
    pub(super) fn finds(&mut self, found: Found) {
        self.found = Some(found);
    }

    /// The line of this head lacks what was told, except for what leads to this point and epoch. The rest was put aside, and
    /// need not be looked for there any more.
    pub(super) fn forget(&mut self, head: &Head, stays: (Point, Epoch)) {
        (self.told, self.left, self.reviewed) = (stays, None, Some(head.token));
        // A late answer of a tenure that is over would tell what nobody looks for on that line any more.
        self.cut = self.cut.or_else(|| self.owned.is_none().then_some(self.token));
    }

    /// The token under which the shard is owned, if it is; after a cut, one that nobody has.
    pub(super) fn mine(&mut self) -> Option<Token> {
        self.owned
    }

    /// The tenure is over; what was told in it is still remembered. Returns the token under which the lease can be ended.
    /// All leases are ended together or not at all, so a shard that was cut off must not be among them: nobody has its token.
    pub(super) fn let_go(&mut self) -> Option<Token> {
        self.owned.take().filter(|token| *token != Token(0))
    }

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
        // A process's own take-over: what it finds was this process's, and no client was told of it.
        line.take(&head(4, 3, 2, 6)).unwrap();
        line.counts(Token(3));
        assert_eq!(told(&line), (1, 5, 2));
        assert!(line.tells(Point::of(&head(4, 3, 2, 6))));
        assert_eq!(told(&line), (3, 6, 4));
        // A late answer of an earlier tenure changes nothing.
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
        // Also if the line goes on under the very same token: only one of two servers knew when the take-over came.
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
    /// Nobody else's line has it, and the way to it is not remembered any more: the store would stop for what is settled.
    #[test]
    fn what_is_answered_late_after_the_rest_was_put_aside_is_told_nobody() {
        let mut line = RedisLine::new();
        line.take(&head(3, 2, 1, 4)).unwrap();
        assert!(line.tells(Point::of(&head(3, 2, 1, 5))));
        line.let_go();
        line.forget(&head(4, 9, 1, 3), (Point::of(&head(2, 1, 0, 3)), Epoch(2)));
        assert!(!line.tells(Point::of(&head(3, 2, 1, 6))));
        assert_eq!(told(&line), (1, 3, 2));
        line.take(&head(5, 7, 9, 4)).unwrap();
        assert!(line.tells(Point::of(&head(5, 7, 9, 5))));
    }
}
