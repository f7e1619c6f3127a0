//! Seeds of tests that draw.

use std::io::Write;

/// A number that a variable of the environment gives.
///
/// # Panics
/// It is there and none.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// `ALLOD_SEED` repeats a run, as far as the machine does. Without it every short run draws the same, so that a change is judged
/// by what it changed; `ALLOD_SOAK_SECONDS` looks for what no run has met. Printed, so that a run that failed can be begun again.
pub fn seed() -> u64 {
    let fresh = || number("ALLOD_SOAK_SECONDS").map_or(1, |_| rand::random());
    let seed = number("ALLOD_SEED").unwrap_or_else(fresh);
    let said = format!("ALLOD_SEED={seed}\n");
    print!("{said}");
    // What is printed is kept until a test ends, and a long one may be ended before: nothing is lost if nobody hears it.
    if number("ALLOD_SOAK_SECONDS").is_some() {
        let _ = std::io::stderr().write_all(said.as_bytes());
    }
    seed
}
