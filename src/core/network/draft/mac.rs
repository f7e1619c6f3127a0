//! Which MAC a draft gives: the one that was asked for, or a new one, provided that no other reservation of the realm has it.
//!
//! Before: `granting` and `lifecycle`. About other networks, only what the context says is known (`Context::mac_elsewhere`), and
//! for an acquire also which of the MACs that it was decided with before are used there (`GrantOptions::macs_elsewhere`).

use super::{Draft, held_by};
use crate::core::address::Address;
use crate::core::command::MacWish;
use crate::core::forms;
use crate::core::network::Network;
use crate::core::outcome::Grant;
use crate::core::refusal::Refusal;
use crate::core::types::Mac;

/// How many MACs are tried one after the other if all random draws are in use.
const SEARCHED_MAX: u64 = 1 << 16;

impl Network {
    /// The prefix of the MACs that are made in this network. `field` is the member that asks for one.
    ///
    /// # Errors
    /// `invalid_argument` if there is no prefix, or if no interface can have a MAC under it.
    pub(in crate::core::network) fn mac_prefix(&self, field: &str) -> Result<(&str, Mac), Refusal> {
        let prefix = self.config.l2.mac_prefix.as_deref().unwrap_or_default();
        let Ok(base) = format!("{prefix}:00:00:00").parse::<Mac>() else {
            return Err(Refusal::invalid(
                field,
                "cannot be \"auto\" in a network without `l2.mac_prefix`; set it with network.update",
            ));
        };
        if let Err(Refusal::InvalidArgument { problem, .. }) = forms::mac_prefix(prefix, "") {
            // It was stored before such prefixes were refused.
            let problem =
                format!("cannot be \"auto\" here: `l2.mac_prefix` of the network {problem}, with network.update");
            return Err(Refusal::invalid(field, problem));
        }
        Ok((prefix, base))
    }

    /// The result of a grant that asks for this MAC. If no MAC can be made here, that takes precedence over any refusal that
    /// stands in the way. A repeated request makes no MAC and is not refused for that.
    #[inline]
    pub(in crate::core::network) fn or_no_mac(
        &self,
        wish: Option<MacWish>,
        granted: Result<Grant, Refusal>,
    ) -> Result<Grant, Refusal> {
        match (wish, granted) {
            (Some(MacWish::Auto), Err(refusal)) if refusal.precedence() > 0 => self.mac_prefix("mac").and(Err(refusal)),
            (_, granted) => granted,
        }
    }
}

impl Draft<'_> {
    /// None of these is made for what the request asks for.
    pub(in crate::core::network) fn makes_none_of(&mut self, macs: &[Mac]) {
        if !macs.is_empty() {
            self.ledger().macs.extend(macs);
        }
    }

    /// The MAC for a wish. `own` is an address that may already have it.
    ///
    /// # Errors
    /// `already_in_use` if another reservation has it; `invalid_argument` if one is to be made and there is no prefix.
    pub(in crate::core::network) fn mac_for(
        &self,
        wish: Option<MacWish>,
        own: Option<Address>,
    ) -> Result<Option<Mac>, Refusal> {
        let taken = |mac: Mac| {
            let here = self.ledger.as_ref().is_some_and(|ledger| ledger.macs.contains(&mac));
            let there = self
                .network
                .holdings
                .mac(mac)
                .filter(|(address, _)| Some(*address) != own && !self.has_let_go(*address));
            let elsewhere = self.context.mac_elsewhere.filter(|(used, _)| *used == mac);
            let anywhere = here || there.is_some() || elsewhere.is_some();
            anywhere.then_some((there, elsewhere.map(|(_, address)| address)))
        };
        match wish {
            None => Ok(None),
            Some(MacWish::Given(mac)) => match taken(mac) {
                None => Ok(Some(mac)),
                Some((None, None)) => Err(crate::core::forms::mac_for_several(mac)),
                Some((holder, elsewhere)) => {
                    let held_by = holder.map(|(_, reservation)| Box::new(held_by(reservation)));
                    let address = holder.map(|(address, _)| address).or(elsewhere);
                    let by = address.map_or_else(|| "another reservation".to_owned(), |address| address.to_string());
                    let of = held_by.as_ref().map_or_else(String::new, |by| format!(", held by {}", by.holder));
                    Err(Refusal::Taken {
                        problem: format!(
                            "MAC {mac} is used by {by}{of}; a MAC is unique in its realm: give another one, or remove it there \
                             with ip.update"
                        ),
                        network: None,
                        address,
                        held_by,
                        used_in: None,
                    })
                }
            },
            Some(MacWish::Auto) => {
                let (prefix, Mac(base)) = self.network.mac_prefix("mac")?;
                let is_free = |mac: &Mac| mac.has_no_interface().is_none() && taken(*mac).is_none();
                // Random draws first. If a crowded prefix makes all of them collide, it is searched from the first draw on.
                let draw = |attempt: u64| {
                    Mac(base | (crate::core::command::derived_id(self.context.entropy, attempt) as u64 & 0xff_ffff))
                };
                let drawn = (0..64).map(draw).find(is_free);
                let start = draw(0).0 & 0xff_ffff;
                let searched = || (0..SEARCHED_MAX).map(|step| Mac(base | (start + step) & 0xff_ffff)).find(is_free);
                match drawn.or_else(searched) {
                    Some(mac) => Ok(Some(mac)),
                    None => Err(Refusal::Taken {
                        problem: format!(
                            "no free MAC was found under the prefix {prefix}, in 64 random places and the {SEARCHED_MAX} places \
                             after the first; set another `l2.mac_prefix`"
                        ),
                        network: None,
                        address: None,
                        held_by: None,
                        used_in: None,
                    }),
                }
            }
        }
    }
}
