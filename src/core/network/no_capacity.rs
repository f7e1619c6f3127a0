//! Why there is no room for a wish: what takes the space, pool by pool, or why no pool could ever serve it.

use super::Network;
use super::draft::Draft;
use super::pick::YIELDED_PIECES_MAX;
use super::selection::Selection;
use crate::core::address::{Address, Range};
use crate::core::command::{PoolRef, Wish};
use crate::core::outcome::Counts;
use crate::core::refusal::{NoCapacity, Refusal};
use crate::core::state::{NetworkKind, PoolKind};
use crate::core::types::{ShardTime, WallTime};

/// How many entries of each kind are searched for the first whose end makes room.
const DUE_LOOKED_AT_MAX: usize = 1_000;
/// How many pools a refusal for lack of room lists. The sums are over all pools.
const REFUSAL_POOLS_MAX: usize = 256;

/// The dynamic pools that a wish may draw from.
#[derive(Default)]
struct Offered {
    pools: usize,
    /// How many of them drain, and therefore give nothing.
    draining: usize,
    /// Is one of them large enough for the block? For a single address, any pool is.
    holds_block: bool,
}

/// When the first entry of a kind makes room.
#[derive(Debug, Clone, Copy)]
enum Due {
    At(ShardTime),
    /// As many entries as are looked at make none, and the others end no earlier.
    NotBefore(ShardTime),
    Never,
}

impl Due {
    fn map(self, later: impl Fn(ShardTime) -> ShardTime) -> Self {
        match self {
            Due::At(at) => Due::At(later(at)),
            Due::NotBefore(at) => Due::NotBefore(later(at)),
            Due::Never => Due::Never,
        }
    }
}

/// When the first of these entries, by their time, makes room.
fn due_of(entries: impl Iterator<Item = (ShardTime, Address)>, comes_back: impl Fn(Address) -> bool) -> Due {
    for (looked_at, (at, address)) in entries.enumerate() {
        if looked_at == DUE_LOOKED_AT_MAX {
            return Due::NotBefore(at);
        }
        if comes_back(address) {
            return Due::At(at);
        }
    }
    Due::Never
}

/// The earliest time; none if it is not certain that no entry ends before.
fn first_of(due: [Due; 3]) -> Option<ShardTime> {
    let at = due.iter().filter_map(|due| if let Due::At(at) = due { Some(*at) } else { None }).min()?;
    let is_first = |due: &Due| if let Due::NotBefore(other) = due { at <= *other } else { true };
    due.iter().all(is_first).then_some(at)
}

impl Network {
    /// Why there is no room, pool by pool. Cost: O(pools, and what the draft granted). So among the many lacks of one
    /// request, only the one that is answered is worked out.
    pub(super) fn no_capacity(&self, draft: &Draft<'_>, wish: &Wish, selection: &Selection) -> Refusal {
        let plain = NoCapacity::plain(self.config.name.clone());
        if draft.room_is_untold {
            return Refusal::NotEnoughCapacity(Box::new(plain));
        }
        let mut sum = Counts::default();
        let (mut pools, mut offered) = (Vec::new(), Offered::default());
        let sets = selection.sets_of(self);
        for index in self.layout.all().intersection(sets) {
            if self.pool_config(index).kind == PoolKind::Dynamic {
                sum += self.layout.pools[index].counts;
                offered.pools += 1;
                offered.draining += usize::from(self.layout.pools[index].draining);
                offered.holds_block |=
                    wish.prefix_length.is_none_or(|it| holds_block(self.pool_config(index).range, it));
                if offered.pools <= REFUSAL_POOLS_MAX {
                    pools.push(self.pool_usage(index));
                }
            }
        }
        let here = |range: &Range| self.layout.pool_of(range.first()).is_some_and(|pool| self.draws_from(pool, sets));
        let granted = draft.taken_so_far().filter(here).count();
        let in_pieces = self.has_yielding_block(draft, selection);
        let narrowed_by = self.narrowed_by(wish, selection, &offered, (granted, in_pieces));
        let comes_back = |address: Address| {
            self.layout.pool_of(address).is_some_and(|pool| {
                self.draws_from(pool, sets) && self.layout.pools[pool].is_unblocked(Range::single(address))
            })
        };
        let cooled = |released_at: ShardTime| released_at.after_seconds(self.config.cooldown_seconds);
        let due = [
            due_of(self.holdings.cooling().map(|(released_at, address)| (cooled(released_at), address)), comes_back),
            due_of(self.holdings.declined(), comes_back),
            // An address cools after its lease, unless it yields during that time.
            due_of(self.holdings.leases(), comes_back)
                .map(|ends| if self.config.cooldown_yields { ends } else { cooled(ends) }),
        ];
        let next = first_of(due).map(|at| {
            let wait = at.0.saturating_sub(draft.context.now.0);
            (WallTime(draft.context.wall.0 + wait), at)
        });
        Refusal::NotEnoughCapacity(Box::new(NoCapacity {
            size: sum.size,
            held: sum.held,
            obsolete: sum.obsolete,
            reserved: sum.reserved,
            cooling: sum.cooling,
            declined: sum.declined,
            next_free_at: next,
            pools,
            narrowed_by,
            is_of_blocks: wish.prefix_length.is_some(),
            no_pool_fits: !offered.holds_block,
            ..plain
        }))
    }

    fn narrowed_by(
        &self,
        wish: &Wish,
        selection: &Selection,
        offered: &Offered,
        (granted, in_pieces): (usize, bool),
    ) -> Option<String> {
        let pools = offered.pools;
        let mut parts = Vec::new();
        if let Some(family) = wish.family {
            parts.push(family.to_string());
        }
        if let Some(zone) = &wish.zone {
            parts.push(format!("zone `{zone}`"));
        }
        if let Some(length) = wish.prefix_length {
            parts.push(format!("a /{length} block"));
        }
        match &wish.pool {
            Some(PoolRef::Named(name)) => parts.push(format!("pool `{name}`")),
            Some(PoolRef::Range(range)) => parts.push(format!("pool {range}")),
            None => {}
        }
        if granted > 0 {
            // The counts cover only what others hold.
            parts.push(format!("besides {granted} that this request also asks for"));
        }
        match offered.draining {
            0 => {}
            all if all == pools => parts.push("draining: it grants nothing until `draining` is false".to_owned()),
            some => parts.push(format!("{some} of {pools} pools are draining")),
        }
        if in_pieces {
            parts.push(format!(
                "of which the cooling ones lie in more than {YIELDED_PIECES_MAX} ranges each, and one grant clears at most that \
                 many: ask for a smaller block, or again later (`next_free_at`, if it is told)"
            ));
        }
        if pools > 0 && !offered.holds_block {
            parts.push("which no pool has room for, whatever is free".to_owned());
        }
        if pools > REFUSAL_POOLS_MAX {
            parts.push(format!("only {REFUSAL_POOLS_MAX} of {pools} pools are shown"));
        }
        if pools == 0 {
            parts.extend(selection.subnet.map(|index| format!("subnet {}", self.subnets[index].cidr)));
            let why = self.why_no_pool_fits(selection, parts.is_empty());
            let narrowed = if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(", ")) };
            return Some(narrowed + why);
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Why no pool can ever serve a wish, whatever is free, and what to do. `any`: nothing narrows the wish.
    fn why_no_pool_fits(&self, selection: &Selection, any: bool) -> &'static str {
        let is_static = |index: usize| self.pool_config(index).kind == PoolKind::Static;
        let named = selection.pool.as_ref().filter(|_| !selection.pool_missing);
        if self.config.kind == NetworkKind::Dynamic {
            "the infrastructure picks its addresses; record what it picked with ip.bind, by `address` and `owner` together"
        } else if self.subnets.is_empty() {
            "it has no subnet; add one"
        } else if named.is_some() && self.layout.all().intersection([named, None, None, None]).all(is_static) {
            "it is static, so its addresses are only given by name; ask for one with ip.claim, or name another pool"
        } else if any {
            "it has no dynamic pool; add one, or ask for an address by name with ip.claim"
        } else {
            "no dynamic pool meets all of these conditions; leave one out, or add a pool"
        }
    }
}

/// Does the range contain an aligned block of this length?
fn holds_block(range: Range, length: u8) -> bool {
    // The length exceeds the family's width, so there is no such block.
    let Some(host_bits) = range.family().width().checked_sub(length) else { return false };
    // The block of all IPv6 addresses has more of them than a number can hold, so the question is left open.
    let Some(last_of_block) = 1u128.checked_shl(host_bits.into()).map(|size| size - 1) else { return true };
    let first = range.first().bits();
    let Some(begins) = first.checked_add(last_of_block).map(|up| up & !last_of_block) else { return false };
    begins.checked_add(last_of_block).is_some_and(|last| last <= range.last().bits())
}
