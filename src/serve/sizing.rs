//! How large a machine a register needs: arithmetic over measured figures, each with the command that measured it.
//!
//! Bytes are nearly the same on any 64-bit machine; times are those of the machine in README.md, *Numbers*: two processors
//! of an Intel Xeon in a virtual machine. A test (`tests/e2e/sizing.rs`) compares the bytes with what servers really take.
//!
//! Review notes: does each figure still agree with README.md and deploy/README.md? Is what happens only briefly (a snapshot,
//! a handover, a rewritten file) in `most` and not in `usual`?

use serde::Serialize;

use crate::config::{Config, History, StoreKind};
use crate::core::address::Family;

/// An empty server with files: resident memory of `allod serve` after its first start, most of which are the 64 MiB of zeros
/// of a segment.
const EMPTY_WITH_FILES: u64 = 96_000_000;
/// An empty server over Redis: resident memory of `allod serve` after its first start.
const EMPTY_OVER_REDIS: u64 = 40_000_000;
/// A network with one subnet: resident memory of 10 000 of them (files) and 5 000 (Redis), made by `network.create`.
const NETWORK_WITH_FILES: u64 = 12_000;
/// A network with one subnet over Redis.
const NETWORK_OVER_REDIS: u64 = 24_000;
/// A reservation, owner of 24 bytes and scope of 12: resident memory at 1 000 000 and 1 500 000, by `ip.allocate` (260 and 265
/// bytes IPv4; 303 and 310 IPv6). `cargo bench --bench core` counts 277 and 299 to 334 on the heap.
const RESERVATION: [u64; 2] = [265, 310];
/// A reservation over Redis at 1 000 000, `store.redis_heal_bytes = 0`: 346 after the grants, and some 10 more after a
/// start.
const RESERVATION_OVER_REDIS: [u64; 2] = [357, 398];
/// Added while a snapshot is made: the peak of resident memory at 2 200 000 reservations, less what stays (180 bytes).
const SNAPSHOT_WORK: u64 = 181;
/// A reservation in a snapshot: its file at 2 200 000 (IPv4) and 1 900 000 (IPv6).
const SNAPSHOT: [u64; 2] = [57, 67];
/// A segment of the log. There are two: the one that is written, and one that is made ahead.
const SEGMENT: u64 = 64 << 20;
/// An event of the history if many are committed together: 66 to 90 bytes by `allod_store_log_bytes_total`.
const EVENT_TOGETHER: [u64; 2] = [78, 90];
/// An event that is a commit of its own: README.md, *Limits*.
const EVENT_ALONE: u64 = 200;
/// Below this rate most events are commits of their own.
const ALONE_PER_SECOND: f64 = 1_000.0;
/// A reservation in Redis: `used_memory` without history, at 200 000 to 1 000 000 (68 to 72 bytes IPv4, 105 IPv6; records of 60
/// bytes). `src/store/redis/mod.rs` has 61 and 100 for records of 47.
const RESERVATION_IN_REDIS: [u64; 2] = [71, 105];
/// A network in Redis: `used_memory` without history, at 5 000.
const NETWORK_IN_REDIS: u64 = 590;
/// What Redis adds to the bytes of a history: 77 for each event of 66 (deploy/README.md: half as much again, at most).
const REDIS_HISTORY_PERCENT: u64 = 120;
/// An empty Redis.
const EMPTY_REDIS: u64 = 1_500_000;
/// Bytes of Redis' files for each byte of its memory: the present file, which may double before it is rewritten, and the
/// next one.
const REDIS_FILES: u64 = 3;
/// Processor time of the server for a change, in microseconds: 5.5 if a thousand come at once for one network, 12 if they
/// are spread over 64.
const MICROSECONDS: f64 = 12.0;
/// Processor time of Redis for a change, in microseconds, a thousand at once. A single thread does all of it.
const REDIS_MICROSECONDS: f64 = 3.8;
/// Bytes of an `ip.allocate` and of its whole answer, as in README.md, *Try it*; `brief` answers take 110.
const REQUEST: u64 = 120;
const ANSWER: u64 = 640;
/// Seconds until a server that was killed is ready, for each million reservations in one network: README.md, *Numbers*.
const START_SECONDS_A_MILLION: f64 = 1.1;

/// The register that is asked about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegisterSize {
    /// Networks, each with a subnet.
    pub networks: u64,
    /// Reservations that are held at the same time.
    pub reservations: u64,
    /// The kind of store.
    pub store: StoreKind,
    /// Grants in a second, sustained; as many are released.
    pub allocations_per_second: f64,
    /// Family of the addresses.
    #[serde(serialize_with = "number")]
    pub family: Family,
    /// `history.keep_seconds`.
    pub history_seconds: u64,
    /// `history.keep_bytes`; 0: the default of the store.
    pub history_bytes: u64,
}

fn number<S: serde::Serializer>(family: &Family, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(if *family == Family::V4 { 4 } else { 6 })
}

/// Bytes: the usual amount, and the largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// For most of the time.
    pub usual: u64,
    /// During a temporary activity that the output explains.
    pub most: u64,
}

/// The machine that the register needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizing {
    /// Memory of each node that may own the register.
    pub memory: Bytes,
    /// Disk of a node with files.
    pub disk: Bytes,
    /// Memory of Redis.
    pub redis_memory: Option<Bytes>,
    /// Disk of Redis.
    pub redis_disk: Option<Bytes>,
    /// History that is kept, as encoded.
    pub history: u64,
    /// How far back that reaches, in seconds; as far as wished if there is room.
    pub history_reaches_seconds: u64,
    /// Processors of the node that are busy.
    pub processors: f64,
    /// Share of the one processor that Redis can use.
    pub redis_processor: Option<f64>,
    /// Bytes a second to and from clients.
    pub network_per_second: u64,
    /// Seconds until a server that was killed is ready.
    pub start_seconds: f64,
}

impl RegisterSize {
    /// With the default history.
    pub fn new(networks: u64, reservations: u64, store: StoreKind) -> Self {
        let History { keep_seconds, keep_bytes } = History::default();
        Self {
            networks,
            reservations,
            store,
            allocations_per_second: 0.0,
            family: Family::V4,
            history_seconds: keep_seconds,
            history_bytes: keep_bytes,
        }
    }

    /// Bytes of encoded history, and how far back it reaches.
    fn history(&self) -> (u64, u64) {
        let by = usize::from(self.family == Family::V6);
        let per_second = 2.0 * self.allocations_per_second;
        let event = if per_second < ALONE_PER_SECOND { EVENT_ALONE } else { EVENT_TOGETHER[by] };
        let bound = History { keep_seconds: self.history_seconds, keep_bytes: self.history_bytes }.bytes_in(self.store);
        // What is held was granted, mostly at once: the first fill.
        let filled = self.reservations.saturating_mul(EVENT_TOGETHER[by]);
        let rate = per_second * event as f64;
        let lasting = (rate * self.history_seconds as f64) as u64;
        let kept = lasting.saturating_add(filled).min(bound);
        let reaches =
            if rate > 0.0 { ((bound as f64 / rate) as u64).min(self.history_seconds) } else { self.history_seconds };
        (kept, reaches)
    }

    /// The machine that the register needs.
    pub fn sizing(&self) -> Sizing {
        let by = usize::from(self.family == Family::V6);
        let times = |count: u64, bytes: u64| count.saturating_mul(bytes);
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        let (history, history_reaches_seconds) = self.history();
        let changes = 2.0 * self.allocations_per_second;
        let snapshot = times(self.reservations, SNAPSHOT[by]);
        let (memory, disk) = match self.store {
            StoreKind::Embedded => {
                let usual = sum(&[
                    EMPTY_WITH_FILES,
                    times(self.networks, NETWORK_WITH_FILES),
                    times(self.reservations, RESERVATION[by]),
                ]);
                let memory = Bytes { usual, most: sum(&[usual, times(self.reservations, SNAPSHOT_WORK)]) };
                // The snapshot, and the next one beside it; history is dropped a segment at a time, when the next one is
                // made.
                let usual = sum(&[history, 2 * SEGMENT, snapshot]);
                (memory, Bytes { usual, most: sum(&[usual, snapshot, SEGMENT]) })
            }
            StoreKind::Redis => {
                let register = sum(&[
                    times(self.networks, NETWORK_OVER_REDIS),
                    times(self.reservations, RESERVATION_OVER_REDIS[by]),
                ]);
                // The bound counts fully: 64 MiB of it took 64 MB of resident memory, by 68 000 commits of one change.
                let heal = Config::default().store.redis_heal_bytes;
                let usual = sum(&[EMPTY_OVER_REDIS, register, heal]);
                // A second copy while it is handed over.
                (Bytes { usual, most: sum(&[usual, register]) }, Bytes::default())
            }
            StoreKind::Memory => {
                let register =
                    sum(&[times(self.networks, NETWORK_WITH_FILES), times(self.reservations, RESERVATION[by])]);
                let usual = sum(&[EMPTY_OVER_REDIS, register, times(self.reservations, SNAPSHOT[by]), history]);
                (Bytes { usual, most: usual }, Bytes::default())
            }
        };
        let over_redis = self.store == StoreKind::Redis;
        let data = sum(&[times(self.networks, NETWORK_IN_REDIS), times(self.reservations, RESERVATION_IN_REDIS[by])]);
        let in_redis = sum(&[EMPTY_REDIS, data, times(history / 100, REDIS_HISTORY_PERCENT)]);
        Sizing {
            memory,
            disk,
            redis_memory: over_redis.then_some(Bytes { usual: in_redis, most: times(2, in_redis) }),
            redis_disk: over_redis.then_some(Bytes { usual: in_redis, most: times(REDIS_FILES, in_redis) }),
            history,
            history_reaches_seconds,
            processors: changes * MICROSECONDS / 1e6,
            redis_processor: over_redis.then_some(changes * REDIS_MICROSECONDS / 1e6),
            network_per_second: (self.allocations_per_second * 2.0 * (REQUEST + ANSWER) as f64) as u64,
            start_seconds: self.reservations as f64 / 1e6 * START_SECONDS_A_MILLION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_can_be_counted_is_as_much_as_can_be() {
        for store in [StoreKind::Embedded, StoreKind::Redis, StoreKind::Memory] {
            let wish = RegisterSize { history_bytes: u64::MAX, ..RegisterSize::new(u64::MAX, u64::MAX, store) };
            let sizing = wish.sizing();
            assert_eq!((sizing.memory.usual, sizing.memory.most), (u64::MAX, u64::MAX), "{store:?}");
            assert!(
                sizing.disk.most >= sizing.disk.usual && sizing.redis_disk.is_none_or(|disk| disk.most == u64::MAX)
            );
        }
    }

    #[test]
    fn a_million_takes_what_the_pages_say() {
        let files = RegisterSize::new(1, 1_000_000, StoreKind::Embedded).sizing();
        assert!((340_000_000..380_000_000).contains(&files.memory.usual), "{files:?}");
        assert!(files.memory.most > files.memory.usual && files.redis_memory.is_none());
        let redis = RegisterSize::new(1, 1_000_000, StoreKind::Redis).sizing();
        let memory = redis.redis_memory.unwrap();
        // 71 MB, and as many events of 78 bytes with the overhead of Redis.
        assert!((160_000_000..170_000_000).contains(&memory.usual), "{memory:?}");
        assert_eq!(memory.most, 2 * memory.usual);
        let six = RegisterSize { family: Family::V6, ..RegisterSize::new(1, 1_000_000, StoreKind::Embedded) }.sizing();
        assert!(six.memory.usual > files.memory.usual && six.disk.usual > files.disk.usual);
    }

    #[test]
    fn history_is_bounded_by_bytes_and_then_reaches_less_far() {
        let mut wish = RegisterSize { allocations_per_second: 1.0, ..RegisterSize::new(1, 0, StoreKind::Embedded) };
        let slow = wish.sizing();
        assert_eq!((slow.history, slow.history_reaches_seconds), (2 * 200 * 30 * 86_400, 30 * 86_400));
        wish.allocations_per_second = 10_000.0;
        let fast = wish.sizing();
        assert_eq!(fast.history, 10 << 30);
        assert!(fast.history_reaches_seconds < 86_400, "{fast:?}");
        assert!(fast.disk.usual > 10 << 30);
        wish.history_bytes = 1 << 20;
        assert_eq!(wish.sizing().history, 1 << 20);
    }

    #[test]
    fn no_wish_overflows() {
        for store in [StoreKind::Embedded, StoreKind::Redis, StoreKind::Memory] {
            let wish = RegisterSize { allocations_per_second: 1e18, ..RegisterSize::new(1 << 40, 1 << 45, store) };
            assert!(wish.sizing().memory.most >= wish.sizing().memory.usual);
        }
    }
}
