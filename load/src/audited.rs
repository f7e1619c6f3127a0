//! A scenario under audit, as the driver sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::audit::{Auditor, Rule};
use crate::driver::Workload;
use crate::meter::{Kind, Outside};
use crate::refusal::Refusal;
use crate::scan::Answer;
use crate::scenario::{Desk, Scenario};

/// The scenario, and what it learned.
pub struct Audited {
    pub scenario: Box<dyn Scenario>,
    pub audit: Auditor,
    /// Addresses that all pools together can hold.
    pub capacity: u64,
    /// Addresses that were held before the run.
    pub held_before: u64,
    /// Refusals by kind.
    pub refused: BTreeMap<String, u64>,
}

impl Workload for Audited {
    fn request(&mut self, lane: usize, id: usize, now: Duration, out: &mut Vec<u8>) -> Option<Kind> {
        self.scenario.request(lane, &mut Desk { audit: &mut self.audit, id, now }, out)
    }

    fn answer(&mut self, lane: usize, now: Duration, answer: &Answer<'_>) -> bool {
        let mut desk = Desk { audit: &mut self.audit, id: answer.id, now };
        if answer.ok {
            self.scenario.answer(lane, &mut desk, Ok(answer.line));
            return true;
        }
        let refusal = Refusal::read(answer.line);
        if refusal.is_fault() {
            let Refusal { kind, message, .. } = &refusal;
            desk.audit.faults.add(Rule::RefusesNothingRight, || format!("{kind}: {message}"));
        }
        self.scenario.answer(lane, &mut desk, Err(&refusal));
        *self.refused.entry(refusal.kind).or_default() += 1;
        false
    }

    fn outside(&self) -> Outside {
        let held = self.held_before.saturating_add(self.audit.held()).saturating_sub(self.audit.taken_over);
        Outside { held, capacity: self.capacity, faults: self.audit.faults.total(), waiting: 0 }
    }
}
