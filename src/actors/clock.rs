//! Time and randomness: the only place that asks for either. The core gets both as arguments.
//!
//! Three things are distinguished. *Boot time* advances while the machine is up, suspended or not, and never goes back;
//! shard time is counted in it. *Wall time* is for people. *Entropy* makes ids and the random policy.
//!
//! Neighbours: `network`, `committer` and `directory` use it; tests pass a [`ManualClock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::{RngCore, SeedableRng, rngs::SmallRng};

use crate::core::types::{ShardTime, WallTime};

/// The readings of a shard's two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time of the shard.
    pub now: ShardTime,
    /// Shard time since which the clock has not stood still.
    pub since: ShardTime,
    /// Wall time, for people. Within one shard it goes back only if somebody set the wall clock back.
    pub wall: WallTime,
}

/// Source of time and randomness.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// Milliseconds since some fixed point, never going back (CLOCK_BOOTTIME).
    fn boot_ms(&self) -> u64;
    /// Milliseconds by which the leases of nodes are measured here; the store's clock also counts them. It differs from
    /// [`Clock::boot_ms`] only in tests, which may move their own time and not the store's.
    fn lease_ms(&self) -> u64 {
        self.boot_ms()
    }
    /// What a reading may lack of a millisecond, as whole milliseconds: what began at a reading, and lasts for some time, is
    /// over only when a reading shows that much more.
    fn cut_off_ms(&self) -> u64 {
        0
    }
    /// Does a long time between two looks mean that the process stood still? A test moves its clock as it likes.
    fn tells_pauses(&self) -> bool {
        false
    }
    /// The wall clock.
    fn wall(&self) -> WallTime;
    /// Fresh random bits from the operating system, or a test's reproducible ones. Not for the hot path: see [`Draws`].
    fn entropy(&self) -> u128;
}

/// The machine's clocks.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn boot_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
    }

    fn cut_off_ms(&self) -> u64 {
        1
    }

    fn tells_pauses(&self) -> bool {
        true
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where wall-clock time enters")]
    fn wall(&self) -> WallTime {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        WallTime(now.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    }

    fn entropy(&self) -> u128 {
        rand::random()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    boot_ms: AtomicU64,
    wall_ms: AtomicU64,
    drawn: AtomicU64,
    cut_off_ms: AtomicU64,
}

impl ManualClock {
    /// Starts at this wall time; ids are drawn reproducibly from `seed`.
    pub fn new(wall: WallTime, seed: u64) -> Self {
        let (boot_ms, wall_ms) = (AtomicU64::new(1_000_000), AtomicU64::new(wall.0));
        Self { boot_ms, wall_ms, drawn: AtomicU64::new(seed), cut_off_ms: AtomicU64::new(0) }
    }

    /// Advances both clocks.
    pub fn advance_ms(&self, ms: u64) {
        self.boot_ms.fetch_add(ms, Ordering::SeqCst);
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// From now on its readings lack a part of a millisecond, as those of the machine's clock do.
    pub fn cuts_off(&self) {
        self.cut_off_ms.store(1, Ordering::SeqCst);
    }

    /// Makes the wall clock alone jump, as such clocks do.
    pub fn set_wall(&self, wall: WallTime) {
        self.wall_ms.store(wall.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn boot_ms(&self) -> u64 {
        self.boot_ms.load(Ordering::SeqCst)
    }

    fn cut_off_ms(&self) -> u64 {
        self.cut_off_ms.load(Ordering::SeqCst)
    }

    fn wall(&self) -> WallTime {
        WallTime(self.wall_ms.load(Ordering::SeqCst))
    }

    fn entropy(&self) -> u128 {
        let mut draws = SmallRng::seed_from_u64(self.drawn.fetch_add(1, Ordering::SeqCst));
        u128::from(draws.next_u64()) << 64 | u128::from(draws.next_u64())
    }
}

/// A cheap stream of random bits for one actor, seeded once from the clock.
#[derive(Debug)]
pub struct Draws(SmallRng);

impl Draws {
    /// Seeds with 256 bits.
    pub fn new(clock: &dyn Clock) -> Self {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&clock.entropy().to_le_bytes());
        seed[16..].copy_from_slice(&clock.entropy().to_le_bytes());
        Self(SmallRng::from_seed(seed))
    }

    /// The next bits.
    pub fn draw(&mut self) -> u128 {
        u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64())
    }
}

/// Time of one shard: it starts where the head of the shard stood when it was taken, and advances with the boot clock. Time in
/// which nobody could commit does not count, so leases and cooldowns err late only: no node owned the shard, or its owner did
/// not serve yet, the store took nothing or was not reached, or the process stood still for longer than four seconds. It is
/// read often ([`LOOKED_AT_EVERY`]); the time since the last look counts as a whole, or not at all.
#[derive(Debug)]
pub struct ShardClock {
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// Shard time at the last look.
    time: u64,
    /// Boot time then.
    at: u64,
    /// Shard time since which it has not stood still: clients that could not renew have time to do so from then on.
    since: u64,
    beside: WallOffset,
}

/// How often a running process looks at each shard's time, at least.
pub const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// If nobody looked for longer, the process or the machine stood still. Shorter pauses count, as a busy process is late by
/// itself.
const STOOD_STILL_MS: u64 = 4_000;

impl ShardClock {
    /// For a shard whose last batch was written at `head`.
    pub fn new(head: ShardTime, clock: &dyn Clock) -> Self {
        let beside = WallOffset::default();
        Self { reading: Mutex::new(Reading { time: head.0, at: clock.boot_ms(), since: head.0, beside }) }
    }

    /// The current time. `serving`: the store takes changes, as far as is known.
    pub fn now(&self, clock: &dyn Clock, serving: bool) -> Moment {
        // Nothing under this lock can panic half-way.
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let boot = clock.boot_ms();
        let passed = boot.saturating_sub(reading.at);
        if serving && !(clock.tells_pauses() && passed > STOOD_STILL_MS) {
            reading.time += passed;
        } else {
            reading.since = reading.time;
        }
        reading.at = reading.at.max(boot);
        let (now, since) = (ShardTime(reading.time), ShardTime(reading.since));
        // All networks of the shard get the same time: what they do becomes one history.
        let wall = reading.beside.wall(now, clock.wall(), || clock.boot_ms().saturating_sub(boot));
        Moment { now, since, wall }
    }
}

/// Maps a shard's time to wall time. Both are read in whole milliseconds that begin at different moments, so on their own they
/// drift apart by one and back, and the shown end of a lease with them, at each look. If the thread is suspended between the
/// two readings they are further apart once, by at most that pause; and a clock that is slewed falls behind.
#[derive(Debug, Default, Clone, Copy)]
struct WallOffset {
    ahead_ms: i64,
    /// The wall time that was returned last.
    told_ms: u64,
}

/// A wall clock that goes back by no more than this was not set but slewed, or was read late the time before: until it has
/// caught up, time stands still, so that what happened later never seems to have happened before.
const SLEWED_MS_MAX: u64 = 1_000;

impl WallOffset {
    /// The wall time at a shard's time, to the millisecond. It was read up to `later_ms` later, which is evaluated only if the
    /// two moved apart. A clock that was set is followed at once.
    fn wall(&mut self, now: ShardTime, wall: WallTime, later_ms: impl FnOnce() -> u64) -> WallTime {
        let ahead_ms = wall.0.wrapping_sub(now.0) as i64;
        let moved_ms = ahead_ms.abs_diff(self.ahead_ms);
        if moved_ms > 1 && moved_ms > 1 + later_ms() {
            self.ahead_ms = ahead_ms;
        }
        let says = now.0.wrapping_add_signed(self.ahead_ms);
        let goes_back = self.told_ms.saturating_sub(says);
        self.told_ms = if goes_back <= SLEWED_MS_MAX { says.max(self.told_ms) } else { says };
        WallTime(self.told_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(shard: &ShardClock, clock: &dyn Clock, serving: bool) -> (ShardTime, ShardTime) {
        let Moment { now, since, wall: _ } = shard.now(clock, serving);
        (now, since)
    }

    #[test]
    fn shard_time_ignores_the_wall_clock_and_goes_on_from_the_head() {
        let clock = ManualClock::new(WallTime(5_000_000), 1);
        let shard = ShardClock::new(ShardTime(700), &clock);
        clock.set_wall(WallTime(1));
        let at_head = ShardTime(700);
        assert_eq!(times(&shard, &clock, true), (at_head, at_head));
        clock.advance_ms(30);
        assert_eq!(times(&shard, &clock, true), (ShardTime(730), at_head));
    }

    #[test]
    fn time_in_which_the_store_takes_nothing_does_not_count_and_is_known_behind_it() {
        let clock = ManualClock::new(WallTime(5_000_000), 1);
        let shard = ShardClock::new(ShardTime(700), &clock);
        clock.advance_ms(50);
        assert_eq!(times(&shard, &clock, true), (ShardTime(750), ShardTime(700)));
        for _ in 0..3 {
            clock.advance_ms(60_000);
            assert_eq!(times(&shard, &clock, false), (ShardTime(750), ShardTime(750)));
        }
        clock.advance_ms(10_000);
        assert_eq!(times(&shard, &clock, true), (ShardTime(10_750), ShardTime(750)), "from when it was looked at last");
    }

    /// A clock on which a process stands still.
    #[derive(Debug)]
    struct Stopped(ManualClock);

    impl Clock for Stopped {
        fn boot_ms(&self) -> u64 {
            self.0.boot_ms()
        }

        fn tells_pauses(&self) -> bool {
            true
        }

        fn wall(&self) -> WallTime {
            self.0.wall()
        }

        fn entropy(&self) -> u128 {
            self.0.entropy()
        }
    }

    #[test]
    fn time_in_which_the_process_stood_still_does_not_count() {
        let clock = Stopped(ManualClock::new(WallTime(5_000_000), 1));
        let shard = ShardClock::new(ShardTime(700), &clock);
        clock.0.advance_ms(1_000);
        assert_eq!(times(&shard, &clock, true), (ShardTime(1_700), ShardTime(700)));
        clock.0.advance_ms(3_600_000);
        assert_eq!(times(&shard, &clock, true), (ShardTime(1_700), ShardTime(1_700)));
        clock.0.advance_ms(1_000);
        assert_eq!(times(&shard, &clock, true), (ShardTime(2_700), ShardTime(1_700)));
    }

    #[test]
    fn boot_time_is_that_of_the_machine_since_it_was_started_and_not_the_wall_clock() {
        let of_the_machine = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
        };
        let (before, boot_ms, after) = (of_the_machine(), SystemClock.boot_ms(), of_the_machine());
        assert!((before..=after).contains(&boot_ms), "{before} {boot_ms} {after}");
    }

    #[test]
    fn the_wall_clock_keeps_its_distance_from_the_time_of_a_shard_until_it_is_set() {
        let mut beside = WallOffset::default();
        let mut at = |now: u64, wall: u64| beside.wall(ShardTime(now), WallTime(wall), || 0).0;
        assert_eq!(at(100, 5_100), 5_100);
        assert_eq!([at(101, 5_100), at(102, 5_103), at(103, 5_102)], [5_101, 5_102, 5_103]);
        assert_eq!(at(104, 5_106), 5_106, "it was set");
        assert_eq!(at(105, 90), 90, "and back");
    }

    #[test]
    fn a_look_at_the_wall_clock_that_took_a_while_moves_no_time_forth_and_back() {
        let mut beside = WallOffset::default();
        let mut later = |now: u64, wall: u64, later_ms: u64| beside.wall(ShardTime(now), WallTime(wall), || later_ms).0;
        assert_eq!(later(100, 5_100, 0), 5_100);
        // The thread was suspended between the two readings.
        assert_eq!([later(101, 5_109, 9), later(102, 5_102, 0), later(103, 5_103, 0)], [5_101, 5_102, 5_103]);
        // And it was set just then: that is seen at the next look.
        assert_eq!([later(104, 6_104, 9), later(105, 6_105, 0)], [6_104, 6_105]);
        assert_eq!([later(106, 4_106, 2_001), later(107, 4_107, 0)], [6_106, 4_107]);
        let mut at = |now: u64, wall: u64| later(now, wall, 0);
        // The wall clock is slowed down until it is right.
        let told: Vec<u64> = (0..200).map(|passed| at(104 + 10 * passed, 5_104 + 9 * passed)).collect();
        assert!(told.is_sorted(), "{told:?}");
        assert!(told[199].abs_diff(5_104 + 9 * 199) <= 2, "it is followed");
    }

    #[test]
    fn a_wall_clock_that_was_set_is_followed_by_the_time_of_a_shard() {
        let clock = ManualClock::new(WallTime(5_000_000), 1);
        let shard = ShardClock::new(ShardTime(700), &clock);
        assert_eq!(shard.now(&clock, true).wall, WallTime(5_000_000));
        clock.advance_ms(10);
        clock.set_wall(WallTime(4_999_950));
        assert_eq!(shard.now(&clock, true).wall, WallTime(5_000_000), "it was slewed: time stands still");
        clock.set_wall(WallTime(9_000));
        assert_eq!(shard.now(&clock, true).wall, WallTime(9_000));
    }
}
