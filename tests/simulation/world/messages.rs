//! Messages between nodes and the register: they are late, lost, doubled or refused, and writes are confirmed later.

use std::sync::Arc;

use allod::store::{CommitError, StoreError};
use rand::Rng;

use super::{Waiting, Weather, World};
use crate::register::{self, Sealed, Who};
use crate::store::{Ask, lost};

/// How long a renewal is on its way while the register's clock leaps: less than a store waits for an answer.
const RENEWS_SLOWLY_MS: u64 = 1_300;
/// How often the loss of a message goes unnoticed. In the other cases the connection breaks, and the sender knows at once.
pub(super) const SILENT: f64 = 0.5;

impl World {
    pub(super) fn send(&mut self, at: usize, mut ask: Ask) {
        let Some(who) = self.nodes[at].process.as_ref().map(|process| process.store.who.clone()) else { return };
        self.note(|| format!("{} ▶ register: {}", who.name, describe(&ask)));
        let latency = self.draws.random_range(1..4);
        let mut arrives = self.now_ms + latency;
        let fault = if self.calm { 1_000 } else { self.draws.random_range(0..1_000) };
        let cut = self.nodes[at].cut_until_ms > self.now_ms;
        let is_commit = matches!(ask, Ask::Commit { .. });
        if cut {
            self.hit("cut off from the register");
            if self.nodes[at].cut_is_silent {
                self.keep_silent(ask);
            }
            return self.note(|| "  … cut off: it never arrives".to_owned());
        }
        let mut answered = true;
        if fault < self.plan.faults_permille {
            match self.draws.random_range(0..7) {
                0 => {
                    self.hit("request lost");
                    if self.draws.random_bool(SILENT) {
                        self.keep_silent(ask);
                    }
                    return self.note(|| "  … the request is lost".to_owned());
                }
                1 => {
                    self.hit("reply lost");
                    self.note(|| "  … its answer will be lost".to_owned());
                    answered = false;
                    if let Ask::Commit { sealed, to, .. } = &mut ask
                        && self.draws.random_bool(SILENT)
                    {
                        let asked = Ask::Commit { sealed: Arc::clone(sealed), again_ms: None, to: to.take() };
                        self.keep_silent(asked);
                    }
                }
                2 | 3 => {
                    let late = self.draws.random_range(500..8_000);
                    self.note(|| format!("  … it is {late} ms late"));
                    self.hit("request delayed");
                    let node_at = (at, self.nodes[at].starts);
                    return self.at(arrives + late, move |world| world.arrive(who, node_at, ask, true, true));
                }
                4 => {
                    self.hit("request slow");
                    arrives += self.draws.random_range(50..1_300);
                }
                5 => {
                    if let Ask::Commit { again_ms, .. } = &mut ask {
                        let late = self.draws.random_range(0..6_000);
                        *again_ms = Some(late);
                        self.note(|| format!("  … it comes twice, {late} ms apart"));
                    }
                }
                _ if fault % 2 == 0 && self.mismatches(&mut ask, arrives) => return,
                _ => {
                    self.hit("not applied");
                    self.note(|| "  … the register refuses: not applied".to_owned());
                    return self.after_reply(ask, arrives);
                }
            }
        }
        if self.plan.weather == Weather::Leaping && matches!(ask, Ask::Renew { .. }) {
            arrives += RENEWS_SLOWLY_MS;
        }
        if is_commit {
            arrives = arrives.max(self.nodes[at].commits_until_ms + 1);
            self.nodes[at].commits_until_ms = arrives;
        }
        let node_at = (at, self.nodes[at].starts);
        self.at(arrives, move |world| world.arrive(who, node_at, ask, answered, false));
    }

    /// The sender is told nothing, not even that the connection broke: it waits as long as a store does.
    fn keep_silent(&mut self, ask: Ask) {
        self.hit("no answer at all");
        self.silent.push(ask);
    }

    /// Makes the register refuse a commit, because it finds something else than the commit expects. False if the commit
    /// expects nothing.
    fn mismatches(&mut self, ask: &mut Ask, arrives_ms: u64) -> bool {
        let Ask::Commit { sealed, to, .. } = ask else { return false };
        let Some(error) = register::mismatch(sealed) else { return false };
        let to = to.take();
        self.hit("mismatch");
        self.note(|| format!("  … the register refuses: {error:?}"));
        // The receiver may be gone.
        self.at(arrives_ms + 2, move |_| drop(to.map(|to| to.send(Err(error)))));
        true
    }

    /// The register answers that it did nothing.
    fn after_reply(&mut self, ask: Ask, arrives_ms: u64) {
        self.at(arrives_ms + 2, move |_| {
            let busy = || StoreError::Io {
                context: "the simulated register is busy".into(),
                source: Arc::new(std::io::Error::from(std::io::ErrorKind::ResourceBusy)),
            };
            // The receiver may be gone.
            match ask {
                Ask::Take { to, .. } => drop(to.send(Err(busy()))),
                Ask::Load { to, .. } => drop(to.send(Err(busy()))),
                Ask::Commit { to, .. } => drop(to.map(|to| to.send(Err(CommitError::NotApplied { cause: busy() })))),
                Ask::Check { to, .. } => drop(to.send(Err(CommitError::NotApplied { cause: busy() }))),
                Ask::Renew { to, .. } => drop(to.send(Err(busy()))),
                Ask::Read { to, .. } => drop(to.send(Err(busy()))),
                Ask::Release(_) => {}
            }
        });
    }

    fn arrive(&mut self, who: Who, from: (usize, u64), ask: Ask, answered: bool, late: bool) {
        let is_commit = matches!(ask, Ask::Commit { .. });
        let stuck_one_in = if self.plan.weather == Weather::Refusing { 100 } else { 150 };
        if self.now_ms < self.busy_until_ms && is_commit && self.draws.random_ratio(1, stuck_one_in) {
            self.hit("stuck before a busy register");
            self.note(|| format!("stuck before the busy register: {} of {}", describe(&ask), who.name));
            let until = self.busy_until_ms + self.draws.random_range(0..1_500);
            return self.at(until, move |world| world.arrive(who, from, ask, answered, true));
        }
        if self.now_ms < self.busy_until_ms {
            self.hit("not applied");
            self.note(|| format!("register is busy: {} of {}", describe(&ask), who.name));
            if answered {
                self.after_reply(ask, self.now_ms);
            }
            return;
        }
        let now = (self.now_ms as i64 + self.skew_ms).max(0) as u64;
        let back = self.draws.random_range(1..4);
        match ask {
            Ask::Take { shard, token, before, to } => {
                let taken = self.register.take(now, &who, shard, token, before);
                self.note(|| format!("register: {} takes shard {}: {taken:?}", who.name, shard.0));
                match &taken {
                    Ok(_) => self.hit("take"),
                    Err(StoreError::Held { .. }) => self.hit("take refused: held"),
                    Err(_) => self.hit("take refused: fenced"),
                }
                if taken.is_ok() && !self.calm && self.draws.random_ratio(self.plan.faults_permille / 2, 1_000) {
                    // A failover in the worst moment: the write is applied and not yet confirmed.
                    self.fail_over(1);
                }
                self.when_confirmed(move |world, confirmed| {
                    let answer = if confirmed { taken } else { Err(lost()) };
                    if answered {
                        world.after(back, move |_| drop(to.send(answer)));
                    }
                });
            }
            Ask::Load { shard, token, to } => {
                let loaded = self.register.load(shard, token);
                self.hit("load");
                if answered {
                    self.after(back, move |_| drop(to.send(loaded)));
                }
            }
            Ask::Commit { sealed, again_ms, to } => {
                let applied = self.arrive_commit(&who, from, &sealed, to.filter(|_| answered), late);
                // A connection does not repeat a message that was refused the first time.
                if let Some(again_ms) = again_ms.filter(|_| applied) {
                    let twin = Ask::Commit { sealed, again_ms: None, to: None };
                    self.hit("request doubled");
                    self.after(again_ms, move |world| world.arrive(who, from, twin, false, true));
                }
            }
            Ask::Check { names, to } => {
                let checked = self.register.check(&names);
                self.hit(if checked.is_ok() { "check" } else { "check fenced" });
                self.note(|| format!("register: {} checks: {checked:?}", who.name));
                if answered {
                    self.after(back, move |_| drop(to.send(checked)));
                }
            }
            Ask::Renew { shards, to } => {
                let renewed = self.register.renew(now, &shards);
                self.hit(if renewed.is_ok() { "renewed" } else { "renewal fenced" });
                self.confirm_later();
                if answered {
                    self.after(back, move |_| drop(to.send(renewed)));
                }
            }
            Ask::Release(shards) => {
                self.hit("released");
                self.register.release(&shards);
                self.confirm_later();
            }
            Ask::Read { stretches, bytes, to } => {
                let recorded = self.register.recorded(&stretches, bytes);
                self.note(|| {
                    let seqs: Vec<(u16, u64)> = recorded.iter().map(|one| (one.shard.0, one.seq.0)).collect();
                    format!("register: {} reads {stretches:?}: {seqs:?}", who.name)
                });
                self.hit("history read");
                if answered {
                    self.after(back, move |_| drop(to.send(Ok(recorded))));
                }
            }
        }
    }

    fn arrive_commit(
        &mut self,
        who: &Who,
        (at, starts): (usize, u64),
        sealed: &[Sealed],
        to: Option<tokio::sync::oneshot::Sender<Result<Vec<allod::store::Committed>, CommitError>>>,
        late: bool,
    ) -> bool {
        let joint = !self.calm && self.register.is_joint(sealed);
        let worst = joint && self.draws.random_ratio(3 * self.plan.faults_permille, 1_000);
        if worst && self.draws.random_bool(0.3) {
            self.hit("killed before a joint commit");
            self.kill_for_a_while(at);
        }
        let committed = self.register.commit(sealed);
        self.note(|| {
            let what: Vec<String> = sealed.iter().map(describe_batch).collect();
            format!("register: {} commits {}: {committed:?}", who.name, what.join(", "))
        });
        let lives = self.nodes[at].starts == starts && self.nodes[at].process.is_some();
        match &committed {
            Ok((_, true)) => self.hit("applied before"),
            Ok((_, false)) if late => self.hit("applied late"),
            Ok((_, false)) if !lives => self.hit("applied after its node was killed"),
            Ok((_, false)) => self.hit("applied"),
            Err(CommitError::Fenced { .. }) => self.hit("commit fenced"),
            Err(CommitError::Mismatch { .. }) => self.hit("mismatch"),
            Err(_) => self.hit("gap"),
        }
        if worst && matches!(committed, Ok((_, false))) {
            // After everything else of this moment: a failover would break the connection on which the answer comes.
            self.after(0, move |world| world.worst_moment(at));
        }
        let back = self.draws.random_range(1..4);
        let applied = committed.is_ok();
        let Some(to) = to else {
            self.confirm_later();
            return applied;
        };
        match committed {
            Err(error) => self.after(back, move |_| drop(to.send(Err(error)))),
            Ok((committed, _)) => self.when_confirmed(move |world, confirmed| {
                let answer = if confirmed { Ok(committed) } else { Err(CommitError::Unknown { cause: lost() }) };
                world.after(back, move |_| drop(to.send(answer)));
            }),
        }
        applied
    }

    /// Calls `tell` once everything written so far can no longer be lost.
    fn when_confirmed(&mut self, tell: impl FnOnce(&mut World, bool) + 'static) {
        if !self.plan.rules.confirmation {
            self.confirm_later();
            return tell(self, true);
        }
        let position = self.register.position();
        self.waiting.push(Waiting { position, tell: Box::new(tell) });
        self.confirm_later();
    }

    /// Lets the replicas follow after a while.
    pub(super) fn confirm_later(&mut self) {
        let lag = self.draws.random_range(1..6);
        let at = (self.now_ms + lag).max(self.lag_until_ms).max(self.confirmed_at_ms);
        self.confirmed_at_ms = at;
        let position = self.register.position();
        self.at(at, move |world| {
            if world.now_ms < world.lag_until_ms {
                return world.confirm_later();
            }
            let now_ns = world.stamp_ns();
            world.register.confirm(position, now_ns);
            let (told, waiting) = std::mem::take(&mut world.waiting).into_iter().partition(|w| w.position <= position);
            world.waiting = waiting;
            let told: Vec<Waiting> = told;
            told.into_iter().for_each(|waiting| (waiting.tell)(world, true));
        });
    }
}

fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Take { shard, before, .. } => format!("take shard {}{}", shard.0, if *before { " anew" } else { "" }),
        Ask::Load { shard, .. } => format!("load shard {}", shard.0),
        Ask::Commit { sealed, .. } => {
            format!("commit {}", sealed.iter().map(describe_batch).collect::<Vec<_>>().join(", "))
        }
        Ask::Check { names, .. } => format!("check {} shards", names.len()),
        Ask::Renew { .. } => "renew".to_owned(),
        Ask::Read { .. } => "read".to_owned(),
        Ask::Release(_) => "release".to_owned(),
    }
}

fn describe_batch(sealed: &Sealed) -> String {
    use allod::core::state::{Entry, State};
    let batch = &sealed.batch;
    let steps = batch.acts.iter().flat_map(|act| act.steps.iter().map(move |step| (act, step)));
    let steps: Vec<String> = steps
        .map(|(act, step)| {
            let what = match &step.state {
                None => "nothing".to_owned(),
                Some(State::Entry(Entry::Held(held))) => {
                    format!("{}#{}/{} g{}", held.holder.owner, held.holder.slot, held.prefix_length, held.generation.0)
                }
                Some(State::Entry(_)) => "cooling".to_owned(),
                Some(_) => "configuration".to_owned(),
            };
            format!("{:.4}:{:?}→{what}", act.network.to_string(), step.key)
        })
        .collect();
    format!("shard {} seq {} token {:04x} [{}]", batch.shard.0, batch.seq.0, batch.token.0 as u16, steps.join("; "))
}
