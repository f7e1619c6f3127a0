//! A list that goes on: its slices behind the first.
//!
//! All of them show the network as the first one did (`core::network::past`), and that was durable when the first was
//! answered. So they wait for nothing that is under way, and leave at once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix::prelude::*;

use super::NetworkActor;
use super::messages::ListOn;
use super::pace::TURN_REQUESTS_MAX;
use crate::core::command::{self, Command};
use crate::core::outcome::Outcome;

/// When to look whether what is kept for lists is asked for still.
pub(super) const LISTS_LOOKED_AT_EVERY_MS: u64 = 1_000;
/// Changes that a look forgets: some milliseconds.
pub(super) const FORGOTTEN_MAX: usize = 10_000;

impl NetworkActor {
    /// Keeps what a list needs to go on as it began. A page that is full goes on with the next one.
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
        // A step that broke off half-way left nobody knows what.
        let network = Some(&self.network).filter(|_| !self.torn);
        let answer = match catch_unwind(AssertUnwindSafe(|| network?.list_rest(&rest, after, limit))) {
            Ok(slice) => slice.map(Ok),
            Err(_) => Some(Err(self.note_panic("a list ends"))),
        };
        if let Some(answer) = answer {
            // Who asked may have given up.
            let _ = told.send(answer);
        }
        // As much work as so many requests.
        self.turn += TURN_REQUESTS_MAX / 2;
        self.let_others_on(ctx);
    }
}
