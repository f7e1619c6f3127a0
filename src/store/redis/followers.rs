//! Which replicas follow Redis, and which were seen and are gone: by name, for an operator who learns that there are too
//! few. WAIT counts replicas and names none; INFO names those that are connected.
//!
//! `watch` asks; `shared` reports if too few answer. `farewell` uses the count, and nothing else depends on this.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::server::FollowingReplica;

/// At most this many missing replicas are remembered.
const GONE_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Followers {
    /// The run of Redis that was asked: another run has replicas of its own.
    run: Option<String>,
    present: Vec<FollowingReplica>,
    /// The largest number seen in any run. If there are fewer now, the rest counts as missing: one of them may be the
    /// previous primary, which lacks what came since.
    most: usize,
    /// By address, since when each is missing.
    gone: BTreeMap<String, Instant>,
}

impl Followers {
    /// Notes the replicas that follow this run of Redis now.
    pub(super) fn sees(&mut self, run: Option<&str>, replicas: Vec<FollowingReplica>, now: Instant) {
        if self.run.as_deref() != run {
            *self = Self { run: run.map(str::to_owned), most: self.most, ..Self::default() };
        }
        for before in std::mem::take(&mut self.present) {
            self.gone.insert(before.address, now);
        }
        self.gone.retain(|address, _| replicas.iter().all(|replica| replica.address != *address));
        while self.gone.len() > GONE_MAX
            && let Some(oldest) = self.gone.iter().min_by_key(|(_, since)| **since).map(|(address, _)| address.clone())
        {
            self.gone.remove(&oldest);
        }
        self.most = self.most.max(replicas.len());
        self.present = replicas;
    }

    /// How many there are, and how many fewer that is than the most there were. One that came back under another address is
    /// not missing.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.present.len(), self.most - self.present.len())
    }

    /// Which replicas are missing, and how far the others are: a sentence without its full stop. None if no replica was ever
    /// seen.
    pub(super) fn told(&self, now: Instant) -> Option<String> {
        let gone = self.gone.iter().map(|(address, since)| {
            let seconds = now.saturating_duration_since(*since).as_secs();
            format!("{address} is gone (missed for {seconds} s)")
        });
        let present = self.present.iter().map(|replica| {
            let FollowingReplica { address, state, behind } = replica;
            match behind {
                Some(0) => format!("{address} follows ({state}) and has everything"),
                Some(bytes) => format!("{address} follows ({state}), {bytes} bytes behind"),
                None => format!("{address} follows ({state})"),
            }
        });
        let told: Vec<String> = gone.chain(present).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn replica(address: &str, behind: u64) -> FollowingReplica {
        FollowingReplica { address: address.to_owned(), state: "online".to_owned(), behind: Some(behind) }
    }

    #[test]
    fn a_replica_that_was_seen_and_is_gone_is_named_until_it_is_there_again() {
        let (mut followers, begun) = (Followers::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(followers.told(begun), None);
        followers.sees(Some("a"), vec![replica("r1:6379", 0), replica("r2:6379", 7)], at(0));
        followers.sees(Some("a"), vec![replica("r2:6379", 7)], at(3));
        let gone = "r1:6379 is gone (missed for 9 s); r2:6379 follows (online), 7 bytes behind";
        assert_eq!(followers.told(at(12)).as_deref(), Some(gone));
        // Missing since the same time as before.
        followers.sees(Some("a"), vec![replica("r2:6379", 0)], at(6));
        let gone = "r1:6379 is gone (missed for 9 s); r2:6379 follows (online) and has everything";
        assert_eq!(followers.told(at(12)).as_deref(), Some(gone));
        followers.sees(Some("a"), vec![replica("r1:6379", 0), replica("r2:6379", 0)], at(9));
        assert!(followers.told(at(12)).is_some_and(|told| !told.contains("gone")));
    }

    /// Nobody misses the replica that was promoted; but it is known that there are fewer, until as many follow again.
    #[test]
    fn of_another_run_of_redis_no_replica_of_the_one_before_is_missed_by_name_and_those_are_fewer() {
        let (mut followers, now) = (Followers::default(), Instant::now());
        followers.sees(Some("a"), vec![replica("r1:6379", 0)], now);
        followers.sees(Some("b"), Vec::new(), now);
        assert_eq!((followers.told(now), followers.count()), (None, (0, 1)));
        followers.sees(Some("b"), vec![replica("r2:6379", 0)], now);
        assert_eq!(followers.count(), (1, 0));
    }

    #[test]
    fn those_that_are_gone_are_remembered_in_a_bounded_number() {
        let (mut followers, begun) = (Followers::default(), Instant::now());
        for n in 0..100 {
            followers.sees(Some("a"), vec![replica(&format!("r{n:03}:6379"), 0)], begun + Duration::from_secs(n));
        }
        assert_eq!(
            (followers.gone.len(), followers.count()),
            (GONE_MAX, (1, 0)),
            "each came in the place of the one before"
        );
        let told = followers.told(begun + Duration::from_secs(99)).unwrap();
        assert!(told.contains("r098:6379 is gone") && !told.contains("r001:6379"), "{told}");
    }
}
