//! The command of an event: what it is told, and what its failure means.

use std::collections::HashMap;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::super::failure::Failure;
use super::super::output::{env, text_of};
use super::super::session::Done;
use super::{Ends, Handled, OnFailure};
use crate::client::{Client, ClientError};
use crate::core::address::{Address, Cidr};

/// Members of an event that become `EVENT_…`. One that an event does not have is empty, never left over from elsewhere.
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
/// Before a failed command is run again: the first wait, doubled each time up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// Networks whose subnets are remembered.
const NETWORKS_MAX: usize = 1_024;

/// Runs a command for each event.
pub(super) struct Hook {
    client: Client,
    command: String,
    prefix: String,
    on_failure: OnFailure,
    /// Networks by id, as they are until an event says that they changed. None: it is no more.
    networks: HashMap<String, Option<Value>>,
}

impl Hook {
    pub(super) fn new(client: Client, command: String, prefix: String, on_failure: OnFailure) -> Self {
        Self { client, command, prefix, on_failure, networks: HashMap::new() }
    }

    /// Runs the command for an event, as often as its failure means.
    pub(super) async fn run(&mut self, event: &Value, ends: &mut Ends) -> Done<Handled> {
        let variables = tokio::select! {
            variables = self.variables(event) => variables?,
            () = ends.asked() => return Ok(Handled::NotYet),
        };
        let mut wait = RETRY_FIRST;
        loop {
            let (problem, was_asked) = match self.once(event, &variables, ends).await {
                Ok((status, was_asked)) if status.success() => {
                    return Ok(if was_asked { Handled::Last } else { Handled::Yes });
                }
                Ok((status, was_asked)) => (format!("ended with {status}"), was_asked),
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
                }
            }
        }
    }

    /// Runs the command once, and waits for it, even if asked to end meanwhile.
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
                    status = &mut ended => break status?,
                    () = ends.asked(), if !was_asked => was_asked = true,
                }
            }
        };
        Ok((status, was_asked))
    }

    /// What a command is told in its environment.
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

    /// The network as it is; none: it is no more.
    async fn network(&mut self, id: &str) -> Done<Option<Value>> {
        if let Some(network) = self.networks.get(id) {
            return Ok(network.clone());
        }
        let params = Map::from_iter([("network".to_owned(), Value::String(id.to_owned()))]);
        let network = loop {
            match self.client.call("network.get", params.clone()).await {
                Ok(network) => break Some(network),
                Err(ClientError::Rpc(error)) if error.kind == "not_found" => break None,
                // As the watch itself does, for as long as it takes.
                Err(ClientError::Connect { .. } | ClientError::Lost { .. } | ClientError::TimedOut { .. }) => {
                    tokio::time::sleep(RETRY_FIRST).await;
                }
                Err(error) => {
                    return Err(Failure::of_method("network.get", &Value::Object(params), &error).into());
                }
            }
        };
        if self.networks.len() >= NETWORKS_MAX {
            self.networks.clear();
        }
        self.networks.insert(id.to_owned(), network.clone());
        Ok(network)
    }
}

/// Hands the event over and waits for the end of the command, whether it reads it or not.
async fn feed_and_wait(child: &mut Child, text: String) -> std::io::Result<ExitStatus> {
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A command that does not read has what it needs in its environment.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let (status, ()) = tokio::join!(child.wait(), feed);
    status
}

/// What an event is about as a reservation has it: the address, and its subnet as it is now.
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

/// An event in a sentence.
fn named(event: &Value) -> String {
    let text = |name: &str| event.get(name).map(text_of).unwrap_or_default();
    let about = if event.get("address").is_some() { text("address") } else { format!("network `{}`", text("network")) };
    format!("`{}` of {about}", text("type"))
}

fn say(words: &str) {
    use std::io::Write;
    // A stderr that is gone hears nothing; the command still runs.
    let _ = writeln!(anstream::stderr(), "{words}");
}
