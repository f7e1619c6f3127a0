//! The lines of an export, read and checked as a whole before anything is done with them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::apply::diff;
use super::super::apply::file::read_table;
use super::places::Places;
use super::stages::{Network, is_half_done};
use super::{ENDS_SINCE, FORMAT, MEMBERS, VERSION};
use crate::core::address::{Address, Cidr, Range};
use crate::core::types::Mac;
use crate::wire;

/// A reservation of the file, as the claim that makes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Number of its line, from 1.
    pub line: usize,
    /// Network by name.
    pub network: String,
    /// Params of `ip.claim`.
    pub params: Map<String, Value>,
    /// Granted automatically when it was exported.
    pub automatic: bool,
    /// In a network of kind `dynamic`: what the infrastructure picked is written down, and not claimed.
    pub is_recorded: bool,
    /// It lies in a network that an import left half done: of what is there not all may be written down.
    pub is_begun: bool,
    /// What is held.
    pub range: Range,
    slot: (String, String, String),
}

impl Claim {
    /// The MAC that goes with it.
    pub fn mac(&self) -> Option<Mac> {
        self.params.get("mac")?.as_str()?.parse().ok()
    }

    /// Was it chosen by the network, so that it has to be again?
    pub fn is_chosen(&self) -> bool {
        self.automatic && !self.is_recorded
    }

    /// Its slot, as reserved ranges have it.
    pub fn kept_for(&self) -> Value {
        let (scope, owner, slot) = &self.slot;
        json!({"scope": scope, "owner": owner, "slot": slot})
    }

    /// What of it no bind can write down.
    fn unrecorded(&self) -> Option<String> {
        let never = ["prefix_length", "release_with_claimant", "transient"];
        let member = never.iter().find(|&&member| self.params.contains_key(member))?;
        Some(format!("in a network of kind `dynamic` no reservation has `{member}`"))
    }

    /// Is a reservation of the server the one of this line?
    pub fn is_held_as(&self, held: &Value) -> bool {
        self.is_slot_of(held) && held["network"] == *self.network && held["address"] == self.range.first().to_string()
    }

    /// Is it held in the slot of this line?
    pub fn is_slot_of(&self, held: &Value) -> bool {
        let (scope, owner, slot) = &self.slot;
        held["scope"] == **scope && held["owner"] == **owner && held["slot"] == **slot
    }

    /// What lists all that its owner holds in its network.
    pub fn of_owner(&self) -> Map<String, Value> {
        let (scope, owner, _) = &self.slot;
        let filter = json!({"network": self.network, "scope": scope, "owner": owner, "obsolete": false});
        filter.as_object().cloned().unwrap_or_default()
    }
}

/// What a file holds, and what is wrong with it: line and sentence.
#[derive(Debug, Default)]
pub struct Content {
    /// Networks, in the order of the file.
    pub networks: Vec<Network>,
    /// Reservations, in the order of the file.
    pub claims: Vec<Claim>,
    /// What is wrong, by line.
    pub problems: BTreeMap<usize, String>,
    /// Those in the file, also those that cannot be read.
    counted: LineCounts,
    /// How many the last line says that there are.
    end: Option<LineCounts>,
    /// Networks that the last line says are not in the file, as they were stopped.
    pub left_out: Vec<String>,
}

/// How many lines there are of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LineCounts {
    networks: u64,
    reservations: u64,
}

/// Reads a file.
pub fn read(text: &str) -> Content {
    // Some editors begin a file with a mark of its encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut content = Content::default();
    let mut lines =
        text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.trim().is_empty());
    let version = match version(lines.next().map_or("", |(_, first)| first)) {
        Ok(version) => version,
        Err(problem) => {
            content.problems.insert(1, problem);
            return content;
        }
    };
    let mut last = 1;
    for (number, line) in lines {
        last = number;
        if let Err(problem) = read_line(&mut content, number, line) {
            content.problems.insert(number, problem);
        }
    }
    let whole = match content.end {
        None if version < ENDS_SINCE => Ok(()),
        None => {
            Err("the file was cut off: behind this line the one is missing that says how many there are".to_owned())
        }
        Some(end) if end != content.counted => Err(format!(
            "{} of {} networks and {} of {} reservations are in the file: lines are missing, or there twice",
            content.counted.networks, end.networks, content.counted.reservations, end.reservations
        )),
        Some(_) => Ok(()),
    };
    if let Err(problem) = whole {
        content.problems.entry(last).or_insert(problem);
    }
    content.lay_out();
    content
}

/// Of a first line that this program knows.
fn version(line: &str) -> Result<u64, String> {
    let head = serde_json::from_str::<Value>(line).ok().filter(|head| head["format"] == FORMAT);
    match head.and_then(|head| head["version"].as_u64()) {
        Some(version @ 1..=VERSION) => Ok(version),
        Some(newer) if newer > VERSION => Err(format!(
            "the file is of version {newer}, which a newer allod wrote, and this one reads versions up to {VERSION}: import it with \
             the newer one"
        )),
        _ => Err(format!("it must begin with {}", json!({"format": FORMAT, "version": VERSION}))),
    }
}

fn read_line(content: &mut Content, line: usize, text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(members) = value else { return Err("must be an object".to_owned()) };
    if content.end.is_some() {
        return Err("stands behind the line that says how many there are".to_owned());
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
        // Taken for static it would be kept where it was to be given back, and nobody would know why.
        Some(other) => return Err(format!("`kind` must be `dynamic` or `static`, and is {other}")),
    };
    if let Some(left) = held.shift_remove("expires_in_seconds") {
        // A lease that was about to end still has to be made before it can.
        held.insert(
            "ttl_seconds".to_owned(),
            json!(left.as_u64().ok_or("`expires_in_seconds` must be a number")?.max(1)),
        );
    }
    // What was held inside a reserved range stays held there, and what an import fills is all reserved.
    held.insert("force".to_owned(), json!(true));
    wire::parse("ip.claim", &Value::Object(held.clone()).to_string()).map_err(|error| error.message)?;
    let text = |member: &str, plain: &str| held.get(member).and_then(Value::as_str).unwrap_or(plain).to_owned();
    let address: Address =
        text("address", "").parse().map_err(|error: crate::core::address::Malformed| error.to_string())?;
    let range = match held.get("prefix_length").and_then(Value::as_u64).and_then(|length| u8::try_from(length).ok()) {
        None => Range::single(address),
        Some(length) => Cidr::new(address, length).ok_or_else(|| format!("{address}/{length} is no prefix"))?.range(),
    };
    let slot = (text("scope", "default"), text("owner", ""), text("slot", "0"));
    let network = text("network", "");
    Ok(Claim { line, network, range, slot, params: held, automatic, is_recorded: false, is_begun: false })
}

/// The names of those networks of a server of which something is so.
fn names_where(there: &[Value], is_so: impl Fn(&Value) -> bool) -> BTreeSet<&str> {
    there.iter().filter(|there| is_so(there)).filter_map(|there| there["name"].as_str()).collect()
}

impl Content {
    /// Lays out how the networks are filled.
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

    /// Checks what can be checked without asking: names, overlaps, addresses in no subnet, and addresses, slots and MACs that
    /// are there twice. `there` are the networks of the server.
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

    /// Marks what lies in networks of kind `dynamic`.
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

    /// In a network that is in service nothing is claimed that was reserved since: only what the file has reserved is known to have been
    /// held there.
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
        let mut taken: Vec<(String, Cidr, usize)> = Vec::new();
        for network in &self.networks {
            let name = &network.table.name;
            let mut problem = (!names.insert(name)).then(|| format!("network `{name}` is there twice"));
            problem = problem.or_else(|| {
                let half_done = is_half_done(&Value::Object(network.table.members.clone()));
                half_done.then(|| {
                    format!(
                        "network `{name}` was exported while an import had left it half done, and what it is to be is not in this \
                         file; that import said again ends it, and then an export has it as it is to be"
                    )
                })
            });
            if let Some(existing) = there.iter().find(|existing| existing["name"] == **name) {
                // Equal, or as an import that broke off left it.
                let expected = network.expected(existing);
                let differs = match diff::steps(std::slice::from_ref(&expected), std::slice::from_ref(existing), false)
                {
                    Ok(steps) => steps.into_iter().next().and_then(|step| step.words.into_iter().next()),
                    Err(problem) => Some(problem),
                };
                problem =
                    problem.or(differs.map(|how| format!("network `{name}` is on the server and differs: {how}")));
            }
            let realm = network.realm().to_owned();
            for cidr in cidrs(network.table.members.get("subnets")) {
                let clash =
                    taken.iter().find(|(other, there, _)| *other == realm && there.range().overlaps(cidr.range()));
                if let Some((_, there, line)) = clash {
                    problem = problem.or(Some(format!("subnet {cidr} overlaps {there} of line {line}")));
                }
                taken.push((realm.clone(), cidr, network.line));
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
        let problems = |lines: &[&str]| read(&lines.join("\n")).problems.into_iter().collect::<Vec<_>>();
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
        assert!(matches!(&problems(&behind)[..], [(6, why)] if why.contains("behind the line")));
        // What was exported before has no such line.
        assert_eq!(problems(&[&[HEAD], &lines[1..4]].concat()), []);
    }

    #[test]
    fn what_is_no_export_is_refused_at_once() {
        assert_eq!(read("{}").problems.len(), 1);
        assert_eq!(read("").problems.len(), 1);
    }

    #[test]
    fn a_file_of_a_later_version_is_said_to_be_of_a_newer_program_and_not_to_be_wrong() {
        let end = r#"{"end":{"networks":0,"reservations":0}}"#;
        let found = read(&format!("{{\"format\":\"allod-export\",\"version\":{}}}\n{end}", VERSION + 1)).problems;
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
            read(&[HEAD, LAN, r#"{"reservation":{"network":"lan","address":"10.0.0.5","owner":"a"}}"#].join("\n"));
        let half_done = json!({"network": open.networks[0].open.members}).to_string();
        let found = problems(&[&half_done]);
        assert!(matches!(&found[..], [(2, why)] if why.contains("half done")), "{found:?}");
    }

    /// Somebody reads an old file once more, and a printer stands there by now.
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
