//! A list that goes on: its slices behind the first.
//!
//! All of them show the network as the first one did (`core::network::past`), and that was durable when the first was
//! answered. So they wait for nothing that is under way, and leave at once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix::prelude::*;

use super::messages::ListOn;
use super::{NetworkActor, TURN_REQUESTS_MAX};
use crate::core::command::Command;
use crate::core::outcome::Outcome;

impl NetworkActor {
    /// Keeps what a list needs to go on as it began.
    pub(super) fn lists_on(&mut self, command: &Command, outcome: &mut Outcome) {
        if let (Command::List(ask), Outcome::Listed { slice, rest, .. }) = (command, outcome)
            && slice.next.is_some()
        {
            *rest = Some(self.network.goes_on(ask));
        }
    }
}

impl Handler<ListOn> for NetworkActor {
    type Result = ();
    fn handle(&mut self, ListOn { rest, after, limit, told }: ListOn, ctx: &mut Context<Self>) {
        let moment = self.moment();
        // A step that broke off half-way left nobody knows what.
        let network = Some(&self.network).filter(|_| !self.torn);
        let listed = catch_unwind(AssertUnwindSafe(|| network?.list_rest(&rest, after, limit, moment)));
        if let Ok(Some(slice)) = listed {
            // Who asked may have given up.
            let _ = told.send(slice);
        }
        // As much work as so many requests.
        self.turn += TURN_REQUESTS_MAX / 2;
        self.let_others_on(ctx);
    }
}
