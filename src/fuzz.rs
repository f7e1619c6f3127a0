//! What fuzzers have in common: a seed, a time limit, and how bytes are changed. Compiled for tests only.
//!
//! `ALLOD_FUZZ_SECONDS` makes them run longer and draw from a new seed each time; `ALLOD_SEED` replays a run. With neither
//! they always draw from the same seed, so that a failure is due to the change under test.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

const SEED: u64 = 1;

/// Draws from the seed that was asked for; if none was, from a new one in a long run and a fixed one else. Prints the seed.
pub(crate) fn seeded() -> SmallRng {
    let long = std::env::var_os("ALLOD_FUZZ_SECONDS").is_some();
    let seed = number("ALLOD_SEED").unwrap_or_else(|| if long { rand::random() } else { SEED });
    println!("replay with ALLOD_SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

/// When to end: after so many seconds, unless the environment says otherwise.
pub(crate) fn end(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(number("ALLOD_FUZZ_SECONDS").unwrap_or(seconds))
}

/// Changes a few bytes: flips, sets, removes, inserts, or copies a piece elsewhere.
pub(crate) fn mutate(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.push(rng.random());
        return;
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..5) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
        2 => drop(bytes.remove(at)),
        3 => bytes.insert(at, rng.random()),
        _ => {
            let end = (at + rng.random_range(1..20)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            let to = rng.random_range(0..=bytes.len());
            bytes.splice(to..to, piece);
        }
    }
}
