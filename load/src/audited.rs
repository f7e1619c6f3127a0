//! A scenario under audit, in the form that the driver expects.

use std::net::SocketAddr;
use std::time::Duration;

use crate::audit::{Auditor, Rule};
use crate::driver::{Lost, Workload};
use crate::meter::{Kind, Outside};
use crate::refusal::{Refusal, Refusals};
use crate::scan::{self, Answer, Said};
use crate::scenario::{Desk, Scenario};

/// A scenario, its auditor, and what was counted.
pub struct Audited {
    pub scenario: Box<dyn Scenario>,
    pub audit: Auditor,
    /// Addresses that all pools together can hold.
    pub capacity: u128,
    /// Addresses that were held before the run.
    pub held_before: u128,
    /// Refusals during the measured time, and before it.
    pub refused: Refusals,
    pub refused_before: Refusals,
    /// Answers in the measured time which said that the owner had its address already.
    pub existed: u64,
    /// Requests without an answer, including those before measuring.
    pub lost: u64,
}

impl Audited {
    /// An audited scenario that has asked nothing yet.
    pub fn new(scenario: Box<dyn Scenario>, audit: Auditor) -> Self {
        Self {
            scenario,
            audit,
            capacity: 0,
            held_before: 0,
            refused: Refusals::default(),
            refused_before: Refusals::default(),
            existed: 0,
            lost: 0,
        }
    }

    /// Moves the refusals so far to `refused_before`, and counts `existed` from zero.
    pub fn measuring_begins(&mut self) {
        for (kind, count) in std::mem::take(&mut self.refused).counts {
            *self.refused_before.counts.entry(kind).or_default() += count;
        }
        self.existed = 0;
    }

    fn desk(&mut self, id: usize, now: Duration) -> (&mut dyn Scenario, Desk<'_>) {
        (self.scenario.as_mut(), Desk { audit: &mut self.audit, id, now })
    }
}

impl Workload for Audited {
    fn request(&mut self, lane: usize, id: usize, now: Duration, out: &mut Vec<u8>) -> Option<Kind> {
        let (scenario, mut desk) = self.desk(id, now);
        let kind = scenario.request(lane, &mut desk, out)?;
        self.audit.asked(lane);
        Some(kind)
    }

    fn answer(&mut self, lane: usize, now: Duration, answer: &Answer<'_>, counts: bool) -> bool {
        let before = self.audit.existed;
        let (scenario, mut desk) = self.desk(answer.id, now);
        let refusal = match answer.said {
            Said::Result => {
                scenario.answer(lane, &mut desk, Ok(answer.line));
                self.existed += if counts { self.audit.existed - before } else { 0 };
                return true;
            }
            Said::Refusal => Refusal::read(answer.line),
            Said::Unreadable => Refusal::unreadable(answer.line),
        };
        if let Some(rule) = refusal.breaks() {
            desk.audit.faults.add(rule, || format!("{}: {}", refusal.kind, refusal.message));
        }
        scenario.answer(lane, &mut desk, Err(&refusal));
        let refused = if counts { &mut self.refused } else { &mut self.refused_before };
        refused.note(&refusal);
        false
    }

    fn lost(&mut self, lane: usize, now: Duration, lost: &Lost) {
        let (scenario, mut desk) = self.desk(0, now);
        scenario.answer(lane, &mut desk, Err(&Refusal::unanswered()));
        let whose = self.audit.unknown_latest().map_or_else(String::new, |whose| format!(" of {whose}"));
        if lost.is_fault {
            self.lost += 1;
            let Lost { kind, server, waited, .. } = lost;
            let (kind, waited) = (kind.name(), waited.as_secs_f64());
            self.audit.faults.add(Rule::AnswersOnce, || {
                format!("{kind}{whose}, sent to {server}, was not answered within {waited:.1} s")
            });
        }
    }

    fn unexpected(&mut self, line: &[u8], server: SocketAddr) -> bool {
        // A line with the id of a request is an answer, even if it is a refusal. Any other line is about the connection.
        let is_answer = scan::answer(line).is_some() || Refusal::read(line).breaks().is_some();
        if is_answer {
            let line = String::from_utf8_lossy(&line[..line.len().min(200)]);
            self.audit
                .faults
                .add(Rule::AnswersOnce, || format!("{server} answered what fits no request that is open: {line}"));
        }
        is_answer
    }

    fn outside(&self) -> Outside {
        let held = (self.held_before + self.audit.held_or_leaving())
            .saturating_sub(self.audit.taken_over + self.audit.come_free);
        Outside { held, capacity: self.capacity, faults: self.audit.faults.total(), waiting: 0 }
    }
}
