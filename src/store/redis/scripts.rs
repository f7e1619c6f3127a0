//! The scripts that run inside Redis: their texts, and the arguments of each. `call` calls them, `answers` reads what
//! they return.
//!
//! No other module sends EVALSHA. The header of each script is its contract, in a grammar that a test in this file reads and
//! compares with the list below. The scripts are loaded on every new connection, so NOSCRIPT is rare. It means that nothing
//! was applied; the script is then loaded and called again.
//!
//! Neighbours: `net` makes the arguments of a commit; `link` sends calls and classifies what comes back.

mod answers;
mod call;

use std::collections::BTreeSet;

pub(super) use self::answers::{
    HEAD_FIELDS, Initialised, Met, Placed, TakeAnswer, ToldNode, Verdict, Vouched, begun, copied, head, initialised,
    nodes, placed, taken, verdict, vouched,
};
pub(super) use self::call::{ScriptCall, Shas, hex};

#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "keys, arguments and answers are what a test compares the text with"))]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// The names of its keys, in the order of its header.
    pub(super) keys: &'static [&'static str],
    /// The names of its arguments, in the order of its header.
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
        "serves",
    ],
    answers: &["taken", "held", "fenced", "behind", "absent", "foreign", "moved", "unfinished", "newer"],
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
    text: concat!(
        include_str!("scripts/commit.lua"),
        include_str!("scripts/commit/sparse.lua"),
        include_str!("scripts/commit/blocks.lua"),
        include_str!("scripts/commit/apply.lua"),
    ),
    keys: &["guard", "head", "log", "networks"],
    arguments: &["batches", "keep_seconds", "keep_bytes", "batch"],
    answers: &["applied", "absent", "fenced", "gap", "back", "lost", "mismatch"],
};
pub(super) const CUT: Script = Script {
    name: "cut",
    text: include_str!("scripts/cut.lua"),
    keys: &["head", "log", "spare"],
    arguments: &["token", "seq", "digest", "surplus", "copied"],
    answers: &["cut", "more", "absent", "fenced"],
};
pub(super) const VOUCH: Script = Script {
    name: "vouch",
    text: include_str!("scripts/vouch.lua"),
    keys: &["voucher", "key"],
    arguments: &["kind", "field"],
    answers: &["there", "gone"],
};
pub(super) const LEFT: Script = Script {
    name: "left",
    text: include_str!("scripts/left.lua"),
    keys: &["log"],
    arguments: &["count", "sure", "bytes"],
    answers: &[],
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
pub(super) const CLEAR: Script = Script {
    name: "clear",
    text: include_str!("scripts/clear.lua"),
    keys: &["register", "head"],
    arguments: &["register", "notice", "whole", "parent", "gone"],
    answers: &["cleared", "there"],
};
pub(super) const PLACE: Script = Script {
    name: "place",
    text: include_str!("scripts/place.lua"),
    keys: &["guard", "head"],
    arguments: &["token", "network", "low"],
    answers: &["placed", "absent", "fenced", "twice"],
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
    /// A commit that runs even if the memory is full: for batches that only let go, and for replays.
    CommitLettingGo,
    Cut,
    Vouch,
    Left,
    Anew,
    Clear,
    Place,
}

impl LoadedScript {
    /// In the order of the enum.
    pub(super) const ALL: [LoadedScript; 15] = [
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
        LoadedScript::Left,
        LoadedScript::Anew,
        LoadedScript::Clear,
        LoadedScript::Place,
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
            LoadedScript::Left => &LEFT,
            LoadedScript::Anew => &ANEW,
            LoadedScript::Clear => &CLEAR,
            LoadedScript::Place => &PLACE,
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.script().name
    }

    /// The Redis commands that it runs.
    fn commands(self) -> BTreeSet<&'static str> {
        called(self.script().text)
    }

    /// The text that Redis is given.
    pub(super) fn text(self) -> String {
        let text = self.script().text;
        if self == LoadedScript::CommitLettingGo {
            return text.replacen("#!lua\n", "#!lua flags=allow-oom\n", 1);
        }
        text.to_owned()
    }
}

/// The Redis commands in a text, by its calls.
fn called(text: &'static str) -> BTreeSet<&'static str> {
    text.split("call('").skip(1).filter_map(|rest| rest.split('\'').next()).collect()
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
        for script in
            [&INIT, &PROBE, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &CUT, &VOUCH, &LEFT, &ANEW, &CLEAR, &PLACE]
        {
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
        for script in
            [&INIT, &PROBE, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &CUT, &VOUCH, &LEFT, &ANEW, &CLEAR, &PLACE]
        {
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
            let named: BTreeSet<&str> = writes.split(' ').filter(|&word| word != "nothing").collect();
            for written in &named {
                assert!(script.keys.contains(written), "{}: {written}", script.name);
            }
            let written: BTreeSet<&str> = written(script.text).collect();
            assert!(written.is_subset(&named), "{} writes {written:?}, and names {named:?}", script.name);
        }
    }

    /// The names of keys that a text writes, as far as its calls say which key that is: `KEYS[2]`, or `plan.log` of a commit.
    /// What is in a loop over keys, or made of a prefix, is not among them.
    fn written(text: &'static str) -> impl Iterator<Item = &'static str> {
        let declared = declared(text);
        let calls = text.split("call('").skip(1).filter_map(|rest| rest.split_once("', "));
        calls.filter(|(command, _)| WRITING.contains(command)).filter_map(move |(_, rest)| {
            let key = rest.split([',', ')']).next()?;
            if let Some(name) = key.strip_prefix("plan.").filter(|name| !name.contains(' ')) {
                return Some(name);
            }
            let number: usize = key.strip_prefix("KEYS[")?.strip_suffix(']')?.parse().ok()?;
            let of_keys = declared.iter().filter(|line| line.0 == "KEYS");
            of_keys.filter(|line| has_number(line.1, number)).map(|line| line.2).next()
        })
    }

    /// Is this one of the numbers of a header: `1`, `2..`, `2,5..`?
    fn has_number(numbers: &str, number: usize) -> bool {
        let (first, more) = match numbers.strip_suffix("..") {
            Some(from) => from.split_once(',').map_or((from, Some(1)), |(first, next)| {
                (first, Some(next.parse::<usize>().unwrap() - first.parse::<usize>().unwrap()))
            }),
            None => (numbers, None),
        };
        let first: usize = first.parse().unwrap();
        number == first || more.is_some_and(|step| number > first && (number - first).is_multiple_of(step))
    }

    /// A header that names less than is written, or another key.
    #[test]
    fn what_a_text_writes_is_seen() {
        let of = |text: &'static str| written(text).collect::<Vec<_>>();
        assert_eq!(of(TAKE.text), ["head"]);
        assert_eq!(of(COMMIT.text).into_iter().collect::<BTreeSet<_>>(), ["head", "log", "networks"].into());
        assert_eq!(of("-- KEYS[1] head: x\n-- KEYS[2,4..] log: y\nredis.call('DEL', KEYS[4])"), ["log"]);
        assert_eq!(of("-- KEYS[1] head: x\n-- KEYS[2,4..] log: y\nredis.call('HGETALL', KEYS[2])"), [""; 0]);
        for (numbers, number, has) in
            [("1", 1, true), ("1", 2, false), ("2..", 7, true), ("2,5..", 8, true), ("2,5..", 7, false)]
        {
            assert_eq!(has_number(numbers, number), has, "{numbers} {number}");
        }
    }

    const WRITING: [&str; 9] = ["XADD", "XTRIM", "HSET", "HDEL", "HINCRBY", "ZADD", "ZREM", "DEL", "RENAME"];

    /// The commands in the lists of a text that consist of nothing but commands.
    fn asked(text: &'static str) -> BTreeSet<&'static str> {
        let lists = text.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let words = |list: &'static str| list.split(',').map(|word| word.trim().trim_matches('\''));
        let is_command = |word: &str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
        lists.filter(|list| words(list).all(is_command)).flat_map(words).collect()
    }

    /// A command that Redis refuses must stop a script before it has written anything. So a script writes with one
    /// command only, or asks before its first write whether all its commands are permitted.
    #[test]
    fn whatever_writes_with_more_than_one_command_asks_for_all_of_them_before() {
        for script in
            [&INIT, &PROBE, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &CUT, &VOUCH, &ANEW, &CLEAR, &PLACE]
        {
            let writes: BTreeSet<&str> =
                called(script.text).into_iter().filter(|name| WRITING.contains(name)).collect();
            let asked = asked(script.text);
            assert_eq!(script.text.contains("redis.acl_check_cmd"), writes.len() > 1, "{}: {writes:?}", script.name);
            assert!(writes.len() <= 1 || writes.is_subset(&asked), "{}: {writes:?} {asked:?}", script.name);
        }
        // It is there to find what is missing, so it asks for what it reads as well.
        assert_eq!(called(PROBE.text), asked(PROBE.text));
    }

    #[test]
    fn the_probe_calls_every_command_that_another_script_calls() {
        let probed = called(PROBE.text);
        for script in [&INIT, &TAKE, &LEASE, &NODES, &POST, &CONFIRM, &COMMIT, &VOUCH, &ANEW, &CLEAR, &PLACE] {
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
}
