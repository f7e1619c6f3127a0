//! A place in the history of several shards: what a client hands back to continue from there.
//!
//! A *whole* cursor has a place in every shard: where it names none, that is the beginning. Any other cursor is of one shard.

use serde::{Deserialize, Serialize};

use crate::core::types::Place;
use crate::store::{Batch, Digest, Head, Seq, ShardId};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Whether it is of all shards.
    pub whole: bool,
    /// At most one for each shard, ascending; a whole cursor has none for shards where it is at the beginning.
    places: Vec<Place>,
}

impl Cursor {
    /// A cursor of these places, of different shards.
    pub fn new(whole: bool, places: impl IntoIterator<Item = Place>) -> Self {
        let mut cursor = Self { whole, places: Vec::new() };
        places.into_iter().for_each(|place| cursor.advance(place));
        cursor
    }

    /// Its place in a shard.
    pub fn place(&self, shard: ShardId) -> Place {
        let at = self.places.binary_search_by_key(&shard.0, |place| place.shard);
        at.map_or_else(|_| beginning(shard), |at| self.places[at])
    }

    /// Its places.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Moves to a place of one shard.
    pub fn advance(&mut self, place: Place) {
        match self.places.binary_search_by_key(&place.shard, |place| place.shard) {
            Ok(at) if place.seq == 0 && self.whole => drop(self.places.remove(at)),
            Ok(at) => self.places[at] = place,
            Err(_) if place.seq == 0 && self.whole => {}
            Err(at) => self.places.insert(at, place),
        }
    }

    /// Did retention pass the cursor? `common` is the last place of its line that still exists: if so, that place is further
    /// on in some shard, where the kept history begins, and nowhere further back.
    pub fn is_passed_by(&self, common: &Self) -> bool {
        let shards = || self.places.iter().chain(&common.places).map(|place| ShardId(place.shard));
        let further = |shard| common.place(shard).seq > self.place(shard).seq;
        shards().any(further) && shards().all(|shard| further(shard) || common.place(shard) == self.place(shard))
    }

    /// The part of the cursor that is of one shard, if it has one.
    pub fn of_shard(&self, shard: ShardId) -> Option<Self> {
        let of_it = self.whole || self.places.iter().any(|place| place.shard == shard.0);
        of_it.then(|| Self::new(false, [self.place(shard)]))
    }
}

/// The place before everything in a shard.
pub fn beginning(shard: ShardId) -> Place {
    Place { shard: shard.0, ..Place::default() }
}

/// The place after everything in a shard.
pub fn end_of(shard: ShardId, head: &Head) -> Place {
    Place { shard: shard.0, epoch: head.epoch.0, seq: head.seq.0, steps: None, digest: head.digest.0 }
}

/// The place after a batch.
pub fn behind(batch: &Batch, digest: Digest) -> Place {
    Place { shard: batch.shard.0, epoch: batch.epoch.0, seq: batch.seq.0, steps: None, digest: digest.0 }
}

/// The last batch of which nothing remains to be reported after a place.
pub(super) fn told(place: &Place) -> Seq {
    if place.steps.is_none() { Seq(place.seq) } else { Seq(place.seq.saturating_sub(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(shard: u16, seq: u64) -> Place {
        Place { shard, epoch: 1, seq, steps: None, digest: u128::from(seq) }
    }

    #[test]
    fn a_shard_without_a_place_stands_at_its_beginning() {
        let mut cursor = Cursor::new(true, [place(4, 2), place(1, 7), place(3, 0)]);
        assert_eq!(cursor.places(), [place(1, 7), place(4, 2)]);
        assert_eq!(cursor.place(ShardId(3)), beginning(ShardId(3)));
        cursor.advance(place(4, 3));
        assert_eq!(cursor.place(ShardId(4)), place(4, 3));
        cursor.advance(beginning(ShardId(4)));
        assert_eq!(cursor.places(), [place(1, 7)]);
    }

    #[test]
    fn what_is_kept_has_passed_a_cursor_where_it_begins_behind_it_and_its_line_goes_on() {
        let cursor = Cursor::new(true, [place(1, 7), place(4, 2)]);
        let common = |places: [Place; 2]| Cursor::new(true, places);
        assert!(cursor.is_passed_by(&common([place(1, 9), place(4, 2)])));
        assert!(cursor.is_passed_by(&common([place(1, 9), place(4, 3)])));
        assert!(Cursor::new(true, []).is_passed_by(&cursor), "it stands at the beginning");
        assert!(!cursor.is_passed_by(&cursor));
        assert!(!cursor.is_passed_by(&common([place(1, 6), place(4, 2)])));
        assert!(!cursor.is_passed_by(&common([place(1, 6), place(4, 9)])), "its line was cut off in one of them");
        assert!(!cursor.is_passed_by(&common([place(1, 9), Place { epoch: 2, ..place(4, 2) }])));
    }

    #[test]
    fn a_cursor_of_one_shard_says_nothing_of_others() {
        let whole = Cursor::new(true, [place(1, 7)]);
        assert_eq!(whole.of_shard(ShardId(2)), Some(Cursor::new(false, [beginning(ShardId(2))])));
        let one = whole.of_shard(ShardId(1)).unwrap();
        assert_eq!(one, Cursor::new(false, [place(1, 7)]));
        assert_eq!(one.of_shard(ShardId(1)), Some(one.clone()));
        assert_eq!(one.of_shard(ShardId(2)), None);
    }
}
