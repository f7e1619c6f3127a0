//! Refusals, and which of several is answered.

use serde_json::{Value, json};

/// A refusal: its kind, and the facts that the contract names. `data` holds only what is to be compared.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelError {
    pub kind: &'static str,
    pub data: Value,
}

pub type Refusal<T> = Result<T, ModelError>;

/// In order of precedence.
pub const KINDS: [&str; 13] = [
    "invalid_argument",
    "not_found",
    "wrong_kind",
    "out_of_range",
    "overlap",
    "in_use",
    "not_owner",
    "conflict",
    "already_in_use",
    "already_exists",
    "reserved",
    "quota_exceeded",
    "not_enough_capacity",
];

impl ModelError {
    pub fn new(kind: &'static str, data: Value) -> Self {
        Self { kind, data }
    }

    pub fn plain(kind: &'static str) -> Self {
        Self::new(kind, json!({}))
    }

    pub fn rank(&self) -> usize {
        2 * KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(KINDS.len())
    }
}

/// Everything that stands in the way of one request; the verdict is the first by rank.
#[derive(Default)]
pub struct Findings(Vec<(usize, ModelError)>);

impl Findings {
    pub fn add(&mut self, error: ModelError) {
        self.0.push((error.rank(), error));
    }

    pub fn when(&mut self, applies: bool, kind: &'static str) {
        if applies {
            self.add(ModelError::plain(kind));
        }
    }

    /// A taken name comes before an overlap.
    pub fn name_taken(&mut self, data: Value) {
        let overlap = ModelError::plain("overlap").rank();
        self.0.push((overlap - 1, ModelError::new("already_exists", data)));
    }

    /// A taken name of a network comes before everything except invalid arguments.
    pub fn network_taken(&mut self, data: Value) {
        let invalid = ModelError::plain("invalid_argument").rank();
        self.0.push((invalid + 1, ModelError::new("already_exists", data)));
    }

    /// Adopts what a part of the request found.
    pub fn note<T>(&mut self, part: Refusal<T>) -> Option<T> {
        part.map_err(|error| self.add(error)).ok()
    }

    pub fn verdict(&mut self) -> Refusal<()> {
        self.0.sort_by_key(|(rank, _)| *rank);
        let mut sorted = self.0.drain(..);
        match sorted.next() {
            // The contract leaves open which of several holders is named.
            Some((rank, error)) if error.kind == "already_in_use" => {
                let alone = sorted.take_while(|(other, _)| *other == rank).all(|(_, other)| other.data == error.data);
                Err(if alone { error } else { ModelError::plain("already_in_use") })
            }
            // Nor does it say which of several overlaps.
            Some((rank, error)) if error.kind == "overlap" => {
                let alone = sorted.next().is_none_or(|(other, _)| other != rank);
                Err(if alone { error } else { ModelError::plain("overlap") })
            }
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}
