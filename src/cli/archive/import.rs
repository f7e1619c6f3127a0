//! `allod import`: checks a file whole, against the server too, then fills each network in [stages](super::stages).
//!
//! ```text
//! created, all of it reserved ─▶ every reservation claimed ─▶ what had been granted automatically, granted again
//!   ─▶ closed: all that the file says
//! ```
//!
//! Claims are idempotent, and whatever exists already is left alone, so an import that broke off can be repeated. The whole
//! import is first tried out on a server of its own ([`rehearsal`](super::rehearsal)): it finds what the real server would
//! refuse while nothing is changed yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Read;

use serde_json::{Value, json};

use super::super::apply::networks;
use super::super::exit::Exit;
use super::super::failure::Failure;
use super::super::session::{Done, Session, Stop};
use super::super::shown;
use super::Import;
use super::claiming::{Claiming, Held, claim_all, is_away, refusal};
use super::granting::{grant_again, pairs, places};
use super::lines::{Claim, Content, read};
use super::macs::held_macs;
use super::places::Places;
use super::rehearsal::rehearse;
use super::stages::{Network, is_half_done};
use crate::client::RpcError;
use crate::core::plural::counted;

/// How many bad lines are printed; the rest are only counted.
const PROBLEMS_MAX: usize = 1_000;

/// A valid file, and how much of it the server has already.
struct Plan<'a> {
    content: &'a Content,
    /// Networks that the server has, by name.
    known: BTreeSet<&'a str>,
    /// Those that are in service, and not left unfinished by an earlier import.
    in_service: BTreeSet<&'a str>,
    /// What would become of the reservations in existing networks, by line.
    checked: HashMap<usize, Held>,
    places: HashMap<&'a str, Places>,
}

/// The result of an import.
#[derive(Debug, Default)]
struct Imported {
    networks: usize,
    /// Reservations.
    made: usize,
    /// How many of them had been granted automatically and are claims now.
    named: usize,
    /// Held by the same owner and slot before the import, and left alone.
    there_already: usize,
    /// Line and reason of those whose address was granted to somebody else meanwhile.
    refused: BTreeMap<usize, String>,
}

/// Reads what `export` wrote.
pub async fn import(session: &mut Session, args: &Import) -> Done<Exit> {
    let asked = format!("import {}", shown(&args.file));
    let hint = "`allod export` writes such a file";
    let bytes = bytes_of(args).map_err(|error| Failure::new(&*asked, error.to_string(), hint))?;
    let mut content = read(&bytes);
    drop(bytes);
    let there = networks(session, None).await?;
    content.check(&there);
    let known: BTreeSet<&str> = names(&there).collect();
    let unchanged = |stop| broken_off(stop, &asked, ("nothing was changed yet", Some(0)), args);
    let checked = ask_server(session, &mut content, &known, &there).await.map_err(unchanged)?;
    content.problems.extend(rehearse(session, &content, &known, &there).await.map_err(unchanged)?);
    if !content.problems.is_empty() {
        let hint = "correct these lines and import again; nothing was changed";
        return Err(Failure::new(asked, report(&content.problems), hint).into());
    }
    if !content.left_out.is_empty() {
        session.say(&format!(
            "not in the file, as {} stopped when it was written: network `{}`",
            if content.left_out.len() == 1 { "it was" } else { "they were" },
            content.left_out.join("`, `")
        ));
    }
    let plan = Plan {
        content: &content,
        known,
        in_service: names(there.iter().filter(|there| !is_half_done(there))).collect(),
        checked,
        places: places(&there),
    };
    if args.dry_run {
        say(session, &plan.would_be(), ("would be imported; nothing was changed", "would come"));
        return Ok(Exit::Success);
    }
    let halfway = match content.networks.iter().any(Network::is_filled) {
        false => "it broke off, and what was imported by then stays",
        true => {
            "it broke off, and what was imported by then stays, in networks that are all reserved yet, or without their cooldown, \
             `static_only`, `protected`, `limits` and `draining`, which come last"
        }
    };
    let imported = plan.carry_out(session).await.map_err(|stop| broken_off(stop, &asked, (halfway, None), args))?;
    if !imported.refused.is_empty() {
        let hint = "the rest was imported; free these addresses (`allod who ADDRESS`) and import the same file again";
        return Err(Failure::new(asked, report(&imported.refused), hint).into());
    }
    say(session, &imported, ("imported", "came"));
    if imported.there_already > 0 {
        session.say(&format!("{} had been there already", counted(imported.there_already, "reservation")));
    }
    Ok(Exit::Success)
}

/// Prints the result, or the expected result.
fn say(session: &Session, imported: &Imported, (what, came): (&str, &str)) {
    let many = format!("{} and {}", counted(imported.networks, "network"), counted(imported.made, "reservation"));
    session.say(&if what == "imported" { format!("{what} {many}") } else { format!("{many} {what}") });
    if imported.named > 0 {
        session.say(&format!(
            "{} of the import had been granted automatically and {came} back as kind `static`: in a network that is in service, or a \
             register that was restored, they are claimed",
            counted(imported.named, "reservation")
        ));
    }
}

impl<'a> Plan<'a> {
    fn is_new(&self, network: &Network) -> bool {
        !self.known.contains(&*network.table.name)
    }

    fn is_in_service(&self, claim: &Claim) -> bool {
        self.in_service.contains(&*claim.network)
    }

    fn is_there(&self, claim: &Claim) -> bool {
        self.checked.get(&claim.line).is_some_and(|held| !held.is_new)
    }

    fn missing(&self) -> Vec<&'a Claim> {
        self.content.claims.iter().filter(|claim| !self.is_there(claim)).collect()
    }

    /// The expected result if nobody interferes.
    fn would_be(&self) -> Imported {
        let missing = self.missing();
        let has_pool = |claim: &Claim| self.places.get(&*claim.network).is_some_and(|at| at.pool_of(claim).is_some());
        let is_named = |claim: &&&Claim| self.is_in_service(claim) && claim.is_chosen() && !has_pool(claim);
        Imported {
            networks: self.content.networks.iter().filter(|network| self.is_new(network)).count(),
            made: missing.len(),
            named: missing.iter().filter(is_named).count(),
            ..Imported::default()
        }
    }

    async fn carry_out(&self, session: &mut Session) -> Done<Imported> {
        let mut imported = Imported::default();
        for network in self.content.networks.iter().filter(|network| self.is_new(network)) {
            // An attempt whose answer was lost may have made it. Without such an attempt, a network that exists now is
            // somebody else's.
            let mut params = network.open.members.clone();
            params.insert("if_absent".to_owned(), json!(true));
            let params = Value::Object(params);
            let answer = session.call("network.create", params.clone()).await?;
            if session.found_made(&answer) {
                return Err(Failure::made_by_another(&params).into());
            }
            imported.networks += 1;
        }
        let missing = self.missing();
        let claimed = claim_all(session, &missing, Claiming::Imports).await?;
        let held_for = |claim: &Claim| claimed.held.get(&claim.line).copied();
        // In a network that grants to nobody else, an existing reservation comes from an attempt whose answer was lost.
        let is_made = |claim: &Claim| held_for(claim).is_some_and(|held| held.is_new || !self.is_in_service(claim));
        let made = missing.into_iter().filter(|claim| is_made(claim));
        let mut held: HashMap<usize, Held> = made.filter_map(|claim| Some((claim.line, held_for(claim)?))).collect();
        imported.made = held.len();
        imported.there_already = self.content.claims.len() - held.len() - claimed.refused.len();
        imported.refused = claimed.refused;
        // An import that broke off claimed these, but had not yet had them granted again.
        let begun = self.content.claims.iter().filter(|claim| self.is_there(claim) && !self.is_in_service(claim));
        let begun = begun.filter_map(|claim| Some((claim.line, *self.checked.get(&claim.line)?)));
        held.extend(begun.filter(|(_, held)| held.is_static));
        let granted = grant_again(session, self.content, &held, &self.places).await?;
        // Even if somebody was granted an address of the file meanwhile: that is no reason to leave a network open.
        close(session, self.content).await?;
        imported.named = granted.named;
        imported.refused.extend(granted.refused);
        Ok(imported)
    }
}

fn names<'a>(networks: impl IntoIterator<Item = &'a Value>) -> impl Iterator<Item = &'a str> {
    networks.into_iter().filter_map(|network| network["name"].as_str())
}

/// Gives the networks that it filled their withheld settings. Whether the file's settings still apply to other networks is
/// not known.
async fn close(session: &mut Session, content: &Content) -> Done<()> {
    let there = networks(session, None).await?;
    for (network, there) in pairs(&content.networks, &there).filter(|(_, there)| is_half_done(there)) {
        let steps = network
            .closing(there)
            .map_err(|problem| Failure::new("finish the import", problem, "`allod network get NETWORK`"))?;
        for step in steps {
            session.call(step.method, Value::Object(step.params)).await?;
        }
    }
    Ok(())
}

/// The failure of one call as a failure of the whole import: says how far it came, and that repeating it continues it.
fn broken_off(stop: Stop, asked: &str, (how_far, made): (&str, Option<usize>), args: &Import) -> Stop {
    let Stop::Failed(failure) = stop else { return stop };
    let reason = format!("{how_far}: {}", failure.reason);
    // Programs are also told how far it came.
    let refused = failure.refused.clone().map(|refused| Box::new(RpcError { message: reason.clone(), ..*refused }));
    let exit = if failure.refused.as_deref().is_some_and(is_away) { Exit::Unreachable } else { failure.exit };
    let failure = Failure { exit, asked: asked.to_owned(), reason, refused, ..*failure };
    Stop::from(failure.broken_off(made, &args.file).of_file())
}

fn bytes_of(args: &Import) -> std::io::Result<Vec<u8>> {
    if args.file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        Ok(bytes)
    } else {
        fs::read(&args.file)
    }
}

/// All bad lines with their numbers.
fn report(problems: &BTreeMap<usize, String>) -> String {
    let count = problems.len();
    let mut text = counted(count, "bad line");
    for (line, problem) in problems.iter().take(PROBLEMS_MAX) {
        text.push_str(&format!("\n  line {line}: {problem}"));
    }
    if count > PROBLEMS_MAX {
        text.push_str(&format!("\n  … and {} more", count - PROBLEMS_MAX));
    }
    text
}

/// Lets the server check what only it knows: overlaps with its networks, and addresses held in the networks that it has
/// (`known`). Returns what would become of the reservations in those, by line.
async fn ask_server(
    session: &mut Session,
    content: &mut Content,
    known: &BTreeSet<&str>,
    there: &[Value],
) -> Done<HashMap<usize, Held>> {
    for network in &content.networks {
        if known.contains(network.table.name.as_str()) || content.problems.contains_key(&network.line) {
            continue;
        }
        let mut params = network.table.members.clone();
        params.insert("dry_run".to_owned(), json!(true));
        if let Err(error) = refusal(session.try_call("network.create", params).await, "network.create")? {
            content.problems.insert(network.line, error.message);
        }
    }
    let claims: Vec<&Claim> = content.claims.iter().filter(|claim| known.contains(claim.network.as_str())).collect();
    let mut claimed = claim_all(session, &claims, Claiming::Checks).await?;
    // The trial claims carried their MACs, so only recorded reservations are left to check.
    let is_new = |claim: &Claim| claimed.held.get(&claim.line).is_some_and(|held| held.is_new);
    let recorded: Vec<&Claim> = claims.into_iter().filter(|claim| claim.is_recorded && is_new(claim)).collect();
    let realms = there.iter().filter_map(|there| Some((there["name"].as_str()?, there["realm"].as_str()?))).collect();
    claimed.refused.extend(held_macs(session, &realms, &recorded, there).await?);
    for (line, problem) in claimed.refused {
        content.problems.entry(line).or_insert(problem);
    }
    Ok(claimed.held)
}
