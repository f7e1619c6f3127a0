//! Requests that are answered page by page, and those that follow what happens; and their cursors.

use super::Errand;
use crate::actors::coordinator::{Job, ListPlace};
use crate::actors::events::held::HeldPlace;
use crate::actors::events::{self, Cursor};
use crate::core::types::Scope;
use crate::limits::{HISTORY_PAGE_DEFAULT, LIST_PAGE_RECORDS_DEFAULT, SCOPES_PAGE_DEFAULT};
use crate::server::render::{Shape, cursor};
use crate::server::{cursor as place, input};
use crate::wire::{RpcError, params};

pub(super) fn reservations(mut ask: crate::wire::params::IpList, shape: &mut Shape) -> Result<Errand, RpcError> {
    let count_only = ask.count_only.unwrap_or(false);
    shape.count_only = count_only;
    let after = ask.after.as_ref().map(|after| list_cursor(after.as_str())).transpose()?;
    let limit = ask.limit.map_or(LIST_PAGE_RECORDS_DEFAULT, |limit| limit.get() as usize);
    let filter = input::filter(&mut ask);
    let network = ask.network.as_ref().map(input::network_text);
    let (realm, filter) = (ask.realm, Box::new(filter));
    Ok(Errand::over(network.clone(), Job::List { network, realm, filter, after, limit, count_only }))
}

pub(super) fn networks(ask: params::NetworkList, shape: &mut Shape) -> Result<Errand, RpcError> {
    shape.usage = ask.usage.unwrap_or(false);
    let after = ask.after.as_ref().map(|after| network_cursor(after.as_str())).transpose()?;
    Ok(Errand::all(Job::Networks {
        realm: ask.realm,
        tag: ask.tag.map(|tag| (tag.key, tag.value)),
        usage: shape.usage,
        deleted: ask.deleted.unwrap_or(false),
        after,
        limit: ask.limit.map_or(LIST_PAGE_RECORDS_DEFAULT, |limit| limit.get() as usize),
    }))
}

pub(super) fn scopes(ask: params::ScopeList) -> Result<Errand, RpcError> {
    let after = ask.after.map(|after| Scope::new(after.as_str().into())).transpose().map_err(|_| no_cursor())?;
    let limit = ask.limit.map_or(SCOPES_PAGE_DEFAULT, |limit| limit.get() as usize);
    let network = ask.network.as_ref().map(input::network_text);
    Ok(Errand::over(network.clone(), Job::Scopes { network, after, limit }))
}

/// What `events.watch` asks of the owner.
///
/// # Errors
/// `invalid_argument` of a cursor that is none.
pub fn events_watch(ask: params::EventsWatch) -> Result<Job, RpcError> {
    let since = ask.since.as_ref().map(|since| event_cursor("since", since.as_str())).transpose()?;
    let network = ask.network.as_ref().map(input::network_text);
    Ok(Job::Watch { network, realm: ask.realm, scope: ask.scope, since })
}

pub(super) fn history(ask: params::EventsHistory) -> Result<Job, RpcError> {
    let limit = ask.limit.map_or(HISTORY_PAGE_DEFAULT, |limit| limit.get() as usize);
    let network = ask.network.as_ref().map(input::network_text);
    let (realm, address, owner, scope) = (ask.realm, ask.address, ask.owner, ask.scope);
    if ask.from.zip(ask.to).is_some_and(|(from, to)| from > to) {
        let problem = "`to` is before `from`; exchange them, or leave one out";
        return Err(RpcError::invalid("to", problem));
    }
    let filter =
        events::Filter { networks: None, realm, address, owner, scope, from: ask.from, to: ask.to, of_realm: None };
    let after = ask.after.as_ref().map(|after| after.as_str());
    match ask.at {
        Some(_) if ask.from.is_some() || ask.to.is_some() => {
            Err(RpcError::invalid("at", "`at` and `from` or `to` exclude each other: `at` is one moment"))
        }
        Some(at) => {
            let after = after.map(held_cursor).transpose()?;
            Ok(Job::HeldAt { network, filter, at, after, limit })
        }
        None => {
            let after = after.map(|after| event_cursor("after", after)).transpose()?;
            Ok(Job::History { network, filter, after, limit })
        }
    }
}

fn event_cursor(field: &str, text: &str) -> Result<Cursor, RpcError> {
    place::parse(text).ok_or_else(|| {
        RpcError::invalid(
            field,
            format!("`{field}` is not a cursor that this server gave out; use one from an answer or event"),
        )
    })
}

fn no_cursor() -> RpcError {
    RpcError::invalid("after", "`after` is not the `next` of an earlier page of this list; begin without it")
}

fn network_cursor(text: &str) -> Result<ListPlace, RpcError> {
    let place = list_cursor(text)?;
    if place.address.is_some() { Err(no_cursor()) } else { Ok(place) }
}

fn held_cursor(text: &str) -> Result<HeldPlace, RpcError> {
    cursor::parse_held(text).ok_or_else(no_cursor)
}

fn list_cursor(text: &str) -> Result<ListPlace, RpcError> {
    cursor::parse(text).ok_or_else(no_cursor)
}
