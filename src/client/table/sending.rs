//! Decides which of the queued calls are sent now, and on which connection.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{CallStage, IN_FLIGHT_MAX, Link, PUT_OFF_MAX, Table, Todo};

impl Table {
    /// Sends everything that can be sent now, in order.
    pub(in crate::client) fn dispatch(&mut self) -> Vec<Todo> {
        let mut todo = Vec::new();
        if !self.redirect {
            while let Some(&call) = self.queued.first() {
                if !self.send(call, &mut todo) {
                    break;
                }
            }
            return todo;
        }
        let queued: Vec<u64> = self.queued.iter().take(IN_FLIGHT_MAX).copied().collect();
        for call in queued {
            self.send(call, &mut todo);
        }
        todo
    }

    /// Sends a call if it may be sent now. Returns whether it was sent.
    fn send(&mut self, call: u64, todo: &mut Vec<Todo>) -> bool {
        let Some(link) = self.link_for(call, todo) else { return false };
        // First what is looked up at once: of all calls that wait for room on a full link, this is asked at every answer.
        let has_room = self.links.get(&link).is_some_and(|it| it.sent.len() < IN_FLIGHT_MAX);
        if !has_room || self.would_overtake(call, link) {
            return false;
        }
        let (Some(entry), Some(it)) = (self.entries.get_mut(&call), self.links.get_mut(&link)) else { return false };
        let Some(up) = it.up.as_ref() else { return false };
        let now = Instant::now();
        let left = entry.tried_until.map(|until| until.saturating_duration_since(now));
        if up.lines.try_send(entry.asked.line_within(call, left)).is_err() {
            // The connection is about to be reported as ended.
            return false;
        }
        if it.sent.is_empty() {
            // From now on an answer is due.
            it.heard = now;
        }
        entry.stage = CallStage::Sent(link);
        it.sent.insert(call);
        self.queued.remove(&call);
        if entry.asked.waits {
            it.waiting.insert(call);
            it.note_waits();
        }
        true
    }

    /// The live link that a call goes to. If there is none, one is begun.
    fn link_for(&mut self, call: u64, todo: &mut Vec<Todo>) -> Option<u64> {
        let entry = self.entries.get(&call)?;
        let route = entry.asked.touches.route().filter(|_| self.redirect).and_then(|route| self.routes.of(route));
        let home = self.home.and_then(|home| self.links.get(&home));
        let to = route.filter(|&route| home.is_none_or(|home| home.address != route)).map(str::to_owned);
        let known = match &to {
            None => self.home,
            Some(address) => self
                .links
                .iter()
                .find(|(link, it)| Some(**link) != self.home && it.address == *address && it.put_off < PUT_OFF_MAX)
                .map(|(link, _)| *link),
        };
        match known {
            Some(link) => self.links.get(&link)?.up.is_some().then_some(link),
            None => {
                self.last_link += 1;
                let address = to.clone().unwrap_or_default();
                let (sent, waiting, heard) = (BTreeSet::new(), BTreeSet::new(), Instant::now());
                let it = Link { address, up: None, sent, waiting, put_off: 0, answered: false, heard };
                self.links.insert(self.last_link, it);
                if to.is_none() {
                    self.home = Some(self.last_link);
                }
                todo.push(Todo::Connect { link: self.last_link, to });
                None
            }
        }
    }

    /// Is there an earlier call that this one must not overtake, but would on this link?
    fn would_overtake(&self, call: u64, link: u64) -> bool {
        let Some(entry) = self.entries.get(&call) else { return false };
        // On one link, calls take effect in the order in which they are sent.
        let elsewhere = self.links.iter().any(|(other, it)| *other != link && !it.sent.is_empty());
        if !elsewhere && self.queued.first() == Some(&call) {
            return false;
        }
        self.entries.range(..call).any(|(_, earlier)| {
            let stands = match earlier.stage {
                CallStage::Queued => true,
                CallStage::Sent(other) => other != link && !earlier.asked.waits,
                CallStage::Delayed => false,
            };
            stands && earlier.asked.touches.conflicts(&entry.asked.touches)
        })
    }
}

impl Link {
    /// As long as a call waits at the server, closing the connection must *reset* it, whether the client closes it or its
    /// process is ended: the server does not take a mere end of input for a hang-up. It would go on waiting, and grant to
    /// nobody.
    pub(super) fn note_waits(&self) {
        if let Some(socket) = self.up.as_ref().and_then(|up| up.socket.as_ref()) {
            // If this fails, the server only notices when it answers.
            let _ = socket.set_linger((!self.waiting.is_empty()).then_some(Duration::ZERO));
        }
    }
}
