//! How long a client may take; beyond these limits its connection ends.
//!
//! One timer checks all limits, and goes on by itself: the work for each request only moves the moments that it measures
//! from.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Sleep;

use super::{Connection, End};
use crate::server::sockets::WATCHERS_TAKE_WITHIN;

impl Connection {
    /// When to check the limits next, if nothing happens.
    pub(super) fn until_look(&self) -> Duration {
        let bounds = &self.server.bounds;
        let soon = bounds.slow_client.min(bounds.partial_line).min(WATCHERS_TAKE_WITHIN);
        if self.unwritten() > 0 || self.line_began.is_some() {
            soon
        } else if bounds.idle.is_zero() {
            Duration::from_secs(3_600)
        } else {
            bounds.idle.saturating_sub(self.last_exchange.elapsed()).max(soon)
        }
    }

    /// Brings the timer forward if a limit now applies that did not before. Costs nothing while all goes well.
    pub(super) fn arm(&self, timer: Pin<&mut Sleep>, backed_up: bool) {
        if backed_up || self.line_began.is_some() {
            let soon = tokio::time::Instant::now() + self.until_look();
            if timer.deadline() > soon + Duration::from_secs(1) {
                timer.reset(soon);
            }
        }
    }

    pub(super) fn overdue(&self) -> Option<End> {
        let bounds = &self.server.bounds;
        if self.unwritten() > 0 && self.last_progress.elapsed() > bounds.slow_client {
            return Some(End::Slow);
        }
        let only_watches = self.server.stop.is_cancelled() && self.session.only_watches();
        if self.unwritten() > 0 && only_watches && self.last_progress.elapsed() >= WATCHERS_TAKE_WITHIN {
            return Some(End::Slow);
        }
        if self.line_began.is_some_and(|began| began.elapsed() > bounds.partial_line) && self.session.has_room() {
            return Some(End::Unfinished);
        }
        let waits = self.session.in_flight() > 0 || self.session.is_watching() || self.unwritten() > 0;
        let idle = !waits && !bounds.idle.is_zero() && self.last_exchange.elapsed() > bounds.idle;
        idle.then_some(End::Idle)
    }
}
