//! Calls outside the measured path: networks are made, counted and removed, one request at a time.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Longest wait for one answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// One connection, one request at a time.
pub struct Control {
    reader: BufReader<TcpStream>,
    id: u64,
}

impl Control {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        Ok(Self { reader: BufReader::new(stream), id: 0 })
    }

    /// Calls and waits for the result.
    ///
    /// # Errors
    /// The connection failed, or the server refused; the message names the method and what it said.
    pub fn call(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("no answer to {method}")));
        }
        let mut answer: Value = serde_json::from_str(&line)?;
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(io::Error::other(format!("{method} was refused: {}", line.trim_end()))),
        }
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
