//! Why params were refused: turns serde's error into the path of a member and a sentence for people.
//!
//! Only the error path comes here. The params are parsed a second time with the path tracked; those of a deployment are read
//! once more for the id of the instance. Nothing is kept of the correct parts, so a long wrong request costs no more than a
//! long correct one. The wordings that are recognised are serde's own (stable since 1.0, and tested here) and those of
//! `values`, which are fragments that follow the name of the member.

mod instance;

use std::borrow::Cow;
use std::fmt::Write;

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use super::errors::RpcError;
use super::values::text::shortened;
use crate::limits::LABEL_KEY_BYTES_MAX;

/// Parses wrong params once more, and says what is wrong with them.
pub(super) fn explain<T: DeserializeOwned>(method: &str, params: &str) -> RpcError {
    let mut json = serde_json::Deserializer::from_str(params);
    let error = match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Err(error) => error,
        Ok(_) => return RpcError::invalid("params", format!("{method}: `params` must be an object and nothing else")),
    };
    let (field, problem) = member_and_problem(&path_of(error.path()), &text_of(error.inner()));
    RpcError::invalid(field.as_str(), format!("{method}: `{}` {problem}", shortened(&field)))
        .with(|data| data.instance = instance::instance_at(&field, params))
}

/// The text of an error without its place in the line, which means nothing to a caller who built the request with a library.
fn text_of(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.truncate(text.strip_suffix(&place).unwrap_or(&text).len());
    text
}

/// A path as serde writes it, but for names that are too long to be answered.
fn path_of(path: &Path) -> String {
    if path.iter().len() == 0 {
        return ".".to_owned();
    }
    let mut text = String::new();
    for (at, segment) in path.iter().enumerate() {
        let dot = if at == 0 || matches!(segment, Segment::Seq { .. }) { "" } else { "." };
        // Writing to a text cannot fail.
        let _ = match segment {
            Segment::Map { key: name } | Segment::Enum { variant: name } => write!(text, "{dot}{}", answered(name)),
            Segment::Seq { .. } | Segment::Unknown => write!(text, "{dot}{segment}"),
        };
    }
    text
}

/// The name of a member as it is answered: whole, or only its beginning if it is longer than any that may be given. A wrong
/// name may be as long as a body.
fn answered(name: &str) -> Cow<'_, str> {
    if name.len() <= LABEL_KEY_BYTES_MAX { Cow::Borrowed(name) } else { shortened(name) }
}

/// The path of the wrong member, and what is wrong with it.
fn member_and_problem(path: &str, text: &str) -> (String, String) {
    if let Some((member, expected)) = quoted_after(text, "unknown field `") {
        return (member_of(path, member), unknown(member, expected));
    }
    if let Some((member, _)) = quoted_after(text, "missing field `") {
        return (member_of(path, member), "is missing".to_owned());
    }
    if let Some((member, _)) = quoted_after(text, "duplicate field `") {
        return (member_of(path, member), "is given twice".to_owned());
    }
    if let Some((member, problem)) = quoted_after(text, "invalid key `") {
        return (member_of(path, member), problem.trim_start_matches(": ").to_owned());
    }
    let field = if path == "." { "params".to_owned() } else { path.to_owned() };
    let wrong = text.strip_prefix("invalid type: ").or_else(|| text.strip_prefix("invalid value: "));
    let problem = match wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("must be {}, not {}", in_words(expected), shortened(in_words(found))),
        None => match text.strip_prefix(STARTS_A_FRAGMENT) {
            Some(_) => text.to_owned(),
            None if FRAGMENTS.iter().any(|begin| text.starts_with(begin)) => text.to_owned(),
            None => format!("cannot be read: {text}"),
        },
    };
    (field, problem)
}

/// How the error texts of `values` begin.
const STARTS_A_FRAGMENT: &str = "must ";
const FRAGMENTS: [&str; 4] = ["is ", "has ", "reads ", "cannot "];

/// The text between `prefix` at the beginning and the last backtick that can end a member's name; and the rest. A wrong name
/// may itself contain what follows names, which is why the last place counts.
fn quoted_after<'a>(text: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    let rest = text.strip_prefix(prefix)?;
    let end = ["`, expected ", "`, there are no fields", "`: is not a valid key: it "]
        .iter()
        .filter_map(|mark| rest.rfind(mark))
        .max()
        .or_else(|| rest.rfind('`'))?;
    Some((&rest[..end], &rest[end + 1..]))
}

/// The path of a member of the object at `path`. Serde's path may already end with the member.
fn member_of(path: &str, member: &str) -> String {
    let member = answered(member);
    let member = member.as_ref();
    let ends_with_member = path == member || path.strip_suffix(member).is_some_and(|before| before.ends_with('.'));
    match path {
        _ if ends_with_member => path.to_owned(),
        "." | "" | "?" => member.to_owned(),
        _ => format!("{}.{member}", path.trim_end_matches(".?")),
    }
}

/// Puts serde's names of types into words of JSON.
fn in_words(name: &str) -> &str {
    let quoted = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix('`');
    match name {
        "a boolean" => "true or false",
        "sequence" => "a list",
        "map" => "an object",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number that is not negative",
        other => {
            quoted("integer `").or_else(|| quoted("floating point `")).or_else(|| quoted("boolean `")).unwrap_or(other)
        }
    }
}

/// What to say about an unknown member: the nearest known ones, or all of them if there is none near.
fn unknown(member: &str, expected: &str) -> String {
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let near = nearest(member, &known);
    match (near.as_slice(), known.as_slice()) {
        (_, []) => "is not a member here; there are none".to_owned(),
        ([], known) => format!("is not a member here; known are {}", list(known)),
        (near, _) => format!("is not a member here; did you mean {}?", list(near)),
    }
}

/// The known names that are a few typing mistakes away, nearest first, at most three.
pub(super) fn nearest<'a>(asked: &str, known: &[&'a str]) -> Vec<&'a str> {
    let asked = shortened(asked);
    let allowed = (asked.chars().count() / 3).clamp(1, 4);
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|name| (distance(&asked.to_ascii_lowercase(), name), *name))
        .filter(|&(distance, name)| distance <= allowed || (asked.len() >= 4 && name.contains(asked.as_ref())))
        .collect();
    near.sort_by_key(|&(distance, _)| distance);
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The edit distance: how many characters to insert, remove or replace to turn one text into the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
