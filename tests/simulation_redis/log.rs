//! What the product logs: counted by its words, and part of the trace.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::world::Coverage;

/// Words of a line, and what the line counts as.
const COUNTED: [(&str, &str); 13] = [
    ("what it lost of this server's changes is played again", "healed"),
    ("take-overs that Redis lacks are played again", "take-overs played again"),
    ("nobody was told of what is not there, so it is taken anew", "line cut off"),
    ("changes, which are put aside", "put aside"),
    ("it went back past a hand-over", "awaited"),
    ("what a failover had cut off was given back", "late claims given back"),
    ("after a failover two holders claim the same addresses", "late claims in conflict"),
    ("changes that released, bound or configured something were also cut off", "late changes not repeated"),
    ("the register is whole again", "written anew"),
    ("where it stands is looked at once more", "looked at once more"),
    ("whoever took the register", "left to the owner"),
    ("the process before this one left changes that it acknowledged", "what a process left is given back"),
    ("the store is stopped", "store stopped itself"),
];

thread_local! {
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct Ear;

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("allod")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        HEARD.with_borrow_mut(|heard| {
            if let Some(heard) = heard {
                let mut line = Line::default();
                event.record(&mut line);
                let level = event.metadata().level();
                heard.push(format!("{level} {}{}", line.message, line.fields));
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Collects what is logged on this thread from now on.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Ear).unwrap());
    HEARD.set(Some(Vec::new()));
}

/// What was logged since the last call.
pub fn heard() -> Vec<String> {
    HEARD.with_borrow_mut(|heard| heard.as_mut().map(std::mem::take).unwrap_or_default())
}

pub fn count(lines: &[String], coverage: &mut Coverage) {
    for line in lines {
        for (words, what) in COUNTED {
            if line.contains(words) {
                *coverage.entry(what).or_default() += 1;
            }
        }
    }
}

/// Masks ids that are drawn at random and paths of directories: they differ between runs.
pub fn masked(line: &str) -> String {
    let is_hex = |text: &str| text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_directory = |text: &str| text.len() == "tmp".len() + 6 && text.starts_with("tmp");
    let words = line.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let mask = |word: &str| {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_hex(bare) || is_directory(bare) { word.replace(bare, "…") } else { word.to_owned() }
    };
    words.map(mask).collect()
}
