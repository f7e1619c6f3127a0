//! Runs a command for each event: its environment, and what its failure means.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::super::failure::Failure;
use super::super::output::{env, text_of};
use super::super::session::Done;
use super::{Ends, Handled, OnFailure};
use crate::client::{Client, ClientError, is_passing};
use crate::core::address::{Address, Cidr};

/// Members of an event that become `EVENT_…` variables. A missing member is set empty, so that no value is inherited.
const FACTS: [&str; 13] = [
    "type",
    "time",
    "cursor",
    "network",
    "network_id",
    "scope",
    "owner",
    "slot",
    "claimant",
    "generation",
    "kind",
    "by",
    "reason",
];
/// The waits before a failed command is run again: the first, doubled each time, up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// How long a command that a signal ended leaves time for that signal to reach us too: who ends a whole group or service signals
/// one process after the other.
const SIGNALLED_TOO: Duration = Duration::from_secs(5);
/// The most networks whose subnets are cached.
const NETWORKS_MAX: usize = 1_024;

/// Runs a command for each event.
pub(super) struct Hook {
    client: Client,
    command: String,
    prefix: String,
    on_failure: OnFailure,
    /// Is the watch told that a network changed? Otherwise nothing is cached.
    is_of_networks: bool,
    /// Networks by id, cached until an event says that they changed. None: the network is gone.
    networks: HashMap<String, Option<Value>>,
}

impl Hook {
    pub(super) fn new(
        client: Client,
        command: String,
        prefix: String,
        on_failure: OnFailure,
        is_of_networks: bool,
    ) -> Self {
        Self { client, command, prefix, on_failure, is_of_networks, networks: HashMap::new() }
    }

    /// Runs the command for an event, and handles its failure as configured.
    pub(super) async fn run(&mut self, event: &Value, ends: &mut Ends) -> Done<Handled> {
        let mut wait = RETRY_FIRST;
        loop {
            let variables = tokio::select! {
                variables = self.variables(event) => variables?,
                () = ends.asked() => return Ok(Handled::NotYet),
            };
            let (problem, was_asked) = match self.once(event, &variables, ends).await {
                Ok((status, was_asked)) if status.success() => {
                    return Ok(if was_asked { Handled::Last } else { Handled::Yes });
                }
                Ok((status, was_asked)) => {
                    // Then it was not the command that failed.
                    let was_asked = was_asked
                        || was_told_to_end(status) && tokio::time::timeout(SIGNALLED_TOO, ends.asked()).await.is_ok();
                    (format!("ended with {status}"), was_asked)
                }
                Err(error) => (format!("could not be run: {error}"), false),
            };
            if was_asked {
                return Ok(Handled::NotYet);
            }
            let what = format!("the command for {} {problem}", named(event));
            match self.on_failure {
                OnFailure::Stop => {
                    let hint = "`--on-failure skip` or `retry` goes on";
                    return Err(Failure::new("", what, hint).into());
                }
                OnFailure::Skip => {
                    say(&format!("{what}; skipped"));
                    return Ok(Handled::Yes);
                }
                OnFailure::Retry => {
                    say(&format!("{what}; again in {} s", wait.as_secs()));
                    tokio::select! {
                        () = tokio::time::sleep(wait) => wait = (2 * wait).min(RETRY_LONGEST),
                        () = ends.asked() => return Ok(Handled::NotYet),
                    }
                    // If a network was mended meanwhile, the event that says so comes only after this one.
                    self.networks.clear();
                }
            }
        }
    }

    /// Runs the command once, and waits for it, even if asked to end meanwhile. Also returns whether that happened.
    async fn once(
        &self,
        event: &Value,
        variables: &[(String, String)],
        ends: &mut Ends,
    ) -> std::io::Result<(ExitStatus, bool)> {
        let mut child = Command::new("sh")
            .args(["-c", &self.command])
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .spawn()?;
        let mut was_asked = false;
        let status = {
            let ended = feed_and_wait(&mut child, format!("{event}\n"));
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    // What ends us may have ended the command, too, and is heard of first.
                    biased;
                    () = ends.asked(), if !was_asked => was_asked = true,
                    status = &mut ended => break status?,
                }
            }
        };
        Ok((status, was_asked))
    }

    /// The environment variables of the command.
    pub(super) async fn variables(&mut self, event: &Value) -> Done<Vec<(String, String)>> {
        let text = |name: &str| event.get(name).map(text_of).unwrap_or_default();
        let mut variables: Vec<(String, String)> =
            FACTS.iter().map(|name| (format!("EVENT_{}", name.to_ascii_uppercase()), text(name))).collect();
        let id = text("network_id");
        if text("type").starts_with("network_") {
            self.networks.remove(&id);
        }
        let network = self.network(&id).await?;
        let about = match event.get("address") {
            Some(_) => held(event, network.as_ref()),
            None => network.unwrap_or_else(|| json!({"version": 0, "name": event.get("network"), "subnets": []})),
        };
        variables.extend(env::variables(&about, &self.prefix));
        Ok(variables)
    }

    /// The current state of the network; none if it is gone.
    async fn network(&mut self, id: &str) -> Done<Option<Value>> {
        if let Some(network) = self.networks.get(id) {
            return Ok(network.clone());
        }
        let params = Map::from_iter([("network".to_owned(), Value::String(id.to_owned()))]);
        let network = loop {
            match self.client.call("network.get", params.clone()).await {
                Ok(network) => break Some(network),
                Err(ClientError::Rpc(error)) if error.kind == "not_found" => break None,
                // Retry for as long as it takes, as the watch itself does.
                Err(error) if is_passing(&error) || matches!(error, ClientError::TimedOut { .. }) => {
                    tokio::time::sleep(RETRY_FIRST).await;
                }
                Err(error) => {
                    return Err(Failure::of_method("network.get", &Value::Object(params), &error).into());
                }
            }
        };
        if self.is_of_networks {
            if self.networks.len() >= NETWORKS_MAX {
                self.networks.clear();
            }
            self.networks.insert(id.to_owned(), network.clone());
        }
        Ok(network)
    }
}

/// Writes the event to the command and waits for its end, whether it reads the event or not. What it leaves behind may still have
/// its input, and never read it.
async fn feed_and_wait(child: &mut Child, text: String) -> std::io::Result<ExitStatus> {
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input has everything it needs in its environment.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    tokio::pin!(feed);
    let mut is_fed = false;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            () = &mut feed, if !is_fed => is_fed = true,
        }
    }
}

/// Did one of the signals that ask a process to end, end the command? A shell says so of what it ran by a status above 128.
fn was_told_to_end(status: ExitStatus) -> bool {
    let signal = status.signal().or_else(|| status.code().map(|code| code - 128));
    [Signal::HUP, Signal::INT, Signal::TERM].iter().any(|asks| signal == Some(asks.as_raw()))
}

/// The address of an event in the form of a reservation, with its subnet as it is now.
fn held(event: &Value, network: Option<&Value>) -> Value {
    let address = event.get("address").map(text_of).unwrap_or_default();
    let parsed = address.parse::<Address>().ok();
    let subnets = network.and_then(|network| network.get("subnets")).and_then(Value::as_array);
    let contains = |subnet: &&Value| {
        let cidr = subnet.get("cidr").and_then(|cidr| text_of(cidr).parse::<Cidr>().ok());
        cidr.zip(parsed).is_some_and(|(cidr, address)| cidr.contains(address))
    };
    let subnet = subnets.into_iter().flatten().find(contains);
    let of_subnet = |name: &str| subnet.and_then(|subnet| subnet.get(name)).cloned().unwrap_or_default();
    let cidr = text_of(&of_subnet("cidr"));
    let interface = cidr.split_once('/').map(|(_, length)| format!("{address}/{length}"));
    let state =
        |name: &str| event.get("after").or_else(|| event.get("before")).and_then(|state| state.get(name)).cloned();
    json!({
        "address": address,
        "prefix_length": event.get("prefix_length"),
        "interface": interface,
        "network": event.get("network"),
        "subnet": cidr,
        "gateway": of_subnet("gateway"),
        "dhcp": of_subnet("dhcp"),
        "dns": of_subnet("dns"),
        "mac": state("mac"),
    })
}

/// The event in a message.
fn named(event: &Value) -> String {
    let text = |name: &str| event.get(name).map(text_of).unwrap_or_default();
    let about = if event.get("address").is_some() { text("address") } else { format!("network `{}`", text("network")) };
    format!("`{}` of {about}", text("type"))
}

fn say(words: &str) {
    use std::io::Write;
    // Errors are ignored if stderr is gone; the command still runs.
    let _ = writeln!(anstream::stderr(), "{words}");
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::client::Options;

    /// The address of a server that refuses the first call with this kind, and answers all others with a network.
    fn refuses_once(kind: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for (count, line) in lines.map_while(Result::ok).enumerate() {
                let id = serde_json::from_str::<Value>(&line).unwrap()["id"].take();
                // So long that the client itself has no time to retry.
                let data = json!({"kind": kind, "applied": false, "retry_after_ms": 5_000});
                let answer = match count {
                    0 => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": kind, "data": data}}),
                    _ => json!({"jsonrpc": "2.0", "id": id, "result": {"name": "lan", "subnets": []}}),
                };
                writeln!(stream, "{answer}").unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_network_is_looked_up_again_after_a_refusal_that_passes() {
        let looked_up = async |kind| {
            let options = Options { timeout: Duration::from_secs(4), ..Options::default() };
            let client = Client::new([refuses_once(kind)], options);
            let mut hook = Hook::new(client, String::new(), String::new(), OnFailure::Stop, true);
            let event = json!({"type": "granted", "network": "lan", "network_id": "1", "address": "10.0.0.5"});
            assert!(hook.variables(&event).await.is_ok(), "{kind}");
        };
        tokio::join!(looked_up("not_ready"), looked_up("unavailable"), looked_up("overloaded"));
    }

    #[tokio::test]
    async fn what_a_command_leaves_behind_with_its_input_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join("left");
        let command = format!("exec 3<&0; sleep 60 >&- 2>&- & echo $! > '{}'", left.display());
        let client = Client::new(["127.0.0.1:1".to_owned()], Options::default());
        let hook = Hook::new(client, command, String::new(), OnFailure::Stop, true);
        // Longer than a pipe holds.
        let event = json!({"type": "granted", "reason": "x".repeat(1 << 20)});
        let (status, _) = hook.once(&event, &[], &mut Ends::new().unwrap()).await.unwrap();
        assert!(status.success(), "{status}");
        let pid = std::fs::read_to_string(&left).unwrap().trim().to_owned();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(!stat.contains(") Z "), "it was waited for until its end: {stat}");
        let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.unwrap(), Signal::KILL).unwrap();
    }
}
