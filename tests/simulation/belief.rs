//! What a client may believe of one holder after everything that it was told: that it holds nothing, or something, or one of
//! several things.
//!
//! A request of unknown fate may or may not have taken effect. One answer to a later request decides it: by then everything
//! that was on its way earlier is fenced or decided. That is a stronger statement than the intervals of the
//! checker, which assume nothing about what is on its way.

use super::record::Span;

/// A holding that the holder may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub generation: u64,
    pub span: Span,
    /// Until when a lease is sure.
    pub until_ns: Option<u64>,
}

/// At least one of the three is the case (see the module).
#[derive(Debug, Clone)]
pub struct Belief {
    /// The holder may hold nothing.
    pub absent: bool,
    /// The holder may hold this.
    pub held: Option<Held>,
    /// The holder may hold something of which the client was not told.
    pub any: bool,
}

impl Default for Belief {
    fn default() -> Self {
        Self { absent: true, held: None, any: false }
    }
}

impl Belief {
    pub fn is_absent(&self) -> bool {
        self.absent && self.held.is_none() && !self.any
    }

    /// What the holder certainly holds now.
    pub fn surely(&self, now_ns: u64) -> Option<Held> {
        self.held.filter(|_| !self.may_be_absent(now_ns) && !self.any)
    }

    pub fn may_be_absent(&self, now_ns: u64) -> bool {
        self.absent || self.held.is_some_and(|held| held.until_ns.is_some_and(|until| until < now_ns))
    }

    pub fn may_hold(&self) -> bool {
        self.held.is_some() || self.any
    }

    /// A grant of unknown fate may have taken effect.
    pub fn doubtful_grant(&mut self, now_ns: u64, replaces: bool) {
        // A lease may be over by the time that the grant is carried out.
        self.any |= replaces || self.may_be_absent(now_ns) || self.held.is_some_and(|held| held.until_ns.is_some());
    }

    /// A release of unknown fate may have taken effect.
    pub fn doubtful_release(&mut self) {
        self.absent = true;
    }

    /// The answer says that the holder holds this and nothing else. Returns what contradicts that, if anything does.
    pub fn told_held(&mut self, now_ns: u64, held: Held, created: bool) -> Option<String> {
        let known = self.held.filter(|known| known.generation == held.generation);
        let problem = match known {
            Some(known) if known.span != held.span => Some("another address under the same generation"),
            Some(_) if created => Some("a generation that it had already is said to be made now"),
            Some(_) => None,
            None if created && !self.may_be_absent(now_ns) => Some("a second one"),
            None if !created && !self.any => Some("what nobody granted"),
            None => None,
        };
        let problem = problem.map(|problem| format!("{problem}: {held:?}, after {self:?}"));
        // Renewals never shorten a lease.
        let until_ns = match known {
            Some(known) => known.until_ns.zip(held.until_ns).map(|(one, other)| one.max(other)),
            None => held.until_ns,
        };
        *self = Self { absent: false, held: Some(Held { until_ns, ..held }), any: false };
        problem
    }

    /// The answer says that the holder holds nothing: it let go just now, or held nothing before.
    pub fn told_absent(&mut self, now_ns: u64, just_now: bool) -> Option<String> {
        let possible = if just_now { self.may_hold() } else { self.may_be_absent(now_ns) };
        let problem = (!possible).then(|| format!("holds nothing (let go just now: {just_now}), after {self:?}"));
        *self = Self::default();
        problem
    }
}
