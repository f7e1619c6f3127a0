//! What the holders and the admin ask next, drawn from what they may believe.

use rand::Rng;
use rand::rngs::SmallRng;

use super::{Ask, Clients, EXTRAS, Kind, Slot};
use crate::record::Holder;
use crate::world::World;

impl Clients {
    pub(super) fn asks(world: &mut World, at: usize) -> Vec<Ask> {
        let now_ns = world.stamp_ns();
        let node = world.clients.all[at].route.as_ref().map(|route| route.node);
        // An owner that does not know yet that it was replaced is mostly asked what it can answer without a write.
        let is_stale = node.is_some_and(|node| world.is_stale(node)) && world.draws.random_bool(0.8);
        if is_stale {
            world.hit("an owner of yesterday is asked");
        }
        let draws = &mut world.draws;
        let (client, bases) = (&world.clients.all[at], &world.clients.bases);
        let mut taken: Vec<usize> = Vec::new();
        let mut asks = Vec::new();
        for _ in 0..[1, 1, 1, 2, 3][draws.random_range(0..5)] {
            let one = draws.random_range(0..client.slots.len());
            let slot = &client.slots[one];
            let base = &bases[slot.base];
            let address = base.first + draws.random_range(0..base.size);
            let draw = draws.random_range(0..100);
            let ask = match (slot.kind, draw) {
                (Kind::Plain | Kind::Block(_), _) if is_stale && slot.dead.is_some() && slot.belief.is_absent() => {
                    Ask::Allocate(one)
                }
                _ if is_stale => Ask::Look { base: slot.base, address },
                (_, 0..6) => Ask::Look { base: slot.base, address },
                (_, 6..8) => Ask::List(slot.base),
                (_, 8..9) => Ask::Networks,
                (_, 9..12) if slot.dead.is_some() => Ask::ReleaseDead(one),
                (Kind::Pair(other), 12..70) => Ask::Acquire([one.min(other), one.max(other)]),
                (Kind::Plain, 12..22) => Ask::Claim { slot: one, address, replace: draw > 17 },
                (Kind::Plain, 22..34) if slot.belief.surely(now_ns).is_some() => {
                    let mut others = (0..client.slots.len()).filter(|other| {
                        let to = &client.slots[*other];
                        *other != one && to.base == slot.base && to.kind == Kind::Plain && to.belief.is_absent()
                    });
                    match others.next() {
                        Some(to) => Ask::Transfer { from: one, to },
                        None => Ask::Allocate(one),
                    }
                }
                (Kind::Lease(_), 12..40) if slot.belief.may_hold() => Ask::Renew(one),
                // Mostly the opposite of what may be the case; now and then a repetition.
                _ if slot.belief.may_hold() && draw < 75 => Ask::Release(one),
                (Kind::Pair(other), _) => Ask::Acquire([one.min(other), one.max(other)]),
                _ => Ask::Allocate(one),
            };
            let concerned = match &ask {
                Ask::Transfer { from, to } => vec![*from, *to],
                Ask::Acquire(pair) => pair.to_vec(),
                Ask::Look { .. } | Ask::List(_) | Ask::Networks => Vec::new(),
                _ => vec![one],
            };
            if concerned.iter().any(|slot| taken.contains(slot)) {
                continue;
            }
            taken.extend(concerned);
            asks.push(ask);
        }
        asks
    }

    pub(super) fn admin_asks(world: &mut World) -> Vec<Ask> {
        if let Some(base) = world.clients.bases.iter().position(|base| !base.made) {
            return vec![Ask::Make(base)];
        }
        let draws = &mut world.draws;
        let extra = draws.random_range(0..EXTRAS.len());
        let base = draws.random_range(0..world.clients.bases.len());
        let present = &world.clients.extras[extra];
        let sure = present.id.is_some() && !present.belief.absent && !present.belief.any;
        let ask = match draws.random_range(0..10) {
            0 => Ask::AddSubnet(base),
            1 => Ask::RemoveSubnet(base),
            2 => Ask::Networks,
            _ if present.renamed => Ask::Rename { extra, back: true },
            3 | 4 if sure => Ask::Rename { extra, back: false },
            5..=7 if present.id.is_some() => Ask::Delete(extra),
            _ => Ask::Create(extra),
        };
        vec![ask]
    }
}

pub(super) fn slots_of(client: usize, bases: usize, draws: &mut SmallRng) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut add = |base: usize, owner: &str, kind: Kind| {
        let holder =
            Holder { network: format!("net-{base}"), owner: format!("c{client}/{owner}"), slot: "0".to_owned() };
        slots.push(Slot::new(holder, base, kind));
    };
    for number in 0..3 {
        add(draws.random_range(0..bases), &format!("o{number}"), Kind::Plain);
    }
    add(draws.random_range(0..bases), "lease", Kind::Lease(draws.random_range(1..6)));
    add(draws.random_range(0..bases), "block", Kind::Block(draws.random_range(30..32)));
    add(0, "pair", Kind::Pair(6));
    add(1, "pair", Kind::Pair(5));
    slots
}
