//! What differs from run to run gets a name: `<cursor:1>`, `<id:2>`, `<time:3>`, numbered in the order in which they occur;
//! the same value gets the same name. A request may use such a name for the value that it stands for.

use std::collections::BTreeMap;

/// Members whose values get names, and the names; numbered if they are to be told apart.
const MEMBERS: &[(&str, &str, bool)] = &[
    ("cursor", "cursor", true),
    ("next", "next", true),
    ("last_common", "cursor", true),
    ("generation", "generation", true),
    ("plan", "plan", true),
    ("epoch", "epoch", false),
    ("shard", "shard", false),
    ("uptime_seconds", "uptime", false),
    ("seen_ms", "age", false),
    ("version", "version", false),
    ("store", "store", false),
    ("durability", "durability", false),
];

#[derive(Debug, Default)]
pub struct Names {
    /// By the text that they stand for: a quoted text or a number.
    given: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Names {
    /// A line that was sent, with names in it.
    pub fn named(&mut self, line: &str) -> String {
        let (mut named, mut rest) = (String::new(), line);
        while let Some(c) = rest.chars().next() {
            // Only sent where other nodes could own the shards, so not over every store.
            if let Some((_, behind)) = rest.strip_prefix(",\"shards\":[").and_then(|shards| shards.split_once(']')) {
                rest = behind;
                continue;
            }
            let taken = self.member(rest).or_else(|| self.value(rest));
            let (text, length) = taken.unwrap_or_else(|| (c.to_string(), c.len_utf8()));
            named.push_str(&text);
            rest = &rest[length..];
        }
        named
    }

    /// A request with the values that its names stand for.
    pub fn filled_in(&self, request: &str) -> String {
        let mut request = request.to_owned();
        for (text, name) in &self.given {
            request = request.replace(name, text);
        }
        assert!(!request.contains(['<', '>']), "a name was never given: {request}");
        request
    }

    fn name(&mut self, kind: &'static str, numbered: bool, text: &str) -> String {
        if let Some(name) = self.given.get(text) {
            return name.clone();
        }
        if !numbered {
            return format!("<{kind}>");
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let name = format!("<{kind}:{count}>");
        self.given.insert(text.to_owned(), name.clone());
        name
    }

    /// A member whose value gets a name: its new text, and the length of the old one.
    fn member(&mut self, rest: &str) -> Option<(String, usize)> {
        let (member, value) = rest.strip_prefix('"')?.split_once("\":")?;
        let &(member, kind, numbered) = MEMBERS.iter().find(|(name, ..)| *name == member)?;
        let length = match value.strip_prefix('"') {
            Some(text) => text.find('"')? + 2,
            None => value.find(|c: char| !c.is_ascii_digit())?,
        };
        let text = &value[..length];
        // Versions of networks count their changes; the server's version is a text.
        let is_count = kind == "version" && !text.starts_with('"');
        if length == 0 || is_count {
            return None;
        }
        let bare = text.trim_matches('"').to_owned();
        let name = self.name(kind, numbered, &bare);
        let name = if text.starts_with('"') { format!("\"{name}\"") } else { name };
        Some((format!("\"{member}\":{name}"), member.len() + 3 + length))
    }

    /// A time, an id, an address of this machine, or a long number that has a name already.
    fn value(&mut self, rest: &str) -> Option<(String, usize)> {
        const TIME: &str = "0000-00-00T00:00:00.000Z";
        const ID: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
        let fits = |form: &str| {
            let text = rest.get(..form.len())?;
            let like = |(one, of): (u8, u8)| match of {
                b'0' => one.is_ascii_digit(),
                b'f' => one.is_ascii_hexdigit(),
                of => one == of,
            };
            text.bytes().zip(form.bytes()).all(like).then_some(text)
        };
        if let Some(time) = fits(TIME) {
            return Some((self.name("time", true, time), TIME.len()));
        }
        if let Some(id) = fits(ID).or_else(|| fits(&"f".repeat(32))) {
            return Some((self.name("id", true, id), id.len()));
        }
        if let Some(port) = rest.strip_prefix("127.0.0.1:") {
            let digits = port.bytes().take_while(u8::is_ascii_digit).count();
            return Some(("<address>".to_owned(), "127.0.0.1:".len() + digits));
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let known = self.given.get(&rest[..digits]).filter(|_| digits > 0);
        known.map(|name| (name.clone(), digits)).or((digits > 0).then(|| (rest[..digits].to_owned(), digits)))
    }
}
