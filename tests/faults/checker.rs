//! The interval checker: did two holders certainly hold one address at the same instant?
//!
//! A *sure holding* lasts from the moment at which the answer to a grant was received to the moment at which a release of it
//! was sent. In between no answer may tell its holder anything else. Two sure holdings that overlap in time must not overlap
//! in space. A grant whose outcome is unknown is no holding until an answer shows it; a release whose outcome is unknown
//! ends the holding.
//!
//! A lease is sure until the earliest moment at which it may end. A transfer is a release by one holder and a grant of the
//! same address to another.
//!
//! The checker also demands that repeated grants and reads show what is held, and that nobody is told he holds nothing while
//! he does hold something; that a network gives each generation once; and that what was released comes back only with
//! another generation.
//!
//! If the outcome of a release will never be known, nothing is sure about its holder any more, so the client goes on under
//! another name.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::record::{Asked, Call, Holder, Span, Told};

/// A time during which a holder certainly held something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sure {
    pub holder: Holder,
    pub span: Span,
    pub generation: u64,
    pub from_ns: u64,
    /// None: until the end of the run.
    pub until_ns: Option<u64>,
    /// The holder never asked to let go of it: the holding ended by itself, or still lasts.
    pub left_alone: bool,
}

impl Sure {
    /// Is the holding sure beyond this moment?
    fn beyond(&self, moment_ns: u64) -> bool {
        self.until_ns.is_none_or(|until| until > moment_ns)
    }
}

/// The outcome of a check: everything that is wrong, in words, and how much was checked.
#[derive(Debug, Default)]
pub struct Verdict {
    pub problems: Vec<String>,
    /// Pairs of sure holdings that overlap in time and space.
    pub twice: Vec<(Sure, Sure)>,
    /// All sure holdings.
    pub sure: Vec<Sure>,
    pub sure_holdings: usize,
    pub unknown: usize,
    /// How often each kind of request was carried out.
    pub met: BTreeMap<&'static str, usize>,
}

/// What a call means for one holder: a transfer makes two steps.
struct Step<'a> {
    call: &'a Call,
    releases: bool,
    told: Cow<'a, Told>,
    /// What the giver of a transfer was told that it handed over.
    gone: Option<Span>,
}

fn steps(call: &Call) -> Vec<(&Holder, Step<'_>)> {
    let step = |releases, told, gone| Step { call, releases, told, gone };
    let Asked::Transfer { to } = &call.asked else {
        return vec![(&call.holder, step(call.asked == Asked::Release, Cow::Borrowed(&call.told), None))];
    };
    let (gone, gives) = match &call.told {
        Told::Held { span, .. } => (Some(*span), Told::Released),
        Told::Refused(kind) if kind == "not_found" || kind == "not_owner" => (None, Told::Nothing),
        told => (None, told.clone()),
    };
    vec![(&call.holder, step(true, Cow::Owned(gives), gone)), (to, step(false, Cow::Borrowed(&call.told), None))]
}

/// How often each thing that a run must cover was done.
fn met(calls: &[Call], sure: &[Sure]) -> BTreeMap<&'static str, usize> {
    let count = |is: &dyn Fn(&Call) -> bool| calls.iter().filter(|call| is(call)).count();
    let held = |is: &dyn Fn(Span) -> bool| count(&|call| matches!(call.told, Told::Held { span, .. } if is(span)));
    let ended = |sure: &&Sure| sure.until_ns.is_some() && sure.left_alone;
    BTreeMap::from([
        ("blocks", held(&|(first, last)| last > first)),
        ("IPv6", held(&|(first, _)| first > u128::from(u32::MAX))),
        ("leases that ended", sure.iter().filter(ended).count()),
        ("transfers", count(&|call| matches!((&call.asked, &call.told), (Asked::Transfer { .. }, Told::Held { .. })))),
        ("claims that somebody else prevented", count(&|call| call.told == Told::Refused("already_in_use".to_owned()))),
        ("releases", count(&|call| call.told == Told::Released)),
    ])
}

/// Checks a whole run.
pub fn check(calls: &[Call]) -> Verdict {
    let mut of_holder: BTreeMap<&Holder, Vec<Step<'_>>> = BTreeMap::new();
    for (holder, step) in calls.iter().flat_map(steps) {
        of_holder.entry(holder).or_default().push(step);
    }
    let mut verdict = Verdict::default();
    let mut sure = Vec::new();
    for (holder, mut own) in of_holder {
        own.sort_by_key(|step| step.call.sent_ns);
        holdings_of(holder, &own, &mut sure, &mut verdict.problems);
    }
    let is_unknown = |call: &&Call| call.told == Told::Unknown && call.asked != Asked::Read;
    verdict.unknown = calls.iter().filter(is_unknown).count();
    verdict.sure_holdings = sure.len();
    sure.retain(|holding: &Sure| holding.beyond(holding.from_ns));
    generations(&sure, &mut verdict.problems);
    verdict.twice = overlaps(sure.clone());
    let two = |(one, other): &(Sure, Sure)| format!("two holders: {one:?} and {other:?}");
    verdict.problems.extend(verdict.twice.iter().map(two));
    verdict.met = met(calls, &sure);
    verdict.sure = sure;
    verdict
}

/// The sure holdings of one holder. Its calls may follow one another or overlap.
fn holdings_of(holder: &Holder, steps: &[Step<'_>], sure: &mut Vec<Sure>, problems: &mut Vec<String>) {
    let mut present: Option<Sure> = None;
    // Generations whose release has an unknown outcome: it may take effect after a later answer shows the holding.
    let mut doubtful: HashSet<u64> = HashSet::new();
    // When the holder was told that a generation is over.
    let mut over: HashMap<u64, u64> = HashMap::new();
    // Releases with an unknown outcome that may still be carried out after the present call was sent.
    let mut lingering: Vec<&Call> = Vec::new();
    for (at, Step { call, releases, told, gone }) in steps.iter().enumerate() {
        lingering.retain(|earlier| earlier.told_ns > call.sent_ns);
        if call.asked == Asked::Read {
            let shows = shown(call, present.as_ref(), &over);
            problems.extend(shows.map(|what| format!("{holder:?} was shown {:?} {what}", call.told)));
            continue;
        }
        match (releases, told.as_ref()) {
            (false, Told::Held { span, generation, created, until_ns }) => {
                // Another call of this holder was under way: what the answer shows may be over by now.
                let mut meanwhile = steps[at + 1..].iter().take_while(|later| later.call.sent_ns < call.told_ns);
                let released = !lingering.is_empty() || meanwhile.any(|later| later.releases);
                let (from_ns, until_ns) = (call.told_ns, *until_ns);
                let mut next = Sure {
                    holder: holder.clone(),
                    span: *span,
                    generation: *generation,
                    from_ns,
                    until_ns,
                    left_alone: true,
                };
                if over.get(generation).is_some_and(|told_ns| *told_ns < call.sent_ns) {
                    problems.push(format!("{holder:?} was told of {next:?} after it was told that this is over"));
                }
                if let Some(held) = present.take() {
                    let still = held.beyond(call.told_ns);
                    if still && (held.span, held.generation) == (*span, *generation) {
                        // A repeated request.
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
            (true, Told::Refused(_)) => {} // Nothing was changed, for certain.
            (true, told) => {
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
                    if gone.is_some_and(|gone| gone != held.span) && held.beyond(call.told_ns) {
                        problems.push(format!("{holder:?} handed over {gone:?} while it held {held:?}"));
                    }
                    held.left_alone = false;
                    held.until_ns = Some(held.until_ns.map_or(call.sent_ns, |until| until.min(call.sent_ns)));
                    sure.push(held);
                }
            }
            (false, _) => {}
        }
    }
    sure.extend(present);
}

/// What is wrong with what a read shows, if anything is. A holding that is not sure may be over by now, or may not exist yet.
fn shown(call: &Call, present: Option<&Sure>, over: &HashMap<u64, u64>) -> Option<String> {
    let held = present.filter(|held| held.beyond(call.told_ns));
    match &call.told {
        Told::Held { generation, .. } if over.get(generation).is_some_and(|told_ns| *told_ns < call.sent_ns) => {
            Some("after it was told that this is over".to_owned())
        }
        Told::Held { span, generation, .. } => {
            let other = held.filter(|held| (held.span, held.generation) != (*span, *generation));
            other.map(|held| format!("while it held {held:?}"))
        }
        Told::Nothing => held.map(|held| format!("while it held {held:?}")),
        Told::Released | Told::Refused(_) | Told::Unknown => None,
    }
}

/// Checks that each generation was given once.
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

/// Finds pairs of holdings that overlap in time and space.
fn overlaps(sure: Vec<Sure>) -> Vec<(Sure, Sure)> {
    let mut found = Vec::new();
    let mut of_network: BTreeMap<String, Vec<Sure>> = BTreeMap::new();
    for holding in sure {
        of_network.entry(holding.holder.network.clone()).or_default().push(holding);
    }
    for holdings in of_network.into_values() {
        // At one instant ends sort before beginnings: a holding that ends there is over.
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
            // A holding that Redis lost and was given back counts as the same one.
            let is_same = |one: &Sure, other: &Sure| {
                (&one.holder, one.span, one.generation) == (&other.holder, other.span, other.generation)
            };
            if let Some((_, &other)) = in_the_way.filter(|(_, other)| !is_same(&holdings[**other], &holdings[at])) {
                found.push((holdings[other].clone(), holdings[at].clone()));
            }
            standing.insert(first, at);
        }
    }
    found
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
    fn whose_release_may_come_at_any_time_holds_nothing_for_certain_but_under_another_name() {
        let lost = [grant("a", 0, 10, 5, 1), release("a", 20, u64::MAX, Told::Unknown)];
        let then = |owner| [&lost[..], &[grant(owner, 100, 110, 6, 2), grant("b", 120, 130, 6, 3)]].concat();
        assert_eq!(problems(&then("a")), 0, "it may have been released meanwhile");
        assert_eq!(problems(&then("a again")), 1);
        let over = [grant("a", 0, 10, 5, 1), release("a", 20, 90, Told::Unknown)];
        let later = [grant("a", 100, 110, 6, 2), grant("b", 120, 130, 6, 3)];
        assert_eq!(problems(&[&over[..], &later[..]].concat()), 1, "nobody carries it out any more");
    }

    #[test]
    fn a_read_shows_what_is_held_and_nothing_that_is_over() {
        let read = |owner: &str, sent_ns, told_ns, told| call(owner, Asked::Read, sent_ns, told_ns, told);
        let shows =
            |address, generation| Told::Held { span: (address, address), generation, created: false, until_ns: None };
        let first = grant("a", 0, 10, 5, 1);
        let with = |more: &[Call]| problems(&[std::slice::from_ref(&first), more].concat());
        assert_eq!(with(&[read("a", 20, 30, shows(5, 1)), grant("a", 40, 50, 5, 1)]), 0);
        assert_eq!(with(&[read("a", 20, 30, shows(5, 2))]), 1, "another generation");
        assert_eq!(with(&[read("a", 20, 30, Told::Nothing)]), 1, "nobody has it, or somebody else");
        assert_eq!(with(&[read("a", 20, 30, Told::Unknown), grant("b", 40, 50, 5, 2)]), 1, "it lets go of nothing");
        let over = release("a", 20, 30, Told::Released);
        assert_eq!(with(&[over.clone(), read("a", 40, 50, shows(5, 1))]), 1, "it is over");
        assert_eq!(with(&[over, read("a", 40, 50, Told::Nothing)]), 0);
        let lost = release("a", 20, 99, Told::Unknown);
        assert_eq!(with(&[lost.clone(), read("a", 40, 50, shows(5, 1))]), 0, "it is not over yet");
        assert_eq!(with(&[lost, read("a", 40, 50, Told::Nothing)]), 0, "it is over");
    }

    #[test]
    fn a_second_address_for_a_slot_and_a_generation_given_twice_are_found() {
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), grant("a", 20, 30, 6, 2)]), 1);
        assert_eq!(problems(&[grant("a", 0, 10, 5, 1), grant("b", 20, 30, 6, 1)]), 1);
    }

    #[test]
    fn what_was_lost_and_given_back_is_no_second_holding_of_the_same() {
        let lost = [
            grant("a", 0, 10, 5, 1),
            grant("a", 20, 30, 6, 2),
            release("a", 40, 50, Told::Released),
            grant("a", 60, 70, 5, 1),
        ];
        assert_eq!(problems(&lost), 1, "the second one, and nothing of the third");
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

    fn block(owner: &str, sent_ns: u64, told_ns: u64, span: Span, generation: u64) -> Call {
        let told = Told::Held { span, generation, created: true, until_ns: None };
        call(owner, Asked::Grant, sent_ns, told_ns, told)
    }

    #[test]
    fn a_block_that_shares_one_address_with_another_is_found() {
        assert_eq!(problems(&[block("a", 0, 10, (4, 7), 1), block("b", 20, 30, (8, 11), 2)]), 0);
        assert_eq!(problems(&[block("a", 0, 10, (4, 7), 1), block("b", 20, 30, (7, 8), 2)]), 1);
        assert_eq!(problems(&[block("a", 0, 10, (4, 7), 1), block("b", 20, 30, (0, 15), 2)]), 1, "around it");
        assert_eq!(problems(&[block("a", 0, 10, (0, 15), 1), block("b", 20, 30, (4, 7), 2)]), 1, "inside it");
        let smaller = [block("a", 0, 10, (4, 7), 1), block("a", 20, 30, (4, 5), 2)];
        assert_eq!(problems(&smaller), 2, "it shrank: another one for its slot, and inside what it has");
    }

    #[test]
    fn a_lease_that_is_given_to_somebody_else_too_early_is_found() {
        let lease = |owner: &str, sent_ns, told_ns, span, generation, until_ns| {
            let told = Told::Held { span, generation, created: true, until_ns: Some(until_ns) };
            call(owner, Asked::Grant, sent_ns, told_ns, told)
        };
        let early = [lease("a", 0, 10, (5, 5), 1, 100), lease("b", 60, 99, (5, 5), 2, 160)];
        assert_eq!(problems(&early), 1);
        assert_eq!(problems(&[lease("a", 0, 10, (5, 5), 1, 100), block("b", 60, 99, (4, 7), 2)]), 1, "in a block");
        let nothing = [lease("a", 0, 10, (5, 5), 1, 100), release("a", 60, 90, Told::Nothing)];
        assert_eq!(problems(&nothing), 1, "it ended early");
        assert_eq!(problems(&[lease("a", 0, 10, (5, 5), 1, 100), release("a", 60, 110, Told::Nothing)]), 0);
    }

    fn transfer(from: &str, to: &str, sent_ns: u64, told_ns: u64, told: Told) -> Call {
        let to = grant(to, 0, 0, 0, 0).holder;
        call(from, Asked::Transfer { to }, sent_ns, told_ns, told)
    }

    fn handed(from: &str, to: &str, sent_ns: u64, told_ns: u64, address: u128, generation: u64) -> Call {
        let told = Told::Held { span: (address, address), generation, created: false, until_ns: None };
        transfer(from, to, sent_ns, told_ns, told)
    }

    #[test]
    fn a_transfer_is_a_release_by_the_one_and_a_grant_to_the_other() {
        let first = grant("a", 0, 10, 5, 1);
        let right = [first.clone(), handed("a", "b", 20, 30, 5, 2), grant("b", 40, 50, 5, 2), grant("a", 40, 50, 6, 3)];
        assert_eq!(problems(&right), 0);
        let lost = transfer("a", "b", 20, 30, Told::Unknown);
        assert_eq!(problems(&[first.clone(), lost.clone(), grant("b", 40, 50, 5, 2)]), 0, "it happened");
        assert_eq!(problems(&[first.clone(), lost, grant("a", 40, 50, 5, 1)]), 0, "it did not");
        let refused = transfer("a", "b", 20, 30, Told::Refused("already_exists".to_owned()));
        assert_eq!(problems(&[first.clone(), refused.clone(), grant("a", 40, 50, 5, 1)]), 0);
        assert_eq!(problems(&[first, refused, grant("b", 40, 50, 5, 2)]), 1, "it was refused, and done");
    }

    #[test]
    fn a_transfer_mistaken_is_found() {
        let first = [grant("a", 0, 10, 5, 1), grant("c", 0, 10, 7, 9)];
        let with = |more: &[Call]| problems(&[&first[..], more].concat());
        assert_eq!(with(&[handed("a", "b", 20, 30, 5, 2), grant("a", 40, 50, 5, 1)]), 2, "the one has it still");
        assert_eq!(with(&[handed("a", "b", 20, 30, 5, 2), grant("d", 40, 50, 5, 3)]), 1, "the other does not have it");
        assert_eq!(with(&[handed("a", "b", 20, 30, 6, 2)]), 1, "another than was held");
        assert_eq!(with(&[handed("a", "c", 20, 30, 5, 2)]), 1, "the other had something");
        let nothing = transfer("a", "b", 20, 30, Told::Refused("not_found".to_owned()));
        assert_eq!(with(&[nothing]), 1, "the one had it");
        let released = [handed("a", "b", 20, 30, 5, 2), release("b", 40, 50, Told::Nothing)];
        assert_eq!(with(&released), 1, "the other was told that it has nothing");
    }
}
