//! A list that continues: all its slices after the first.
//!
//! All slices show the network as the first one did (`core::network::past`), and that state was durable when the first was
//! answered. So they wait for nothing that is under way, and leave at once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix::prelude::*;

use super::NetworkActor;
use super::messages::ListOn;
use super::pace::TURN_REQUESTS_MAX;
use crate::core::command::{self, Command};
use crate::core::outcome::Outcome;

/// How often to check whether what is kept for lists is still asked for.
pub(super) const LISTS_LOOKED_AT_EVERY_MS: u64 = 1_000;
/// Changes that one check forgets: this takes some milliseconds.
pub(super) const FORGOTTEN_MAX: usize = 10_000;

impl NetworkActor {
    /// Keeps what a list needs to continue as it began. A full page continues with the next one.
    pub(super) fn lists_on(&mut self, command: &Command, outcome: &mut Outcome, moment: command::Context) {
        if let (Command::List(ask), Outcome::Listed { slice, rest, .. }) = (command, outcome)
            && slice.next.is_some()
            && slice.views.len() < ask.limit
        {
            *rest = Some(self.network.goes_on(ask, moment));
        }
    }
}

impl Handler<ListOn> for NetworkActor {
    type Result = ();
    fn handle(&mut self, ListOn { rest, after, limit, told }: ListOn, ctx: &mut Context<Self>) {
        // After a step that broke off half-way, nobody knows what the memory is.
        let network = Some(&self.network).filter(|_| !self.torn);
        let answer = match catch_unwind(AssertUnwindSafe(|| network?.list_rest(&rest, after, limit))) {
            Ok(slice) => slice.map(Ok),
            Err(_) => Some(Err(self.note_panic("a list ends"))),
        };
        if let Some(answer) = answer {
            // The one who asked may have given up.
            let _ = told.send(answer);
        }
        // A slice is as much work as this many requests.
        self.turn += TURN_REQUESTS_MAX / 2;
        self.let_others_on(ctx);
    }
}
