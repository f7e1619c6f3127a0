//! Makes faults happen: Redis goes back, is put back or emptied; nodes are cut off, paused, killed and stopped.

use std::rc::Rc;

use super::redis::Data;
use super::world::{Death, World};

impl World {
    /// Notes that a process took a shard or changed something.
    pub fn writes(&self, process: u64) {
        self.written.borrow_mut().push((process, self.now_ms()));
    }

    /// Redis goes back by so many changes, and is away for a while.
    pub fn go_back(&self, changes: usize, away_ms: u64) {
        let (before, lost) = (self.stands(), self.server.borrow_mut().go_back(changes));
        self.went_back("redis goes back", lost, before, away_ms);
    }

    /// Redis goes back to just before the last take-over that it remembers. False if it remembers none.
    pub fn go_back_past_take_over(&self, more: usize, away_ms: u64) -> bool {
        let Some(changes) = self.server.borrow().since_take_over() else { return false };
        self.hit("take-over lost");
        self.go_back(changes + more, away_ms);
        true
    }

    /// An earlier primary is back, with the data that it had.
    pub fn put_back(&self, data: Data, away_ms: u64) {
        let before = self.stands();
        self.server.borrow_mut().put_back(data);
        self.hit("failover taken back");
        self.put_back_ms.set(Some(self.now_ms()));
        self.went_back("a primary of before is back", 0, before, away_ms);
    }

    fn went_back(&self, what: &str, lost: usize, before: String, away_ms: u64) {
        self.note(|| format!("== {what}: {lost} changes lost, {before} -> {}, away for {away_ms} ms", self.stands()));
        self.hit("redis went back");
        self.went_back_ms.borrow_mut().push(self.now_ms());
        self.away_until_ms.set(self.now_ms() + away_ms);
        if self.one_in(4) {
            self.skew_ms.set(self.skew_ms.get() + self.draw(0..1_600) as i64 - 800);
        }
        self.wires.break_all();
    }

    pub fn flush(&self, restarts: bool) {
        self.hit("redis emptied");
        self.went_back_ms.borrow_mut().push(self.now_ms());
        self.note(|| format!("== redis is emptied{}", if restarts { " and restarted" } else { "" }));
        if restarts {
            self.server.borrow_mut().put_back(Data::default());
            self.wires.break_all();
        } else {
            self.server.borrow_mut().flush();
        }
    }

    /// Where the shards stand, in words.
    pub fn stands(&self) -> String {
        let server = self.server.borrow();
        let of =
            |shard: u16, field: &str| server.field(&format!("{shard}:head"), field).unwrap_or_else(|| "?".to_owned());
        let shards: Vec<String> =
            (0..self.plan.shards).map(|shard| format!("{}/{}", of(shard, "epoch"), of(shard, "seq"))).collect();
        shards.join(" ")
    }

    pub fn cut(&self, node: usize, ms: u64) {
        let fate = &self.nodes[node];
        fate.cut_until_ms.set(self.now_ms() + ms);
        fate.cut_is_silent.set(!self.one_in(3));
        self.hit("node cut off");
        self.note(|| {
            format!("== node-{node} is cut off for {ms} ms{}", if fate.cut_is_silent.get() { ", silently" } else { "" })
        });
        if !fate.cut_is_silent.get() {
            self.wires.break_near(node);
        }
    }

    pub fn pause(self: &Rc<Self>, node: usize, ms: u64) {
        let Some(process) = self.process(node).filter(|_| !self.nodes[node].paused.get()) else { return };
        self.nodes[node].paused.set(true);
        self.hit(if process.owns() { "owner paused" } else { "node paused" });
        self.note(|| format!("== node-{node} is paused for {ms} ms"));
        let world = Rc::clone(self);
        tokio::task::spawn_local(async move {
            world.sleep(ms).await;
            world.wake(&process);
        });
    }

    pub fn wake(&self, process: &super::node::Process) {
        let fate = &self.nodes[process.node];
        let is_of = fate.process.borrow().as_ref().is_some_and(|present| present.number == process.number);
        if is_of && fate.paused.replace(false) {
            self.note(|| format!("== node-{} wakes", process.node));
            process.wake();
            self.change();
        }
    }

    pub fn kill(self: &Rc<Self>, node: usize, down_ms: u64) {
        let Some(process) = self.process(node) else { return };
        self.nodes[node].down_until_ms.set(self.now_ms() + down_ms);
        self.end(&process, Death::Killed);
    }

    pub fn stop(&self, node: usize, down_ms: u64) {
        let Some(process) = self.process(node) else { return };
        self.nodes[node].down_until_ms.set(self.now_ms() + down_ms);
        self.note(|| format!("== node-{node} is asked to stop"));
        process.stop();
    }

    /// Ends the faults: paused nodes wake, dead ones start again, and all reach Redis.
    pub fn calm_down(&self) {
        self.note(|| "-- calm --".to_owned());
        self.calm.set(true);
        self.cuts_next_ms.set(None);
        self.away_until_ms.set(0);
        for (node, fate) in self.nodes.iter().enumerate() {
            fate.cut_until_ms.set(0);
            fate.down_until_ms.set(0);
            if let Some(process) = self.process(node) {
                self.wake(&process);
            }
        }
        self.change();
    }

    /// Starts every node again some time after its end, for ever.
    pub async fn nurse(self: Rc<Self>) {
        loop {
            self.sleep(100).await;
            // Cuts end by the clock, so nobody else announces it.
            self.change();
            for node in 0..self.nodes.len() {
                let fate = &self.nodes[node];
                if fate.process.borrow().is_none() && fate.down_until_ms.get() <= self.now_ms() {
                    self.start(node);
                }
            }
        }
    }
}
