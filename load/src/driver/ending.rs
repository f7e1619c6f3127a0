//! The end of a run whose requests are not all answered: what is given up, and how long it was measured.

use std::time::Duration;

use super::{Lost, Run, Stop, Workload};

impl<W: Workload> Run<'_, W> {
    /// What is outstanding is not waited for any more. The server broke a rule by it, unless the run was cut off.
    pub(super) fn give_up(&mut self, now: Duration) {
        let is_fault = self.measured.cut_off.is_none();
        for lane in 0..self.started.len() {
            let Some((kind, from)) = self.started[lane].take() else { continue };
            let waited = now.saturating_sub(from);
            let server = self.connections[lane / self.shape.depth].server;
            self.workload.lost(lane, now, &Lost { kind, server, waited, is_fault });
            if is_fault {
                self.measured.lost += 1;
                // It took at least so long, and is told among the latencies.
                if self.counts(from) {
                    self.measured.meter.record_lost(kind, waited);
                }
            }
        }
    }

    /// The time that was measured: until the last answer, or the end where that came later; where the server fell silent, as long
    /// as it was to be measured. Where all came later there is no rate but that of the late ones.
    pub(super) fn length(&mut self, since: Duration, now: Duration, all_wait: bool) -> Duration {
        if self.measured.late == self.measured.answers {
            self.measured.late = 0;
        }
        let answered = self.last_answer.saturating_sub(since);
        let silent = now.saturating_sub(since);
        match self.shape.stop {
            Stop::After(time) if self.measured.late > 0 => time,
            _ if self.measured.lost == 0 => answered,
            Stop::After(time) => answered.max(time.min(silent)),
            Stop::Requests(count) if self.sent >= count && !all_wait => answered,
            Stop::Requests(_) => silent,
        }
    }
}
