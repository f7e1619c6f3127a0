//! The open loop: a request that has arrived is sent as soon as a lane is free. If the server stays behind, the remaining
//! requests are reported as never sent.

use std::io;
use std::time::Duration;

use super::{Run, Stop, Workload};
use crate::arrivals::Arrivals;
use crate::interrupt;

/// How long the requests of an open loop may still be sent after its end, if the server is behind: as long as the run,
/// within these limits.
const BEHIND_MIN: Duration = Duration::from_secs(5);
const BEHIND_MAX: Duration = Duration::from_secs(30);

impl<W: Workload> Run<'_, W> {
    /// Sends the requests that have arrived, while lanes are free, and notes whether those were all.
    pub(super) fn send_arrivals(&mut self) -> io::Result<()> {
        let mut touched = Vec::new();
        self.all_sent = loop {
            let Some(next) = self.arrivals.as_ref().map(Arrivals::next) else { return Ok(()) };
            let now = self.begun.elapsed();
            let end = match (self.shape.stop, self.measuring_since) {
                _ if interrupt::signal().is_some() => true,
                (_, None) => false,
                (Stop::Requests(count), Some(_)) => self.arrived >= count,
                (Stop::After(time), Some(since)) => next >= since + time,
            };
            if end {
                break true;
            }
            if self.is_too_far_behind(next, now) {
                self.note_never_sent(now);
                break true;
            }
            if next > now {
                break false;
            }
            // If no lane is free and nothing is outstanding, every lane has nothing more to ask.
            let Some(lane) = self.free.pop_front() else { break self.outstanding == 0 };
            // A lane that has nothing more to ask is not used again, and the arrival takes another lane.
            if self.send(lane, next, now) {
                touched.push(lane / self.shape.depth);
                // A request that arrived before measuring is not measured, even if it is sent afterwards.
                self.arrived += u64::from(self.counts(next));
                if let Some(arrivals) = &mut self.arrivals {
                    arrivals.advance();
                }
            }
        };
        touched.sort_unstable();
        touched.dedup();
        for number in touched {
            self.flush(number).map_err(|error| self.connections[number].named(&error))?;
        }
        Ok(())
    }

    /// Counts the requests that arrived until now, or until the end, and were not sent: they never will be.
    pub(super) fn note_never_sent(&mut self, now: Duration) {
        let Some((next, rate)) = self.arrivals.as_ref().map(Arrivals::next).zip(self.shape.rate) else { return };
        let Some(since) = self.measuring_since else { return };
        let end = self.shape.expected().map_or(now, |expected| since.saturating_add(expected).min(now));
        let arrived = (end.saturating_sub(next.max(since)).as_secs_f64() * rate.per_second).ceil() as u64;
        self.measured.never_sent = match self.shape.stop {
            Stop::Requests(count) => arrived.min(count.saturating_sub(self.arrived)),
            Stop::After(_) => arrived,
        };
    }

    /// Is the end long over while requests that arrived before it have not been sent?
    fn is_too_far_behind(&self, next: Duration, now: Duration) -> bool {
        let expected = self.shape.expected().unwrap_or(Duration::MAX / 4);
        let end = self.measuring_since.unwrap_or_default() + expected;
        next < end && now > end + expected.clamp(BEHIND_MIN, BEHIND_MAX)
    }
}
