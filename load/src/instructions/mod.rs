//! The cost of an allocation in instructions of the server: a figure that does not depend on other work of the machine.
//!
//! The server runs under valgrind, which counts instructions. It is run twice, from start to end, once with fewer and once
//! with more requests. The difference of the two counts, divided by the difference of the requests, is the cost of an
//! allocation. Everything that would make the count vary from run to run is fixed: one thread for connections, one
//! connection, the number of requests in each write, and the seed of the owners.
//!
//! `recorded` has the counts that later ones are compared with; `counted` runs valgrind.

mod counted;
mod recorded;

use std::io::{self, Write};

use crate::arguments::InstructionsArguments;
use crate::report::Telling;
use crate::report::document::check_place;
use crate::target::Store;
use counted::Counter;
use recorded::Recorded;

/// By how many per cent a count may exceed the recorded one.
const MORE_MAX: u64 = 10;
/// A count that is lower than the recorded one by more than this percentage should be recorded, or the gain could be lost
/// again unnoticed.
const LESS_NOTED: u64 = 5;

/// Counts, and records or compares. True: an allocation costs too much, or a server was found to be wrong, whatever failed
/// afterwards.
///
/// # Errors
/// There is no valgrind, a server cannot be started or does not do what is to be counted, or there is no count to compare
/// with.
pub fn run(arguments: &InstructionsArguments) -> io::Result<bool> {
    let mut too_many = false;
    match count_each(arguments, &mut too_many) {
        Err(error) if too_many => {
            say!("allod-load: {error}");
            Ok(true)
        }
        outcome => outcome.map(|is_wrong| is_wrong || too_many),
    }
}

/// Counts store by store. A count that is too large is told at once and sets `too_many`. True: a server was found to be wrong.
fn count_each(arguments: &InstructionsArguments, too_many: &mut bool) -> io::Result<bool> {
    if arguments.record {
        check_place(&arguments.file)?;
    }
    let counter = Counter::new(arguments)?;
    let compiler = counter.compiler()?;
    let mut recorded = if arguments.file.exists() || !arguments.record {
        Recorded::read(&arguments.file)?
    } else {
        Recorded::default()
    };
    let (mut telling, mut out) = (Telling::default(), io::stdout());
    for &store in &arguments.store {
        let mut counts = Vec::new();
        for _ in 0..arguments.repeat {
            let Some(count) = counter.count(store)? else { return Ok(true) };
            counts.push(count);
        }
        counts.sort_unstable();
        let count = counts[counts.len() / 2];
        if let ([least, .., most], true) = (&counts[..], arguments.repeat > 1) {
            let apart = 100.0 * (most - least) as f64 / *least as f64;
            telling.note(writeln!(out, "{}: {counts:?}, {apart:.1} % apart", store.name()));
        }
        if arguments.record {
            telling.note(writeln!(out, "{}: {count} instructions an allocation", store.name()));
            recorded.note(store, count, &compiler);
        } else {
            let (line, more) = judged(store, count, &recorded, &compiler)?;
            telling.note(writeln!(out, "{line}"));
            *too_many |= more;
        }
    }
    if arguments.record {
        recorded.write(&arguments.file)?;
    } else if *too_many {
        telling.note(writeln!(
            out,
            "find out what it is spent on (--profile DIRECTORY, then callgrind_annotate); if it has to be, record it: the \
             same command with --record, and {} goes with the change",
            arguments.file.display()
        ));
    }
    telling.end(*too_many)?;
    Ok(false)
}

/// The line about a count, and whether the count is too large.
fn judged(store: Store, count: u64, recorded: &Recorded, compiler: &str) -> io::Result<(String, bool)> {
    let Some(before) = recorded.of(store) else {
        let text = format!("no count is recorded for {}: record one with --record", store.name());
        return Err(io::Error::other(text));
    };
    let too_many = count * 100 > before.instructions * (100 + MORE_MAX);
    let by = if before.compiler == compiler {
        String::new()
    } else {
        format!(", by {}; this is of {compiler}, which may be a part of it", before.compiler)
    };
    let verdict = if too_many {
        format!("; that is too much, {MORE_MAX} % are allowed")
    } else if count * 100 < before.instructions * (100 - LESS_NOTED) {
        "; record it (--record), so that it stays so".to_owned()
    } else {
        String::new()
    };
    let line = format!(
        "{}: {count} instructions an allocation, {:+.1} % to the {} recorded{by}{verdict}",
        store.name(),
        100.0 * (count as f64 / before.instructions as f64 - 1.0),
        before.instructions
    );
    Ok((line, too_many))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        let mut recorded = Recorded::default();
        recorded.note(Store::Memory, 10_000, "rustc version 1");
        recorded
    }

    #[test]
    fn a_tenth_more_than_recorded_is_allowed_and_no_more() {
        let judged = |count| judged(Store::Memory, count, &recorded(), "rustc version 1").unwrap();
        assert!(!judged(9_000).1 && !judged(11_000).1);
        let (line, too_many) = judged(11_001);
        assert!(too_many);
        for told in ["memory", "11001", "10000", "+10.0 %", "too much"] {
            assert!(line.contains(told), "{told}: {line}");
        }
    }

    #[test]
    fn a_count_that_fell_by_much_is_to_be_recorded() {
        let line = |count| judged(Store::Memory, count, &recorded(), "rustc version 1").unwrap().0;
        assert!(line(9_400).contains("--record"), "{}", line(9_400));
        assert!(!line(9_600).contains("--record"), "{}", line(9_600));
    }

    #[test]
    fn another_compiler_is_named_and_compared_with() {
        let judged = |compiler| judged(Store::Memory, 12_000, &recorded(), compiler).unwrap();
        let (line, too_many) = judged("rustc version 2");
        assert!(too_many && line.contains("rustc version 1") && line.contains("rustc version 2"), "{line}");
        assert!(!judged("rustc version 1").0.contains("rustc"));
    }

    #[test]
    fn a_store_without_a_record_is_not_in_order() {
        let error = judged(Store::Redis, 1, &recorded(), "").unwrap_err().to_string();
        assert!(error.contains("redis") && error.contains("--record"), "{error}");
    }
}
