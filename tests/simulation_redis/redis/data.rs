//! What a server has, and the commands that read and change it. It is a value: a copy stands for what a replica or a file
//! has.
//!
//! It knows only the commands that the store uses. Any other gets an error that begins with [`UNKNOWN`], and fails the
//! schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::reply::Reply;

/// Begins the answer to what the simulated server does not know.
pub const UNKNOWN: &str = "UNKNOWN";

/// A stream's entry: its number, and its fields and values.
type StreamEntry = (u64, Rc<Vec<Vec<u8>>>);

#[derive(Debug, Clone)]
enum Value {
    Hash(BTreeMap<Vec<u8>, Rc<[u8]>>),
    /// A sorted set, ordered by name only: all scores are 0.
    Names(BTreeSet<Vec<u8>>),
    /// The last number that was given, and the entries. Their ids are `N-0`.
    Stream(u64, Vec<StreamEntry>),
}

#[derive(Debug, Clone, Default)]
pub struct Data {
    /// A copy costs nothing until one of the two is changed.
    keys: Rc<BTreeMap<Vec<u8>, Rc<Value>>>,
    pub changes: u64,
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("?")
}

fn unknown(args: &[Vec<u8>]) -> Reply {
    let words: Vec<String> = args.iter().take(8).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Reply::Error(format!("{UNKNOWN} {}", words.join(" ")))
}

fn wrong_type() -> Reply {
    Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
}

macro_rules! read {
    ($data:expr, $key:expr, $kind:pat => $found:expr, $none:expr) => {
        match $data.keys.get($key).map(|value| &**value) {
            Some($kind) => $found,
            Some(_) => return wrong_type(),
            None => $none,
        }
    };
}

macro_rules! change {
    ($data:expr, $key:expr, $fresh:expr, $kind:pat => $found:expr) => {
        match Rc::make_mut(Rc::make_mut(&mut $data.keys).entry($key.clone()).or_insert_with(|| Rc::new($fresh))) {
            $kind => $found,
            _ => return wrong_type(),
        }
    };
}

/// One end of a range by name (`-`, `+`, `[name` or `(name`) or by number (the same, without `[`). Tells whether a name is
/// inside.
enum End<'a> {
    Open,
    At(&'a [u8], bool),
}

fn end(word: &[u8]) -> End<'_> {
    match word {
        b"-" | b"+" => End::Open,
        [b'(', rest @ ..] => End::At(rest, false),
        [b'[', rest @ ..] => End::At(rest, true),
        all => End::At(all, true),
    }
}

fn is_behind(name: &[u8], from: &End<'_>) -> bool {
    match from {
        End::Open => true,
        End::At(least, inside) => name > *least || (*inside && name == *least),
    }
}

fn is_before(name: &[u8], to: &End<'_>) -> bool {
    match to {
        End::Open => true,
        End::At(most, inside) => name < *most || (*inside && name == *most),
    }
}

/// The number of an id `N-0`; in a range also of `N`.
fn number(word: &[u8]) -> u64 {
    let text = text(word);
    text.strip_suffix("-0").unwrap_or(text).parse().unwrap_or(u64::MAX)
}

impl Data {
    pub fn knows(command: &str) -> bool {
        const KNOWN: [&str; 21] = [
            "DEL",
            "EXISTS",
            "HDEL",
            "HGET",
            "HGETALL",
            "HINCRBY",
            "HKEYS",
            "HLEN",
            "HMGET",
            "HSET",
            "OBJECT",
            "RENAME",
            "XADD",
            "XRANGE",
            "XREVRANGE",
            "XTRIM",
            "ZADD",
            "ZRANGEBYLEX",
            "ZREM",
            "ZREVRANGEBYLEX",
            "ZSCORE",
        ];
        KNOWN.contains(&command)
    }

    pub fn execute(&mut self, args: &[Vec<u8>]) -> Reply {
        let [command, key, rest @ ..] = args else { return unknown(args) };
        match (text(command), rest) {
            ("EXISTS", _) => Reply::Int(args[1..].iter().filter(|key| self.keys.contains_key(*key)).count() as i64),
            ("DEL", _) => {
                let keys = Rc::make_mut(&mut self.keys);
                let gone = args[1..].iter().filter(|key| keys.remove(*key).is_some()).count();
                self.changes += gone as u64;
                Reply::Int(gone as i64)
            }
            ("RENAME", [to]) => match Rc::make_mut(&mut self.keys).remove(key) {
                Some(value) => {
                    Rc::make_mut(&mut self.keys).insert(to.clone(), value);
                    self.changes += 1;
                    Reply::OK
                }
                None => Reply::Error("ERR no such key".to_owned()),
            },
            ("OBJECT", [_]) if key == b"ENCODING" => Reply::bulk("listpack"),
            (name, _) if name.starts_with('H') => self.hash(name, key, rest, args),
            (name, _) if name.starts_with('Z') => self.names(name, key, rest, args),
            (name, _) if name.starts_with('X') => self.stream(name, key, rest, args),
            _ => unknown(args),
        }
    }

    /// Removes a value that has become empty.
    fn tidy(&mut self, key: &[u8]) {
        let is_empty = match self.keys.get(key).map(|value| &**value) {
            Some(Value::Hash(fields)) => fields.is_empty(),
            Some(Value::Names(names)) => names.is_empty(),
            Some(Value::Stream(..)) | None => false,
        };
        if is_empty {
            Rc::make_mut(&mut self.keys).remove(key);
        }
    }

    fn hash(&mut self, name: &str, key: &Vec<u8>, rest: &[Vec<u8>], args: &[Vec<u8>]) -> Reply {
        let none = BTreeMap::new();
        match (name, rest) {
            ("HGET", [field]) => {
                let there = read!(self, key, Value::Hash(fields) => fields, &none);
                Reply::bulk_or_nil(there.get(field))
            }
            ("HMGET", [_, ..]) => {
                let there = read!(self, key, Value::Hash(fields) => fields, &none);
                Reply::Array(rest.iter().map(|field| Reply::bulk_or_nil(there.get(field))).collect())
            }
            ("HGETALL", []) => {
                let there = read!(self, key, Value::Hash(fields) => fields, &none);
                Reply::Array(there.iter().flat_map(|(field, value)| [Reply::bulk(field), Reply::bulk(value)]).collect())
            }
            ("HKEYS", []) => {
                let there = read!(self, key, Value::Hash(fields) => fields, &none);
                Reply::Array(there.keys().map(Reply::bulk).collect())
            }
            ("HLEN", []) => Reply::Int(read!(self, key, Value::Hash(fields) => fields.len(), 0) as i64),
            ("HSET", [_, ..]) if rest.len().is_multiple_of(2) => {
                let fields = change!(self, key, Value::Hash(BTreeMap::new()), Value::Hash(fields) => fields);
                let put = |two: &[Vec<u8>]| fields.insert(two[0].clone(), two[1].as_slice().into()).is_none();
                let added = rest.chunks(2).map(put).filter(|added| *added).count();
                self.changes += 1;
                Reply::Int(added as i64)
            }
            ("HDEL", [_, ..]) => {
                if !self.keys.contains_key(key) {
                    return Reply::Int(0);
                }
                let fields = change!(self, key, Value::Hash(BTreeMap::new()), Value::Hash(fields) => fields);
                let gone = rest.iter().filter(|field| fields.remove(*field).is_some()).count();
                self.changes += gone as u64;
                self.tidy(key);
                Reply::Int(gone as i64)
            }
            ("HINCRBY", [field, by]) => {
                let fields = change!(self, key, Value::Hash(BTreeMap::new()), Value::Hash(fields) => fields);
                let before: i64 = fields.get(field).map_or(0, |value| text(value).parse().unwrap_or(0));
                let after = before + text(by).parse::<i64>().unwrap_or(0);
                fields.insert(field.clone(), after.to_string().into_bytes().into());
                self.changes += 1;
                Reply::Int(after)
            }
            _ => unknown(args),
        }
    }

    fn names(&mut self, name: &str, key: &Vec<u8>, rest: &[Vec<u8>], args: &[Vec<u8>]) -> Reply {
        let none = BTreeSet::new();
        match (name, rest) {
            ("ZSCORE", [member]) => {
                let there = read!(self, key, Value::Names(names) => names, &none);
                Reply::bulk_or_nil(there.contains(member).then_some("0"))
            }
            ("ZADD", [score, member]) if score == b"0" => {
                let names = change!(self, key, Value::Names(BTreeSet::new()), Value::Names(names) => names);
                let added = names.insert(member.clone());
                self.changes += u64::from(added);
                Reply::Int(i64::from(added))
            }
            ("ZREM", [member]) => {
                if !self.keys.contains_key(key) {
                    return Reply::Int(0);
                }
                let names = change!(self, key, Value::Names(BTreeSet::new()), Value::Names(names) => names);
                let gone = names.remove(member);
                self.changes += u64::from(gone);
                self.tidy(key);
                Reply::Int(i64::from(gone))
            }
            ("ZRANGEBYLEX" | "ZREVRANGEBYLEX", [one, other, limit @ ..]) => {
                let there = read!(self, key, Value::Names(names) => names, &none);
                let count = match limit {
                    [] => usize::MAX,
                    [word, offset, count] if word == b"LIMIT" && offset == b"0" => text(count).parse().unwrap_or(0),
                    _ => return unknown(args),
                };
                let back = name == "ZREVRANGEBYLEX";
                let (from, to) = if back { (end(other), end(one)) } else { (end(one), end(other)) };
                let inside = there.iter().filter(|name| is_behind(name, &from) && is_before(name, &to));
                let found: Vec<Reply> = match back {
                    true => inside.rev().take(count).map(Reply::bulk).collect(),
                    false => inside.take(count).map(Reply::bulk).collect(),
                };
                Reply::Array(found)
            }
            _ => unknown(args),
        }
    }

    fn stream(&mut self, name: &str, key: &Vec<u8>, rest: &[Vec<u8>], args: &[Vec<u8>]) -> Reply {
        match (name, rest) {
            ("XADD", [id, fields @ ..])
                if id.ends_with(b"-0") && !fields.is_empty() && fields.len().is_multiple_of(2) =>
            {
                let (last, entries) =
                    change!(self, key, Value::Stream(0, Vec::new()), Value::Stream(last, entries) => (last, entries));
                let next = number(id);
                if next <= *last {
                    let text = "ERR The ID specified in XADD is equal or smaller than the target stream top item";
                    return Reply::Error(text.to_owned());
                }
                *last = next;
                entries.push((next, Rc::new(fields.to_vec())));
                self.changes += 1;
                Reply::bulk(id)
            }
            (way @ ("XRANGE" | "XREVRANGE"), [first, last, limit @ ..]) => {
                let none = Vec::new();
                let there = read!(self, key, Value::Stream(_, entries) => entries, &none);
                let count = match limit {
                    [] => usize::MAX,
                    [word, count] if word == b"COUNT" => text(count).parse().unwrap_or(0),
                    _ => return unknown(args),
                };
                let backward = way == "XREVRANGE";
                let (from, to) = if backward { (last, first) } else { (first, last) };
                let (from, to) = (end(from), end(to));
                let least = match from {
                    End::Open => 0,
                    End::At(word, inside) => number(word).saturating_add(u64::from(!inside)),
                };
                let most = match to {
                    End::Open => u64::MAX,
                    End::At(word, inside) => number(word).saturating_sub(u64::from(!inside)),
                };
                let inside = there.iter().filter(|(number, _)| (least..=most).contains(number));
                let entry = |(number, fields): &StreamEntry| {
                    let fields = fields.iter().map(Reply::bulk).collect();
                    Reply::Array(vec![Reply::bulk(format!("{number}-0")), Reply::Array(fields)])
                };
                let mut inside: Vec<&StreamEntry> = inside.collect();
                if backward {
                    inside.reverse();
                }
                Reply::Array(inside.into_iter().take(count).map(entry).collect())
            }
            ("XTRIM", [how, least]) if how == b"MINID" => {
                if !self.keys.contains_key(key) {
                    return Reply::Int(0);
                }
                let (_, entries) =
                    change!(self, key, Value::Stream(0, Vec::new()), Value::Stream(last, entries) => (last, entries));
                let (before, least) = (entries.len(), number(least));
                entries.retain(|(number, _)| *number >= least);
                let gone = before - entries.len();
                self.changes += gone as u64;
                Reply::Int(gone as i64)
            }
            _ => unknown(args),
        }
    }

    /// The hashes whose names begin with `begins` and contain `midst`.
    pub fn hashes(&self, begins: &str, midst: &str) -> impl Iterator<Item = (&str, Vec<&[u8]>)> {
        let named = self.keys.iter().map(|(name, value)| (text(name), value));
        let named = named.filter(move |(name, _)| name.starts_with(begins) && name.contains(midst));
        named.filter_map(|(name, value)| match &**value {
            Value::Hash(fields) => Some((name, fields.values().map(|value| &**value).collect())),
            Value::Names(_) | Value::Stream(..) => None,
        })
    }

    /// A field of a hash, for those who look from outside.
    pub fn field(&self, key: &str, field: &str) -> Option<String> {
        match &**self.keys.get(key.as_bytes())? {
            Value::Hash(fields) => Some(text(fields.get(field.as_bytes())?).to_owned()),
            Value::Names(_) | Value::Stream(..) => None,
        }
    }
}
