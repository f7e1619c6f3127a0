//! Finds the server's network for each table of a file, and the order in which names change hands. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::diff::{Step, realm};
use super::file::Table;

/// The server's network for each table, if it exists: by id, former name, name, or realm and subnets.
///
/// `renamed_from` stays in a file after the rename, so it counts only if nothing else shows that the rename is done: see
/// [`Matching::former`].
pub fn matches(tables: &[Table], networks: &[Value]) -> Vec<Option<usize>> {
    let mut matching = Matching {
        tables,
        networks,
        by_name: networks
            .iter()
            .enumerate()
            .filter_map(|(at, network)| Some((network["name"].as_str()?, at)))
            .collect(),
        by_id: networks.iter().enumerate().filter_map(|(at, network)| Some((network["id"].as_str()?, at))).collect(),
        by_table: tables.iter().enumerate().map(|(at, table)| (table.name.as_str(), at)).collect(),
        matched: vec![None; tables.len()],
        taken: BTreeSet::new(),
    };
    // The most reliable criterion first, for all tables, so that a guess never takes a network that another table names.
    matching.take(|matching, table| matching.by_id.get(table.id.as_deref()?).copied());
    matching.take_former();
    matching.take(|matching, table| matching.by_name.get(&*table.name).copied());
    matching.take(|matching, table| matching.by_name.get(table.renamed_from.as_deref()?).copied());
    matching.take_by_subnets();
    matching.matched
}

/// The state of the matching of tables and networks.
struct Matching<'a> {
    tables: &'a [Table],
    networks: &'a [Value],
    by_name: BTreeMap<&'a str, usize>,
    by_id: BTreeMap<&'a str, usize>,
    by_table: BTreeMap<&'a str, usize>,
    matched: Vec<Option<usize>>,
    taken: BTreeSet<usize>,
}

impl Matching<'_> {
    fn set(&mut self, table: usize, network: usize) {
        self.taken.insert(network);
        self.matched[table] = Some(network);
    }

    /// Takes the network that is found for a table, unless either is matched already.
    fn take(&mut self, find: impl Fn(&Self, &Table) -> Option<usize>) {
        for (at, table) in
            self.tables.iter().enumerate().filter(|(at, _)| self.matched[*at].is_none()).collect::<Vec<_>>()
        {
            if let Some(network) = find(self, table).filter(|network| !self.taken.contains(network)) {
                self.set(at, network);
            }
        }
    }

    /// Takes networks by their realms and subnets: for each table the first that has the same.
    fn take_by_subnets(&mut self) {
        let networks = self.networks.iter().enumerate().filter(|(network, _)| !self.taken.contains(network));
        let mut there: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
        for (at, members) in networks.filter_map(|(at, network)| Some((at, network.as_object()?))) {
            there.entry((realm(members), cidrs(members.get("subnets")))).or_default().push_back(at);
        }
        for (at, table) in self.tables.iter().enumerate() {
            let wanted = cidrs(table.members.get("subnets"));
            if self.matched[at].is_none()
                && !wanted.is_empty()
                && let Some(network) = there.get_mut(&(realm(&table.members), wanted)).and_then(VecDeque::pop_front)
            {
                self.set(at, network);
            }
        }
    }

    /// Takes networks by their former names. Taking one may free its name for the next of a chain.
    fn take_former(&mut self) {
        while let Some((table, network)) = (0..self.tables.len()).find_map(|at| Some((at, self.former(at)?))) {
            self.set(table, network);
        }
    }

    /// The network that a table renames: the one with its former name. But not if the table's subnets fit the network that
    /// already has the new name at least as well, or if the network fits the file's table of the former name better.
    fn former(&self, at: usize) -> Option<usize> {
        let table = &self.tables[at];
        let from = table.renamed_from.as_deref().filter(|_| self.matched[at].is_none())?;
        let former = self.free(from)?;
        let shared = |table: &Table| self.shared(table, former);
        let rival = self.by_table.get(from).filter(|&&rival| self.matched[rival].is_none());
        let is_rivals = rival.is_some_and(|&rival| shared(&self.tables[rival]) > shared(table));
        let is_done = self.free(&table.name).is_some_and(|there| self.shared(table, there) >= shared(table));
        (!is_rivals && !is_done).then_some(former)
    }

    /// The network of this name, if no table has taken it.
    fn free(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().filter(|network| !self.taken.contains(network))
    }

    /// How many subnets a table and a network share.
    fn shared(&self, table: &Table, network: usize) -> usize {
        let there = cidrs(self.networks[network].get("subnets"));
        cidrs(table.members.get("subnets")).intersection(&there).count()
    }
}

fn cidrs(subnets: Option<&Value>) -> BTreeSet<&str> {
    subnets.and_then(Value::as_array).into_iter().flatten().filter_map(|subnet| subnet["cidr"].as_str()).collect()
}

/// The change of one existing network.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// Its current name.
    pub(super) name: &'a str,
    /// As the server has it.
    pub(super) there: &'a Value,
    /// Its change.
    pub(super) step: Step,
}

impl<'a> Group<'a> {
    /// Its new name, if that changes.
    fn new_name(&self) -> Option<&str> {
        self.step.params.get("set")?.get("name")?.as_str()
    }

    /// A rename to an unused name, which breaks a cycle. It carries the version that was compared.
    fn step_aside(&mut self, name: &str) -> Step {
        let mut params = Map::from_iter([
            ("network".to_owned(), self.step.params.get("network").cloned().unwrap_or_default()),
            ("set".to_owned(), json!({"name": name})),
        ]);
        params.extend(self.step.params.shift_remove_entry("if_version"));
        let words = vec![format!("~ rename it from `{}` to `{name}` for a moment: names are swapped", self.name)];
        Step::new(&self.step.network, "network.update", Value::Object(params), words)
    }
}

/// The steps in the order of the groups, except that a network takes a name only after another has given it up. In a cycle
/// of names, the first network takes a temporary name, none of `names`.
pub(super) fn in_order(groups: Vec<Group<'_>>, names: &BTreeSet<&str>) -> Vec<Step> {
    let renamed = groups.iter().enumerate().filter(|(_, group)| group.new_name().is_some());
    let gives_up: BTreeMap<&str, usize> = renamed.map(|(at, group)| (group.name, at)).collect();
    let waits_for: Vec<Option<usize>> = groups.iter().map(|group| gives_up.get(group.new_name()?).copied()).collect();
    let mut spare = (1..).map(|count| format!("renaming-{count}")).filter(|name| !names.contains(name.as_str()));
    let mut steps = Vec::new();
    let mut groups: Vec<Option<Group<'_>>> = groups.into_iter().map(Some).collect();
    for start in 0..groups.len() {
        let (mut chain, mut next) = (Vec::new(), Some(start));
        while let Some((at, group)) = next.and_then(|at| Some((at, groups[at].take()?))) {
            chain.push(group);
            next = waits_for[at];
        }
        // Each name has one giver and one taker, so a chain that returns does so to its start.
        if next == Some(start)
            && let (Some(first), Some(name)) = (chain.first_mut(), spare.next())
        {
            steps.push(first.step_aside(&name));
        }
        steps.extend(chain.into_iter().rev().map(|group| group.step));
    }
    steps
}
