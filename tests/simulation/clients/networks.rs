//! How clients take answers about networks, which come and go, and about their subnets.

use serde_json::Value;

use super::told::Answer;
use super::{Clients, EXTRAS};
use crate::belief::Held;
use crate::record::{Asked, Holder, Told};

impl Clients {
    pub(super) fn told_networks(&mut self, result: &Value) {
        let empty = Vec::new();
        let networks = result["networks"].as_array().unwrap_or(&empty);
        for at in 0..self.bases.len() {
            if self.bases[at].made && !networks.iter().any(|network| network["name"] == self.bases[at].name.as_str()) {
                let problem = format!("{} is not in the list of networks: {result}", self.bases[at].name);
                self.problem(problem);
            }
        }
    }

    pub(super) fn told_create(&mut self, extra: usize, times: (u64, u64), answer: &Answer) {
        let holder = extra_holder(extra);
        match answer {
            Answer::Result(result) => {
                let id = result["id"].as_str().unwrap_or_default().to_owned();
                let (created, held) = (result["created"] == true, extra_held(&id));
                let one = &mut self.extras[extra];
                let wrong = one.belief.told_held(times.1, held, created);
                one.id = Some(id);
                if let Some(wrong) = wrong {
                    self.problem(format!("network {holder:?}: {wrong}"));
                }
                let (span, generation) = (held.span, held.generation);
                self.record(holder, Asked::Grant, times, Told::Held { span, generation, created, until_ns: None });
            }
            Answer::Lost => {
                self.extras[extra].belief.doubtful_grant(times.1, false);
                self.record(holder, Asked::Grant, times, Told::Unknown);
            }
            Answer::Refused(kind, error) => {
                let others = self.extras.iter().enumerate();
                // A rename for which nobody waits any more may make the network stand in its own way.
                let itself = error["data"]["with"]["network"].as_str().is_some_and(|it| it.starts_with(EXTRAS[extra]));
                let in_the_way =
                    others.filter(|(at, _)| *at != extra).any(|(_, other)| other.belief.may_hold()) || itself;
                if kind == "overlap" && !in_the_way {
                    self.problem(format!("nothing was in the way of {}: {error}", EXTRAS[extra]));
                }
            }
        }
    }

    pub(super) fn told_delete(&mut self, extra: usize, times: (u64, u64), answer: &Answer) {
        let holder = extra_holder(extra);
        let one = &mut self.extras[extra];
        let (told, wrong) = match answer {
            Answer::Result(_) => (Told::Released, one.belief.told_absent(times.1, true)),
            Answer::Lost => {
                one.belief.doubtful_release();
                (Told::Unknown, None)
            }
            Answer::Refused(kind, _) if kind == "not_found" => {
                // The delete names the id. Under the network's name there may be another one by now, of which no client was
                // told.
                let wrong = one.belief.surely(times.1).map(|held| format!("is not found: {held:?}"));
                (one.belief.held, one.belief.absent) = (None, true);
                (Told::Nothing, wrong)
            }
            Answer::Refused(kind, _) => (Told::Refused(kind.clone()), None),
        };
        if matches!(told, Told::Released | Told::Nothing) {
            (one.id, one.renamed) = (None, false);
        }
        if let Some(wrong) = wrong {
            self.problem(format!("network {holder:?} {wrong}"));
        }
        self.record(holder, Asked::Release, times, told);
    }

    pub(super) fn told_rename(&mut self, extra: usize, back: bool, told_ns: u64, answer: &Answer) {
        let one = &mut self.extras[extra];
        match answer {
            Answer::Result(_) => one.renamed = !back,
            Answer::Lost => one.renamed = true,
            Answer::Refused(kind, error) if kind == "not_found" => {
                let wrong = one.belief.surely(told_ns).map(|held| format!("network {extra} {held:?}: {error}"));
                one.belief.told_absent(told_ns, false);
                (one.id, one.renamed) = (None, false);
                if let Some(wrong) = wrong {
                    self.problem(wrong);
                }
            }
            Answer::Refused(..) => {}
        }
    }

    pub(super) fn told_subnet(&mut self, base: usize, added: bool, answer: &Answer) {
        let (present, absent) = self.bases[base].extra;
        let wrong = match answer {
            Answer::Result(result) if added => {
                self.bases[base].extra = (true, false);
                let possible = if result["created"] == true { absent } else { present };
                (!possible).then(|| format!("added: {result}"))
            }
            Answer::Result(_) => {
                self.bases[base].extra = (false, true);
                (!present).then(|| "removed, and was not there".to_owned())
            }
            Answer::Lost => {
                self.bases[base].extra = (present || added, absent || !added);
                None
            }
            Answer::Refused(kind, error) if kind == "not_found" => {
                self.bases[base].extra = (false, true);
                (!absent).then(|| format!("{error}"))
            }
            Answer::Refused(..) => None,
        };
        if let Some(wrong) = wrong {
            let problem = format!("the extra subnet of {}: {wrong}", self.bases[base].name);
            self.problem(problem);
        }
    }
}

/// Networks compete for space as holders do for addresses.
fn extra_holder(extra: usize) -> Holder {
    Holder { network: "(space)".to_owned(), owner: EXTRAS[extra].to_owned(), slot: "0".to_owned() }
}

fn extra_held(id: &str) -> Held {
    let hash = xxhash_rust::xxh3::xxh3_64(id.as_bytes());
    let first = u128::from(u32::from_be_bytes([10, 200, 0, 0]));
    Held { generation: hash, span: (first, first + 7), until_ns: None }
}
