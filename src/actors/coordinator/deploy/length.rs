//! Estimates, from above, how long an answer about a whole deployment becomes. The estimate is made before anything is
//! changed, so that nothing is done whose answer would not fit.
//!
//! Before: `deploy` and `record`. Review notes: does a new member of a reservation fit into [`ANSWERED_RESERVATION_BYTES`]? Does
//! `core::network::deploy` refuse nothing that this would not?

use std::sync::Arc;

use crate::core::deployment::too_long_to_tell;
use crate::core::outcome::{Outcome, View};
use crate::core::refusal::Refusal;
use crate::core::state::{NetworkConfig, SubnetConfig};
use crate::limits::{ANSWERED_RESERVATION_BYTES, WHOLE_ANSWER_BYTES_MAX};

/// Length of everything in a wish but its reservation and texts.
const WISH: usize = 256;
/// Length of an address or a text in a list, with what surrounds it.
const LISTED: usize = 48;

/// The sum so far.
#[derive(Default)]
pub(super) struct AnswerLength {
    bytes: usize,
    /// The length of the network and the subnet of the last one: most are the same.
    place: Option<(Arc<NetworkConfig>, Option<Arc<SubnetConfig>>, usize)>,
}

/// Length of a text with its quotes, counting what is written for each of its characters.
fn text(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 | 0x7f => 6,
        _ => 1,
    };
    8 + text.bytes().map(escaped).sum::<usize>()
}

fn optional(value: Option<&str>) -> usize {
    value.map_or(0, text)
}

impl AnswerLength {
    /// Adds one more reservation.
    pub(super) fn add(&mut self, view: &View) {
        let held = &view.reservation;
        let holder = &held.holder;
        let details = held.details.as_ref().map_or(0, |details| {
            let labels = details.labels.iter().map(|(key, value)| text(key) + text(value)).sum::<usize>();
            let uid = details.owner_uid.as_ref().map(|uid| uid.as_str());
            labels + text(&details.note) + text(&details.hostname) + optional(uid)
        });
        let names = text(holder.scope.as_str()) + text(holder.owner.as_str()) + text(holder.slot.as_str());
        let claimant = optional(held.claimant.as_ref().map(|claimant| claimant.as_str()));
        self.bytes += ANSWERED_RESERVATION_BYTES + self.of_place(view) + names + claimant + details;
    }

    fn of_place(&mut self, view: &View) -> usize {
        if let Some((network, subnet, bytes)) = &self.place
            && Arc::ptr_eq(network, &view.network)
            && subnet.as_ref().map(Arc::as_ptr) == view.subnet.as_ref().map(Arc::as_ptr)
        {
            return *bytes;
        }
        let l2 = &view.network.l2;
        let texts = [&l2.mode, &l2.link, &l2.mac_prefix];
        let of_network = text(view.network.name.as_str())
            + texts.into_iter().map(|member| optional(member.as_deref())).sum::<usize>();
        let of_subnet = view.subnet.as_ref().map_or(0, |subnet| {
            let search = subnet.dns.search.iter().map(|domain| text(domain)).sum::<usize>();
            let names = subnet.pools.iter().map(|pool| optional(pool.name.as_ref().map(|name| name.as_str())));
            search + LISTED * subnet.dns.servers.len() + names.max().unwrap_or_default()
        });
        let bytes = of_network + of_subnet;
        self.place = Some((Arc::clone(&view.network), view.subnet.clone(), bytes));
        bytes
    }

    /// Is the answer short enough?
    pub(super) fn fits(&self) -> bool {
        self.bytes <= WHOLE_ANSWER_BYTES_MAX
    }
}

/// Does what networks decided about a plan fit into an answer?
///
/// # Errors
/// `invalid_argument`, saying what to do.
pub(super) fn can_be_told<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Result<(), Refusal> {
    let (mut length, mut let_go) = (AnswerLength::default(), 0usize);
    for outcome in outcomes {
        let Outcome::Deployed { slots, obsolete, .. } = outcome else { continue };
        length.bytes += WISH * slots.len();
        let_go += obsolete.len();
        slots.iter().filter_map(|slot| slot.view.as_ref()).chain(obsolete).for_each(|view| length.add(view));
    }
    if length.fits() {
        return Ok(());
    }
    Err(too_long_to_tell(length.bytes, let_go))
}

/// The refusal of a deployment that holds more than one answer can list.
pub(super) fn too_much_held() -> Refusal {
    let problem = format!(
        "may hold more than the {WHOLE_ANSWER_BYTES_MAX} bytes of an answer tell of; ip.list with this `scope` shows it page by page"
    );
    Refusal::invalid("deployment", problem)
}
