//! The scripts that run inside Redis: their texts, what each is given, and what it answers.
//!
//! No other file says EVALSHA. The head of each script is its contract, in a grammar that a test here reads and compares
//! with the builders below. A script is loaded on every new connection, so NOSCRIPT is rare; it means that nothing was
//! applied, and the script is loaded and sent again.
//!
//! Neighbours: `net` makes the arguments of a commit; `link` sends them and sorts what comes back.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::{Arg, Cmd, Value};

use super::keys::HashKind;
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::store::codec::Format;
use crate::store::{Digest, Epoch, Head, Seq, Token};

/// A script and its contract.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "keys, arguments and answers are what a test compares the text with"))]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Of which kinds its keys are, in turn.
    pub(super) keys: &'static [&'static str],
    /// The arguments that are counted from the front, in turn.
    pub(super) arguments: &'static [&'static str],
    /// First words of its answers.
    pub(super) answers: &'static [&'static str],
}

pub(super) const INIT: Script = Script {
    name: "init",
    text: include_str!("scripts/init.lua"),
    keys: &["register", "head"],
    arguments: &["register", "format", "shards", "created", "make", "notice"],
    answers: &["made", "there", "none", "heads"],
};
pub(super) const PROBE: Script = Script {
    name: "probe",
    text: include_str!("scripts/probe.lua"),
    keys: &["probe"],
    arguments: &["value", "fields"],
    answers: &[],
};
pub(super) const TAKE: Script = Script {
    name: "take",
    text: include_str!("scripts/take.lua"),
    keys: &["head", "nodes", "register"],
    arguments: &[
        "token", "owner", "node", "address", "lease", "mine", "last", "seq", "digest", "reads", "wanted", "register",
    ],
    answers: &["taken", "held", "fenced", "behind", "absent", "foreign", "moved", "newer"],
};
pub(super) const LEASE: Script = Script {
    name: "lease",
    text: include_str!("scripts/lease.lua"),
    keys: &["head"],
    arguments: &["lease", "token"],
    answers: &["leased", "absent", "fenced"],
};
pub(super) const NODES: Script = Script {
    name: "nodes",
    text: include_str!("scripts/nodes.lua"),
    keys: &["nodes", "head", "register"],
    arguments: &["name", "process", "card", "ttl", "reads", "register"],
    answers: &["nodes", "taken", "newer", "foreign"],
};
pub(super) const POST: Script = Script {
    name: "post",
    text: include_str!("scripts/post.lua"),
    keys: &["register", "head"],
    arguments: &["notice", "closed", "register", "token", "seq", "digest"],
    answers: &["posted", "absent", "fenced", "foreign"],
};
pub(super) const CONFIRM: Script = Script {
    name: "confirm",
    text: include_str!("scripts/confirm.lua"),
    keys: &["head", "log"],
    arguments: &["mark", "token", "seq", "digest"],
    answers: &["confirmed", "absent", "fenced"],
};
pub(super) const COMMIT: Script = Script {
    name: "commit",
    text: include_str!("scripts/commit.lua"),
    keys: &["guard", "head", "log", "networks"],
    arguments: &["batches", "keep_seconds", "keep_bytes", "batch"],
    answers: &["applied", "absent", "fenced", "gap", "back", "lost", "mismatch"],
};
pub(super) const CUT: Script = Script {
    name: "cut",
    text: include_str!("scripts/cut.lua"),
    keys: &["head", "log", "spare"],
    arguments: &["token", "seq", "digest", "surplus"],
    answers: &["cut", "absent", "fenced"],
};
pub(super) const VOUCH: Script = Script {
    name: "vouch",
    text: include_str!("scripts/vouch.lua"),
    keys: &["voucher", "key"],
    arguments: &["kind", "field"],
    answers: &["there", "gone"],
};
pub(super) const ANEW: Script = Script {
    name: "anew",
    text: include_str!("scripts/anew.lua"),
    keys: &["register", "head", "log"],
    arguments: &[
        "register", "format", "shards", "created", "notice", "owner", "node", "address", "lease", "epoch", "token",
        "parent", "seq", "digest", "time", "records", "takes", "batch",
    ],
    answers: &["begun", "there"],
};
/// A script as it is loaded: its text may have been given flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadedScript {
    Init,
    Probe,
    Take,
    Lease,
    Nodes,
    Post,
    Confirm,
    Commit,
    /// A commit that runs while the memory is full, too: for batches that only let go, and what was lost.
    CommitLettingGo,
    Cut,
    Vouch,
    Anew,
}

impl LoadedScript {
    /// In the order of the enum.
    pub(super) const ALL: [LoadedScript; 12] = [
        LoadedScript::Init,
        LoadedScript::Probe,
        LoadedScript::Take,
        LoadedScript::Lease,
        LoadedScript::Nodes,
        LoadedScript::Post,
        LoadedScript::Confirm,
        LoadedScript::Commit,
        LoadedScript::CommitLettingGo,
        LoadedScript::Cut,
        LoadedScript::Vouch,
        LoadedScript::Anew,
    ];

    fn script(self) -> &'static Script {
        match self {
            LoadedScript::Init => &INIT,
            LoadedScript::Probe => &PROBE,
            LoadedScript::Take => &TAKE,
            LoadedScript::Lease => &LEASE,
            LoadedScript::Nodes => &NODES,
            LoadedScript::Post => &POST,
            LoadedScript::Confirm => &CONFIRM,
            LoadedScript::Commit | LoadedScript::CommitLettingGo => &COMMIT,
            LoadedScript::Cut => &CUT,
            LoadedScript::Vouch => &VOUCH,
            LoadedScript::Anew => &ANEW,
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.script().name
    }

    /// What it runs.
    fn commands(self) -> BTreeSet<&'static str> {
        called(self.script().text)
    }

    /// What Redis is given.
    pub(super) fn text(self) -> String {
        let text = self.script().text;
        if self == LoadedScript::CommitLettingGo {
            return text.replacen("#!lua\n", "#!lua flags=allow-oom\n", 1);
        }
        text.to_owned()
    }
}

/// The commands of a text, as it calls them.
fn called(text: &'static str) -> BTreeSet<&'static str> {
    text.split("call('").skip(1).filter_map(|rest| rest.split('\'').next()).collect()
}

/// The hashes by which Redis knows the scripts. They depend on the texts only, so one server's are every server's.
#[derive(Debug, Clone, Default)]
pub(super) struct Shas {
    pub(super) hashes: [String; LoadedScript::ALL.len()],
    /// As whom they are called.
    pub(super) user: Arc<str>,
}

/// A call of a script. The command can be sent again as it is.
#[derive(Debug, Clone)]
pub(super) struct ScriptCall {
    pub(super) script: LoadedScript,
    pub(super) command: Cmd,
    /// As whom it is called.
    user: Arc<str>,
}

impl ScriptCall {
    pub(super) fn new(shas: &Shas, script: LoadedScript, keys: &[String]) -> Self {
        Self::with_room(shas, script, keys, 0, 0)
    }

    /// One with room for about so many arguments, of so many bytes together.
    pub(super) fn with_room(
        shas: &Shas,
        script: LoadedScript,
        keys: &[String],
        arguments: usize,
        bytes: usize,
    ) -> Self {
        let keys_bytes: usize = keys.iter().map(String::len).sum();
        let mut command = Cmd::with_capacity(3 + keys.len() + arguments, 64 + keys_bytes + bytes);
        command.arg("EVALSHA").arg(&shas.hashes[script as usize]).arg(keys.len()).arg(keys);
        Self { script, command, user: Arc::clone(&shas.user) }
    }

    pub(super) fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        self.command.arg(argument.as_ref());
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.command.arg(number);
        self
    }

    /// The call without spare room, which is nearly as much again: for one that is kept.
    pub(super) fn fitted(&self) -> Self {
        let mut command = Cmd::with_capacity(self.command.args_iter().len(), self.text_bytes());
        self.texts().for_each(|text| {
            command.arg(text);
        });
        Self { script: self.script, command, user: Arc::clone(&self.user) }
    }

    /// Who needs which rights for it: for whoever may give them.
    pub(super) fn rights(&self) -> String {
        let (user, script) = (&self.user, self.script.name());
        let commands = self.script.commands();
        // Behind `EVALSHA`, the hash and the number of keys.
        let key = self.texts().nth(3).map(String::from_utf8_lossy).unwrap_or_default();
        let prefix = key.split_once(':').map_or("", |(prefix, _)| prefix);
        let rights: String = commands.iter().map(|command| format!(" +{}", command.to_ascii_lowercase())).collect();
        format!(
            "user `{user}` lacks a right that the script `{script}` needs, which runs {}: give him all of them \
             (`ACL SETUSER {user} ~{prefix}:* +evalsha +script|load{rights}`)",
            commands.into_iter().collect::<Vec<_>>().join(", ")
        )
    }

    /// The commit as a call that is carried out while the memory is full, too. Any other call as it is.
    pub(super) fn letting_go(self: &Arc<Self>, shas: &Shas) -> Arc<Self> {
        if self.script != LoadedScript::Commit {
            return Arc::clone(self);
        }
        let script = LoadedScript::CommitLettingGo;
        let mut command = Cmd::with_capacity(self.command.args_iter().len(), self.text_bytes());
        // Behind `EVALSHA`.
        self.texts().enumerate().for_each(|(at, text)| {
            command.arg(if at == 1 { shas.hashes[script as usize].as_bytes() } else { text });
        });
        Arc::new(Self { script, command, user: Arc::clone(&self.user) })
    }

    /// What one without spare room takes: itself, the text of its arguments, and where each of them ends.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text_bytes() + self.command.args_iter().len() * size_of::<Arg<usize>>()
    }

    fn text_bytes(&self) -> usize {
        self.texts().map(<[u8]>::len).sum()
    }

    /// Its words, from `EVALSHA` on.
    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().filter_map(|argument| if let Arg::Simple(text) = argument { Some(text) } else { None })
    }
}

/// 32 hex digits.
pub(super) fn hex(bits: u128) -> String {
    format!("{bits:032x}")
}

/// What `commit`, `confirm`, `lease`, `post` and `cut` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It holds: applied, confirmed, cut off.
    Done,
    /// The n-th shard of the call has no head.
    Absent(usize),
    Fenced(usize, Epoch),
    /// It is another register, or none that says which one.
    Foreign(Option<u128>),
    Gap(usize, Seq),
    Back(usize),
    /// A key that others vouch for is gone.
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

/// Takes an answer apart from its front. An answer of another shape is none of ours: some other script, or server.
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

    /// A head says none until somebody takes it who knows more than one.
    fn format(&mut self) -> Option<Format> {
        match self.0.next()? {
            Value::Nil => Some(Format::FIRST),
            Value::BulkString(bytes) => Format::new(std::str::from_utf8(&bytes).ok()?.parse().ok()?),
            _ => None,
        }
    }

    /// Which shard of the call: they count from 1.
    fn place(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()?.checked_sub(1)
    }
}

/// The answer of `commit`, `confirm`, `lease`, `post` or `cut`.
pub(super) fn verdict(value: Value) -> Option<Verdict> {
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

/// What `take` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TakeAnswer {
    /// The head as it is now, and what it remembers of take-overs.
    Taken(Head, String),
    /// By another node: its name, where it is reached, and what is left of its lease.
    Held {
        owner: String,
        address: String,
        left_ms: u64,
    },
    Fenced(Epoch),
    /// It is further back than it was under the taker.
    Behind,
    Absent,
    /// It is another register's, or nobody's who says which one.
    Foreign(Option<u128>),
    /// The register is somewhere else; what it says of that.
    Moved(String),
    /// Its records are written in this format, which this program does not read.
    Newer(u64),
}

/// The answer of `take`.
pub(super) fn taken(value: Value) -> Option<TakeAnswer> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"taken" => TakeAnswer::Taken(head_of(&mut rest)?, rest.text()?),
        b"held" => TakeAnswer::Held { owner: rest.text()?, address: rest.text()?, left_ms: rest.number()? },
        b"fenced" => TakeAnswer::Fenced(Epoch(rest.number()?)),
        b"behind" => TakeAnswer::Behind,
        b"absent" => TakeAnswer::Absent,
        b"foreign" => TakeAnswer::Foreign(rest.hex()),
        b"moved" => TakeAnswer::Moved(rest.text()?),
        b"newer" => TakeAnswer::Newer(rest.number()?),
        _ => return None,
    })
}

/// A node as `nodes` tells it: name, age in milliseconds, and card.
pub(super) type ToldNode = (String, u64, String);

/// What `nodes` answers.
pub(super) enum Met {
    /// Those that there are.
    Nodes(Vec<ToldNode>),
    /// Another process of this name was seen so many milliseconds ago.
    Taken(u64),
    /// The records are written in this format, which this program does not read.
    Newer(u64),
    /// It is another register, or none that says which one.
    Foreign(Option<u128>),
}

/// The answer of `nodes`.
pub(super) fn nodes(value: Value) -> Option<Met> {
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

/// The answer of `anew`: was it begun? Else something of the register is there.
pub(super) fn begun(value: Value) -> Option<bool> {
    match &AnswerReader::of(value)?.0[..] {
        b"begun" => Some(true),
        b"there" => Some(false),
        _ => None,
    }
}

/// The answer of `vouch`.
pub(super) fn vouched(value: Value) -> Option<Vouched> {
    let (word, mut rest) = AnswerReader::of(value)?;
    Some(match &word[..] {
        b"there" => Vouched::There,
        b"gone" => Vouched::Gone(rest.bytes()),
        _ => return None,
    })
}

/// What `vouch` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vouched {
    /// The key is there.
    There,
    /// It is not; what its voucher says of it, if anything.
    Gone(Option<Vec<u8>>),
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
pub(super) const HEAD_FIELDS: [&str; 8] = ["epoch", "token", "parent", "seq", "digest", "time", "generation", "format"];

/// The answer of an HMGET of [`HEAD_FIELDS`]; the inner none is a head that is absent.
pub(super) fn head(value: Value) -> Option<Option<Head>> {
    match value {
        Value::Array(values) if values.first() == Some(&Value::Nil) => Some(None),
        Value::Array(values) => Some(Some(head_of(&mut AnswerReader(values.into_iter()))?)),
        _ => None,
    }
}

/// What `init` found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Initialised {
    Register {
        made: bool,
        register: u128,
        format: String,
        shards: u64,
        heads: u64,
        /// What it says of its move; empty where that is nothing.
        notice: String,
        /// In which its records are written.
        records: u64,
    },
    None,
    /// No register, but the head of this shard.
    Heads(u64),
}

/// The answer of `init`.
pub(super) fn initialised(value: Value) -> Option<Initialised> {
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

    /// `-- KEYS[1,4..] head: …` as ("KEYS", "1,4..", "head").
    fn declared(text: &str) -> Vec<(&str, &str, &str)> {
        text.lines()
            .filter_map(|line| {
                let rest = line.strip_prefix("-- ")?;
                let (list, rest) = rest.split_once('[')?;
                let (numbers, rest) = rest.split_once("] ")?;
                let (name, _) = rest.split_once(": ")?;
                (["KEYS", "ARGV"].contains(&list)).then_some((list, numbers, name))
            })
            .collect()
    }

    #[test]
    fn each_head_declares_what_its_builder_gives() {
        for script in [&INIT, &PROBE, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &CUT, &VOUCH, &ANEW] {
            let declared = declared(script.text);
            let of = |list: &str| -> Vec<(&str, &str)> {
                declared.iter().filter(|line| line.0 == list).map(|line| (line.1, line.2)).collect()
            };
            for (list, names) in [("KEYS", script.keys), ("ARGV", script.arguments)] {
                let lines = of(list);
                assert_eq!(lines.iter().map(|line| line.1).collect::<Vec<_>>(), names, "{} {list}", script.name);
                for (at, (number, name)) in lines.iter().enumerate() {
                    let number = number.split([',', '.']).next().unwrap();
                    assert_eq!(number, (at + 1).to_string(), "{} {list} {name}", script.name);
                }
            }
        }
    }

    #[test]
    fn each_head_names_every_answer_and_every_write() {
        for script in [&INIT, &PROBE, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &CUT, &VOUCH, &ANEW] {
            let head = script.text.lines().skip(1).take_while(|line| line.starts_with("-- ") || *line == "--");
            let head: String = head.map(|line| format!("{line}\n")).collect();
            for answer in script.answers {
                assert!(head.contains(&format!("`{answer}`")), "{}: {answer}", script.name);
            }
            let returned = script.text.split("return {'").skip(1).chain(script.text.split("now, 1, '").skip(1));
            let returned = returned.chain(script.text.split("answer, all = {'").skip(1));
            let returned = returned.chain(script.text.split("return missing() or {'").skip(1));
            let returned: BTreeSet<&str> = returned.filter_map(|rest| rest.split('\'').next()).collect();
            let answers: BTreeSet<&str> = script.answers.iter().copied().collect();
            assert_eq!(returned, answers, "{}", script.name);
            let writes = head.lines().find_map(|line| line.strip_prefix("-- writes ")).unwrap();
            for written in writes.split(' ').filter(|&word| word != "nothing") {
                assert!(script.keys.contains(&written), "{}: {written}", script.name);
            }
        }
    }

    /// Of the lists in a text those of commands.
    fn asked(text: &'static str) -> BTreeSet<&'static str> {
        let lists = text.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let words = |list: &'static str| list.split(", ").map(|word| word.trim_matches('\''));
        let is_command = |word: &str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
        lists.filter(|list| words(list).all(is_command)).flat_map(words).collect()
    }

    /// Each needs no more than one that is refused before it wrote anything: the first, or one that it asked for.
    #[test]
    fn whatever_writes_with_more_than_one_command_asks_for_all_of_them_before() {
        const WRITING: [&str; 9] = ["XADD", "XTRIM", "HSET", "HDEL", "HINCRBY", "ZADD", "ZREM", "DEL", "RENAME"];
        for script in [&INIT, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &CUT, &VOUCH, &ANEW] {
            let writes: BTreeSet<&str> =
                called(script.text).into_iter().filter(|name| WRITING.contains(name)).collect();
            let asked = asked(script.text);
            assert_eq!(script.text.contains("redis.acl_check_cmd"), writes.len() > 1, "{}: {writes:?}", script.name);
            assert!(writes.len() <= 1 || writes.is_subset(&asked), "{}: {writes:?} {asked:?}", script.name);
        }
    }

    #[test]
    fn the_probe_calls_every_command_that_another_script_calls() {
        let probed = called(PROBE.text);
        for script in [&INIT, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &VOUCH, &ANEW] {
            let not = called(script.text).difference(&probed).copied().collect::<Vec<_>>();
            assert_eq!(not, Vec::<&str>::new(), "{}", script.name);
        }
    }

    #[test]
    fn the_variant_that_lets_go_differs_in_its_flags_only() {
        let (plain, letting_go) = (LoadedScript::Commit.text(), LoadedScript::CommitLettingGo.text());
        assert!(letting_go.starts_with("#!lua flags=allow-oom\n"));
        assert_eq!(plain.split_once('\n').unwrap().1, letting_go.split_once('\n').unwrap().1);
    }

    #[test]
    fn an_answer_of_another_shape_is_none_of_ours() {
        assert_eq!(verdict(Value::Okay), None);
        assert_eq!(verdict(Value::Array(vec![Value::BulkString(b"gap".to_vec())])), None);
        assert_eq!(taken(Value::Array(vec![])), None);
        assert_eq!(verdict(Value::Array(vec![Value::BulkString(b"applied".to_vec())])), Some(Verdict::Done));
    }
}
