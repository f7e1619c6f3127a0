//! Alternatives built with Redis alone: one script call takes a free address, and writes its record and the index of its
//! owner.

use std::io;
use std::time::Duration;

use super::Plan;
use crate::audit::Rule;
use crate::driver::{self, Shape, Workload};
use crate::meter::{Kind, Meter, Outside};
use crate::names::Who;
use crate::refusal::NONE_LEFT;
use crate::report::Report;
use crate::scan::{Answer, Said};
use crate::target::{Redis, RedisControl, push_word};

/// Addresses that one call adds to a sorted set.
const CHUNK: u64 = 8_192;

/// How free addresses are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// One bit per address; takes the first that is not set.
    Bitmap,
    /// All free addresses in a sorted set; takes the lowest.
    SortedSet,
    /// A list of released addresses, and a counter for those that were never taken.
    List,
}

/// All scripts.
pub const SCRIPTS: [Script; 3] = [Script::Bitmap, Script::SortedSet, Script::List];

impl Script {
    pub fn name(self) -> &'static str {
        match self {
            Script::Bitmap => "bitmap",
            Script::SortedSet => "sorted set",
            Script::List => "free list",
        }
    }

    /// The script. KEYS: free, records, owners. ARGV: owner, record, size of the pool.
    fn text(self) -> String {
        let take = match self {
            Script::Bitmap => {
                "local n = redis.call('BITPOS', KEYS[1], 0) \
                 if n < 0 or n >= tonumber(ARGV[3]) then return false end redis.call('SETBIT', KEYS[1], n, 1)"
            }
            Script::SortedSet => {
                "local taken = redis.call('ZPOPMIN', KEYS[1]) if #taken == 0 then return false end \
                 local n = tonumber(taken[1])"
            }
            Script::List => {
                "local n = redis.call('LPOP', KEYS[1]) if not n then n = redis.call('INCR', KEYS[1] .. ':next') - 1 end \
                 n = tonumber(n) if n >= tonumber(ARGV[3]) then return false end"
            }
        };
        format!("{take} redis.call('HSET', KEYS[2], n, ARGV[2]) redis.call('SADD', KEYS[3] .. ARGV[1], n) return n")
    }
}

/// The lanes, and which addresses have been handed out.
struct Scripts {
    /// The parts of a call before and after the owner.
    start: Vec<u8>,
    end: Vec<u8>,
    counts: Vec<u32>,
    given: Vec<bool>,
    twice: u64,
    held: u64,
    refused: u64,
    /// The first error of Redis.
    error: Option<String>,
}

impl Workload for Scripts {
    const IN_ORDER: bool = true;

    fn request(&mut self, lane: usize, _id: usize, _now: Duration, out: &mut Vec<u8>) -> Option<Kind> {
        let who = Who::new(lane, self.counts[lane], 0);
        self.counts[lane] += 1;
        let owner = who.name();
        out.extend_from_slice(&self.start);
        push_word(out, &owner);
        out.extend_from_slice(&self.end);
        Some(Kind::Allocate)
    }

    fn answer(&mut self, _lane: usize, _now: Duration, answer: &Answer<'_>, _counts: bool) -> bool {
        let number = std::str::from_utf8(answer.line).ok().and_then(|line| line.trim_end().strip_prefix(':'));
        if answer.line.starts_with(b"-") && self.error.is_none() {
            self.error = Some(String::from_utf8_lossy(answer.line).trim_end().to_owned());
        }
        let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) else {
            self.refused += 1;
            return false;
        };
        match self.given.get_mut(number) {
            Some(given) if !*given => (*given, self.held) = (true, self.held + 1),
            _ => self.twice += 1,
        }
        true
    }

    fn read<'a>(&self, line: &'a [u8], oldest: usize) -> Option<Answer<'a>> {
        let said = if line.starts_with(b":") { Said::Result } else { Said::Refusal };
        Some(Answer { id: oldest, said, line })
    }

    fn outside(&self) -> Outside {
        Outside { held: self.held.into(), capacity: self.given.len() as u128, faults: self.twice, waiting: 0 }
    }
}

/// Runs a script on a server of its own.
///
/// # Errors
/// There is no Redis, or it refuses the script.
pub fn measure(script: Script, plan: &Plan) -> io::Result<Report> {
    let mut redis = Redis::start(plan.flush)?;
    (0..plan.replicas).try_for_each(|_| redis.add_replica())?;
    let mut control = RedisControl::connect(redis.address())?;
    let size = plan.addresses();
    match script {
        Script::SortedSet => {
            let add = "for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], n, n) end return 1";
            for first in (0..size).step_by(CHUNK as usize) {
                let last = (first + CHUNK).min(size) - 1;
                control.call(&["EVAL", add, "1", "free", &first.to_string(), &last.to_string()])?;
            }
        }
        // The whole bitmap exists from the beginning, as the sorted set does.
        Script::Bitmap => drop(control.call(&["SETBIT", "free", &size.to_string(), "0"])?),
        Script::List => {}
    }
    let digest = control.call(&["SCRIPT", "LOAD", &script.text()])?;
    let record =
        r#"{"kind":"dynamic","created_at":1760000000000,"claimant":"vm-17","labels":{"zone":"z1","tenant":"t-17"}}"#;
    let mut start = b"*9\r\n".to_vec();
    ["EVALSHA", &digest, "3", "free", "records", "owner:"].iter().for_each(|word| push_word(&mut start, word));
    let mut end = Vec::new();
    [record, &size.to_string()].iter().for_each(|word| push_word(&mut end, word));
    let shape = Shape { servers: vec![redis.address()], ..plan.shape()? };
    let given = vec![false; size as usize];
    let mut scripts =
        Scripts { start, end, counts: vec![0; shape.lanes()], given, twice: 0, held: 0, refused: 0, error: None };
    let before = redis.processor_time()?;
    let measured = driver::run(&shape, &mut scripts, Meter::new(shape.expected(), None))?;
    // An incomplete measurement counts only if an address was handed out twice.
    let measured = if scripts.twice > 0 { measured } else { measured.whole()? };
    let taken = redis.processor_time().map(|after| after.saturating_sub(before));
    if let Some(error) = scripts.error.take_if(|_| scripts.twice == 0) {
        return Err(io::Error::other(error));
    }
    let mut report = Report::measured("redis script", "", &shape, 1, &measured);
    (report.held, report.duplicates, report.capacity) = (scripts.held, scripts.twice, size);
    match taken {
        Ok(taken) => report.redis_took(taken),
        Err(error) if scripts.twice == 0 => return Err(error),
        Err(error) => report.not_made(&error.to_string()),
    }
    if scripts.twice > 0 {
        report.faults.insert(Rule::NoAddressTwice.name().to_owned(), scripts.twice);
    }
    if scripts.refused > 0 {
        report.refused.insert(NONE_LEFT.to_owned(), scripts.refused);
    }
    Ok(report)
}
