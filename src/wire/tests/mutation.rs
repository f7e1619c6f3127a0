//! Mutates texts and their structure, for the fuzzing loops of parsers.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value};

use crate::fuzz;

/// Values that a member is not expected to have, as JSON texts.
const ODD_VALUES: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "[[]]",
    "0",
    "-1",
    "1.5",
    "1e2",
    "18446744073709551615",
    "18446744073709551616",
    "9007199254740992",
    "\"\"",
    "\" \"",
    "\"auto\"",
    "\"0.0.0.0/0\"",
    "\"::/0\"",
    "\"10.0.0.9-10.0.0.1\"",
    "\"10.0.0.0+4294967296\"",
    "\"::ffff:10.0.0.1\"",
    "\"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\"",
    "\"0f8fad5b-d9cb-469f-a165-70867728950e\"",
    "\"2026-13-41T99:99:99Z\"",
    "\"\\u0000\"",
    "\"\\u200b\"",
    "\"名前\"",
];
/// Texts that no `Value` can hold: endless numbers, halves of characters, blanks that JSON does not know.
const ODD_TEXTS: &[&str] =
    &["1e400", "-0", "\\ud800", "\u{feff}", "\u{2028}", "\u{85}", "/*", "NaN", "\"\"", "\\", "{", "]", ",", ":"];

/// A loop over mutations that is limited by time and can be replayed.
pub(crate) struct Fuzzer {
    rng: SmallRng,
    end: std::time::Instant,
    seeds: usize,
    corpus: Vec<String>,
}

/// The text being parsed: it is printed if the parser panics.
struct Shown<'a>(&'a str);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("while reading {:?}", self.0.chars().take(4_000).collect::<String>());
        }
    }
}

impl Fuzzer {
    /// Begins with these texts as samples.
    pub(crate) fn over(corpus: Vec<String>) -> Self {
        Self { rng: fuzz::seeded(), end: fuzz::end(2), seeds: corpus.len(), corpus }
    }

    /// Shows mutations to `accepts` until the time is over; accepted ones are mutated further.
    pub(crate) fn run(mut self, accepts: impl Fn(&str) -> bool) {
        for text in self.corpus.clone() {
            assert!(accepts(&text), "the corpus must be read: {text}");
        }
        while std::time::Instant::now() < self.end {
            let mut text = self.pick();
            for _ in 0..self.rng.random_range(0..4) {
                text = self.mutate_structure(&text);
            }
            for _ in 0..self.rng.random_range(0..3) {
                text = self.mutate_text(&text);
            }
            let shown = Shown(&text);
            let accepted = accepts(&text);
            drop(shown);
            if accepted && text.len() < 16_384 && self.corpus.len() < self.seeds + 1_000 {
                self.corpus.push(text);
            }
        }
        assert!(self.corpus.len() > self.seeds, "no mutation was accepted: it does not reach behind the first check");
    }

    fn pick(&mut self) -> String {
        // As often from the first samples as from later ones.
        let among = if self.rng.random() { self.seeds } else { self.corpus.len() };
        self.corpus[self.rng.random_range(0..among)].clone()
    }

    /// Changes one place of a JSON document, line by line if there are several. A text that is not JSON stays as it is.
    fn mutate_structure(&mut self, text: &str) -> String {
        let mut lines: Vec<&str> = text.split('\n').collect();
        let at = self.rng.random_range(0..lines.len());
        let (whole, line) = match serde_json::from_str::<Value>(text) {
            Ok(value) => (true, Some(value)),
            Err(_) => (false, serde_json::from_str::<Value>(lines[at]).ok()),
        };
        let Some(mut value) = line else { return text.to_owned() };
        let donor = self.pick();
        let donor = serde_json::from_str::<Value>(donor.split('\n').next_back().unwrap_or_default()).ok();
        let mut places = count(&value);
        let at_place = self.rng.random_range(0..places);
        places = at_place;
        let mut rng = SmallRng::seed_from_u64(self.rng.random());
        visit(&mut value, &mut places, &mut |place| change(&mut rng, place, donor.as_ref()));
        let changed = value.to_string();
        if whole {
            return changed;
        }
        lines[at] = &changed;
        lines.join("\n")
    }

    fn mutate_text(&mut self, text: &str) -> String {
        let rng = &mut self.rng;
        let mut chars: Vec<char> = text.chars().collect();
        let at = rng.random_range(0..=chars.len());
        let end = (at + rng.random_range(1..24)).min(chars.len());
        match rng.random_range(0..7) {
            0 => drop(chars.drain(at..end)),
            1 => {
                let piece = chars[at..end].to_vec();
                let to = rng.random_range(0..=chars.len());
                chars.splice(to..to, piece);
            }
            2 => {
                let odd = ODD_TEXTS[rng.random_range(0..ODD_TEXTS.len())];
                chars.splice(at..at, odd.chars());
            }
            3 => {
                let odd = ODD_VALUES[rng.random_range(0..ODD_VALUES.len())];
                chars.splice(at..end, odd.chars());
            }
            4 => {
                let open = ['[', '{', '"'][rng.random_range(0..3)];
                let depth = rng.random_range(1..2_000);
                chars.splice(at..at, std::iter::repeat_n(open, depth));
            }
            5 if at < chars.len() => chars[at] = char::from(rng.random_range(0..128u8)),
            _ => chars.truncate(at),
        }
        chars.into_iter().collect()
    }
}

/// The number of values in a document, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Calls `change` on the value that comes so many places later.
fn visit(value: &mut Value, places: &mut usize, change: &mut impl FnMut(&mut Value)) -> bool {
    if *places == 0 {
        change(value);
        return true;
    }
    *places -= 1;
    match value {
        Value::Array(list) => list.iter_mut().any(|value| visit(value, places, change)),
        Value::Object(members) => members.values_mut().any(|value| visit(value, places, change)),
        _ => false,
    }
}

fn any_value(rng: &mut SmallRng, value: &Value) -> Value {
    let mut places = rng.random_range(0..count(value));
    let (mut copy, mut found) = (value.clone(), Value::Null);
    visit(&mut copy, &mut places, &mut |place| found = place.clone());
    found
}

fn change(rng: &mut SmallRng, place: &mut Value, donor: Option<&Value>) {
    let odd = |rng: &mut SmallRng| {
        let text = ODD_VALUES[rng.random_range(0..ODD_VALUES.len())];
        serde_json::from_str(text).unwrap_or(Value::Null)
    };
    match (rng.random_range(0..8), place) {
        (0, place) => *place = odd(rng),
        (1, place) => {
            if let Some(donor) = donor {
                *place = any_value(rng, donor);
            }
        }
        (2, place) => *place = Value::Array(vec![place.take(); rng.random_range(1..4)]),
        (_, Value::Array(list)) => match rng.random_range(0..3) {
            0 => list.push(odd(rng)),
            1 if !list.is_empty() => drop(list.remove(rng.random_range(0..list.len()))),
            // More entries than any list may have.
            _ => {
                let first = list.first().cloned().unwrap_or(Value::Null);
                list.extend(std::iter::repeat_n(first, rng.random_range(1..300)));
            }
        },
        (_, Value::Object(members)) => change_members(rng, members, donor, odd),
        (_, Value::String(text)) => {
            *text = match rng.random_range(0..3) {
                0 => text.repeat(rng.random_range(2..200)),
                1 => text.chars().rev().collect(),
                _ => text.to_uppercase(),
            }
        }
        (_, Value::Number(number)) => {
            let wide = number.as_u64().unwrap_or(1).wrapping_mul(rng.random_range(0..1 << 40));
            *number = wide.into();
        }
        (_, Value::Bool(flag)) => *flag = !*flag,
        (_, place @ Value::Null) => *place = odd(rng),
    }
}

fn change_members(
    rng: &mut SmallRng,
    members: &mut Map<String, Value>,
    donor: Option<&Value>,
    odd: impl Fn(&mut SmallRng) -> Value,
) {
    let names: Vec<String> = members.keys().cloned().collect();
    let Some(name) = (!names.is_empty()).then(|| names[rng.random_range(0..names.len())].clone()) else { return };
    match rng.random_range(0..4) {
        0 => drop(members.remove(&name)),
        1 => {
            let value = members.remove(&name).unwrap_or_default();
            members.insert(format!("{name}x"), value);
        }
        2 => drop(members.insert(name, odd(rng))),
        _ => {
            if let Some(Value::Object(theirs)) = donor {
                members.extend(theirs.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
    }
}
