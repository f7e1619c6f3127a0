//! The end of a run that has unanswered requests: takes the answers that are there, gives up the others, and determines the
//! measured time.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use rustix::io::ioctl_fionread;

use super::{Lost, READ_BYTES, Run, Stop, Workload};

impl<W: Workload> Run<'_, W> {
    /// Takes what was received on all connections before a failure cut the run off, without waiting: a server that went
    /// may have been wrong before.
    pub(super) fn take_received(&mut self) {
        let mut buffer = vec![0; READ_BYTES];
        for number in 0..self.connections.len() {
            // Not what comes from now on: a server that goes on sending must not delay the end.
            let there = ioctl_fionread(&self.connections[number].stream).unwrap_or(0);
            let mut left = usize::try_from(there).unwrap_or(usize::MAX);
            while left > 0 {
                let most = left.min(buffer.len());
                match self.connections[number].stream.read(&mut buffer[..most]) {
                    Ok(0) => break,
                    Ok(read) => {
                        self.received(number, &buffer[..read]);
                        left -= read;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // This connection is broken, too, or has nothing more.
                    Err(_) => break,
                }
            }
        }
    }

    /// Gives up all outstanding requests. They count as a fault of the server, unless the run was cut off.
    pub(super) fn give_up(&mut self, now: Duration) {
        let is_fault = self.measured.cut_off.is_none();
        for lane in 0..self.started.len() {
            let Some((kind, from)) = self.started[lane].take() else { continue };
            let waited = now.saturating_sub(from);
            let server = self.connections[lane / self.shape.depth].server;
            self.workload.lost(lane, now, &Lost { kind, server, waited, is_fault });
            if is_fault {
                self.measured.lost += 1;
                // The latency is at least this long, so it belongs among the latencies.
                if self.counts(from) {
                    self.measured.meter.record_lost(kind, waited);
                }
            }
        }
    }

    /// The measured time: until the last answer, or until the end if answers came after it. If the server fell silent, the
    /// time that was to be measured. If all answers were late, the rate is that of the late answers.
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
