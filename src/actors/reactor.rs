//! A thread on which actors and connections run, as whoever starts something on it sees it.
//!
//! It is an actix arbiter. Where the time of a whole node is somebody else's (the simulation), it is a queue that he empties:
//! an arbiter runs on a runtime of its own, with its own clock, and the clocks of several nodes would not go together.

use std::future::Future;
use std::pin::Pin;

use actix::ArbiterHandle;
use tokio::sync::mpsc;

/// Something to be run on a thread until it ends.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module.
#[derive(Debug, Clone)]
pub enum Reactor {
    /// A thread of its own.
    Arbiter(ArbiterHandle),
    /// Whoever has the other end runs what comes, in the order in which it comes, on one thread.
    Queue(mpsc::UnboundedSender<Task>),
}

impl From<ArbiterHandle> for Reactor {
    fn from(handle: ArbiterHandle) -> Self {
        Self::Arbiter(handle)
    }
}

impl Reactor {
    /// Runs this on its thread. False if that is gone.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        match self {
            Reactor::Arbiter(handle) => handle.spawn(task),
            Reactor::Queue(tasks) => tasks.send(Box::pin(task)).is_ok(),
        }
    }

    /// Calls this on its thread. False if that is gone.
    pub fn spawn_fn(&self, act: impl FnOnce() + Send + 'static) -> bool {
        self.spawn(async move { act() })
    }
}
