//! Calls outside the measured path: networks are made, counted and removed, one request at a time, by the client library.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use allod::client::{Client, Options};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::interrupt;

/// Longest wait for one answer, with all that it tries.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// Counts of a network.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub held: u128,
    /// Addresses that can be held.
    pub capacity: u128,
    /// What holds them: a block is one.
    pub reservations: u64,
}

/// One client, one request at a time.
pub struct Control {
    runtime: Runtime,
    client: Client,
    /// So many signals do not end its calls.
    signals: u32,
}

impl Control {
    /// Connects to the first that answers.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(servers: &[SocketAddr]) -> io::Result<Self> {
        let mut control = Self::unconnected(servers, ANSWER_WAIT_MAX)?;
        control.call("server.ping", &json!({}))?;
        Ok(control)
    }

    /// A client of these servers, which connects with its first call.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn unconnected(servers: &[SocketAddr], timeout: Duration) -> io::Result<Self> {
        Self::with(servers, Options { timeout, ..Options::default() })
    }

    fn with(servers: &[SocketAddr], options: Options) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let timeout = options.timeout.min(ANSWER_WAIT_MAX);
        let options = Options { timeout, wait_for_server: false, ..options };
        let client = Client::new(servers.iter().map(SocketAddr::to_string), options);
        Ok(Self { runtime, client, signals: 0 })
    }

    /// A client for what is asked at the end of a run that was cut off: within this time, and each thing once.
    ///
    /// # Errors
    /// As of [`Control::unconnected`].
    pub fn of_the_end(servers: &[SocketAddr], timeout: Duration) -> io::Result<Self> {
        Self::with(servers, Options { timeout, asks_again: false, ..Options::default() })
    }

    /// Calls and waits for the result.
    ///
    /// # Errors
    /// The server was lost, or it refused, and the message names the method and what it said; or a signal came.
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

    /// Goes on calling though a signal came; the next one ends that, too.
    pub fn tolerate_a_signal(&mut self) {
        self.signals = 1;
    }

    /// Makes a network with one subnet in a realm of its own, or finds it there: true, it was made.
    ///
    /// # Errors
    /// As [`Control::call`].
    pub fn create_network(&mut self, name: &str, cidr: &str, policy: &str) -> io::Result<bool> {
        let params = json!({
            "name": name, "realm": name, "policy": policy, "subnets": [{"cidr": cidr}],
            "description": "made by allod-load", "if_absent": true,
        });
        self.call("network.create", &params).map(|made| made["created"] != false)
    }

    /// Counts of the network's addresses: held, and those that can be held.
    ///
    /// # Errors
    /// As [`Control::call`], or the answer has no such counts.
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
