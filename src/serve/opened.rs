//! Logs which register a node serves from now on, where it is, and how much it holds. A directory that is not mounted, or a
//! typo in its name, opens as well as the right one, and nothing else tells the two apart.
//!
//! Neighbour: `keeper`, which calls this at the beginning of each tenure.

use crate::actors::service::Shared;
use crate::core::plural::counted;
use crate::server::role::Role;

/// Logs it. `before`: the role of this node until now. Of a node that was followed the lease ran out, or it let go.
pub(super) fn say(register: &Shared, place: &str, before: &Role) {
    let holds = holds(register);
    let register = format!("{:032x}", register.info.register);
    let taken_from = if let Role::Follower { owner, .. } = before { Some(&**owner) } else { None };
    tracing::info!(place, register, holds, taken_from, "the register is open");
}

/// Number of networks, and of addresses in them that are held; those that are deleted but still hold something apart.
fn holds(register: &Shared) -> String {
    let (mut named, mut deleted) = ((0_u64, 0_u128), (0_u64, 0_u128));
    for route in register.routes.all() {
        let (networks, held) = if route.name.is_some() { &mut named } else { &mut deleted };
        *networks += 1;
        let figures = route.published.figures.load();
        let subnets = figures.iter().flat_map(|figures| &figures.subnets);
        *held = subnets.fold(*held, |held, subnet| held.saturating_add(subnet.counts.held));
    }
    let of = |(networks, held), what| format!("{}, {} held", counted(networks, what), counted(held, "address"));
    match deleted.0 {
        0 => of(named, "network"),
        _ => format!("{}; and {}", of(named, "network"), of(deleted, "deleted network")),
    }
}
