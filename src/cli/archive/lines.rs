//! The lines of an export, read and checked as a whole before anything is done with them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::apply::diff;
use super::super::apply::file::read_table;
use super::super::apply::overlaps::Taken;
use super::super::document;
use super::places::Places;
use super::stages::{Network, is_half_done};
use super::sum::{self, LinesSum};
use super::{ENDS_SINCE, FORMAT, MEMBERS, VERSION};
use crate::core::address::{Address, Cidr, Range};
use crate::core::types::Mac;
use crate::wire;

/// A reservation of the file, as the claim that makes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Its line number, from 1.
    pub line: usize,
    /// Network by name.
    pub network: String,
    /// Params of `ip.claim`.
    pub params: Map<String, Value>,
    /// It had been granted automatically when it was exported.
    pub automatic: bool,
    /// It lies in a network of kind `dynamic`: the address that the infrastructure picked is recorded, not claimed.
    pub is_recorded: bool,
    /// It lies in a network that an import left half done: an existing reservation may be recorded incompletely.
    pub is_begun: bool,
    /// The addresses that it holds.
    pub range: Range,
    slot: (String, String, String),
}

impl Claim {
    /// Its MAC.
    pub fn mac(&self) -> Option<Mac> {
        self.params.get("mac")?.as_str()?.parse().ok()
    }

    /// Was its address chosen by the network, so that it has to be granted automatically again?
    pub fn is_chosen(&self) -> bool {
        self.automatic && !self.is_recorded
    }

    /// Its slot, in the form of reserved ranges.
    pub fn kept_for(&self) -> Value {
        let (scope, owner, slot) = &self.slot;
        json!({"scope": scope, "owner": owner, "slot": slot})
    }

    /// A message about a member that a bind cannot record, if it has one.
    fn unrecorded(&self) -> Option<String> {
        let never = ["prefix_length", "release_with_claimant", "transient"];
        let member = never.iter().find(|&&member| self.params.contains_key(member))?;
        Some(format!("in a network of kind `dynamic` no reservation has `{member}`"))
    }

    /// Is a reservation of the server the one of this line?
    pub fn is_held_as(&self, held: &Value) -> bool {
        self.is_slot_of(held) && held["network"] == *self.network && held["address"] == self.range.first().to_string()
    }

    /// Is a reservation of the server held in the slot of this line?
    pub fn is_slot_of(&self, held: &Value) -> bool {
        let (scope, owner, slot) = &self.slot;
        held["scope"] == **scope && held["owner"] == **owner && held["slot"] == **slot
    }

    /// A filter for everything that its owner holds in its network.
    pub fn of_owner(&self) -> Map<String, Value> {
        let (scope, owner, _) = &self.slot;
        let filter = json!({"network": self.network, "scope": scope, "owner": owner, "obsolete": false});
        filter.as_object().cloned().unwrap_or_default()
    }
}

/// The content of a file, and its problems: line and message.
#[derive(Debug, Default)]
pub struct Content {
    /// Networks, in the order of the file.
    pub networks: Vec<Network>,
    /// Reservations, in the order of the file.
    pub claims: Vec<Claim>,
    /// The problems, by line.
    pub problems: BTreeMap<usize, String>,
    /// The lines in the file, including those that cannot be read.
    counted: LineCounts,
    /// The numbers of lines according to the last line.
    end: Option<LineCounts>,
    /// The checksum of all lines before the last one, according to the last line.
    sum: Option<String>,
    /// Networks that are not in the file because they were stopped, according to the last line.
    pub left_out: Vec<String>,
}

/// The number of lines of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineCounts {
    networks: u64,
    reservations: u64,
}

/// Reads a file.
pub fn read(bytes: impl AsRef<[u8]>) -> Content {
    let bytes = bytes.as_ref();
    // Some editors begin a file with a byte order mark.
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut content = Content::default();
    let lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.enumerate().map(|(at, line)| (at + 1, line));
    let mut lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let first = lines.next().map_or(Ok(""), |(_, first)| text_of(first));
    let (first, version) = match first.and_then(|first| Ok((first, version(first)?))) {
        Ok(begun) => begun,
        Err(problem) => {
            content.problems.insert(1, problem);
            return content;
        }
    };
    let (mut last, mut sum) = (1, LinesSum::default());
    sum.add(first);
    for (number, line) in lines {
        last = number;
        let read = text_of(line).and_then(|line| {
            read_line(&mut content, number, line)?;
            if content.end.is_none() {
                sum.add(line);
            }
            Ok(())
        });
        if let Err(problem) = read {
            content.problems.insert(number, problem);
        }
    }
    // A line that cannot be read would also be missing in the counts and the checksum.
    if content.problems.is_empty()
        && let Err(problem) = content.check_whole(version, &sum)
    {
        content.problems.insert(last, problem);
    }
    content.lay_out();
    content
}

fn text_of(line: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(line).map_err(|error| {
        format!(
            "is not UTF-8 (its byte {}): the file was damaged, or written in another encoding; take it again from where it was \
             exported to, or export again",
            error.valid_up_to() + 1
        )
    })
}

impl Content {
    /// Checks that all lines are there, as they were written.
    fn check_whole(&self, version: u64, sum: &LinesSum) -> Result<(), String> {
        self.check_counts(version)?;
        match &self.sum {
            Some(expected) if *expected != sum.text() => Err(format!(
                "the lines before this one are not those that were exported: their checksum is {}, and was {expected}. Something in \
                 them was changed: take the file again from where it was exported to, or export again; if somebody changed it on \
                 purpose, remove `\"{}\":\"{expected}\"` from this line",
                sum.text(),
                sum::MEMBER
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn check_counts(&self, version: u64) -> Result<(), String> {
        match self.end {
            None if version < ENDS_SINCE => Ok(()),
            None => {
                Err("the file was cut off: the line after this one, which says how many there are, is missing"
                    .to_owned())
            }
            Some(end) if end != self.counted => Err(format!(
                "{} of {} networks and {} of {} reservations are in the file: lines are missing, or there twice",
                self.counted.networks, end.networks, self.counted.reservations, end.reservations
            )),
            Some(_) => Ok(()),
        }
    }
}

/// The version in the first line, if this program can read it.
fn version(line: &str) -> Result<u64, String> {
    let head = serde_json::from_str::<Value>(line).ok().filter(|head| head["format"] == FORMAT);
    match head.and_then(|head| head["version"].as_u64()) {
        Some(version @ 1..=VERSION) => Ok(version),
        Some(newer) if newer > VERSION => Err(format!(
            "the file is of version {newer}, which a newer allod wrote, and this one reads versions up to {VERSION}: import it \
             with \
             the newer one"
        )),
        _ => Err(format!("it must begin with {}", json!({"format": FORMAT, "version": VERSION}))),
    }
}

fn read_line(content: &mut Content, line: usize, text: &str) -> Result<(), String> {
    let value = document::json(text).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(members) = value else { return Err("must be an object".to_owned()) };
    if content.end.is_some() {
        return Err("follows the line that says how many there are".to_owned());
    }
    let mut members = members.into_iter();
    match (members.next(), members.next()) {
        (Some((what, table)), None) if what == "network" => {
            content.counted.networks += 1;
            let table = read_table(table)?;
            content.networks.push(Network::new(line, table));
        }
        (Some((what, Value::Object(held))), None) if what == "reservation" => {
            content.counted.reservations += 1;
            content.claims.push(claim_of(line, held)?);
        }
        (Some((what, end)), None) if what == "end" => {
            let count =
                |member: &str| end.get(member).and_then(Value::as_u64).ok_or(format!("`{member}` must be a number"));
            let left_out = end.get("left_out").and_then(Value::as_array).into_iter().flatten();
            content.sum = match end.get(sum::MEMBER) {
                None => None,
                Some(Value::String(sum)) => Some(sum.clone()),
                Some(other) => return Err(format!("`{}` must be a string, and is {other}", sum::MEMBER)),
            };
            content.left_out = left_out.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            content.end = Some(LineCounts { networks: count("networks")?, reservations: count("reservations")? });
        }
        _ => return Err("must have one member, `network`, `reservation` or `end`".to_owned()),
    }
    Ok(())
}

fn claim_of(line: usize, mut held: Map<String, Value>) -> Result<Claim, String> {
    if let Some(unknown) = held.keys().find(|member| !MEMBERS.contains(&member.as_str())) {
        return Err(format!("unknown member `{unknown}` of a reservation"));
    }
    let automatic = match held.shift_remove("kind") {
        None => false,
        Some(kind) if kind == "static" => false,
        Some(kind) if kind == "dynamic" => true,
        // If it were taken for static, the address would be kept although it should be returned, and nobody would know why.
        Some(other) => return Err(format!("`kind` must be `dynamic` or `static`, and is {other}")),
    };
    if let Some(left) = held.shift_remove("expires_in_seconds") {
        // A lease that was about to end still has to be made before it can end.
        held.insert(
            "ttl_seconds".to_owned(),
            json!(left.as_u64().ok_or("`expires_in_seconds` must be a number")?.max(1)),
        );
    }
    // A reservation inside a reserved range stays there; and while an import fills a network, all of it is reserved.
    held.insert("force".to_owned(), json!(true));
    wire::parse("ip.claim", &Value::Object(held.clone()).to_string()).map_err(|error| error.message)?;
    let text = |member: &str, plain: &str| held.get(member).and_then(Value::as_str).unwrap_or(plain).to_owned();
    let address: Address =
        text("address", "").parse().map_err(|error: crate::core::address::Malformed| error.to_string())?;
    let range = match held.get("prefix_length").and_then(Value::as_u64).and_then(|length| u8::try_from(length).ok()) {
        None => Range::single(address),
        Some(length) => {
            Cidr::new(address, length).ok_or_else(|| format!("{address}/{length} is not a prefix"))?.range()
        }
    };
    let slot = (text("scope", "default"), text("owner", ""), text("slot", "0"));
    let network = text("network", "");
    Ok(Claim { line, network, range, slot, params: held, automatic, is_recorded: false, is_begun: false })
}

/// The names of the server's networks for which `is_so` holds.
fn names_where(there: &[Value], is_so: impl Fn(&Value) -> bool) -> BTreeSet<&str> {
    there.iter().filter(|there| is_so(there)).filter_map(|there| there["name"].as_str()).collect()
}

impl Content {
    /// Plans how the networks are filled.
    fn lay_out(&mut self) {
        let mut held: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
        for claim in &self.claims {
            held.entry(&claim.network).or_default().push(claim);
        }
        for network in &mut self.networks {
            if let Some(claims) = held.get(network.table.name.as_str()) {
                network.fill_with(claims);
            }
        }
    }

    /// Checks everything that needs no call: names, overlaps, addresses in no subnet, and duplicate addresses, slots and
    /// MACs. `there` are the networks of the server.
    pub fn check(&mut self, there: &[Value]) {
        self.check_networks(there);
        self.find_recorded(there);
        self.leave_reserved(there);
        let mut subnets: BTreeMap<&str, Vec<Cidr>> = BTreeMap::new();
        for network in there {
            subnets
                .entry(network["name"].as_str().unwrap_or_default())
                .or_default()
                .extend(cidrs(network.get("subnets")));
        }
        for network in &self.networks {
            subnets.entry(&network.table.name).or_default().extend(cidrs(network.table.members.get("subnets")));
        }
        let mut ranges: BTreeMap<(&str, Address), &Claim> = BTreeMap::new();
        let (mut slots, mut macs) = (BTreeMap::new(), BTreeMap::new());
        let of_server = there.iter().map(|network| (network["name"].as_str(), network["realm"].as_str()));
        let of_server = of_server.filter_map(|(name, realm)| name.zip(realm));
        let of_file = self.networks.iter().map(|network| (&*network.table.name, network.realm()));
        let realms: BTreeMap<&str, &str> = of_server.chain(of_file).collect();
        let mut problems = Vec::new();
        for claim in &self.claims {
            let inside = |cidr: &Cidr| cidr.range().covers(claim.range);
            match subnets.get(claim.network.as_str()) {
                Some(_) if claim.is_recorded => {
                    problems.extend(claim.unrecorded().map(|problem| (claim.line, problem)))
                }
                None => problems
                    .push((claim.line, format!("network `{}` is neither here nor on the server", claim.network))),
                Some(cidrs) if !cidrs.iter().any(inside) => problems.push((
                    claim.line,
                    format!("{} lies in no subnet of network `{}`", claim.range.first(), claim.network),
                )),
                Some(_) => {}
            }
            let before = ranges.range(..=(claim.network.as_str(), claim.range.last())).next_back();
            if let Some((_, other)) = before.filter(|((network, _), _)| *network == claim.network)
                && other.range.overlaps(claim.range)
            {
                problems.push((claim.line, format!("{} is held by line {} already", claim.range.first(), other.line)));
            }
            ranges.insert((&claim.network, claim.range.first()), claim);
            if let Some(other) = slots.insert((&claim.network, &claim.slot), claim.line) {
                problems.push((claim.line, format!("its slot holds the address of line {other} already")));
            }
            let realm = realms.get(claim.network.as_str());
            if let Some(mac) = claim.mac()
                && let Some(other) = macs.insert((realm, mac), claim.line)
            {
                problems.push((claim.line, format!("MAC {mac} is that of line {other} already")));
            }
        }
        for (line, problem) in problems {
            self.problems.entry(line).or_insert(problem);
        }
    }

    /// Marks the claims in networks of kind `dynamic`.
    fn find_recorded(&mut self, there: &[Value]) {
        let of_server = there.iter().map(|network| (network["name"].as_str(), network["kind"].as_str()));
        let of_file = self.networks.iter().map(|network| (Some(&*network.table.name), network.kind()));
        let dynamic = of_server.chain(of_file).filter(|(_, kind)| *kind == Some("dynamic"));
        let names: BTreeSet<String> = dynamic.filter_map(|(name, _)| name.map(str::to_owned)).collect();
        let begun = names_where(there, is_half_done);
        for claim in &mut self.claims {
            claim.is_recorded = names.contains(&claim.network);
            claim.is_begun = begun.contains(&*claim.network);
        }
    }

    /// In a network in service, addresses that were reserved since the export are not claimed: only for a range that is
    /// reserved in the file it is known that the reservation was held there.
    fn leave_reserved(&mut self, there: &[Value]) {
        let in_service = names_where(there, |there| !is_half_done(there));
        let of_file = self.networks.iter().filter(|network| in_service.contains(&*network.table.name));
        let of_file: BTreeMap<&str, Places> =
            of_file.map(|network| (&*network.table.name, Places::of_file(network))).collect();
        for claim in self.claims.iter_mut().filter(|claim| in_service.contains(&*claim.network)) {
            if !of_file.get(&*claim.network).is_some_and(|places| places.is_reserved(claim.range)) {
                claim.params.shift_remove("force");
            }
        }
    }

    fn check_networks(&mut self, there: &[Value]) {
        let mut names = BTreeSet::new();
        let mut taken = Taken::default();
        let by_name: BTreeMap<&str, &Value> =
            there.iter().filter_map(|existing| Some((existing["name"].as_str()?, existing))).collect();
        for network in &self.networks {
            let name = &network.table.name;
            let mut problem = (!names.insert(name)).then(|| format!("network `{name}` appears twice"));
            problem = problem.or_else(|| {
                let half_done = is_half_done(&Value::Object(network.table.members.clone()));
                half_done.then(|| {
                    format!(
                        "network `{name}` was exported while an import had left it half done, so this file does not say how it \
                         should be; repeat that import, then export again"
                    )
                })
            });
            if let Some(&existing) = by_name.get(&**name) {
                // It must be equal, or as an import that broke off left it.
                let expected = network.expected(existing);
                let differs = match diff::steps(std::slice::from_ref(&expected), std::slice::from_ref(existing), false)
                {
                    Ok(steps) => steps.into_iter().next().and_then(|step| step.words.into_iter().next()),
                    Err(problem) => Some(problem),
                };
                problem =
                    problem.or(differs.map(|how| format!("network `{name}` is on the server and differs: {how}")));
            }
            for cidr in cidrs(network.table.members.get("subnets")) {
                if let Some((there, line)) = taken.add(network.realm(), cidr, network.line) {
                    problem = problem.or(Some(format!("subnet {cidr} overlaps {there} of line {line}")));
                }
            }
            if let Some(problem) = problem {
                self.problems.entry(network.line).or_insert(problem);
            }
        }
    }
}

fn cidrs(subnets: Option<&Value>) -> Vec<Cidr> {
    let subnets = subnets.and_then(Value::as_array).into_iter().flatten();
    subnets.filter_map(|subnet| subnet["cidr"].as_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"format":"allod-export","version":1}"#;
    const LAN: &str = r#"{"network":{"name":"lan","subnets":[{"cidr":"10.0.0.0/24"}]}}"#;

    fn problems(lines: &[&str]) -> Vec<(usize, String)> {
        let text = [&[HEAD], lines].concat().join("\n");
        let mut content = read(&text);
        content.check(&[]);
        content.problems.into_iter().collect()
    }

    #[test]
    fn every_bad_line_is_reported_with_its_number() {
        let found = problems(&[
            r#"{"network":{"name":"lan","subnets":[{"cidr":"10.0.0.0/24"}]}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.5","owner":"a"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.5","owner":"b"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.1.5","owner":"c"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.6","owner":"a"}}"#,
            r#"{"reservation":{"network":"dmz","address":"10.0.0.7","owner":"d"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.8"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.9","owner":"e","colour":1}}"#,
            "garbage",
            r#"{"network":{"name":"lan"}}"#,
            r#"{"network":{"name":"two","subnets":[{"cidr":"10.0.0.128/25"}]}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.10","owner":"f","kind":"dynamkc"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.11","owner":"g","kind":""}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.12","owner":"h","kind":null}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.13","owner":"i","kind":"static"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.14","owner":"j","owner":"k"}}"#,
        ]);
        let expected = [
            (4, "held by line 3"),
            (5, "in no subnet"),
            (6, "its slot"),
            (7, "neither here"),
            (8, "owner"),
            (9, "unknown member `colour`"),
            (10, "no JSON"),
            (11, "twice"),
            (12, "overlaps 10.0.0.0/24 of line 2"),
            (13, "`kind` must be `dynamic` or `static`, and is \"dynamkc\""),
            (14, "and is \"\""),
            (15, "and is null"),
            (17, "duplicate entry with key \"owner\""),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for ((line, problem), (expected_line, part)) in found.iter().zip(expected) {
            assert!(*line == expected_line && problem.contains(part), "line {line}: {problem}, expected {part}");
        }
    }

    #[test]
    fn a_block_takes_all_its_addresses() {
        let found = problems(&[
            r#"{"network":{"name":"lan","subnets":[{"cidr":"10.0.0.0/24"}]}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.8","prefix_length":29,"owner":"a"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.12","owner":"b"}}"#,
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_file_that_was_cut_off_is_told() {
        let lines = [
            r#"{"format":"allod-export","version":2}"#,
            r#"{"network":{"name":"lan","subnets":[{"cidr":"10.0.0.0/24"}]}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.8","owner":"a"}}"#,
            r#"{"reservation":{"network":"lan","address":"10.0.0.9","owner":"b"}}"#,
            r#"{"end":{"networks":1,"reservations":2}}"#,
        ];
        let problems = |lines: &[&str]| read(lines.join("\n")).problems.into_iter().collect::<Vec<_>>();
        assert_eq!(problems(&lines), []);
        for cut in 2..lines.len() {
            let found = problems(&lines[..cut]);
            assert!(matches!(&found[..], [(line, why)] if *line == cut && why.contains("cut off")), "{cut}: {found:?}");
        }
        for without in [1, 2, 3] {
            let mut lines = lines.to_vec();
            lines.remove(without);
            let found = problems(&lines);
            assert!(matches!(&found[..], [(4, why)] if why.contains("lines are missing")), "{without}: {found:?}");
        }
        let behind = [&lines[..], &lines[3..4]].concat();
        assert!(matches!(&problems(&behind)[..], [(6, why)] if why.contains("follows the line")));
        // Exports of version 1 have no such line.
        assert_eq!(problems(&[&[HEAD], &lines[1..4]].concat()), []);
    }

    fn exported(lines: &[&str]) -> String {
        let mut sum = LinesSum::default();
        lines.iter().for_each(|line| sum.add(line));
        let end = json!({"end": {"networks": 1, "reservations": lines.len() - 2, "crc32": sum.text()}}).to_string();
        [lines, &[&*end]].concat().join("\n") + "\n"
    }

    #[test]
    fn an_address_that_was_changed_in_a_file_is_told_and_how_a_change_on_purpose_is_let_in() {
        let held = r#"{"reservation":{"network":"lan","address":"10.0.0.8","owner":"a"}}"#;
        let text = exported(&[r#"{"format":"allod-export","version":2}"#, LAN, held]);
        assert_eq!(read(&text).problems, BTreeMap::new());
        // What editors do to any file.
        assert_eq!(read(format!("\u{feff}{}", text.replace('\n', "\r\n"))).problems, BTreeMap::new());
        let changed = text.replace("10.0.0.8", "10.0.0.9");
        let found = read(&changed).problems;
        let said = &found[&4];
        assert!(found.len() == 1 && said.contains("are not those that were exported"), "{found:?}");
        let (_, remove) = said.split_once("remove `").unwrap();
        let (member, _) = remove.split_once('`').unwrap();
        let on_purpose = changed.replace(&format!(",{member}"), "");
        assert!(on_purpose != changed && read(&on_purpose).problems.is_empty(), "{on_purpose}");
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_named_by_its_number() {
        let held = r#"{"reservation":{"network":"lan","address":"10.0.0.8","owner":"a"}}"#;
        let mut bytes = exported(&[r#"{"format":"allod-export","version":2}"#, LAN, held]).into_bytes();
        let at = bytes.windows(4).position(|four| four == b"\"a\"}").unwrap() + 1;
        bytes[at] = 0xff;
        let found = read(&bytes).problems;
        assert!(found.len() == 1 && found[&3].starts_with("is not UTF-8 (its byte "), "{found:?}");
    }

    #[test]
    fn what_is_no_export_is_refused_at_once() {
        assert_eq!(read("{}").problems.len(), 1);
        assert_eq!(read("").problems.len(), 1);
    }

    #[test]
    fn a_file_of_a_later_version_is_said_to_be_of_a_newer_program_and_not_to_be_wrong() {
        let end = r#"{"end":{"networks":0,"reservations":0}}"#;
        let found = read(format!("{{\"format\":\"allod-export\",\"version\":{}}}\n{end}", VERSION + 1)).problems;
        assert!(found.len() == 1 && found[&1].contains("a newer allod wrote"), "{found:?}");
    }

    #[test]
    fn a_file_may_begin_with_a_mark_of_its_encoding() {
        let text = "\u{feff}{\"format\":\"allod-export\",\"version\":2}\n{\"end\":{\"networks\":0,\"reservations\":0}}";
        assert_eq!(read(text).problems, BTreeMap::new());
    }

    #[test]
    fn a_network_that_was_exported_half_done_is_not_taken_for_what_it_was_to_be() {
        let open =
            read([HEAD, LAN, r#"{"reservation":{"network":"lan","address":"10.0.0.5","owner":"a"}}"#].join("\n"));
        let half_done = json!({"network": open.networks[0].open.members}).to_string();
        let found = problems(&[&half_done]);
        assert!(matches!(&found[..], [(2, why)] if why.contains("half done")), "{found:?}");
    }

    /// An old file is imported once more, and meanwhile an address is reserved for a printer.
    #[test]
    fn only_what_the_file_has_reserved_is_claimed_by_force_in_a_network_in_service() {
        let of_file = json!({"network": {"name": "lan", "subnets":
            [{"cidr": "10.0.0.0/24", "reserved": [{"range": "10.0.0.8/29"}]}]}});
        let held = |last: u8| json!({"reservation": {"network": "lan", "address": format!("10.0.0.{last}"), "owner": last.to_string()}});
        let text = [HEAD.to_owned(), of_file.to_string(), held(5).to_string(), held(9).to_string()].join("\n");
        let forced = |there: &[Value]| {
            let mut content = read(&text);
            content.check(there);
            content.claims.iter().map(|claim| claim.params.contains_key("force")).collect::<Vec<_>>()
        };
        let mut there = of_file["network"].clone();
        there["id"] = json!("1");
        assert_eq!(forced(&[]), [true, true], "while it is filled it is all reserved");
        assert_eq!(forced(&[there]), [false, true]);
    }
}
