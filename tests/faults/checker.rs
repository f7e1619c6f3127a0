//! The interval checker: was any address held by two at one instant, for certain?
//!
//! A *sure holding* lasts from the moment a grant's answer was received to the moment a release of it was sent: in
//! between nobody may have told the holder anything else. Of two sure holdings that overlap in time no two may overlap
//! in space. Grants of whose fate nobody knows are no holdings until an answer shows them; releases of whose fate nobody
//! knows end one.
//!
//! A lease is sure until the earliest moment at which it may end.
//!
//! Beside that: a repeat shows what is held, and nobody is told that he holds nothing while he does; a generation is given
//! once in a network; what was released comes back with another generation only.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::record::{Asked, Call, Holder, Span, Told};

/// A time in which a holder had something, for certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sure {
    pub holder: Holder,
    pub span: Span,
    pub generation: u64,
    pub from_ns: u64,
    /// None: to the end of the run.
    pub until_ns: Option<u64>,
}

impl Sure {
    /// Is it sure beyond this moment?
    fn beyond(&self, moment_ns: u64) -> bool {
        self.until_ns.is_none_or(|until| until > moment_ns)
    }
}

/// Everything that must not be, in words; and how much was checked.
#[derive(Debug, Default)]
pub struct Verdict {
    pub problems: Vec<String>,
    /// Every time in which somebody held something for certain.
    pub sure: Vec<Sure>,
    pub sure_holdings: usize,
    pub unknown: usize,
}

/// Checks a whole run.
pub fn check(calls: &[Call]) -> Verdict {
    let mut of_holder: BTreeMap<&Holder, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        of_holder.entry(&call.holder).or_default().push(call);
    }
    let mut verdict = Verdict::default();
    let mut sure = Vec::new();
    for (holder, mut own) in of_holder {
        own.sort_by_key(|call| call.sent_ns);
        holdings_of(holder, &own, &mut sure, &mut verdict.problems);
    }
    verdict.unknown = calls.iter().filter(|call| call.told == Told::Unknown).count();
    verdict.sure_holdings = sure.len();
    sure.retain(|holding: &Sure| holding.beyond(holding.from_ns));
    generations(&sure, &mut verdict.problems);
    overlaps(sure.clone(), &mut verdict.problems);
    verdict.sure = sure;
    verdict
}

/// Sure holdings of one holder, whose calls come one after the other or overlap.
fn holdings_of(holder: &Holder, calls: &[&Call], sure: &mut Vec<Sure>, problems: &mut Vec<String>) {
    let mut present: Option<Sure> = None;
    // A release of unknown fate may still be on its way, and take effect after a later answer shows what it is about.
    let mut doubtful: HashSet<u64> = HashSet::new();
    // When it was told that they are over.
    let mut over: HashMap<u64, u64> = HashMap::new();
    // Releases of unknown fate that may be carried out after the present call was sent.
    let mut lingering: Vec<&Call> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        lingering.retain(|earlier| earlier.told_ns > call.sent_ns);
        match (&call.asked, &call.told) {
            (Asked::Grant, Told::Held { span, generation, created, until_ns }) => {
                // Something else of the same holder was under way: what the answer shows may be over by now.
                let mut meanwhile = calls[at + 1..].iter().take_while(|later| later.sent_ns < call.told_ns);
                let released = !lingering.is_empty() || meanwhile.any(|later| later.asked == Asked::Release);
                let (from_ns, until_ns) = (call.told_ns, *until_ns);
                let mut next = Sure { holder: holder.clone(), span: *span, generation: *generation, from_ns, until_ns };
                if over.get(generation).is_some_and(|told_ns| *told_ns < call.sent_ns) {
                    problems.push(format!("{holder:?} was told of {next:?} after it was told that this is over"));
                }
                if let Some(held) = present.take() {
                    let still = held.beyond(call.told_ns);
                    if still && (held.span, held.generation) == (*span, *generation) {
                        // A repeat.
                        next.from_ns = held.from_ns;
                        next.until_ns = held.until_ns.zip(until_ns).map(|(one, other)| one.max(other));
                        present = Some(next);
                        continue;
                    }
                    if still {
                        let kind = if *created { "was granted" } else { "was told that it holds" };
                        problems.push(format!("{holder:?} {kind} {next:?} while it held {held:?}"));
                    }
                    sure.push(held);
                }
                if !released && !doubtful.contains(generation) {
                    present = Some(next);
                }
            }
            (Asked::Release, Told::Refused(_)) => {} // Certainly nothing was changed.
            (Asked::Release, told) => {
                if *told == Told::Unknown {
                    lingering.push(call);
                }
                if let Some(mut held) = present.take() {
                    match told {
                        Told::Unknown => {
                            doubtful.insert(held.generation);
                        }
                        Told::Nothing if held.beyond(call.told_ns) => {
                            problems.push(format!("{holder:?} was told that it holds nothing while it held {held:?}"));
                        }
                        _ => {
                            over.insert(held.generation, call.told_ns);
                        }
                    }
                    held.until_ns = Some(held.until_ns.map_or(call.sent_ns, |until| until.min(call.sent_ns)));
                    sure.push(held);
                }
            }
            (Asked::Grant, _) => {}
        }
    }
    sure.extend(present);
}

/// A generation is given once.
fn generations(sure: &[Sure], problems: &mut Vec<String>) {
    let mut given: HashMap<(&str, u64), &Sure> = HashMap::new();
    for holding in sure {
        let place = (holding.holder.network.as_str(), holding.generation);
        if let Some(other) = given.insert(place, holding)
            && (other.span != holding.span || other.holder != holding.holder)
        {
            problems.push(format!("one generation for {other:?} and {holding:?}"));
        }
    }
}

/// No two at one place and one time.
fn overlaps(sure: Vec<Sure>, problems: &mut Vec<String>) {
    let mut of_network: BTreeMap<String, Vec<Sure>> = BTreeMap::new();
    for holding in sure {
        of_network.entry(holding.holder.network.clone()).or_default().push(holding);
    }
    for holdings in of_network.into_values() {
        // Ends come before beginnings at one instant: what is over is over.
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(holdings.len() * 2);
        for (at, holding) in holdings.iter().enumerate() {
            events.push((holding.from_ns, true, at));
            events.extend(holding.until_ns.map(|until| (until, false, at)));
        }
        events.sort_unstable();
        let mut standing: BTreeMap<u128, usize> = BTreeMap::new();
        for (_, begins, at) in events {
            let (first, last) = holdings[at].span;
            if !begins {
                if standing.get(&first) == Some(&at) {
                    standing.remove(&first);
                }
                continue;
            }
            let in_the_way = standing.range(..=last).next_back().filter(|(_, other)| holdings[**other].span.1 >= first);
            if let Some((_, other)) = in_the_way {
                problems.push(format!("two holders: {:?} and {:?}", holdings[*other], holdings[at]));
            }
            standing.insert(first, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(owner: &str, asked: Asked, sent_ns: u64, told_ns: u64, told: Told) -> Call {
        let holder = Holder { network: "lan".to_owned(), owner: owner.to_owned(), slot: "0".to_owned() };
        Call { holder, asked, sent_ns, told_ns, told }
    }

    fn grant(owner: &str, sent_ns: u64, told_ns: u64, address: u128, generation: u64) -> Call {
        let told = Told::Held { span: (address, address), generation, created: true, until_ns: None };
        call(owner, Asked::Grant, sent_ns, told_ns, told)
    }

    fn release(owner: &str, sent_ns: u64, told_ns: u64, told: Told) -> Call {
        call(owner, Asked::Release, sent_ns, told_ns, told)
    }

    #[track_caller]
    fn problems(calls: &[Call]) -> usize {
        check(calls).problems.len()
    }

    #[test]
    fn an_address_that_goes_from_one_to_the_other_is_right() {
        let calls = [grant("a", 0, 10, 5, 1), release("a", 20, 30, Told::Released), grant("b", 22, 40, 5, 2)];
        assert_eq!(problems(&calls), 0);
        let again = [grant("a", 0, 10, 5, 1), grant("a", 20, 30, 5, 1)];
        assert_eq!(problems(&again), 0, "a repeat");
    }

    #[test]
    fn two_holders_at_one_instant_are_found_blocks_included() {
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), grant("b", 5, 12, 5, 2)]), 1);
        let block = Told::Held { span: (4, 7), generation: 2, created: true, until_ns: None };
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), call("b", Asked::Grant, 5, 12, block.clone())]), 1);
        assert_eq!(problems(&[call("b", Asked::Grant, 5, 12, block), grant("a", 20, 30, 7, 3)]), 1);
        let early = [grant("a", 0, 10, 5, 1), release("a", 50, 60, Told::Released), grant("b", 15, 40, 5, 2)];
        assert_eq!(problems(&early), 1, "before its release was sent");
    }

    #[test]
    fn a_release_of_unknown_fate_ends_what_is_sure_and_a_refused_one_does_not() {
        let lost = [grant("a", 0, 10, 5, 1), release("a", 20, 99, Told::Unknown), grant("b", 25, 40, 5, 2)];
        assert_eq!(problems(&lost), 0);
        let refused = [
            grant("a", 0, 10, 5, 1),
            release("a", 20, 30, Told::Refused("unavailable".to_owned())),
            grant("b", 35, 40, 5, 2),
        ];
        assert_eq!(problems(&refused), 1);
    }

    #[test]
    fn a_second_address_for_a_slot_and_a_generation_given_twice_are_found() {
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), grant("a", 20, 30, 6, 2)]), 1);
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), grant("b", 20, 30, 6, 1)]), 1);
    }

    #[test]
    fn what_is_over_or_was_never_held_is_not_shown() {
        let stale = [grant("a", 0, 10, 5, 1), release("a", 20, 30, Told::Released), grant("a", 40, 50, 5, 1)];
        assert_eq!(problems(&stale), 1);
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), release("a", 20, 30, Told::Nothing)]), 1);
    }

    #[test]
    fn a_lease_is_sure_until_it_may_end() {
        let lease = |owner: &str, sent_ns, told_ns, generation, until_ns| {
            let told = Told::Held { span: (5, 5), generation, created: true, until_ns: Some(until_ns) };
            call(owner, Asked::Grant, sent_ns, told_ns, told)
        };
        assert_eq!(problems(&[lease("a", 0, 10, 1, 100), grant("b", 90, 110, 5, 2)]), 0);
        assert_eq!(problems(&[lease("a", 0, 10, 1, 100), grant("b", 80, 90, 5, 2)]), 1);
        assert_eq!(problems(&[lease("a", 0, 10, 1, 100), lease("a", 50, 60, 1, 150), grant("b", 90, 110, 5, 2)]), 1);
        assert_eq!(problems(&[lease("a", 0, 10, 1, 100), lease("a", 120, 130, 2, 200)]), 0, "it had ended");
    }
}
