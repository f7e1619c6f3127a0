//! `allod import`: checks a file whole, against the server too, then creates, claims and closes.
//!
//! Networks are created open (nothing in them refuses a claim), reservations are claimed many at a time, and in the end
//! each network gets the settings that were held back. Claims are idempotent, so an import that broke off is repeated.
//! All of it is tried out before, on a server of its own ([`rehearsal`](super::rehearsal)): what the real one is going to
//! refuse is found while nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::super::apply::diff::{self, Step};
use super::super::apply::networks;
use super::super::exit::Exit;
use super::super::failure::Failure;
use super::super::progress::Progress;
use super::super::quote::shell;
use super::super::session::{Done, Session, Stop};
use super::super::shown;
use super::Import;
use super::lines::{Claim, Content, Network, read};
use super::rehearsal::rehearse;
use crate::client::ClientError;
use crate::core::plural::counted;

/// Claims in flight.
const WINDOW: usize = 256;
/// Bad lines that are printed; the rest is counted.
const PROBLEMS_MAX: usize = 1_000;

/// Reads what `export` wrote.
pub async fn import(session: &mut Session, args: &Import) -> Done<Exit> {
    let asked = format!("import {}", shown(&args.file));
    let hint = "`allod export` writes such a file";
    let text = text_of(args).map_err(|error| Failure::new(&*asked, error.to_string(), hint))?;
    let mut content = read(&text);
    let there = networks(session, None).await?;
    content.check(&there);
    let known: BTreeSet<&str> = there.iter().filter_map(|network| network["name"].as_str()).collect();
    let unchanged = "nothing was changed yet";
    let there_already =
        ask_server(session, &mut content, &known).await.map_err(|stop| broken_off(stop, &asked, unchanged, args))?;
    let refused = rehearse(session, &content, &known, &there).await;
    content.problems.extend(refused.map_err(|stop| broken_off(stop, &asked, unchanged, args))?);
    if !content.problems.is_empty() {
        return Err(
            Failure::new(asked, report(&content), "correct these lines and import again; nothing was changed").into()
        );
    }
    let is_new = |network: &&Network| !known.contains(&*network.table.name);
    let networks = content.networks.iter().filter(is_new).count();
    let imported = |networks: usize, claims: usize| {
        format!("{} and {}", counted(networks, "network"), counted(claims, "reservation"))
    };
    if args.dry_run {
        let would = imported(networks, content.claims.len() - there_already);
        session.say(&format!("{would} would be imported; nothing was changed"));
        return Ok(Exit::Success);
    }
    let is_open = |network: &Network| network.open != network.table;
    let halfway = match content.networks.iter().any(is_open) {
        false => "it broke off, and what was imported by then stays",
        true => {
            "it broke off, and what was imported by then stays, in networks without their `static_only`, `protected`, `limits` \
             and `draining`, which come last"
        }
    };
    for network in content.networks.iter().filter(is_new) {
        let created = session.call("network.create", Value::Object(network.open.members.clone())).await;
        created.map_err(|stop| broken_off(stop, &asked, halfway, args))?;
    }
    let claimed = claim_all(session, &content.claims, Claiming::Imports).await;
    let claimed = claimed.map_err(|stop| broken_off(stop, &asked, halfway, args))?;
    // Also where somebody was given meanwhile what the file has: a network must not stay open for that.
    close(session, &content.networks).await.map_err(|stop| broken_off(stop, &asked, halfway, args))?;
    if !claimed.refused.is_empty() {
        content.problems.extend(claimed.refused);
        let hint = "the rest was imported; free these addresses (`allod who ADDRESS`) and import the same file again";
        return Err(Failure::new(asked, report(&content), hint).into());
    }
    session.say(&format!("imported {}", imported(networks, claimed.made)));
    if claimed.made_automatic > 0 {
        let many = counted(claimed.made_automatic, "reservation");
        session.say(&format!("{many} of the import had been granted automatically and came back as kind `static`"));
    }
    if claimed.there_already > 0 {
        session.say(&format!("{} had been there already", counted(claimed.there_already, "reservation")));
    }
    Ok(Exit::Success)
}

/// The failure of one call as that of the whole import, with how far it came, and that it goes on when it is repeated.
fn broken_off(stop: Stop, asked: &str, how_far: &str, args: &Import) -> Stop {
    let Stop::Failed(failure) = stop else { return stop };
    let reason = format!("{how_far}: {}", failure.reason);
    let again = match args.file.as_os_str() {
        file if file == "-" => "import the same lines again: that goes on from there".to_owned(),
        file => format!("`allod import {}` again goes on from there", shell(&file.to_string_lossy())),
    };
    let hint = match failure.exit {
        Exit::Unreachable => format!("{again}; `allod server ping` tells when the server is back"),
        _ => format!("{}; then {again}", failure.hint),
    };
    Stop::from(Failure { asked: asked.to_owned(), reason, hint, ..*failure }.of_file())
}

fn text_of(args: &Import) -> std::io::Result<String> {
    if args.file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        Ok(text)
    } else {
        fs::read_to_string(&args.file)
    }
}

/// Every bad line with its number.
fn report(content: &Content) -> String {
    let count = content.problems.len();
    let mut text = counted(count, "bad line");
    for (line, problem) in content.problems.iter().take(PROBLEMS_MAX) {
        text.push_str(&format!("\n  line {line}: {problem}"));
    }
    if count > PROBLEMS_MAX {
        text.push_str(&format!("\n  … and {} more", count - PROBLEMS_MAX));
    }
    text
}

/// Lets the server check what only it knows: overlaps with what it has, and addresses that are held in networks that are `known`
/// to it. Answers how many of the reservations are there already.
async fn ask_server(session: &mut Session, content: &mut Content, known: &BTreeSet<&str>) -> Done<usize> {
    for network in &content.networks {
        if known.contains(network.table.name.as_str()) || content.problems.contains_key(&network.line) {
            continue;
        }
        let mut params = network.table.members.clone();
        params.insert("dry_run".to_owned(), json!(true));
        match session.try_call("network.create", params.clone()).await {
            Ok(_) => {}
            Err(ClientError::Rpc(error)) => drop(content.problems.insert(network.line, error.message)),
            Err(error) => return Err(Failure::of_method("network.create", &Value::Object(params), &error).into()),
        }
    }
    let claims: Vec<Claim> =
        content.claims.iter().filter(|claim| known.contains(claim.network.as_str())).cloned().collect();
    let claimed = claim_all(session, &claims, Claiming::Checks).await?;
    for (line, problem) in claimed.refused {
        content.problems.entry(line).or_insert(problem);
    }
    Ok(claimed.there_already)
}

/// What claims are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claiming {
    /// Nothing is to be changed.
    Checks,
    /// They are made on a server that is thrown away.
    TriesOut,
    /// They are made.
    Imports,
}

impl Claiming {
    /// For whoever waits.
    fn word(self) -> &'static str {
        match self {
            Self::Checks => "checking",
            Self::TriesOut => "trying out",
            Self::Imports => "importing",
        }
    }
}

/// What became of claims.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// Line and sentence of those that were refused.
    pub(super) refused: BTreeMap<usize, String>,
    /// How many were made.
    made: usize,
    /// How many of these had been granted automatically when they were exported.
    made_automatic: usize,
    /// How many were held by the same owner and slot before, and stay as they are.
    there_already: usize,
}

/// Makes all claims, many at a time.
pub(super) async fn claim_all(session: &mut Session, claims: &[Claim], what_for: Claiming) -> Done<Claimed> {
    let mut claimed = Claimed::default();
    if claims.is_empty() {
        return Ok(claimed);
    }
    let no_params = Value::Object(Map::new());
    let client = session.client();
    let progress = Progress::towards(what_for.word(), claims.len() as u64);
    let mut under_way = JoinSet::new();
    let mut rest = claims.iter();
    let mut done = 0;
    loop {
        while under_way.len() < WINDOW
            && let Some(claim) = rest.next()
        {
            let (client, line, automatic) = (client.clone(), claim.line, claim.automatic);
            let mut params = claim.params.clone();
            let how = if what_for == Claiming::Checks { "dry_run" } else { "brief" };
            params.insert(how.to_owned(), json!(true));
            under_way.spawn(async move { (line, automatic, client.call("ip.claim", params).await) });
        }
        match under_way.join_next().await {
            None => return Ok(claimed),
            Some(Ok((_, _, Ok(answer)))) if answer.get("created") == Some(&Value::Bool(false)) => {
                claimed.there_already += 1;
            }
            Some(Ok((_, automatic, Ok(_)))) => {
                claimed.made += 1;
                claimed.made_automatic += usize::from(automatic);
            }
            Some(Ok((line, _, Err(ClientError::Rpc(error))))) => drop(claimed.refused.insert(line, error.message)),
            Some(Ok((_, _, Err(error)))) => return Err(Failure::of_method("ip.claim", &no_params, &error).into()),
            Some(Err(error)) => {
                return Err(Failure::new("import", error.to_string(), "report this: `allod --version`").into());
            }
        }
        done += 1;
        progress.at(done);
    }
}

/// Gives the networks the settings that were held back.
async fn close(session: &mut Session, of_file: &[Network]) -> Done<()> {
    let there = networks(session, None).await?;
    for network in of_file {
        let steps = closing(network, &there)
            .map_err(|problem| Failure::new("finish the import", problem, "`allod network get NETWORK`"))?;
        for step in steps {
            session.call(step.method, Value::Object(step.params)).await?;
        }
    }
    Ok(())
}

/// What makes a network that was created open what the file says. Nothing where it is not among these.
pub(super) fn closing(network: &Network, there: &[Value]) -> Result<Vec<Step>, String> {
    let Some(existing) = there.iter().find(|there| there["name"] == *network.table.name) else { return Ok(Vec::new()) };
    diff::steps(std::slice::from_ref(&network.table), std::slice::from_ref(existing), false)
}
