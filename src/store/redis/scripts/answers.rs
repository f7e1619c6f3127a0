//! The answers of the scripts. An answer of another form is not one of theirs, and is not interpreted.

use redis::Value;

use super::super::keys::HashKind;
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::store::codec::Format;
use crate::store::{Digest, Epoch, Head, Seq, Token};

/// What `commit`, `confirm`, `lease`, `post` and `cut` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum Verdict {
    /// Success: applied, confirmed, leased, posted or cut.
    Done,
    /// The n-th shard of the call has no head.
    Absent(usize),
    Fenced(usize, Epoch),
    /// It is another register, or one that does not say which it is.
    Foreign(Option<u128>),
    Gap(usize, Seq),
    Back(usize),
    /// A key that another one vouches for is gone.
    Lost(String),
    Mismatch {
        at: usize,
        network: NetworkId,
        kind: HashKind,
        low: Vec<u8>,
        field: Vec<u8>,
        found: Option<Vec<u8>>,
    },
}

/// Takes an answer apart from the front. An answer of another form comes from some other script or server.
struct AnswerReader(std::vec::IntoIter<Value>);

impl AnswerReader {
    fn of(value: Value) -> Option<(Vec<u8>, Self)> {
        let Value::Array(values) = value else { return None };
        let mut answer = AnswerReader(values.into_iter());
        Some((answer.bytes()?, answer))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        match self.0.next()? {
            Value::BulkString(bytes) => Some(bytes),
            Value::SimpleString(text) => Some(text.into()),
            Value::Int(number) => Some(number.to_string().into()),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    fn hex(&mut self) -> Option<u128> {
        u128::from_str_radix(&self.text()?, 16).ok()
    }

    /// A head names no format before it is taken by a release that knows several.
    fn format(&mut self) -> Option<Format> {
        match self.0.next()? {
            Value::Nil => Some(Format::FIRST),
            Value::BulkString(bytes) => Format::new(std::str::from_utf8(&bytes).ok()?.parse().ok()?),
            _ => None,
        }
    }

    /// Which shard of the call, counted from 1.
    fn place(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()?.checked_sub(1)
    }
}

pub(in crate::store::redis) fn verdict(value: Value) -> Option<Verdict> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"applied" | b"confirmed" | b"leased" | b"posted" | b"cut" => Verdict::Done,
        b"absent" => Verdict::Absent(rest.place()?),
        b"fenced" => Verdict::Fenced(rest.place()?, Epoch(rest.number()?)),
        b"foreign" => Verdict::Foreign(rest.hex()),
        b"gap" => Verdict::Gap(rest.place()?, Seq(rest.number()?)),
        b"back" => Verdict::Back(rest.place()?),
        b"lost" => {
            rest.place()?;
            Verdict::Lost(rest.text()?)
        }
        b"mismatch" => {
            let at = rest.place()?;
            let kind = HashKind::from_letter(&rest.bytes()?)?;
            let network = rest.text()?.parse().ok()?;
            Verdict::Mismatch { at, network, kind, low: rest.bytes()?, field: rest.bytes()?, found: rest.bytes() }
        }
        _ => return None,
    })
}

/// How far `cut` has copied the log, if it is to be called again.
pub(in crate::store::redis) fn copied(value: &Value) -> Option<String> {
    let (word, mut rest) = AnswerReader::of(value.clone())?;
    if word == b"more" { rest.text() } else { None }
}

/// What `take` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum TakeAnswer {
    /// The head as it is now, and what it remembers of take-overs.
    Taken(Head, String),
    /// Another node owns it: its name, where it is reached, and what is left of its lease.
    Held {
        owner: String,
        address: String,
        left_ms: u64,
    },
    Fenced(Epoch),
    /// The shard is further back than it was under this process.
    Behind,
    Absent,
    /// The shard belongs to another register, or to one that does not say which it is.
    Foreign(Option<u128>),
    /// The register was moved; its notice.
    Moved(String),
    /// The register is not complete yet, and may be served later; its notice.
    Unfinished(String),
    /// The records are written in this format, which this program does not read.
    Newer(u64),
}

pub(in crate::store::redis) fn taken(value: Value) -> Option<TakeAnswer> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"taken" => TakeAnswer::Taken(head_of(&mut rest)?, rest.text()?),
        b"held" => TakeAnswer::Held { owner: rest.text()?, address: rest.text()?, left_ms: rest.number()? },
        b"fenced" => TakeAnswer::Fenced(Epoch(rest.number()?)),
        b"behind" => TakeAnswer::Behind,
        b"absent" => TakeAnswer::Absent,
        b"foreign" => TakeAnswer::Foreign(rest.hex()),
        b"moved" => TakeAnswer::Moved(rest.text()?),
        b"unfinished" => TakeAnswer::Unfinished(rest.text()?),
        b"newer" => TakeAnswer::Newer(rest.number()?),
        _ => return None,
    })
}

/// A node as `nodes` reports it: name, age in milliseconds, and card.
pub(in crate::store::redis) type ToldNode = (String, u64, String);

/// What `nodes` answers.
pub(in crate::store::redis) enum Met {
    /// The nodes that are there.
    Nodes(Vec<ToldNode>),
    /// Another process with this name was seen this many milliseconds ago.
    Taken(u64),
    /// The records are written in this format, which this program does not read.
    Newer(u64),
    /// It is another register, or one that does not say which it is.
    Foreign(Option<u128>),
}

pub(in crate::store::redis) fn nodes(value: Value) -> Option<Met> {
    let (word, mut rest) = AnswerReader::of(value)?;
    match &word[..] {
        b"taken" => Some(Met::Taken(rest.number()?)),
        b"newer" => Some(Met::Newer(rest.number()?)),
        b"foreign" => Some(Met::Foreign(rest.hex())),
        b"nodes" => {
            let mut all = Vec::new();
            while let Some(name) = rest.text() {
                all.push((name, rest.number()?, rest.text()?));
            }
            Some(Met::Nodes(all))
        }
        _ => None,
    }
}

/// Parses the answer of `anew` or `clear`: true if it was done, false if something is there that must stay.
pub(in crate::store::redis) fn begun(value: Value) -> Option<bool> {
    match &AnswerReader::of(value)?.0[..] {
        b"begun" | b"cleared" => Some(true),
        b"there" => Some(false),
        _ => None,
    }
}

/// What `place` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum Placed {
    /// How many records were moved.
    Done(u64),
    Absent,
    Fenced(Epoch),
    /// A record is in this hash, and also where it is looked for.
    Twice {
        key: String,
        field: String,
    },
}

pub(in crate::store::redis) fn placed(value: Value) -> Option<Placed> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"placed" => Placed::Done(rest.number()?),
        b"absent" => Placed::Absent,
        b"fenced" => {
            rest.place()?;
            Placed::Fenced(Epoch(rest.number()?))
        }
        b"twice" => Placed::Twice { key: rest.text()?, field: rest.text()? },
        _ => return None,
    })
}

pub(in crate::store::redis) fn vouched(value: Value) -> Option<Vouched> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"there" => Vouched::There,
        b"gone" => Vouched::Gone([rest.bytes(), rest.bytes()]),
        _ => return None,
    })
}

/// What `vouch` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum Vouched {
    /// The key exists.
    There,
    /// The key does not exist; what its voucher says in each field that was asked for, if anything.
    Gone([Option<Vec<u8>>; 2]),
}

fn head_of(rest: &mut AnswerReader) -> Option<Head> {
    Some(Head {
        epoch: Epoch(rest.number()?),
        token: Token(rest.hex()?),
        parent: Token(rest.hex()?),
        seq: Seq(rest.number()?),
        digest: Digest(rest.hex()?),
        time: ShardTime(rest.number()?),
        generation: Generation(rest.number()?),
        format: rest.format()?,
    })
}

/// Fields of a head, in the order in which [`head`] reads them.
pub(in crate::store::redis) const HEAD_FIELDS: [&str; 8] =
    ["epoch", "token", "parent", "seq", "digest", "time", "generation", "format"];

/// Parses the answer to an HMGET of [`HEAD_FIELDS`]; the inner none means that there is no head.
pub(in crate::store::redis) fn head(value: Value) -> Option<Option<Head>> {
    match value {
        Value::Array(values) if values.first() == Some(&Value::Nil) => Some(None),
        Value::Array(values) => Some(Some(head_of(&mut AnswerReader(values.into_iter()))?)),
        _ => None,
    }
}

/// What `init` found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum Initialised {
    Register {
        made: bool,
        register: u128,
        format: String,
        shards: u64,
        heads: u64,
        /// Its notice of a move; empty if it has none.
        notice: String,
        /// The format of its records.
        records: u64,
    },
    None,
    /// No register, but the head of this shard.
    Heads(u64),
}

pub(in crate::store::redis) fn initialised(value: Value) -> Option<Initialised> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"made" | b"there" => Initialised::Register {
            made: word == b"made",
            register: rest.hex()?,
            format: rest.text()?,
            shards: rest.number()?,
            heads: rest.number()?,
            notice: rest.text()?,
            records: rest.number()?,
        },
        b"none" => Initialised::None,
        b"heads" => Initialised::Heads(rest.number()? - 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_shape_is_none_of_ours() {
        assert_eq!(verdict(Value::Okay), None);
        assert_eq!(verdict(Value::Array(vec![Value::BulkString(b"gap".to_vec())])), None);
        assert_eq!(taken(Value::Array(vec![])), None);
        assert_eq!(verdict(Value::Array(vec![Value::BulkString(b"applied".to_vec())])), Some(Verdict::Done));
    }
}
