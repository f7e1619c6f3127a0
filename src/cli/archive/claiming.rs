//! Makes what a file holds, with many calls at a time: first a claim for each reservation, then automatic grants for those
//! that had been granted automatically.
//!
//! Repeated claims and grants succeed, and a release names the holding that it means, so each call can be repeated after a
//! lost answer.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::super::failure::Failure;
use super::super::progress::Progress;
use super::super::session::{Done, Session};
use super::lines::Claim;
use super::recording::record;
use crate::client::{Client, ClientError, RpcError};
use crate::wire::{ErrorKind, Retry};

/// Reservations that are worked on at a time.
const WINDOW: usize = 256;

/// The purpose of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claiming {
    /// A dry run: nothing is changed.
    Checks,
    /// Claims on a temporary server that is thrown away.
    TriesOut,
    /// Claims that are meant to stay.
    Imports,
}

impl Claiming {
    /// The word in the progress line.
    fn word(self) -> &'static str {
        match self {
            Self::Checks => "checking",
            Self::TriesOut => "trying out",
            Self::Imports => "importing",
        }
    }
}

/// The holding of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The generation of the holding.
    pub(super) generation: u64,
    /// It was created now, and did not exist before.
    pub(super) is_new: bool,
    /// Its address was named by a claim, not chosen by the server.
    pub(super) is_static: bool,
}

/// The results of claims, by line.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// Messages about refused claims.
    pub(super) refused: BTreeMap<usize, String>,
    /// The holdings of all others.
    pub(super) held: HashMap<usize, Held>,
}

/// Makes all claims.
pub(super) async fn claim_all(session: &Session, claims: &[&Claim], what_for: Claiming) -> Done<Claimed> {
    let mut claimed = Claimed::default();
    let asked = claims.iter().map(|&claim| claim.clone());
    let make = |client, claim: Claim| async move {
        let line = claim.line;
        let made = match claim.is_recorded {
            true => record(&client, &claim, what_for).await,
            false => make(&client, claim.params, what_for).await,
        };
        Ok((line, refusal(made, "ip.claim")?))
    };
    many(session, what_for.word(), asked, make, |(line, made)| match made {
        Ok(held) => drop(claimed.held.insert(line, held)),
        Err(error) => drop(claimed.refused.insert(line, error.message)),
    })
    .await?;
    Ok(claimed)
}

/// Works on several items at a time, and takes their results in any order. If one fails, no further item is started, but
/// those under way are completed: an address that was just released must be held again.
pub(super) async fn many<T, R, F>(
    session: &Session,
    word: &'static str,
    items: impl ExactSizeIterator<Item = T>,
    each: impl Fn(Client, T) -> F,
    mut take: impl FnMut(R),
) -> Done<()>
where
    R: Send + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
{
    if items.len() == 0 {
        return Ok(());
    }
    let client = session.client();
    let progress = Progress::towards(word, items.len() as u64);
    let mut under_way = JoinSet::new();
    let mut done = 0;
    let mut items = items;
    let mut broken_off = None;
    loop {
        while under_way.len() < WINDOW
            && broken_off.is_none()
            && let Some(item) = items.next()
        {
            under_way.spawn(each(client.clone(), item));
        }
        match under_way.join_next().await {
            None => return broken_off.map_or(Ok(()), |failure: Failure| Err(failure.into())),
            Some(Ok(Ok(became))) => take(became),
            Some(Ok(Err(failure))) => drop(broken_off.get_or_insert(failure)),
            Some(Err(error)) => {
                return Err(Failure::new("import", error.to_string(), "report this: `allod --version`").into());
            }
        }
        done += 1;
        progress.at(done);
    }
}

/// Separates the server's refusal of a line from all other errors, which end an import: if a server that cannot answer now
/// were taken for one that refuses, the import would go on without the line, and open its network to others.
pub(super) fn refusal<T>(answer: Result<T, ClientError>, method: &str) -> Result<Result<T, RpcError>, Failure> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(ClientError::Rpc(error)) if is_of_the_line(&error) => Ok(Err(error)),
        Err(error) => Err(Failure::of_method(method, &json!({}), &error)),
    }
}

/// Is it a refusal of this very request, which would be the same at each repetition?
fn is_of_the_line(error: &RpcError) -> bool {
    ErrorKind::from_word(&error.kind).is_some_and(|kind| match kind {
        ErrorKind::InvalidArgument
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::AlreadyInUse
        | ErrorKind::NotEnoughCapacity
        | ErrorKind::OutOfRange
        | ErrorKind::Reserved
        | ErrorKind::Overlap
        | ErrorKind::InUse
        | ErrorKind::NotOwner
        | ErrorKind::WrongKind
        | ErrorKind::Conflict
        | ErrorKind::QuotaExceeded
        | ErrorKind::Brake
        | ErrorKind::CursorLost
        | ErrorKind::LineTooLong => true,
        // A register that was restored grants no address automatically until someone confirms that it is right.
        ErrorKind::NotReady => error.data["reason"] == "restored",
        ErrorKind::ParseError
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::Internal
        | ErrorKind::Unavailable
        | ErrorKind::Overloaded
        | ErrorKind::Moved
        | ErrorKind::NetworkStopped
        | ErrorKind::RateLimited
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied => false,
    })
}

/// Does the server say that it, or something that it needs, is unavailable?
pub(super) fn is_away(error: &RpcError) -> bool {
    !is_of_the_line(error) && ErrorKind::from_word(&error.kind).is_some_and(|kind| kind.retry() != Retry::Never)
}

async fn make(client: &Client, mut params: Map<String, Value>, what_for: Claiming) -> Result<Held, ClientError> {
    // For an existing reservation only a full answer contains its kind.
    let how = if what_for == Claiming::Checks { "dry_run" } else { "brief" };
    params.insert(how.to_owned(), json!(true));
    let answered = client.ask("ip.claim", params).await?;
    let answer = answered.result;
    // The check of the whole file did not find it: what is there after a lost answer was made by the try that it was lost of, or
    // by somebody who claimed the same for the same owner since that check.
    let is_ours = answered.after_doubt && what_for == Claiming::Imports;
    Ok(Held {
        generation: generation(&answer),
        is_new: answer["created"] != false || is_ours,
        is_static: answer["kind"] != "dynamic",
    })
}

/// The generation in an answer.
pub(super) fn generation(answer: &Value) -> u64 {
    answer["generation"].as_u64().unwrap_or_default()
}

/// A claim that is to be replaced by an automatic grant of the same address.
#[derive(Debug)]
pub(super) struct Again<'a> {
    /// The claim.
    pub(super) claim: &'a Claim,
    /// The holding that the claim made.
    pub(super) held: Held,
    /// The pool that the address is granted from.
    pub(super) pool: String,
}

/// The result of replacing a claim by an automatic grant.
#[derive(Debug)]
pub(super) enum Became {
    /// It is an automatic grant now.
    Automatic,
    /// It is still a claim.
    Named,
    /// The address was granted to someone else: line and message.
    Refused(usize, String),
}

/// Releases the addresses and allocates each again: while an address cools, nobody else gets it without naming it.
pub(super) async fn grant_all(session: &Session, claims: &[Again<'_>], take: impl FnMut(Became)) -> Done<()> {
    let asked = claims.iter().map(|again| {
        let mut ask = again.claim.params.clone();
        for member in ["address", "force"] {
            ask.shift_remove(member);
        }
        ask.insert("pool".to_owned(), json!(again.pool));
        ask.insert("brief".to_owned(), json!(true));
        (again.claim.clone(), again.held.generation, ask)
    });
    let grant = |client, (claim, generation, ask)| async move { grant(&client, claim, generation, ask).await };
    many(session, "granting", asked, grant, take).await
}

async fn grant(client: &Client, claim: Claim, generation: u64, ask: Map<String, Value>) -> Result<Became, Failure> {
    let release = |address: &Value, generation: u64| {
        let params = json!({"network": claim.network, "address": address, "if_generation": generation});
        params.as_object().cloned().unwrap_or_default()
    };
    let address = json!(claim.range.first().to_string());
    // If the release is refused, the holding has changed meanwhile, and the next calls will show that.
    refusal(client.call("ip.release", release(&address, generation)).await, "ip.release")?.ok();
    let asked = refusal(client.call("ip.allocate", ask).await, "ip.allocate");
    if let Ok(Ok(answer)) = &asked {
        if answer["address"] == address {
            return Ok(Became::Automatic);
        }
        if answer["created"] == true {
            let undone = client.call("ip.release", release(&answer["address"], self::generation(answer))).await;
            refusal(undone, "ip.release")?.ok();
        }
    }
    // Claim the address again whatever ends the import, because nobody holds it now.
    let claimed = refusal(make(client, claim.params.clone(), Claiming::Imports).await, "ip.claim");
    asked?.ok();
    Ok(match claimed? {
        Ok(_) => Became::Named,
        Err(error) => Became::Refused(claim.line, error.message),
    })
}
