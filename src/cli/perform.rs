//! Carries out a subcommand that is one call: asks first if it takes something away, fetches all pages, and prints.

use serde_json::{Map, Value, json};

use super::apply::subnets::whom;
use super::args::Ask;
use super::block;
use super::contested;
use super::doubt;
use super::exit::Exit;
use super::failure::Failure;
use super::listing;
use super::losses;
use super::output::{Format, has_owner, list};
use super::phrase;
use super::preview;
use super::progress::Progress;
use super::quote::{owner_options, shell};
use super::repeat;
use super::session::{Done, Session, Stop};
use super::wishes;
use crate::client::ClientError;
use crate::core::address::Range;
use crate::core::plural::counted;
use crate::limits::SWEEP_LISTED_MAX;

/// Makes the call and prints its answer.
pub async fn perform(session: &mut Session, mut ask: Ask) -> Done<Exit> {
    if let Some(member) = &ask.contradicted {
        let asked = phrase::of(ask.method, &Value::Object(ask.params));
        let problem = format!("`{member}` is to be set and, by `--unset {member}`, to be cleared");
        return Err(Failure::usage(asked, problem, "leave one of the two out").into());
    }
    let mut held = block::resolve(session, &mut ask).await?;
    let dry_run = ask.params.get("dry_run") == Some(&Value::Bool(true));
    let mut pinned = None;
    if ask.destructive && !dry_run {
        let would = preview::show(session, &ask).await?;
        pinned = Some(would.pinned(&ask, !session.options.yes));
        held = held.or(would.held);
        if would.takes {
            session.confirm(&phrase::of(ask.method, &Value::Object(ask.params.clone())))?;
        } else if ask.method == "ip.release" {
            session.print(ask.method, &ask.params, &json!({"released": []}))?;
            session.say(&nothing_held(&ask));
            return Ok(Exit::Success);
        }
        // Even if an owner or scope holds nothing, it may have a request that waits for capacity, which the call ends.
    }
    // The answer to a release shows what it takes; for the other calls only the preview does.
    if dry_run && preview::is_of_configuration(ask.method) {
        preview::show(session, &ask).await?;
    }
    let lost = losses::of(session, &ask).await?;
    if let Some(words) = &lost.words {
        session.say(words);
        if !dry_run {
            session.confirm(&phrase::of(ask.method, &Value::Object(ask.params.clone())))?;
            pinned = lost.pinned(&ask, !session.options.yes);
        }
    }
    if listing::is_whole(session, &ask) {
        return listing::run(session, &ask).await;
    }
    let mut broken_off = None;
    let result = match ask.method {
        "ip.list" => pages(session, &ask, "reservations").await?,
        "network.list" => pages(session, &ask, "networks").await?,
        "deployment.list" => pages(session, &ask, "deployments").await?,
        "scope.list" => pages(session, &ask, "scopes").await?,
        "owner.release" | "scope.release" | "deployment.delete" if !dry_run => {
            let (released, stop) = until_empty(session, &ask).await?;
            broken_off = stop;
            released
        }
        "network.delete" if !dry_run && ask.params.get("purge") == Some(&Value::Bool(true)) => {
            let (deleted, stop) = until_purged(session, &ask, pinned).await?;
            broken_off = stop;
            deleted
        }
        "cluster.accept" if !dry_run && ask.text("address").is_none() => {
            let (accepted, stop) = accept_shown(session, &ask, &lost.addresses).await?;
            broken_off = stop;
            accepted
        }
        _ => session.make_with(&ask, pinned).await?,
    };
    let doubted = session.doubts(ask.method, &ask.params, &result);
    // Programs get the answer unchanged.
    let shown = match ask.method {
        _ if session.options.style.format != Format::Table => None,
        "ip.release" => Some(block::with_length(&result, held.as_ref())),
        _ => doubted.is_some().then(|| doubt::without_created(&result)),
    };
    session.print(ask.method, &ask.params, shown.as_ref().unwrap_or(&result))?;
    if let Some(stop) = broken_off {
        session.say(&where_it_broke_off(&ask, &result));
        return Err(stop);
    }
    if dry_run {
        cut_short(&ask, &result).iter().for_each(|words| session.say(words));
        session.say("dry run: nothing was changed");
    } else {
        repeat::unchanged(&ask, &result).iter().for_each(|words| session.say(words));
        doubted.iter().for_each(|words| session.say(words));
        // If the outcome is in doubt, the remark would state it as known. For an acquire, only part of it is in doubt.
        let remark = remark(&ask, &result).filter(|_| doubted.is_none() || ask.method == "ip.acquire");
        remark.iter().for_each(|words| session.say(words));
    }
    if ask.method == "cluster.conflicts" && session.options.style.format == Format::Table {
        contested::over_macs(&result).iter().for_each(|words| session.say(words));
    }
    if ask.method == "ip.acquire" {
        wishes::left_out(&ask, &result).iter().for_each(|words| session.say(words));
    }
    if ask.method == "claimant.sweep" && is_of_nothing(session, &ask, &result).await {
        let scope = ask.text("scope").unwrap_or_default();
        session.say(&format!("nothing is held in scope `{scope}`; `allod scope list` shows the scopes there are"));
    }
    if ask.method == "network.get" && is_deleted(session, &ask, &result).await {
        let id = shell(ask.text("network").unwrap_or_default());
        session.say(&format!(
            "deleted, and remembered while it holds something; `allod network restore {id}` brings it back"
        ));
    }
    Ok(Exit::Success)
}

/// Was a sweep over a scope in which nothing is held? Then another scope was probably meant.
async fn is_of_nothing(session: &mut Session, ask: &Ask, swept: &Value) -> bool {
    if ["unbound", "released", "waiting"].iter().any(|done| list(swept, done).next().is_some()) {
        return false;
    }
    preview::count(session, json!({"scope": ask.text("scope")})).await.is_ok_and(|held| held == 0)
}

/// Is it a network that is deleted and remembered? Such a network is named by its id, and the answer does not say that it is
/// deleted.
async fn is_deleted(session: &mut Session, ask: &Ask, network: &Value) -> bool {
    if network.get("id").and_then(Value::as_str) != ask.text("network") {
        return false;
    }
    let deleted = session.call("network.list", json!({"deleted": true})).await;
    deleted.is_ok_and(|deleted| list(&deleted, "networks").any(|other| other.get("id") == network.get("id")))
}

/// All pages of a list as one answer, or the single page that was asked for.
async fn pages(session: &mut Session, ask: &Ask, list: &str) -> Done<Value> {
    if ask.params.contains_key("limit") || ask.params.contains_key("count_only") {
        return session.make(ask).await;
    }
    super::pages::all(session, ask, list).await
}

/// Repeats a release of bounded size until nothing is left, and joins the answers. Also returns why it ended early, if it
/// did.
async fn until_empty(session: &mut Session, ask: &Ask) -> Done<(Value, Option<Stop>)> {
    let mut result = session.make(ask).await?;
    let progress = Progress::spinner("releasing");
    while result.get("more") == Some(&Value::Bool(true)) {
        let next = match session.make(ask).await {
            Ok(next) => next,
            Err(stop) => return Ok((result, Some(stop))),
        };
        let later = next.get("released").and_then(Value::as_array).cloned().unwrap_or_default();
        if later.is_empty() && next.get("more") == Some(&Value::Bool(true)) {
            // Otherwise this loop would never end.
            let asked = phrase::of(ask.method, &Value::Object(ask.params.clone()));
            let hint = "run it again; `allod ip list` shows what is held";
            let stop =
                Failure::new(asked, "the server says that more is left, and releases nothing of it", hint).into();
            return Ok((result, Some(stop)));
        }
        if let Some(Value::Array(all)) = result.get_mut("released") {
            all.extend(later);
            progress.at(all.len() as u64);
        }
        result["more"] = next.get("more").cloned().unwrap_or(Value::Bool(false));
    }
    Ok((result, None))
}

/// Gives up the late claims that were shown, one address after the other: nobody has seen one that came since. Also returns why
/// it ended early, if it did.
async fn accept_shown(session: &mut Session, ask: &Ask, addresses: &[String]) -> Done<(Value, Option<Stop>)> {
    let mut accepted: Vec<Value> = Vec::new();
    for address in addresses {
        let one = ask.clone().with("address", address.as_str());
        match session.try_call(one.method, one.params.clone()).await {
            Ok(given_up) => accepted.extend(list(&given_up, "accepted").cloned()),
            // Somebody else has decided it meanwhile.
            Err(ClientError::Rpc(error)) if error.kind == "not_found" => {}
            Err(error) => {
                let stop = Failure::of_call(&one, &error).into();
                return if accepted.is_empty() { Err(stop) } else { Ok((json!({"accepted": accepted}), Some(stop))) };
            }
        }
    }
    Ok((json!({"accepted": accepted}), None))
}

/// Says how far a call came that consists of several.
fn where_it_broke_off(ask: &Ask, result: &Value) -> String {
    match (ask.method, remark(ask, result)) {
        ("network.delete", Some(words)) => format!("{words}: it broke off, and goes on by itself as soon as it can"),
        ("cluster.accept", Some(words)) => format!("{words}: then it broke off, and there were more"),
        _ => {
            let released = list(result, "released").count();
            format!("released {}, and then it broke off: there was more", counted(released, "reservation"))
        }
    }
}

/// A purge that broke off is requested again, by the network's id, which is now its only name. The answer then says what
/// stands in the way, if anything still does.
async fn until_purged(
    session: &mut Session,
    ask: &Ask,
    pinned: Option<Map<String, Value>>,
) -> Done<(Value, Option<Stop>)> {
    let mut result = session.make_with(ask, pinned).await?;
    let mut again = ask.clone();
    again.params.remove("if_version");
    again.params.insert("network".to_owned(), result.get("id").cloned().unwrap_or_default());
    while left_in(&result) > 0 {
        match session.try_call(again.method, again.params.clone()).await {
            // Each repeat must release something; if it does not, the purge cannot go on.
            Ok(later) if left_in(&later) < left_in(&result) => result = later,
            Ok(_) => break,
            Err(ClientError::Rpc(error)) if error.kind == "not_found" => result["holding"] = json!(0),
            Err(error) => return Ok((result, Some(Failure::of_call(&again, &error).into()))),
        }
    }
    Ok((result, None))
}

/// How many reservations are left in a network that was deleted.
fn left_in(deleted: &Value) -> u64 {
    deleted.get("holding").and_then(Value::as_u64).unwrap_or(0)
}

/// Says that a dry run shows only the first part of what would go.
fn cut_short(ask: &Ask, result: &Value) -> Option<String> {
    if ask.method == "claimant.sweep" {
        return sweep_again(result).then(|| {
            format!("more is due: a sweep releases at most {SWEEP_LISTED_MAX} of each kind, and these are the first")
        });
    }
    let count = list(result, "released").count();
    (result.get("more") == Some(&Value::Bool(true))).then(|| {
        format!(
            "these are the first {}: there are more, and without `--dry-run` all are released",
            counted(count, "reservation")
        )
    })
}

/// Was more due than the sweep released?
fn sweep_again(swept: &Value) -> bool {
    swept.get("more") == Some(&Value::Bool(true))
}

/// Says that nothing was released, and what was looked for: if a slot or scope was left out, another one was probably meant.
fn nothing_held(ask: &Ask) -> String {
    let scope = ask.text("scope").unwrap_or("default");
    let (owner, network) = (ask.text("owner"), ask.text("network").unwrap_or_default());
    match (ask.method, owner, ask.text("address")) {
        ("ip.release", _, Some(address)) => {
            format!("nothing was held: no reservation begins at {address}; see `allod who {}`", shell(address))
        }
        ("ip.release", Some(owner), None) => {
            let slot = ask.text("slot").unwrap_or("0");
            let list = format!("allod ip list --network {} {}", shell(network), owner_options(owner, Some(scope)));
            format!("nothing was held in slot `{slot}` by `{owner}` of scope `{scope}`; see `{list}`")
        }
        ("owner.release", Some(owner), _) => format!("nothing was held by `{owner}` of scope `{scope}`"),
        _ => "nothing was held".to_owned(),
    }
}

/// A remark on an answer that shows little.
fn remark(ask: &Ask, result: &Value) -> Option<String> {
    let length = |member: &str| result.get(member).and_then(Value::as_array).map(|list| list.len() as u64);
    match ask.method {
        "ip.list" => length("reservations").map(|count| match result.get("next").and_then(Value::as_str) {
            Some(next) => format!("{}, and there are more: `--after {}`", counted(count, "reservation"), shell(next)),
            None => counted(count, "reservation"),
        }),
        "network.list" | "deployment.list" | "scope.list" if result.get("next").is_some_and(Value::is_string) => {
            let noun = ask.method.trim_end_matches(".list");
            let next = result.get("next").and_then(Value::as_str).map(shell)?;
            let count = ["networks", "deployments", "scopes"].into_iter().find_map(length)?;
            Some(format!("{}, and there are more: `--after {next}`", counted(count, noun)))
        }
        "network.list" if length("networks") == Some(0) && !ask.params.keys().all(|member| member == "usage") => {
            Some("no network matches".to_owned())
        }
        "deployment.list" if length("deployments") == Some(0) => {
            Some("no deployments; make one: `allod deployment apply FILE`".to_owned())
        }
        "ip.release" | "owner.release" | "scope.release" | "deployment.delete" => {
            Some(match length("released").unwrap_or(0) {
                0 => nothing_held(ask),
                count => format!("released {}", counted(count, "reservation")),
            })
        }
        "ip.unbind" if result.get("released") == Some(&Value::Bool(true)) => {
            Some("released: it was to go with its claimant".to_owned())
        }
        "network.delete" => match left_in(result) {
            0 => Some("deleted".to_owned()),
            holding => Some(format!("closed; it still holds {}", counted(holding, "reservation"))),
        },
        "claimant.mark" => result
            .get("marked")
            .and_then(Value::as_u64)
            .map(|count| format!("{} marked for this sweep; marks are gone after an hour", counted(count, "claimant"))),
        "claimant.sweep" => {
            let [unbound, released, waiting] = ["unbound", "released", "waiting"].map(|list| length(list).unwrap_or(0));
            // More are missed than are listed.
            let or_more = if waiting >= SWEEP_LISTED_MAX as u64 { " or more" } else { "" };
            let most = format!("no sweep releases more than {SWEEP_LISTED_MAX} of each kind");
            let why = match unbound.max(released) >= SWEEP_LISTED_MAX as u64 {
                true => most.as_str(),
                false => "something came in between; the next attempt says so if it still stands in the way",
            };
            let again = sweep_again(result).then(|| format!("; more is due, and {why}: sweep again for the rest"));
            let again = again.unwrap_or_default();
            Some(format!(
                "{unbound} unbound, {released} released, {waiting}{or_more} missed and waiting for another sweep{again}"
            ))
        }
        "subnet.remove" | "pool.remove" | "reserved.remove" => Some("removed".to_owned()),
        "network.create" | "subnet.add" | "pool.add" if result.get("created") == Some(&Value::Bool(false)) => {
            Some("it was there already; nothing was changed".to_owned())
        }
        "ip.acquire" => {
            let released = length("released").filter(|count| *count > 0);
            let released = released.map(|count| format!("released {}", counted(count, "reservation")));
            let lines: Vec<String> = list(result, "reservations").filter_map(bound_anew).chain(released).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        }
        "cluster.nodes" if !has_owner(result) => Some(
            "nobody owns the register, so nothing is granted; `curl http://HOST:PORT/readyz` of a node says what it waits for"
                .to_owned(),
        ),
        "cluster.conflicts" if length("conflicts") == Some(0) => Some("no conflicts".to_owned()),
        "cluster.accept" => Some(match length("accepted")? {
            0 => "no conflicts; nothing was to be decided".to_owned(),
            count => format!("gave up {}; what is present stays", counted(count, "late claim")),
        }),
        "reserved.add" => kept_for_others(ask, result),
        "network.list" if length("networks") == Some(0) => {
            Some("no networks; make one: `allod network create lan --subnet 10.0.0.0/24,gateway=10.0.0.1`".to_owned())
        }
        _ => None,
    }
}

/// Says that another claimant used the address before: rows have no room for that.
fn bound_anew(held: &Value) -> Option<String> {
    let [before, now] = ["previous_claimant", "claimant"].map(|member| phrase::text(held, member));
    Some(format!("{} is used by `{}` now, before by `{}`", phrase::text(held, "address")?, now?, before?))
}

/// The parts of a range reserved for an owner that stay reserved for others, because the server does not take these away.
fn kept_for_others(ask: &Ask, result: &Value) -> Option<String> {
    let added: Range = ask.text("range")?.parse().ok()?;
    let wanted = Some(whom(&Value::Object(ask.params.clone()))?);
    let network = shell(ask.text("network").unwrap_or_default());
    let line = |reserved: &Value| {
        let part = phrase::range(reserved, "range")?.intersection(added)?;
        let kept = reserved.get("for").filter(|_| whom(reserved) != wanted)?;
        let owner = phrase::text(kept, "owner").unwrap_or_default();
        let part = part.as_typed();
        Some(format!("{part} stays reserved for `{owner}`; `allod reserved remove {network} {part}` ends that"))
    };
    let lines: Vec<String> = result.get("reserved")?.as_array()?.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
