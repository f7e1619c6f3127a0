//! A grant, as an answer says it; and whether what it says is what was asked for, whoever holds what.

use super::{Rule, Span, address};
use crate::names::Who;

/// A grant.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    pub network: usize,
    pub who: Who,
    /// The address, or the first of a block, as it was written; empty where the answer has none.
    pub address: &'a [u8],
    /// Of the block that was asked for.
    pub prefix_length: Option<u8>,
    /// What the answer says of its size.
    pub said_length: Option<u8>,
    /// Whose it is and in which network, where the answer says so: short ones do not.
    pub said_owner: Option<&'a [u8]>,
    pub said_network: Option<&'a [u8]>,
    pub created: bool,
    pub generation: Option<u64>,
    /// Its generation is above those that the lane was given before. Grants of one apply are in no order.
    pub ordered: bool,
    /// Out of a pool, not by a claim.
    pub automatic: bool,
}

/// What was found: a rule, and in words how it was broken.
pub type Found = (Rule, String);

impl Grant<'_> {
    /// What it grants, of the size that was asked for.
    ///
    /// # Errors
    /// There is no address, or none where such a block can begin.
    pub fn span(&self) -> Result<Span, Found> {
        let said = String::from_utf8_lossy(self.address);
        if self.address.is_empty() {
            return Err((Rule::AnswersOnce, format!("the grant of {} has no address", self.who.name())));
        }
        let Some(first) = address::number(self.address) else {
            return Err((Rule::AsAsked, format!("`{said}`, granted to {}, is no address", self.who.name())));
        };
        let Some(length) = self.prefix_length else { return Ok((first, first)) };
        let unaligned = || (Rule::AsAsked, format!("no /{length} begins at {said}, granted to {}", self.who.name()));
        address::block(first, length).ok_or_else(unaligned)
    }

    /// What it says otherwise than it was asked: its size, its owner, its network.
    pub fn differences(&self, span: Span, network: &str) -> Vec<Found> {
        let mut found = Vec::new();
        let mut differs = |what: String| {
            let said = String::from_utf8_lossy(self.address);
            found.push((Rule::AsAsked, format!("{said} of {} in {network} {what}", self.who.name())));
        };
        let asked = self.prefix_length.unwrap_or(if address::is_v4(span.0) { 32 } else { 128 });
        match self.said_length {
            Some(length) if length == asked => {}
            Some(length) => differs(format!("was asked for as /{asked} and is told as /{length}")),
            None => differs(format!("was asked for as /{asked}, and nothing is told of its size")),
        }
        if let Some(owner) = self.said_owner {
            let mut name = Vec::with_capacity(24);
            self.who.push(&mut name);
            if owner != name {
                differs(format!("is told as that of `{}`", String::from_utf8_lossy(owner)));
            }
        }
        if let Some(said) = self.said_network.filter(|said| *said != network.as_bytes()) {
            differs(format!("is told as one of network `{}`", String::from_utf8_lossy(said)));
        }
        found
    }
}
