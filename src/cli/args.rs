//! Shared code of the subcommands: how arguments become members of a request.
//!
//! Arguments are structs whose serde names are the protocol's members, so a flag and its member cannot drift apart:
//! [`params_of`] turns one into the params object. The server checks addresses, names and bounds, and answers every client
//! in the same words; only forms that the protocol does not know (`1h`, `k=v`) are parsed here.

use std::collections::BTreeMap;

use clap::builder::RangedU64ValueParser;
use clap::{ArgGroup, ArgMatches, Args};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::failure::Failure;
use crate::limits::LIST_PAGE_RECORDS_MAX;

/// The range of the size of a page.
pub fn page_limit() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=LIST_PAGE_RECORDS_MAX as u64)
}

/// Heading of the options that every change takes, in help texts.
const HEADING: &str = "Options of every change";

/// One call: the method and its params, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Method of the protocol.
    pub method: &'static str,
    /// Its params.
    pub params: Map<String, Value>,
    /// Whether it takes something away, so that the user is asked first.
    pub destructive: bool,
    /// A member that is both set and cleared.
    pub contradicted: Option<String>,
}

impl Ask {
    /// A call with the members of `args`.
    pub fn new(method: &'static str, args: &impl Serialize) -> Self {
        Self { method, params: params_of(args), destructive: false, contradicted: None }
    }

    /// If `is`, the user is asked first whether the call is meant.
    pub fn destructive(mut self, is: bool) -> Self {
        self.destructive = is;
        self
    }

    /// Adds a member as it is given, even null.
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.params.insert(member.to_owned(), value.into());
        self
    }

    /// Adds a `set` object: the given members, and null for every member of `unset`, whose keys may be paths such as
    /// `dns.servers`.
    pub fn with_set(mut self, mut set: Map<String, Value>, unset: &[String]) -> Self {
        let given = set.clone();
        for path in unset {
            let (member, rest) = path.split_once('.').map_or((&**path, None), |(member, rest)| (member, Some(rest)));
            if given.get(member).is_some_and(|given| rest.is_none_or(|rest| given.get(rest).is_some())) {
                self.contradicted.get_or_insert(path.clone());
            }
            match rest {
                None => drop(set.insert(member.to_owned(), Value::Null)),
                Some(rest) => {
                    let inner = set.entry(member).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(inner) = inner {
                        inner.insert(rest.to_owned(), Value::Null);
                    }
                }
            }
        }
        self.with("set", set)
    }

    /// A text member, for messages about the call.
    pub fn text(&self, member: &str) -> Option<&str> {
        self.params.get(member).and_then(Value::as_str)
    }
}

/// The members of `args` that have a value; absent values, unset flags and empty lists are left out.
pub fn params_of(args: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(members)) = serde_json::to_value(args) else { return Map::new() };
    members.into_iter().filter(|(_, value)| is_given(value)).collect()
}

fn is_given(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Members of every method that changes something.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Change {
    /// Show what would happen, or the same error, and change nothing
    #[arg(long, help_heading = HEADING)]
    pub dry_run: bool,
    /// Why, kept in the history
    #[arg(long, value_name = "TEXT", help_heading = HEADING)]
    pub reason: Option<String>,
}

/// Members of every method that changes the configuration of a network.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Configure {
    /// Refuse if the network has moved on from this version
    #[arg(long, value_name = "VERSION", help_heading = HEADING)]
    pub if_version: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(missing_docs)]
    pub change: Change,
}

/// Names one reservation: by address, or by owner, scope and slot.
#[derive(Debug, Clone, Default, Args, Serialize)]
// Clap puts a group before the positionals in its usage; the commands write their own (`ip`).
#[command(group(ArgGroup::new("held").args(["address", "owner"]).multiple(true).required(true)))]
pub struct Target {
    /// Network that it is held in
    pub network: String,
    /// The address held, or ADDRESS/LEN for a block (or name it by --owner)
    pub address: Option<String>,
    /// Owner that holds it
    #[arg(long)]
    pub owner: Option<String>,
    /// Scope of the owner [default: default; of ADDRESS without --owner: that of its holder]
    #[arg(long)]
    pub scope: Option<String>,
    /// Which of the owner's addresses [default: 0; of ADDRESS: any]
    #[arg(long)]
    pub slot: Option<String>,
    /// Refuse if the address has changed hands since this generation
    #[arg(long, value_name = "GENERATION")]
    pub if_generation: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(missing_docs)]
    pub change: Change,
}

/// Parses `K=V`. The value may be empty and may contain `=`; a key with `=` is written as JSON.
pub fn pair(text: &str) -> Result<(String, String), String> {
    if let Some(pair) = json_pair(text) {
        return Ok(pair);
    }
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(r#"must be written as key=value; where the key has a `=`, as {"key":"value"}"#.to_owned()),
    }
}

/// Parses `{"K":"V"}` with exactly one member.
fn json_pair(text: &str) -> Option<(String, String)> {
    let mut pairs: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    pairs.pop_first().filter(|(key, _)| !key.is_empty() && pairs.is_empty())
}

/// Converts `K`, `K=V`, or a pair in JSON to the form of the protocol.
pub fn key_or_pair(text: &str) -> Result<String, String> {
    match json_pair(text) {
        Some((key, value)) => Ok(format!("{key}={value}")),
        None => Ok(text.to_owned()),
    }
}

/// Finds a key that is given twice in options that take `K=V` pairs: only one of the values could be sent.
pub fn twice(matches: &ArgMatches) -> Option<Failure> {
    if let Some((_, inner)) = matches.subcommand() {
        return twice(inner);
    }
    matches.ids().find_map(|id| {
        let mut seen = BTreeMap::new();
        let pairs = matches.try_get_many::<(String, String)>(id.as_str()).ok().flatten()?;
        let (key, one, other) =
            pairs.into_iter().find_map(|(key, value)| Some((key, seen.insert(key, value)?, value)))?;
        let problem = format!("`{key}` is given twice, as `{one}` and as `{other}`");
        Some(Failure::usage("take these values", problem, "leave one of the two out"))
    })
}

/// Serializes pairs as an object.
pub fn pairs<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// Parses a duration into whole seconds: `90`, `90s`, `15m`, `1h30m`, `2d`, `1w`.
pub fn seconds(text: &str) -> Result<u64, String> {
    const FORM: &str = "a duration is written as 90s, 15m, 1h30m, 2d or 1w (without a unit: seconds)";
    if let Ok(plain) = text.parse::<u64>() {
        return Ok(plain);
    }
    let (mut total, mut number) = (0u64, String::new());
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return Err(FORM.to_owned()),
        };
        let count: u64 = number.parse().map_err(|_| FORM.to_owned())?;
        total = count.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or("is too long")?;
        number.clear();
    }
    if number.is_empty() && !text.is_empty() { Ok(total) } else { Err(FORM.to_owned()) }
}

/// Parses a duration into whole seconds, at least one.
pub fn some_seconds(text: &str) -> Result<u64, String> {
    match seconds(text)? {
        0 => Err("must be at least 1s".to_owned()),
        seconds => Ok(seconds),
    }
}

/// The given members of a `set` object.
pub fn set_of(args: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(members)) = serde_json::to_value(args) else { return Map::new() };
    // Here `false` is a value: the member is set to it.
    members.into_iter().filter(|(_, value)| *value == Value::Bool(false) || is_given(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, expected) in [("90", 90), ("90s", 90), ("1h", 3_600), ("1h30m", 5_400), ("2d", 172_800), ("0", 0)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "h", "1x", "1h30", "-1", "1.5h", "99999999999999999w"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_with_an_equals_sign_is_written_as_json_and_asked_for_in_no_way() {
        let of = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        for (text, expected) in [
            ("k=v", of("k", "v")),
            ("k=v=w", of("k", "v=w")),
            ("k=", of("k", "")),
            (r#"{"a=b":"c"}"#, of("a=b", "c")),
            (r#"{"k":"v"}"#, of("k", "v")),
            // Not valid JSON.
            ("{a=b", of("{a", "b")),
        ] {
            assert_eq!(pair(text), expected, "{text}");
        }
        for text in ["k", "=v", "", r#"{"":"v"}"#, r#"{"a":"b","c":"d"}"#, r#"{"a":1}"#] {
            assert!(pair(text).is_err_and(|problem| problem.contains(r#"as {"key":"value"}"#)), "{text}");
        }
        assert_eq!(key_or_pair("k"), Ok("k".to_owned()));
        assert_eq!(key_or_pair(r#"{"k":"v=w"}"#), Ok("k=v=w".to_owned()));
        assert_eq!(key_or_pair(r#"{"a=b":"c"}"#), Ok("a=b=c".to_owned()));
    }

    #[test]
    fn what_is_not_given_is_not_sent() {
        let target = Target { network: "lan".into(), owner: Some("web/0".into()), ..Target::default() };
        assert_eq!(Value::Object(params_of(&target)), json!({"network": "lan", "owner": "web/0"}));
    }

    #[test]
    fn a_set_keeps_false_and_clears_by_path() {
        #[derive(Serialize)]
        struct Members {
            dhcp: Option<bool>,
            name: Option<String>,
        }
        let given = set_of(&Members { dhcp: Some(false), name: None });
        let ask = Ask::new("subnet.modify", &()).with_set(given, &["gateway".into(), "dns.search".into()]);
        assert_eq!(ask.params["set"], json!({"dhcp": false, "gateway": null, "dns": {"search": null}}));
        assert_eq!(ask.contradicted, None);
    }

    #[test]
    fn what_is_set_and_cleared_is_noticed() {
        let given = json!({"note": "x", "dns": {"servers": ["10.0.0.1"]}});
        for (unset, contradicted) in
            [("note", true), ("dns", true), ("dns.servers", true), ("dns.search", false), ("hostname", false)]
        {
            let ask = Ask::new("x", &()).with_set(given.as_object().cloned().unwrap(), &[unset.to_owned()]);
            assert_eq!(ask.contradicted, contradicted.then(|| unset.to_owned()), "{unset}");
        }
    }
}
