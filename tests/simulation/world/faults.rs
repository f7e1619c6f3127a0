//! Faults of nodes and the register: nodes are killed, paused, cut off and stopped; the register fails over, lags, and its
//! clock leaps.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use allod::limits::NODE_LEASE_MS;
use rand::Rng;

use super::messages::SILENT;
use super::{Flaw, World};
use crate::clients::Clients;
use crate::node::{Birth, Process};
use crate::register::{Who, Write};

impl World {
    /// A fault right after a commit over several networks was applied, before its owner knows.
    pub(super) fn worst_moment(&mut self, at: usize) {
        let long = self.draws.random_range(5_000..9_000);
        match self.draws.random_range(0..5) {
            0 => {
                self.hit("killed behind a joint commit");
                self.kill_for_a_while(at);
            }
            1 | 2 => {
                self.hit("joint commit rolled back");
                self.fail_over(1);
            }
            3 => self.pause_node(at, long),
            _ => self.cut_node(at, long),
        }
    }

    pub(super) fn kill_for_a_while(&mut self, at: usize) {
        self.kill_node(at);
        let after = self.draws.random_range(100..5_000);
        self.after(after, move |world| world.start_again(at));
    }

    pub fn start_again(&mut self, at: usize) {
        if self.nodes[at].process.is_none() {
            self.start_node(at);
        }
    }

    /// Makes a replica the primary; of the unconfirmed writes the last `lost` ones are lost.
    pub fn fail_over(&mut self, lost: usize) {
        let lost = lost.min(self.register.unconfirmed());
        let writes = self.register.fail_over(lost);
        self.note(|| format!("register fails over and loses {writes:?}"));
        self.hit("failover");
        for write in &writes {
            self.hit(match write {
                Write::Take => "take-over rolled back",
                Write::Commit => "commit rolled back",
                Write::Lease => "lease rolled back",
            });
        }
        // Another machine has another clock. Sometimes it is wrong, and leases are over before their owners know.
        let skew = if self.draws.random_bool(0.25) { 1_000..7_000 } else { -300..300 };
        self.skew_ms += self.draws.random_range(skew);
        // An answer that waits for a confirmation has lost the connection on which the confirmation would come.
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|waiting| (waiting.tell)(self, false));
        self.confirm_later();
    }

    pub fn start_node(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.starts += 1;
        let handle = at as u64 * 1_000 + node.starts;
        self.made += 1;
        let birth = Birth {
            who: Who { handle, name: Arc::clone(&node.name) },
            now_ms: self.now_ms,
            seed: self.plan.seed.wrapping_mul(31).wrapping_add(handle << 32),
            drift_ppm: node.drift_ppm,
            jump_ms: node.jump_ms,
            shards: self.plan.shards,
            together: self.plan.together,
            concludes: self.plan.flaw == Some(Flaw::Concludes),
            metrics: Arc::clone(&self.metrics),
            mover: Arc::clone(&self.mover),
        };
        let runtime = Rc::clone(&self.runtime);
        let _within = runtime.enter();
        (node.process, node.paused, node.owned, node.commits_until_ms) = (Some(Process::start(birth)), false, false, 0);
        let name = Arc::clone(&node.name);
        self.note(|| format!("{name} starts"));
    }

    pub fn kill_node(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.process.take().is_none() {
            return;
        }
        (node.paused, node.owned) = (false, false);
        let name = Arc::clone(&node.name);
        self.hit("node killed");
        self.note(|| format!("{name} is killed"));
        Clients::node_gone(self, at);
    }

    pub fn pause_node(&mut self, at: usize, ms: u64) {
        let node = &mut self.nodes[at];
        if node.process.is_none() || node.paused {
            return;
        }
        node.paused = true;
        let (name, starts, owned) = (Arc::clone(&node.name), node.starts, node.owned);
        self.hit(if owned { "owner paused" } else { "node paused" });
        self.note(|| format!("{name} is paused for {ms} ms"));
        self.after(ms, move |world| world.wake_node(at, starts, owned));
    }

    fn wake_node(&mut self, at: usize, starts: u64, owned: bool) {
        let node = &mut self.nodes[at];
        if !node.paused || node.starts != starts {
            return;
        }
        node.paused = false;
        let name = Arc::clone(&node.name);
        let others = self.nodes.iter().enumerate().any(|(other, node)| other != at && node.owned);
        if owned && others {
            self.hit("owner woke after another took over");
        }
        self.note(|| format!("{name} wakes"));
    }

    pub fn wake_early(&mut self, at: usize) {
        let (starts, owned) = (self.nodes[at].starts, self.nodes[at].owned);
        self.wake_node(at, starts, owned);
    }

    /// Stops the node in order: it answers, gives the register up, and ends.
    pub fn stop_node(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (starts, name) = (node.starts, Arc::clone(&node.name));
        let Some(process) = &node.process else { return };
        process.server.stop.cancel();
        self.hit("node stopped in order");
        self.note(|| format!("{name} is asked to stop"));
        self.after(5_000, move |world| {
            if world.nodes[at].starts == starts && world.nodes[at].process.is_some() {
                world.nodes[at].process = None;
                world.nodes[at].owned = false;
                Clients::node_gone(world, at);
            }
        });
    }

    pub fn cut_node(&mut self, at: usize, ms: u64) {
        self.nodes[at].cut_until_ms = self.now_ms + ms;
        self.nodes[at].cut_is_silent = self.draws.random_bool(SILENT);
        let name = Arc::clone(&self.nodes[at].name);
        self.note(|| format!("{name} is cut off from the register for {ms} ms"));
    }

    pub fn jump_clock(&mut self, at: usize, ms: i64) {
        self.nodes[at].jump_ms += ms;
        self.hit("wall clock jumped");
        let name = Arc::clone(&self.nodes[at].name);
        self.note(|| format!("the wall clock of {name} jumps by {ms} ms"));
        if let Some(process) = &self.nodes[at].process {
            process.clock.jump_ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    pub fn busy(&mut self, ms: u64) {
        self.hit("register busy");
        self.note(|| format!("the register refuses everything for {ms} ms"));
        self.busy_until_ms = self.now_ms + ms;
    }

    /// Makes the register's clock jump so far that all leases are over.
    pub fn leap(&mut self) {
        self.hit("register's clock leaps");
        self.note(|| "the register's clock leaps ahead".to_owned());
        self.skew_ms += NODE_LEASE_MS as i64 + 1_000;
    }

    pub fn lag(&mut self, ms: u64) {
        self.hit("replicas lag");
        self.note(|| format!("the replicas lag for {ms} ms"));
        self.lag_until_ms = self.now_ms + ms;
    }
}
