//! Of the refusals of the parts of one request the one that is answered: the first in the protocol's order, then by place.

use crate::core::deployment::DeployWish;
use crate::core::refusal::Refusal;

/// The first so far, with its precedence and its place.
#[derive(Default)]
pub(super) struct FirstRefused {
    first: Option<(u8, usize, Refusal)>,
}

impl FirstRefused {
    /// Notes the refusal of a part; `as_told` is asked for only where it is the first.
    pub(super) fn note(&mut self, place: usize, refusal: Refusal, as_told: impl FnOnce(Refusal) -> Refusal) {
        let rank = (refusal.precedence(), place);
        if self.first.as_ref().is_none_or(|(precedence, place, _)| rank < (*precedence, *place)) {
            self.first = Some((rank.0, rank.1, as_told(refusal)));
        }
    }

    /// Is something refused already that is told before a want of room at this place?
    pub(super) fn before_want_of_room(&self, place: usize) -> bool {
        self.first.as_ref().is_some_and(|(rank, at, _)| (*rank, *at) < (Refusal::OF_NO_CAPACITY, place))
    }

    /// Is something refused already that is told before this, or beside it?
    pub(super) fn not_behind(&self, refusal: &Refusal) -> bool {
        self.first.as_ref().is_some_and(|(precedence, ..)| *precedence <= refusal.precedence())
    }

    /// The place and what is told of it.
    pub(super) fn end(self) -> Option<(usize, Refusal)> {
        self.first.map(|(_, place, refusal)| (place, refusal))
    }
}

/// Refusals of the wishes of a deployment.
#[derive(Default)]
pub(super) struct WishRefusals(FirstRefused);

impl WishRefusals {
    pub(super) fn note<T>(&mut self, wish: &DeployWish, result: Result<T, Refusal>) -> Option<T> {
        let of_instance = |refusal| Refusal::OfInstance { instance: wish.owner.clone(), refusal: Box::new(refusal) };
        result.map_err(|refusal| self.0.note(wish.place, refusal, of_instance)).ok()
    }

    /// As [`FirstRefused::before_want_of_room`].
    pub(super) fn before_want_of_room(&self, place: usize) -> bool {
        self.0.before_want_of_room(place)
    }

    pub(super) fn end(self) -> Result<(), Refusal> {
        self.0.end().map_or(Ok(()), |(_, refusal)| Err(refusal))
    }
}
