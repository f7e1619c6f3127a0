//! Chooses which refusal is answered when several parts of one request are refused: the first in the protocol's order, then
//! by place.

use crate::core::deployment::DeployWish;
use crate::core::refusal::Refusal;

/// The first refusal so far, with its precedence and place.
#[derive(Default)]
pub(super) struct FirstRefused {
    first: Option<(u8, usize, Refusal)>,
}

impl FirstRefused {
    /// Notes the refusal of a part. `as_told` is called only if it is the first one.
    pub(super) fn note(&mut self, place: usize, refusal: Refusal, as_told: impl FnOnce(Refusal) -> Refusal) {
        let rank = (refusal.precedence(), place);
        if self.first.as_ref().is_none_or(|(precedence, place, _)| rank < (*precedence, *place)) {
            self.first = Some((rank.0, rank.1, as_told(refusal)));
        }
    }

    /// Has something been refused that takes precedence over a lack of room at this place?
    pub(super) fn before_want_of_room(&self, place: usize) -> bool {
        self.first.as_ref().is_some_and(|(rank, at, _)| (*rank, *at) < (Refusal::OF_NO_CAPACITY, place))
    }

    /// Has something been refused whose precedence is the same as that of this refusal, or higher?
    pub(super) fn not_behind(&self, refusal: &Refusal) -> bool {
        self.first.as_ref().is_some_and(|(precedence, ..)| *precedence <= refusal.precedence())
    }

    /// The first refusal, with its place.
    pub(super) fn end(self) -> Option<(usize, Refusal)> {
        self.first.map(|(_, place, refusal)| (place, refusal))
    }
}

/// The refusals of a deployment's wishes.
#[derive(Default)]
pub(super) struct WishRefusals(FirstRefused);

impl WishRefusals {
    pub(super) fn note<T>(&mut self, wish: &DeployWish, result: Result<T, Refusal>) -> Option<T> {
        let of_instance = |refusal| Refusal::OfInstance { instance: wish.owner.clone(), refusal: Box::new(refusal) };
        result.map_err(|refusal| self.0.note(wish.place, refusal, of_instance)).ok()
    }

    /// See [`FirstRefused::before_want_of_room`].
    pub(super) fn before_want_of_room(&self, place: usize) -> bool {
        self.0.before_want_of_room(place)
    }

    pub(super) fn end(self) -> Result<(), Refusal> {
        self.0.end().map_or(Ok(()), |(_, refusal)| Err(refusal))
    }
}
