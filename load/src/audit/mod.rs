//! The auditor knows from the answers who holds what, and checks that the server keeps its rules.
//!
//! An address is held from the answer that granted it until its release is *sent*: the server may hand it to another owner
//! as soon as it applies the release, and the answer to that owner may arrive before the answer to the release, on another
//! connection. So nothing is called a fault that could be in order. The cooldown, too, counts from the sending: an address
//! that comes back within it came back too early, whenever the server applied the release.
//!
//! `faults` has the rules, `grant` describes an answer, `ground` knows what a network may hand out, `space` who holds what,
//! and `cooling` who held it before; `leases` has those of other owners, which end by themselves. `listing` compares the result
//! with the server's own listing at the end, and `others` notices other clients in the same networks. The scenarios report
//! each answer to the auditor, which knows nothing of connections or the time of day.

pub mod address;
mod cooling;
mod faults;
mod grant;
mod ground;
mod leases;
mod listing;
mod others;
mod space;

use std::collections::HashSet;
use std::time::Duration;

use cooling::Cooling;
pub use faults::{Faults, Rule};
pub use grant::Grant;
pub use ground::{Ground, Span};
use leases::Leases;
use others::Others;
pub use space::Holder;
use space::Space;

use crate::names::Who;

/// Lanes times networks for which generations are remembered. Beyond this the rule is not audited, to bound the memory, and
/// the report says so.
const GENERATIONS_MAX: usize = 16 << 20;

/// One network under audit.
struct Network {
    name: String,
    ground: Ground,
    space: Space,
    cooldown: Duration,
    /// The released addresses that cool; empty without a cooldown.
    cooling: Cooling,
}

/// Everything that was granted and not released, and the faults.
#[derive(Default)]
pub struct Auditor {
    networks: Vec<Network>,
    pub faults: Faults,
    others: Others,
    /// Owners of requests with an unknown outcome: they may hold an address or not.
    unknown: HashSet<Who>,
    unknown_latest: Option<(Option<usize>, Who)>,
    /// The latest generation for each lane and network, at `lane * networks + network`. Empty if there are too many.
    generations: Vec<u64>,
    /// Rules that are not audited in this run.
    not_audited: Vec<Rule>,
    held: u128,
    /// Addresses whose release was sent and not answered.
    leaving: u128,
    /// Grants which said that the owner had its address before.
    pub existed: u64,
    /// Addresses of an earlier run's owners that this run uses again; the server counted them before the run.
    pub taken_over: u128,
    /// Leases of before the run, and how many of their addresses were granted to this run when they were over.
    leases: Leases,
    pub come_free: u128,
    /// Grants that were checked.
    pub checked: u64,
}

impl Auditor {
    /// An auditor for this number of lanes, whose owners have this seed.
    pub fn new(lanes: usize, networks: usize, seed: u32) -> Self {
        let others = Others::new(lanes, seed);
        match lanes.saturating_mul(networks) {
            ..=GENERATIONS_MAX => Self { generations: vec![0; lanes * networks], others, ..Self::default() },
            _ => Self { not_audited: vec![Rule::GenerationsRise], others, ..Self::default() },
        }
    }

    /// Counts a request of this lane.
    pub fn asked(&mut self, lane: usize) {
        self.others.asked(lane);
    }

    /// The server's count at the end differs.
    pub fn counted_otherwise(&mut self, counted: u128) {
        let held = self.held;
        self.others.dispute(Rule::CountAgrees, || format!("the server counts {counted} held, its answers {held}"));
    }

    /// The servers belong to this run alone: there can be no other clients.
    pub fn nobody_else(&mut self) {
        self.others.known();
    }

    /// What to do if others use the networks, as a part of the message.
    pub fn if_shared(&mut self, advice: &'static str) {
        self.others.advice = advice;
    }

    /// Is something disputed?
    pub fn has_disputes(&self) -> bool {
        self.others.has_disputes()
    }

    /// Is there a dispute that only a listing would settle?
    pub fn needs_a_listing(&self) -> bool {
        self.others.has_disputes() && !self.others.is_known()
    }

    /// Settles the disputes at the end: they become faults, or the result says why that cannot be decided.
    pub fn settle(&mut self) -> Option<String> {
        self.others.settle(&mut self.faults)
    }

    /// Adds the next network; `blocks`: it holds both blocks and single addresses.
    pub fn add(&mut self, name: &str, ground: Ground, cooldown: Duration, blocks: bool) {
        let space = if blocks { Space::of_blocks() } else { Space::default() };
        self.networks.push(Network { name: name.to_owned(), ground, space, cooldown, cooling: Cooling::default() });
    }

    /// Notes a span that was held before the run; `text` describes it.
    pub fn held_before(&mut self, network: usize, span: Span, text: &str) {
        let Network { name, space, .. } = &mut self.networks[network];
        if space.take(span, Holder::Stranger).is_err() {
            self.faults.add(Rule::NoAddressTwice, || {
                format!(
                    "listed in {name} before the run: {text}, and of somebody else a part of it or what is around it"
                )
            });
        }
    }

    /// Notes a grant and judges it. Returns the span that it grants, or none if that cannot be told.
    pub fn granted(&mut self, lane: usize, grant: &Grant<'_>, now: Duration) -> Option<Span> {
        self.checked += 1;
        let Grant { network, who, created, automatic, .. } = *grant;
        let name = || format!("{} of {}", String::from_utf8_lossy(grant.address), who.name());
        let span = match grant.span() {
            Ok(span) => span,
            Err((rule, what)) => {
                self.faults.add(rule, || what);
                return None;
            }
        };
        self.generation(lane, grant);
        self.existed += u64::from(!created);
        let Self { networks, faults, others, unknown, leases, .. } = self;
        for (rule, what) in grant.differences(span, &networks[network].name) {
            faults.add(rule, || what);
        }
        let Network { name: network, ground, space, cooldown, cooling } = &mut networks[network];
        if let Some(why) = ground.forbids(span, automatic) {
            faults.add(Rule::InsidePools, || format!("{} in {network} {why}", name()));
        }
        let past = if cooldown.is_zero() { Vec::new() } else { cooling.end(span) };
        let is_too_early = |&(before, at): &(Who, Duration)| before != who && now < at + *cooldown;
        if let Some((before, at)) = past.into_iter().find(is_too_early).filter(|_| automatic && created) {
            let after = (now - at).as_secs_f64();
            let what = if span.0 == span.1 { "it" } else { "it, or a part of it," };
            faults.add(Rule::Cooldown, || {
                format!("{} in {network}: {} let {what} go {after:.3} s ago", name(), before.name())
            });
        }
        let mut taken = space.take(span, Holder::Ours(who));
        if created && taken == Err(Holder::Stranger) {
            self.come_free += leases.end(grant.network, span, space);
            taken = space.take(span, Holder::Ours(who));
        }
        match taken {
            Ok(()) => {
                self.held += span_size(span);
                if !created && !unknown.contains(&who) {
                    others.dispute(Rule::AsAsked, || {
                        format!("{} in {network} is told as held before, and nobody held it", name())
                    });
                }
            }
            // An owner of an earlier run appears again, and still holds its address.
            Err(Holder::Stranger) if !created && space.free(span).is_some() => {
                let _ = space.take(span, Holder::Ours(who));
                self.held += span_size(span);
                self.taken_over += span_size(span);
                leases.forget(grant.network, span.0);
            }
            Err(Holder::Ours(other)) if other == who && !created => {}
            Err(other) => {
                let what = || format!("{} in {network} is held by {}", name(), holder_name(other));
                match other {
                    Holder::Ours(_) => faults.add(Rule::NoAddressTwice, what),
                    // Unless its holder released it meanwhile.
                    Holder::Stranger => others.dispute(Rule::NoAddressTwice, what),
                }
            }
        }
        Some(span)
    }

    /// Judges the answer to a renewal, which names the owner of the address. Returns the span, or none if that cannot be
    /// told.
    pub fn renewed(&mut self, grant: &Grant<'_>) -> Option<Span> {
        let span = match grant.span() {
            Ok(span) => span,
            Err((rule, what)) => {
                self.faults.add(rule, || what);
                return None;
            }
        };
        let Self { networks, faults, .. } = self;
        let network = &networks[grant.network].name;
        let address = String::from_utf8_lossy(grant.address);
        if grant.said_owner.is_none() || grant.said_network.is_none() {
            let who = grant.who.name();
            faults
                .add(Rule::AsAsked, || format!("{address} of {who} in {network} is renewed, and not told as its own"));
        }
        for (rule, what) in grant.differences(span, network) {
            faults.add(rule, || what);
        }
        Some(span)
    }

    /// Checks a repeated allocation: the owner held `before` and was granted `again` for the same slot.
    pub fn repeated(&mut self, network: usize, who: Who, before: Span, again: Option<Span>) {
        if again.is_some_and(|again| again != before) {
            let Self { networks, faults, .. } = self;
            let shown = again.map_or_else(String::new, |span| address::name(span.0).to_string());
            faults.add(Rule::SameSlotSameAddress, || {
                let before = address::name(before.0);
                format!("{} in {} held {before} and was given {shown}", who.name(), networks[network].name)
            });
        }
    }

    /// Checks that the grant is what was asked for by name.
    pub fn as_asked(&mut self, asked: Span, granted: Option<Span>) {
        if granted.is_some_and(|granted| granted != asked) {
            let shown = granted.map_or_else(String::new, |span| address::name(span.0).to_string());
            self.faults.add(Rule::AsAsked, || format!("{} was asked for, {shown} was granted", address::name(asked.0)));
        }
    }

    /// Notes that the release of this span is about to be sent. It may be a repetition of a release whose outcome is
    /// unknown; then the span has been cooling since the first time, and may belong to another owner by now.
    pub fn letting_go(&mut self, network: usize, who: Who, span: Span, now: Duration) {
        self.leaving += span_size(span);
        let network = &mut self.networks[network];
        if network.space.holder(span) != Some(Holder::Ours(who)) {
            return;
        }
        network.space.free(span);
        self.held -= span_size(span);
        if !network.cooldown.is_zero() {
            network.cooling.begin(span, who, now);
        }
    }

    /// The release was refused: the owner still holds the span.
    pub fn kept(&mut self, network: usize, who: Who, span: Span) {
        self.answered(&[span]);
        let network = &mut self.networks[network];
        network.cooling.end(span);
        match network.space.take(span, Holder::Ours(who)) {
            Ok(()) => self.held += span_size(span),
            Err(other) => {
                let other = holder_name(other);
                self.faults.add(Rule::NoAddressTwice, || {
                    format!("{} was kept by {} and is held by {other}", address::name(span.0), who.name())
                });
            }
        }
    }

    /// Compares what a release should free with its answer, in any order. `perhaps`: an earlier request may have released it
    /// already, and then nothing is left to free.
    pub fn let_go(&mut self, who: Who, should: &[Span], said: &[Option<u128>], perhaps: bool) {
        self.answered(should);
        if perhaps && said.is_empty() {
            return;
        }
        let mut should: Vec<u128> = should.iter().map(|span| span.0).collect();
        let mut said: Vec<u128> = said.iter().map(|number| number.unwrap_or(0)).collect();
        should.sort_unstable();
        said.sort_unstable();
        if should != said {
            let list = |numbers: &[u128]| {
                let names: Vec<String> = numbers.iter().take(3).map(|n| address::name(*n).to_string()).collect();
                format!("{} ({})", numbers.len(), names.join(", "))
            };
            self.faults.add(Rule::ReleasesWhatWasHeld, || {
                format!("{} let go {}, the answer says {}", who.name(), list(&should), list(&said))
            });
        }
    }

    /// Checks the answer to a lookup of an address that its owner holds.
    pub fn shown(&mut self, who: Who, span: Span, line: &[u8]) {
        let name = who.name();
        if memchr::memmem::find(line, name.as_bytes()).is_none() {
            self.faults.add(Rule::SameSlotSameAddress, || {
                let line = String::from_utf8_lossy(line);
                format!("{} of {name} was looked up, and is shown without it: {line}", address::name(span.0))
            });
        }
    }

    /// Checks that an answer covers as many items as were asked for.
    pub fn complete(&mut self, told: usize, asked: usize, what: &str) {
        if told != asked {
            self.faults.add(Rule::AsAsked, || format!("{what} {told} of {asked} that were asked for"));
        }
    }

    /// The outcome of this owner's last request, which was to release these spans, is unknown.
    pub fn fate_unknown(&mut self, network: Option<usize>, who: Who, going: &[Span]) {
        self.answered(going);
        self.unknown.insert(who);
        self.unknown_latest = Some((network, who));
    }

    /// The owner of the latest request with an unknown outcome, in words; returned once.
    pub fn unknown_latest(&mut self) -> Option<String> {
        let (network, who) = self.unknown_latest.take()?;
        let network = network.map_or_else(String::new, |at| format!(" in {}", self.networks[at].name));
        Some(format!("{}{network}", who.name()))
    }

    /// The release of these spans is no longer under way.
    fn answered(&mut self, spans: &[Span]) {
        let size: u128 = spans.iter().map(|span| span_size(*span)).sum();
        self.leaving = self.leaving.saturating_sub(size);
    }

    /// The rules that are not audited because the run is too large.
    pub fn not_audited(&self) -> &[Rule] {
        &self.not_audited
    }

    /// Addresses that owners of this run hold now.
    pub fn held(&self) -> u128 {
        self.held
    }

    /// Of the addresses that the server counts, those of this run, if `before` were held before it. A lease of before the run
    /// that may be over is over or not, whichever agrees with the answers.
    pub fn ours(&self, counted: u128, before: u128) -> u128 {
        let counted = counted + self.taken_over;
        let missing = (self.held + before).saturating_sub(counted);
        let ended = missing.min(self.leases.size_over() + self.come_free);
        (counted + ended).saturating_sub(before)
    }

    /// Addresses that the server may hold for owners of this run now, including those whose release is under way.
    pub fn held_or_leaving(&self) -> u128 {
        self.held + self.leaving
    }

    /// The number of owners with a request of unknown outcome.
    pub fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// Checks the generation: requests of one lane take effect in the order in which they are sent, and each waits for the
    /// previous one.
    fn generation(&mut self, lane: usize, grant: &Grant<'_>) {
        let Some(generation) = grant.generation else {
            self.faults.add(Rule::GenerationsRise, || {
                let address = String::from_utf8_lossy(grant.address);
                format!("{address} of {} was granted without a generation", grant.who.name())
            });
            return;
        };
        if !grant.created || !grant.ordered {
            return;
        }
        let cell = lane * self.networks.len() + grant.network;
        let Some(latest) = self.generations.get_mut(cell) else { return };
        if generation <= *latest {
            let latest = *latest;
            self.faults.add(Rule::GenerationsRise, || {
                let address = String::from_utf8_lossy(grant.address);
                format!("{address} of {} has generation {generation}, after {latest}", grant.who.name())
            });
        }
        *latest = generation.max(*latest);
    }
}

/// The number of addresses in a span; a register never has a span of all addresses.
fn span_size((first, last): Span) -> u128 {
    (last - first).saturating_add(1)
}

/// A count as a report shows it: counts above the largest `u64` are shown as that.
pub fn told(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The holder's name in messages.
fn holder_name(holder: Holder) -> String {
    match holder {
        Holder::Ours(who) => who.name(),
        Holder::Stranger => "an owner of before the run".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_let_go_once_more_may_be_somebody_elses_by_then() {
        let mut audit = Auditor::new(2, 1, 0);
        let pool = json!({"range": "10.0.0.0/24", "kind": "dynamic"});
        let ground = Ground::read(&json!({"subnets": [{"cidr": "10.0.0.0/24", "pools": [pool]}]}));
        audit.add("load-00", ground, Duration::from_secs(10), false);
        let span = address::range("10.0.0.5").unwrap();
        let grant = |lane, generation| Grant {
            network: 0,
            who: Who::new(lane, 0, 0),
            address: b"10.0.0.5",
            prefix_length: None,
            said_length: Some(32),
            said_owner: None,
            said_network: None,
            created: true,
            generation: Some(generation),
            ordered: true,
            automatic: true,
        };
        let at = Duration::from_secs;
        audit.granted(0, &grant(0, 1), at(0));
        audit.letting_go(0, Who::new(0, 0, 0), span, at(1));
        audit.fate_unknown(Some(0), Who::new(0, 0, 0), &[span]);
        // Released again: it has been cooling since the first time, and is granted to another owner before the answer comes.
        audit.letting_go(0, Who::new(0, 0, 0), span, at(9));
        audit.granted(1, &grant(1, 2), at(12));
        audit.let_go(Who::new(0, 0, 0), &[span], &[], true);
        audit.letting_go(0, Who::new(0, 0, 0), span, at(13));
        assert_eq!((audit.held(), audit.faults.total()), (1, 0), "{:?}", audit.faults);
        audit.granted(0, &Grant { who: Who::new(0, 1, 0), ..grant(0, 3) }, at(14));
        assert_eq!(audit.faults.count(Rule::NoAddressTwice), 1, "the second one has it");
    }
}
