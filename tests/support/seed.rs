//! Seeds of randomized tests.

use std::io::Write;

/// The number in an environment variable.
///
/// # Panics
/// The variable is set, and is not a number.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// The seed of this run. `ALLOD_SEED` repeats a run, as far as the machine allows. Without it every short run uses the same
/// seed, so that a failure comes from the change under test; with `ALLOD_SOAK_SECONDS` the seed is random, to find what no
/// run has met. The seed is printed, so that a failed run can be repeated.
pub fn seed() -> u64 {
    let fresh = || number("ALLOD_SOAK_SECONDS").map_or(1, |_| rand::random());
    let seed = number("ALLOD_SEED").unwrap_or_else(fresh);
    let said = format!("ALLOD_SEED={seed}\n");
    print!("{said}");
    // The harness keeps what is printed until the test ends, and a long test may be killed before. A failed write does no harm.
    if number("ALLOD_SOAK_SECONDS").is_some() {
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
    seed
}
