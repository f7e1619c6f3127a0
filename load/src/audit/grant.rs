//! A grant as an answer describes it, and whether that description fits the request, regardless of who holds what.

use super::{Rule, Span, address};
use crate::names::Who;

/// A grant.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    pub network: usize,
    pub who: Who,
    /// The address, or the first address of a block, as written in the answer; empty if the answer has none.
    pub address: &'a [u8],
    /// The prefix length of the requested block.
    pub prefix_length: Option<u8>,
    /// The prefix length in the answer.
    pub said_length: Option<u8>,
    /// The owner and the network in the answer; short answers omit them.
    pub said_owner: Option<&'a [u8]>,
    pub said_network: Option<&'a [u8]>,
    pub created: bool,
    pub generation: Option<u64>,
    /// The generation must be above the lane's earlier ones. The grants of one apply are in no order.
    pub ordered: bool,
    /// From a pool, not by a claim.
    pub automatic: bool,
}

/// A finding: the rule, and how it was broken, in words.
pub type Found = (Rule, String);

impl Grant<'_> {
    /// The granted span, of the requested size.
    ///
    /// # Errors
    /// The answer has no address, or a block of this size cannot begin at it.
    pub fn span(&self) -> Result<Span, Found> {
        let said = String::from_utf8_lossy(self.address);
        if self.address.is_empty() {
            return Err((Rule::AnswersOnce, format!("the grant of {} has no address", self.who.name())));
        }
        let Some(first) = address::number(self.address) else {
            return Err((Rule::AsAsked, format!("`{said}`, granted to {}, is not an address", self.who.name())));
        };
        let Some(length) = self.prefix_length else { return Ok((first, first)) };
        let unaligned = || (Rule::AsAsked, format!("no /{length} begins at {said}, granted to {}", self.who.name()));
        address::block(first, length).ok_or_else(unaligned)
    }

    /// Where the answer differs from the request: size, owner, network.
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
