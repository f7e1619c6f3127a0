//! May an address be claimed by name? Checks what stands in the way, in the protocol's order of precedence.

use super::draft::{Draft, held_by};
use super::holdings::covered;
use super::left::{fate_of, in_use};
use super::lifecycle::is_promised_to_nobody;
use super::{Network, Standing};
use crate::core::address::{Address, Range};
use crate::core::command::Wish;
use crate::core::forms;
use crate::core::plural::counted;
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, NetworkKind, PoolKind, Reservation};
use crate::core::types::SlotKey;
use crate::core::unusable;

impl Network {
    /// Could this address be claimed if it were free and not reserved?
    ///
    /// # Errors
    /// In the order of a claim: `wrong_kind`, `out_of_range`, `in_use`.
    pub(super) fn claimable_here(&self, address: Address, wish: &Wish) -> Result<(), Refusal> {
        self.takes_claims()?;
        self.claimable_place(Range::single(address), address)?;
        self.claim_admitted(address, None, wish)?;
        self.is_open()
    }

    /// Does the network take claims at all?
    pub(super) fn takes_claims(&self) -> Result<(), Refusal> {
        if self.config.kind == NetworkKind::Dynamic {
            let problem = format!(
                "network `{}` is dynamic: the infrastructure picks its addresses; ask for none by name, and record what it picked \
                 with ip.bind, by `address` and `owner` together",
                self.config.name
            );
            return Err(Refusal::WrongKind { problem, address: None });
        }
        Ok(())
    }

    /// Refuses if the network is deleted.
    ///
    /// # Errors
    /// `in_use`, with what to do.
    pub(super) fn is_open(&self) -> Result<(), Refusal> {
        if self.config.closed {
            let (name, id, held) = (&self.config.name, self.config.id, self.holdings.held());
            let remembered = || {
                format!(
                    "network `{name}` ({id}) is deleted and only remembered until its {held} reservations are released; \
                     network.restore brings it back"
                )
            };
            let problem = self.is_ending().unwrap_or_else(remembered);
            let Standing { count, first } = self.all_standing();
            return Err(Refusal::Guarded { problem, count, first });
        }
        Ok(())
    }

    /// Why nothing may be changed in a network that is purged: what it still holds is being released, and then the network ends.
    pub(super) fn is_ending(&self) -> Option<String> {
        let config = self.config.as_ref();
        config.purged.then(|| {
            format!(
                "network `{}` ({}) is deleted for good, and what it still holds is being released: {}; its name is free, so ask \
                 for another network, or create one",
                config.name,
                config.id,
                counted(self.holdings.held(), "reservation")
            )
        })
    }

    /// Checks the members beside a named address. Returns the index of the subnet that is named there.
    pub(super) fn claim_filters(&self, address: Address, wish: &Wish) -> Result<Option<usize>, Refusal> {
        forms::beside(address, wish)?;
        wish.subnet.as_ref().map(|wanted| self.subnet_index(wanted)).transpose()
    }

    /// Does a named address lie in the subnet, and serve the zone, that the request names?
    pub(super) fn claim_admitted(&self, address: Address, wanted: Option<usize>, wish: &Wish) -> Result<(), Refusal> {
        let Some(subnet) = self.layout.subnet_of(address) else { return Ok(()) };
        let config = &self.subnets[subnet];
        let problem = if wanted.is_some_and(|wanted| wanted != subnet) {
            format!(
                "{address} does not lie in the `subnet` that the request names but in {}; leave out one of the two",
                config.cidr
            )
        } else if let Some(zone) = wish.zone.as_ref().filter(|zone| !config.serves(zone)) {
            format!(
                "subnet {} of {address} does not serve zone `{zone}`; name an address of one that does",
                config.cidr
            )
        } else {
            return Ok(());
        };
        Err(Refusal::OutOfRange { problem, address: Some(address) })
    }

    /// Checks the place of a claim: static pools, subnets, and pools for blocks.
    pub(super) fn claimable_place(&self, block: Range, address: Address) -> Result<(), Refusal> {
        let subnet = self.layout.subnet_of(address).filter(|&index| self.subnets[index].cidr.range().covers(block));
        let pool = self.layout.pool_of(address).filter(|&index| self.layout.pools[index].range.covers(block));
        if self.config.static_only && pool.is_none_or(|index| self.pool_config(index).kind != PoolKind::Static) {
            let problem = format!(
                "network `{}` takes claims in its static pools only, and {address} lies in none; network.get shows them",
                self.config.name
            );
            return Err(Refusal::WrongKind { problem, address: Some(address) });
        }
        let problem = if subnet.is_none() {
            format!("{address} lies in no subnet of network `{}`; network.get shows them", self.config.name)
        } else if block.size() > 1 && pool.is_none() {
            format!(
                "block {block} does not lie wholly inside one pool of network `{}`; network.get shows them",
                self.config.name
            )
        } else {
            return Ok(());
        };
        Err(Refusal::OutOfRange { problem, address: Some(address) })
    }

    /// The refusal if the requested range is held, or overlaps what is held at this address.
    pub(super) fn held_there(&self, asked: Range, address: Address, held: &Reservation) -> Refusal {
        let there = covered(address, held.prefix_length);
        if there == asked {
            return in_use(&self.config.name, address, held);
        }
        let (network, by) = (self.config.name.clone(), Box::new(held_by(held)));
        let (asked, there, holder) = (asked.as_typed(), there.as_typed(), &by.holder);
        let fate = fate_of(held).map_or_else(String::new, |fate| format!(", {fate}"));
        let problem = format!(
            "{asked} overlaps {there} of network `{network}`, which is held by {holder}{fate}; ask for another address, or have \
             that one released"
        );
        Refusal::Taken { problem, network: Some(network), address: Some(address), held_by: Some(by), used_in: None }
    }

    /// The refusal if the owner that asks already holds the range, or a part of it, in another slot: nobody else has to let go.
    fn held_in_another_slot(&self, asked: &SlotKey, address: Address, held: &Reservation) -> Refusal {
        let (network, by) = (self.config.name.clone(), Box::new(held_by(held)));
        let (there, SlotKey { owner, slot, .. }, its) =
            (covered(address, held.prefix_length), asked, &held.holder.slot);
        let problem = format!(
            "{} of network `{network}` is held by `{owner}` itself, in slot `{its}`, and is asked for in slot `{slot}`; name slot \
             `{its}` for it, move it with ip.transfer, or release it first",
            there.as_typed()
        );
        Refusal::Taken { problem, network: Some(network), address: Some(address), held_by: Some(by), used_in: None }
    }

    /// Refuses a block of which another owner or slot holds or was promised any address, or of which another member of the
    /// same request has taken any.
    pub(super) fn in_the_way(
        &self,
        draft: &Draft<'_>,
        holder: &SlotKey,
        block: Range,
        is_free: bool,
    ) -> Result<(), Refusal> {
        for (address, entry) in (!is_free).then(|| self.holdings.overlapping(block)).into_iter().flatten() {
            let Entry::Held(held) = entry else { continue };
            // What this very request releases counts as held until it is committed.
            if held.holder == *holder && held.promise().is_some_and(|promise| !draft.ends(held, promise)) {
                is_promised_to_nobody(address, held)?;
            }
            if held.holder != *holder || held.obsolete.is_some() {
                let (there, asked) = (&held.holder, holder);
                let is_own = there.owner == asked.owner && there.scope == asked.scope && held.obsolete.is_none();
                return Err(match is_own {
                    true => self.held_in_another_slot(asked, address, held),
                    false => self.held_there(block, address, held),
                });
            }
        }
        match draft.taken(block) {
            None => Ok(()),
            Some(range) => Err(Refusal::Taken {
                problem: format!("{} is requested twice in this request; name each address once", range.first()),
                network: None,
                address: Some(range.first()),
                held_by: None,
                used_in: None,
            }),
        }
    }

    /// Refuses reserved, unusable, draining or declined addresses. `is_free`: there is no entry.
    pub(super) fn claimable_address(
        &self,
        block: Range,
        holder: &SlotKey,
        force: Option<bool>,
        is_free: bool,
    ) -> Result<(), Refusal> {
        let first = block.first();
        let Some(index) = self.layout.subnet_of(first) else { return Ok(()) };
        let subnet = &self.subnets[index];
        if self.layout.subnets[index].has_unusable(block) {
            return Err(Refusal::Reserved { address: first, why: self.why_unusable(index, block) });
        }
        let draining = self.layout.pools_over(block).map(|pool| self.pool_config(pool)).find(|pool| pool.draining);
        if subnet.draining || draining.is_some() {
            let what = draining
                .map_or_else(|| format!("subnet {}", subnet.cidr), |pool| format!("pool {}", pool.range.as_typed()));
            return Err(Refusal::Reserved {
                address: first,
                why: format!("in {what}, which is draining: nothing new is granted there, whatever the flags"),
            });
        }
        let instead = match force {
            Some(true) => return Ok(()),
            Some(false) => "use `force`",
            // A method without that member must not suggest it.
            None => "name another address",
        };
        if let Some(reserved) = subnet.reserved_over(block).iter().find(|reserved| !reserved.is_for(holder)) {
            let note = if reserved.note.is_empty() { String::new() } else { format!(" ({})", reserved.note) };
            let whose = reserved.reserved_for.as_ref().map_or_else(String::new, |whose| {
                let slot = whose.slot.as_ref().map_or_else(String::new, |slot| format!(" (slot `{slot}`)"));
                format!(", kept for `{}`{slot}", whose.owner)
            });
            // In a block, this need not be the first address.
            let address = first.max(reserved.range.first());
            let of_block =
                if block.size() == 1 { String::new() } else { format!(", and in block {}", block.as_typed()) };
            let why = format!(
                "inside the reserved range {}{note}{whose}{of_block}; {instead}, or remove the range with reserved.remove",
                reserved.range.as_typed()
            );
            return Err(Refusal::Reserved { address, why });
        }
        if !is_free
            && let Some((address, Entry::Declined(_))) =
                self.holdings.overlapping(block).find(|(_, entry)| matches!(entry, Entry::Declined(_)))
        {
            return Err(Refusal::Reserved {
                address,
                why: format!("declined: somebody else answers at it; {instead}, or wait until its probation ends"),
            });
        }
        Ok(())
    }

    /// Why an address is never granted, as a fragment.
    fn why_unusable(&self, subnet: usize, block: Range) -> String {
        let subnet = &self.subnets[subnet];
        if let Some(gateway) = subnet.gateway.filter(|gateway| block.contains(*gateway)) {
            return if block.size() == 1 {
                format!("the gateway of subnet {}, which is never handed out; ask for another address", subnet.cidr)
            } else {
                format!(
                    "the first address of a block that contains {gateway}, the gateway of subnet {}; ask for another block",
                    subnet.cidr
                )
            };
        }
        let edge = unusable::edges(subnet.cidr).find(|(edge, _)| block.contains(*edge));
        let part = edge.map_or_else(
            || "an address that no network can have".to_owned(),
            |(_, edge)| format!("the {edge} address of subnet {}", subnet.cidr),
        );
        if block.size() == 1 {
            format!("{part}, which is never handed out; ask for another address")
        } else {
            format!(
                "the first address of a block that contains {part}, which is never handed out; ask for another block"
            )
        }
    }
}
