//! Tries an import out before it is made: on a temporary server in this process, with its register in memory.
//!
//! Only the server knows what a network would refuse (its gateway, its edges, addresses in its reserved ranges, a limit),
//! and it cannot be asked about a network that it does not have. So the server's own code is asked here. The temporary
//! server does not have the networks of the real one: claims in those are checked by the real server, and so are new
//! networks that might overlap them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::super::apply::networks;
use super::super::failure::Failure;
use super::super::session::{Done, Options, Session};
use super::claiming::{Claiming, claim_all, refusal};
use super::granting::{grant_again, pairs};
use super::lines::{Claim, Content};
use super::macs::held_macs;
use super::stages::Network;
use crate::client::ClientError;
use crate::serve::from_cli;

/// Finds what would be refused of the networks that are not `known` to the server, and of the reservations in them: line and
/// message. `there` are the networks of the server. Lines that are already bad are left out, and so are claims in a network
/// that is refused, because they are not the problem.
pub async fn rehearse(
    session: &mut Session,
    content: &Content,
    known: &BTreeSet<&str>,
    there: &[Value],
) -> Done<BTreeMap<usize, String>> {
    let is_bad = |line: usize| content.problems.contains_key(&line);
    let is_new = |network: &&Network| !known.contains(&*network.table.name) && !is_bad(network.line);
    let mut new: Vec<&Network> = content.networks.iter().filter(is_new).collect();
    let mut refused = BTreeMap::new();
    if new.is_empty() {
        return Ok(refused);
    }
    let failed = |problem: String| {
        let hint = "it needs two free ports on 127.0.0.1, some threads, and memory for what the file holds";
        Failure::new("try the import out on a server in this process", problem, hint)
    };
    let running = from_cli::start_for_a_trial().map_err(failed)?;
    let mut trial = Session::new(Options { server: running.tcp.to_string(), ..session.options.clone() });
    for network in &new {
        refuse(&mut refused, network.line, trial.try_call("network.create", network.open.members.clone()).await)?;
    }
    new.retain(|network| !refused.contains_key(&network.line));
    let names: BTreeSet<&str> = new.iter().map(|network| &*network.table.name).collect();
    let is_tried = |claim: &&Claim| names.contains(claim.network.as_str()) && !is_bad(claim.line);
    let claims: Vec<&Claim> = content.claims.iter().filter(is_tried).collect();
    let realms = new.iter().map(|network| (&*network.table.name, network.realm())).collect();
    refused.extend(held_macs(session, &realms, &claims, there).await?);
    let claimed = claim_all(&trial, &claims, Claiming::TriesOut).await?;
    refused.extend(claimed.refused);
    if refused.is_empty() {
        refused.extend(grant_again(&mut trial, content, &claimed.held, &HashMap::new()).await?.refused);
        for (network, made) in pairs(&content.networks, &networks(&mut trial, None).await?) {
            match network.closing(made) {
                Err(problem) => drop(refused.insert(network.line, problem)),
                Ok(steps) => {
                    for step in steps {
                        refuse(&mut refused, network.line, trial.try_call(step.method, step.params).await)?;
                    }
                }
            }
        }
    }
    Ok(refused)
}

/// Notes a refusal of the server.
fn refuse(
    refused: &mut BTreeMap<usize, String>,
    line: usize,
    answer: Result<Value, ClientError>,
) -> Result<(), Failure> {
    if let Err(error) = refusal(answer, "import")? {
        refused.entry(line).or_insert(error.message);
    }
    Ok(())
}
