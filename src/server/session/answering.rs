//! What leaves a session: answers, alone or as members of a batch, and events of its subscriptions.
//!
//! Review notes: does every path lower the count of a batch?

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::{Pending, Queued, Session};
use crate::actors::coordinator::Done;
use crate::actors::{Answer, Fault, Notice};
use crate::limits::ANSWER_BYTES_MAX;
use crate::server::dispatch::Here;
use crate::server::faults::error_of;
use crate::server::render::{Renderer, noun};
use crate::server::watch::{self, BegunWatch, Watches};
use crate::wire::nouns::{SessionSetResult, Subscription};
use crate::wire::{self, Id, RpcError, answer};

impl Session {
    /// Allows watches: events may be sent that answer no request.
    pub fn allow_watches(&mut self) {
        self.watches = Some(Watches::new(Arc::clone(&self.server), self.outlet.clone()));
    }

    /// Does this session have subscriptions?
    pub fn is_watching(&self) -> bool {
        self.watches.as_ref().is_some_and(|watches| !watches.is_empty())
    }

    /// Ends all subscriptions, and lets none begin.
    pub fn end_watches(&mut self) {
        if let Some(watches) = &mut self.watches {
            watches.end_all();
        }
    }

    /// Appends what a subscription has to say.
    pub(super) fn noticed(&mut self, notice: Notice) {
        let Some(watches) = &mut self.watches else { return };
        if self.notices.end != self.out.len() {
            self.notices.start = self.out.len();
        }
        watches.say(notice, &mut self.out);
        self.notices.end = self.out.len();
    }

    /// Is nothing under way, and does the output that the client has not taken consist of events only?
    pub fn only_watches(&self) -> bool {
        let notices = &self.notices;
        self.in_flight() == 0 && notices.end == self.out.len() && notices.start <= self.taken
    }

    /// Drops the bytes that the client has taken.
    pub fn forget_taken(&mut self) {
        self.out.drain(..self.taken);
        let Range { start, end } = self.notices;
        self.notices = start.saturating_sub(self.taken)..end.saturating_sub(self.taken);
        self.taken = 0;
    }

    /// Notes that all of `out` is written.
    pub fn written(&mut self) {
        self.notices = 0..0;
        if let Some(watches) = &mut self.watches {
            watches.written();
        }
    }

    /// Counts a request that is answered with a result.
    fn note_done(&mut self, pending: &Pending, now: Instant) {
        let (method, read) = (pending.shape.method, pending.read);
        if pending.waits { self.tally.waited(method, read, now) } else { self.tally.done(method, read, now) }
    }

    pub(super) fn replied(&mut self, ticket: u32, answer: Answer, now: Instant) {
        let Some(pending) = self.take(ticket) else { return };
        match answer {
            Ok(outcome) => {
                self.note_done(&pending, now);
                let (shape, asked) = (pending.shape, pending.asked);
                self.finish(&pending, |renderer, out| renderer.outcome(out, &outcome, shape, asked));
            }
            Err(fault) => self.faulted(pending, &fault),
        }
    }

    pub(super) fn job_done(&mut self, ticket: u32, answer: Result<Done, Box<Fault>>, now: Instant) {
        let Some(pending) = self.take(ticket) else { return };
        match answer {
            Ok(Done::Located(located)) => {
                self.note_done(&pending, now);
                let result = self.server.located(&located);
                self.finish(&pending, |_, out| noun(out, &result));
            }
            Ok(Done::Watching { filter, cursor }) => {
                match self.watches.as_mut().map(|watches| watches.begin(filter, cursor)) {
                    Some(Ok(begun)) => {
                        self.note_done(&pending, now);
                        let result = Subscription { subscription: begun.number };
                        self.finish(&pending, |_, out| noun(out, &result));
                        // The subscription says nothing before this, nor before the rest of its batch is answered.
                        match pending.batch.and_then(|at| self.batches.get_mut(at)?.as_mut()) {
                            Some(batch) => batch.begun.push(begun),
                            None => begun.start(),
                        }
                    }
                    Some(Err(error)) => self.finish_error(pending, &error),
                    None => self.finish_error(pending, &watch::nowhere_to_tell()),
                }
            }
            Ok(Done::Found(found))
                if pending.asked.is_some_and(|address| !self.renderer.finds_room_for(&found, address)) =>
            {
                self.finish_error(pending, &found_too_often(found.len()));
            }
            Ok(Done::Node(standing)) => {
                self.note_done(&pending, now);
                let result = self.server.drained(&standing);
                self.finish(&pending, |_, out| noun(out, &result));
            }
            Ok(done) => {
                self.note_done(&pending, now);
                let (shape, asked) = (pending.shape, pending.asked);
                self.finish(&pending, |renderer, out| renderer.done(out, &done, shape, asked));
            }
            Err(fault) => self.faulted(pending, &fault),
        }
    }

    fn faulted(&mut self, pending: Pending, fault: &Fault) {
        let Some(pending) = self.goes_on_waiting(pending, fault) else { return };
        let error = error_of(fault);
        self.finish_error(pending, &error);
    }

    pub(super) fn finish_error(&mut self, pending: Pending, error: &RpcError) {
        self.tally.refused(pending.shape.method.name(), error.kind());
        self.answer_error(pending.id.as_ref(), pending.batch, error);
    }

    pub(super) fn here(&mut self, here: Here, queued: &Queued) {
        let pending = Pending {
            id: queued.id.clone(),
            batch: queued.batch,
            shape: queued.ready.shape,
            asked: None,
            read: queued.read,
            bytes: queued.bytes,
            waits: false,
            of_node: false,
            patience: None,
        };
        if let Here::Unwatch(number) = here
            && !self.watches.as_mut().is_some_and(|watches| watches.end(number))
        {
            return self.finish_error(pending, &watch::no_subscription(number));
        }
        self.tally.done(queued.ready.method, queued.read, Instant::now());
        let server = Arc::clone(&self.server);
        if let Here::Set { redirect } = here {
            self.redirect = redirect.unwrap_or(self.redirect);
        }
        let redirect = self.redirect;
        self.finish(&pending, |_, out| match here {
            Here::Ping => out.extend_from_slice(b"\"pong\""),
            Here::Info => server.write_info(out),
            Here::Nodes => noun(out, &server.cluster_nodes()),
            Here::Set { .. } => noun(out, &SessionSetResult { redirect }),
            Here::Unwatch(subscription) => noun(out, &Subscription { subscription }),
            Here::Discover => out.extend_from_slice(wire::openrpc::document().as_bytes()),
        });
    }

    fn finish(&mut self, pending: &Pending, write: impl FnOnce(&mut Renderer, &mut Vec<u8>)) {
        let renderer = &mut self.renderer;
        match (pending.batch, &pending.id) {
            (None, Some(id)) => {
                answer::open_result(&mut self.out, id);
                write(renderer, &mut self.out);
                answer::close(&mut self.out);
                self.out.push(b'\n');
            }
            (None, None) => {}
            (Some(at), id) => {
                if let (Some(batch), Some(id)) = (self.batches.get_mut(at).and_then(Option::as_mut), id) {
                    let before = batch.text.len();
                    if before > 0 {
                        batch.text.push(b',');
                    }
                    answer::open_result(&mut batch.text, id);
                    write(renderer, &mut batch.text);
                    answer::close(&mut batch.text);
                    self.room.batched += batch.text.len() - before;
                }
                self.member_done(at);
            }
        }
    }

    pub(super) fn answer_error(&mut self, id: Option<&Id>, batch: Option<usize>, error: &RpcError) {
        let written = match (batch, id) {
            (None, Some(id)) => {
                let written = answer::write_error(&mut self.out, id, error);
                self.out.push(b'\n');
                written
            }
            (None, None) => Ok(()),
            (Some(at), id) => {
                let mut written = Ok(());
                if let (Some(batch), Some(id)) = (self.batches.get_mut(at).and_then(Option::as_mut), id) {
                    let before = batch.text.len();
                    if before > 0 {
                        batch.text.push(b',');
                    }
                    written = answer::write_error(&mut batch.text, id, error);
                    self.room.batched += batch.text.len() - before;
                }
                self.member_done(at);
                written
            }
        };
        if let Err(problem) = written {
            tracing::error!(%problem, "an error cannot be written");
        }
    }

    fn member_done(&mut self, at: usize) {
        let Some(batch) = self.batches.get_mut(at).and_then(Option::as_mut) else { return };
        batch.left -= 1;
        if batch.left == 0
            && let Some(batch) = self.batches[at].take()
        {
            if !batch.text.is_empty() {
                self.room.batched -= batch.text.len();
                self.out.push(b'[');
                self.out.extend_from_slice(&batch.text);
                self.out.extend_from_slice(b"]\n");
            }
            batch.begun.into_iter().for_each(BegunWatch::start);
        }
    }
}

/// The refusal of an `ip.find` that finds its address in more networks than one answer tells of.
fn found_too_often(networks: usize) -> RpcError {
    let problem = format!(
        "`address` lies in {networks} networks of as many realms, and an answer that tells of all of them would have more than \
         {ANSWER_BYTES_MAX} bytes; ask `ip.get` with `realm` or `network`"
    );
    RpcError::invalid("address", problem)
}
