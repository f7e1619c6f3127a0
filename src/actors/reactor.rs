//! A thread on which actors and connections run, as the code that starts something on it sees it.
//!
//! A reactor is an actix arbiter. In the simulation, which owns the time of a whole node, it is a queue that the simulation
//! empties: an arbiter runs on a runtime of its own, with its own clock, and the clocks of several nodes would not agree.

use std::future::Future;
use std::pin::Pin;

use actix::ArbiterHandle;
use tokio::sync::mpsc;

/// A task that runs on a thread until it ends.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module.
#[derive(Debug, Clone)]
pub enum Reactor {
    /// A thread of its own.
    Arbiter(ArbiterHandle),
    /// The holder of the other end runs what arrives, in order of arrival, on one thread.
    Queue(mpsc::UnboundedSender<Task>),
}

impl From<ArbiterHandle> for Reactor {
    fn from(handle: ArbiterHandle) -> Self {
        Self::Arbiter(handle)
    }
}

impl Reactor {
    /// Runs a task on the thread. False if the thread is gone.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        match self {
            Reactor::Arbiter(handle) => handle.spawn(task),
            Reactor::Queue(tasks) => tasks.send(Box::pin(task)).is_ok(),
        }
    }

    /// Calls a function on the thread. False if the thread is gone.
    pub fn spawn_fn(&self, act: impl FnOnce() + Send + 'static) -> bool {
        self.spawn(async move { act() })
    }
}
