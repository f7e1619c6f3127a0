//! Calls outside the measured path: networks are made, counted and removed, one request at a time, by the client library.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use allod::client::{Client, Options};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// Longest wait for one answer, with all that it tries.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// One client, one request at a time.
pub struct Control {
    runtime: Runtime,
    client: Client,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let options = Options { timeout: ANSWER_WAIT_MAX, wait_for_server: false, ..Options::default() };
        let mut control = Self { runtime, client: Client::new([server.to_string()], options) };
        control.call("server.ping", &json!({}))?;
        Ok(control)
    }

    /// Calls and waits for the result.
    ///
    /// # Errors
    /// The server was lost, or it refused; the message names the method and what it said.
    pub fn call(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        let params = params.as_object().cloned().unwrap_or_default();
        let answer = self.runtime.block_on(self.client.call(method, params));
        answer.map_err(|error| io::Error::other(format!("{method}: {error}")))
    }

    /// Makes a network with one subnet in a realm of its own, or finds it there.
    ///
    /// # Errors
    /// As [`Control::call`].
    pub fn create_network(&mut self, name: &str, cidr: &str, policy: &str) -> io::Result<()> {
        let params = json!({
            "name": name, "realm": name, "policy": policy, "subnets": [{"cidr": cidr}],
            "description": "made by allod-load", "if_absent": true,
        });
        self.call("network.create", &params).map(|_| ())
    }

    /// Addresses of the network that are held.
    ///
    /// # Errors
    /// As [`Control::call`], or the answer has no such count.
    pub fn held(&mut self, name: &str) -> io::Result<u64> {
        let usage = self.call("network.usage", &json!({"network": name}))?;
        usage["held"]
            .as_str()
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| io::Error::other(format!("network.usage answered no `held`: {usage}")))
    }

    /// Removes the network with everything in it.
    ///
    /// # Errors
    /// As [`Control::call`].
    pub fn purge_network(&mut self, name: &str) -> io::Result<()> {
        self.call("network.delete", &json!({"network": name, "purge": true})).map(|_| ())
    }
}
