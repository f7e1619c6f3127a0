//! Calls outside the measured path: the client library creates, counts and removes networks, one request at a time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use allod::client::{Client, Options};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::interrupt;
use crate::scenario::NetworkPlan;

/// The longest wait for one answer, including all attempts.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// Counts of a network.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub held: u128,
    /// Addresses that can be held.
    pub capacity: u128,
    /// Reservations that hold these addresses; a block is one reservation.
    pub reservations: u64,
}

/// A client that makes one request at a time.
pub struct Control {
    runtime: Runtime,
    client: Client,
    /// The number of signals that its calls survive.
    signals: u32,
}

impl Control {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// No server answers.
    pub fn connect(servers: &[SocketAddr]) -> io::Result<Self> {
        let mut control = Self::with(servers, ANSWER_WAIT_MAX, true)?;
        control.call("server.ping", &json!({}))?;
        Ok(control)
    }

    /// A client for the calls at the end of a run that was cut off. Each call is sent once and must be answered within
    /// `timeout`. The client connects at its first call, and survives one signal; the next signal ends its calls.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn of_the_end(servers: &[SocketAddr], timeout: Duration) -> io::Result<Self> {
        let mut control = Self::with(servers, timeout.min(ANSWER_WAIT_MAX), false)?;
        control.tolerate_a_signal();
        Ok(control)
    }

    fn with(servers: &[SocketAddr], timeout: Duration, asks_again: bool) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let options = Options { timeout, asks_again, wait_for_server: false, ..Options::default() };
        let client = Client::new(servers.iter().map(SocketAddr::to_string), options);
        Ok(Self { runtime, client, signals: 0 })
    }

    /// Calls a method and waits for the result.
    ///
    /// # Errors
    /// The server was lost, or it refused; then the message names the method and the refusal. Or a signal came.
    pub fn call(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        interrupt::check(self.signals)?;
        let params = params.as_object().cloned().unwrap_or_default();
        let (client, signals) = (&self.client, self.signals);
        let answer = self.runtime.block_on(async {
            tokio::select! {
                answer = client.call(method, params) => Ok(answer),
                ended = interrupt::ended(signals) => Err(ended),
            }
        });
        answer?.map_err(|error| io::Error::other(format!("{method}: {error}")))
    }

    /// Lets calls go on although a signal came; the next signal ends them.
    pub fn tolerate_a_signal(&mut self) {
        self.signals = 1;
    }

    /// Creates the network unless it exists. True: it was created.
    ///
    /// # Errors
    /// As [`Control::call`].
    pub fn create_network(&mut self, network: &NetworkPlan) -> io::Result<bool> {
        self.call("network.create", &network.params()).map(|made| made["created"] != false)
    }

    /// The network's counts: addresses held, addresses that can be held, and reservations.
    ///
    /// # Errors
    /// As [`Control::call`], or the answer lacks such a count.
    pub fn usage(&mut self, name: &str) -> io::Result<Usage> {
        let usage = self.call("network.usage", &json!({"network": name}))?;
        let count = |member: &str| {
            let count = usage[member].as_str().and_then(|count| count.parse::<u128>().ok());
            count.ok_or_else(|| io::Error::other(format!("network.usage answered no `{member}`: {usage}")))
        };
        let capacity = count("size")?.saturating_sub(count("reserved")?);
        let reservations = usage["reservations"].as_u64();
        let reservations = reservations
            .ok_or_else(|| io::Error::other(format!("network.usage answered no `reservations`: {usage}")))?;
        Ok(Usage { held: count("held")?, capacity, reservations })
    }

    /// Removes the network with everything in it.
    ///
    /// # Errors
    /// As [`Control::call`].
    pub fn purge_network(&mut self, name: &str) -> io::Result<()> {
        self.call("network.delete", &json!({"network": name, "purge": true})).map(|_| ())
    }
}
