//! At the end of a run, compares the server's listing and counts with its answers.

use std::io;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Auditor, Holder, Rule, address, holder_name};
use crate::control::Control;
use crate::names::Who;

/// Reservations of one page of the listing.
const PAGE: u64 = 10_000;

/// One reservation of the listing.
struct Listed {
    span: Option<super::Span>,
    owner: Option<Who>,
    /// What is left of its lease, if it has one.
    lease_seconds: Option<u64>,
    text: String,
}

impl Auditor {
    /// Notes everything that the network holds before the run.
    ///
    /// # Errors
    /// As of [`Control::call`].
    pub fn read_before(&mut self, control: &mut Control, network: usize) -> io::Result<()> {
        let name = self.networks[network].name.clone();
        let now = Instant::now();
        pages(control, &name, |listed| {
            if let Some(span) = listed.span {
                self.held_before(network, span, &listed.text);
            }
            if let Some((span, seconds)) = listed.span.zip(listed.lease_seconds) {
                self.leases.note(network, span, now, seconds);
            }
        })
    }

    /// Compares the server's listing with what its answers granted; each difference is a fault. Returns how many
    /// reservations are listed, and how many of these were there before the run.
    ///
    /// # Errors
    /// As of [`Control::call`].
    pub fn compare_listing(&mut self, control: &mut Control) -> io::Result<(u64, u64)> {
        let (mut count, mut before) = (0, 0);
        for number in 0..self.networks.len() {
            let name = self.networks[number].name.clone();
            // The listing is in the order of addresses, so reservations that overlap are neighbours.
            let mut latest: Option<Listed> = None;
            pages(control, &name, |listed| {
                count += 1;
                before += u64::from(self.compare_one(number, &listed, latest.as_ref()));
                latest = Some(listed);
            })?;
            let Self { networks, faults, others, unknown, leases, .. } = self;
            for (address, holder) in networks[number].space.unlisted() {
                let may_be_gone = match holder {
                    Holder::Ours(who) => unknown.contains(&who),
                    Holder::Stranger => leases.may_be_over(number, address),
                };
                if !may_be_gone {
                    let address = address::name(address);
                    let what = || format!("{address} of {} in {name} is not in the listing", holder_name(holder));
                    match holder {
                        Holder::Ours(_) => faults.add(Rule::ListingAgrees, what),
                        Holder::Stranger => others.dispute(Rule::ListingAgrees, what),
                    }
                }
            }
        }
        self.others.known();
        Ok((count, before))
    }

    /// Compares one reservation; `before` is the previous one in the listing. True: it was held before the run.
    fn compare_one(&mut self, number: usize, listed: &Listed, before: Option<&Listed>) -> bool {
        let Self { networks, faults, others, unknown, .. } = self;
        let network = &mut networks[number];
        let found = listed.span.and_then(|span| network.space.list(span));
        let Listed { text, .. } = listed;
        if found.is_some_and(|(_, again)| again) {
            faults.add(Rule::ListingAgrees, || format!("listed in {} more than once: {text}", network.name));
        } else if let Some(before) = before.filter(|before| listed.overlaps(before)) {
            faults.add(Rule::NoAddressTwice, || {
                format!("listed in {}: {text} and {}, which overlap", network.name, before.text)
            });
        }
        let holder = found.map(|(holder, _)| holder);
        let agrees = match (holder, listed.owner) {
            (Some(Holder::Ours(held)), Some(owner)) => held == owner,
            (Some(Holder::Stranger), _) => true,
            (None, Some(owner)) if unknown.contains(&owner) => true,
            (None, owner) if !owner.is_some_and(|owner| others.is_named(owner)) => {
                others.saw(&network.name, text);
                true
            }
            (None, _) | (Some(Holder::Ours(_)), None) => false,
        };
        if !agrees {
            let ours = holder.map_or_else(|| "nobody".to_owned(), holder_name);
            let what = || format!("listed in {}: {text}; by its answers {ours} has it", network.name);
            match holder {
                Some(_) => faults.add(Rule::ListingAgrees, what),
                None => others.dispute(Rule::ListingAgrees, what),
            }
        }
        holder == Some(Holder::Stranger)
    }
}

impl Listed {
    /// Do both contain a common address?
    fn overlaps(&self, other: &Self) -> bool {
        let spans = self.span.zip(other.span);
        spans.is_some_and(|((first, last), (from, to))| first <= to && from <= last)
    }
}

/// Reads all pages of a network's listing.
fn pages(control: &mut Control, network: &str, mut each: impl FnMut(Listed)) -> io::Result<()> {
    let mut params = json!({"network": network, "limit": PAGE});
    loop {
        let page = control.call("ip.list", &params)?;
        for reservation in page["reservations"].as_array().map_or(&[][..], Vec::as_slice) {
            each(listed(reservation));
        }
        match page.get("next") {
            Some(next) if !next.is_null() => params["after"] = next.clone(),
            _ => return Ok(()),
        }
    }
}

fn listed(reservation: &Value) -> Listed {
    let text = |name: &str| reservation[name].as_str().unwrap_or_default();
    let first = address::number(text("address").as_bytes());
    let length = reservation["prefix_length"].as_u64().and_then(|length| u8::try_from(length).ok());
    let span = first.zip(length).and_then(|(first, length)| address::block(first, length));
    let owner = Who::read(text("owner"));
    let lease_seconds = reservation["expires_in_seconds"].as_u64();
    Listed { span, owner, lease_seconds, text: format!("{} of `{}`", text("address"), text("owner")) }
}
