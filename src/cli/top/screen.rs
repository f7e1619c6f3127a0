//! Renders a view as text, and takes over the terminal and restores it.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;

use super::view::{Network, Quantiles, Space, View};
use crate::cli::output::map::grouped;
use crate::cli::output::table::{Table, columns, fields};
use crate::cli::output::{Unwritten, short_range, text_of};
use crate::cli::time::lasting;
use crate::core::plural::counted;

/// Switches to the alternate screen and hides the cursor; `LEAVE` restores what was there.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal while it is taken over: keys arrive as they are pressed. Dropping this restores it.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Whether somebody is looking and can press a key.
    pub fn is_there() -> bool {
        let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        able && io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// Takes over the terminal.
    ///
    /// # Errors
    /// Those of the terminal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        // Ctrl-C and the like stay signals.
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub fn size() -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Draws a text from the upper left corner.
    ///
    /// # Errors
    /// Those of the terminal.
    pub fn show(text: &str) -> Result<(), Unwritten> {
        let (width, rows) = Self::size();
        let mut drawn = "\x1b[H".to_owned();
        for (at, line) in shown(text, rows).iter().enumerate() {
            let end = if at > 0 { "\r\n" } else { "" };
            drawn.push_str(&format!("{end}{}\x1b[K", cut(line, width)));
        }
        Ok(write(&(drawn + "\x1b[J"))?)
    }
}

/// The lines that fit into the rows; the last row says how many are left out.
fn shown(text: &str, rows: usize) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.len() > rows {
        let more = lines.len() - rows.saturating_sub(1);
        lines.truncate(rows.saturating_sub(1));
        lines.push(format!("… and {} more: with `--once` they are shown", counted(more, "line")));
    }
    lines
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone there is nothing to restore.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The first columns of a line, not counting style sequences. Cuts between two parts if possible, because a truncated number
/// is a different number.
fn cut(line: &str, width: usize) -> String {
    let plain = anstream::adapter::strip_str(line).to_string();
    if columns(&plain) <= width {
        return line.to_owned();
    }
    let fits: String = plain.chars().take(width).collect();
    let room: String = plain.chars().take(width.saturating_sub(1)).collect();
    // The name at the start of the line is not one of its parts.
    let parts = [", ", "  "].into_iter().filter_map(|joint| room.rfind(joint)).max();
    match parts.filter(|at| 2 * at >= width) {
        Some(at) => format!("{} …", room[..at].trim_end()).chars().take(width).collect(),
        None => fits,
    }
}

/// Columns that are dropped if there is no room, the least informative first.
const NETWORKS_LEAST: &[&str] =
    &["FREE6", "RELEASED/S", "HELD", "GRANTED/S", "REALM", "WAITING", "IPV6", "REFUSED/S", "FREE", "FULL IN"];
const POOLS_LEAST: &[&str] = &["KIND", "NAME", "DECLINED", "COOLING", "RESERVED", "HELD", "SIZE"];
const SCOPES_LEAST: &[&str] = &["OBSOLETE", "RESERVATIONS", "UNBOUND"];

/// What is shown besides the view.
#[derive(Debug, Default)]
pub struct Beside {
    /// Errors, a line each.
    pub problems: Vec<String>,
    /// Scopes of `scope.list`, those with the most addresses first.
    pub scopes: Option<Value>,
    /// The answer of `network.usage`.
    pub usage: Option<Value>,
    /// The width in columns.
    pub width: Option<usize>,
}

/// The view for people, with at most `scopes_max` scopes.
pub fn text(view: &View, beside: &Beside, scopes_max: usize) -> String {
    let mut text = head(view);
    for problem in &beside.problems {
        text.push_str(&format!("! {problem}\n"));
    }
    if !view.networks.is_empty() {
        text.push_str(&format!(
            "\n{}",
            networks(&view.networks).fitting(beside.width, NETWORKS_LEAST).render(beside.width)
        ));
    }
    let more = view.networks_more as u64;
    if more > 0 {
        text.push_str(&format!("and {} more\n", counted(more, "network")));
    }
    if view.networks_left_out > 0 {
        let left_out = counted(view.networks_left_out, "network");
        text.push_str(&format!(
            "and {left_out} with more room, of which its metrics tell nothing (metrics.networks_max)\n"
        ));
    }
    if let Some(usage) = &beside.usage {
        text.push_str(&format!("\n{}", pools(usage).fitting(beside.width, POOLS_LEAST).render(beside.width)));
    }
    if let Some(scopes) = &beside.scopes {
        let scopes = scopes.as_array().map(Vec::as_slice).unwrap_or_default();
        let rows = self::scopes(&scopes[..scopes.len().min(scopes_max)]);
        text.push_str(&format!("\n{}", rows.fitting(beside.width, SCOPES_LEAST).render(beside.width)));
        let more = scopes.len().saturating_sub(scopes_max);
        if more > 0 {
            text.push_str(&format!("and {} more\n", counted(more, "scope")));
        }
    }
    text
}

fn head(view: &View) -> String {
    let nodes = view.nodes.iter().map(|node| {
        let owner = if node.owner { ", owner" } else { "" };
        let uptime = node.uptime_seconds.map_or_else(String::new, |seconds| format!(", up {}", lasting(seconds)));
        let memory = node.resident_bytes.map_or_else(String::new, |bytes| format!(", {} MB", bytes / 1_000_000));
        let clients = counted(node.connections, "connection");
        format!("{} allod {}{owner}{uptime}{memory}, {clients}", node.metrics, node.version)
    });
    let nodes: Vec<String> = nodes.collect();
    let store = match view.store_ready {
        Some(true) => "takes changes",
        Some(false) => "NOT READY: /readyz says why",
        None => "",
    };
    let conflicts = match view.conflicts {
        0 => String::new(),
        count => format!("{count}: `allod cluster conflicts`"),
    };
    let stopped = match view.stopped.split_first() {
        None => String::new(),
        Some((first, [])) => format!("{first}: /readyz says why"),
        Some((first, more)) => format!("{first} and {}: /readyz says why", counted(more.len(), "more network")),
    };
    let mut lines = vec![("store", store.to_owned()), ("conflicts", conflicts), ("stopped", stopped)];
    if view.seconds > 0.0 {
        let kinds = |of: &BTreeMap<String, f64>| {
            let all: f64 = of.values().sum();
            let each: Vec<String> = of.iter().map(|(kind, rate)| format!("{kind} {}", per_second(*rate))).collect();
            format!("{:>10}/s  {}", per_second(all), each.join(", "))
        };
        let line = |rate: f64, more: String| format!("{:>10}/s  {more}", per_second(rate));
        let waiting = format!("{} waiting for capacity, {} queued", view.waiting, view.queued);
        lines.push(("granted", line(view.granted_per_second, took(view.grant_seconds))));
        lines.push(("released", line(view.released_per_second, waiting)));
        lines.push(("refused", kinds(&view.refused_per_second)));
        lines.push(("failed", kinds(&view.failed_per_second)));
        lines.push(("requests", line(view.requests_per_second, String::new())));
        lines.push(("commits", line(view.commits_per_second, took(view.commit_seconds))));
    }
    let lines: Vec<(&str, String)> = nodes
        .into_iter()
        .map(|node| ("node", node))
        .chain(lines)
        .map(|(name, line)| (name, line.trim_end().to_owned()))
        .collect();
    fields(&lines)
}

fn took(quantiles: Quantiles) -> String {
    let ms = |seconds: f64| format!("{:.2} ms", 1_000.0 * seconds);
    match (quantiles.p50, quantiles.p99) {
        (Some(p50), Some(p99)) => format!("p50 {}  p99 {}", ms(p50), ms(p99)),
        _ => String::new(),
    }
}

/// A whole number, or one decimal if it is small.
fn per_second(rate: f64) -> String {
    if rate == 0.0 {
        "0".to_owned()
    } else if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        grouped(&format!("{rate:.0}"))
    }
}

fn percent(space: Option<&Space>) -> String {
    // Rounded down, so that 100 % means full. If few of very many addresses are left, their share is below what a float can
    // tell.
    let most = |space: &Space| if space.left() > 0.0 { 99.0 } else { 100.0 };
    space.map_or_else(String::new, |space| format!("{:.0} %", (space.full * 100.0).floor().min(most(space))))
}

fn free(space: Option<&Space>) -> String {
    space.map_or_else(String::new, |space| grouped(&format!("{:.0}", space.left())))
}

fn networks(networks: &[Network]) -> Table {
    let mut table = Table::new(&[
        "NETWORK",
        "REALM",
        "#IPV4",
        "#FREE",
        "#IPV6",
        "#FREE6",
        "#HELD",
        "#GRANTED/S",
        "#RELEASED/S",
        "#REFUSED/S",
        "#WAITING",
        "#FULL IN",
    ]);
    for network in networks {
        let (ipv4, ipv6) = (network.ipv4.as_ref(), network.ipv6.as_ref());
        table.row(vec![
            network.network.clone(),
            network.realm.clone(),
            percent(ipv4),
            free(ipv4),
            percent(ipv6),
            free(ipv6),
            grouped(&network.reservations.to_string()),
            per_second(network.granted_per_second),
            per_second(network.released_per_second),
            per_second(network.refused()),
            network.waiting.to_string(),
            match network.exhausted_in_seconds {
                _ if network.is_full() => "now".to_owned(),
                None => String::new(),
                Some(seconds) => lasting(seconds as u64),
            },
        ]);
    }
    let empty = ["IPV4", "FREE", "IPV6", "FREE6", "FULL IN"].map(|heading| (heading, ""));
    let mut plain = vec![("REALM", "default"), ("WAITING", "0"), ("REFUSED/S", "0")];
    plain.extend(empty);
    table.without_plain_columns(&plain)
}

/// Subnets and their pools, from `network.usage`.
fn pools(usage: &Value) -> Table {
    let mut table = Table::new(&[
        "!SUBNET",
        "!POOL",
        "NAME",
        "KIND",
        "#SIZE",
        "#HELD",
        "#RESERVED",
        "#COOLING",
        "#DECLINED",
        "#FREE",
    ]);
    let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |of: &Value, name: &str| of.get(name).map(text_of).unwrap_or_default();
    let counts =
        |of: &Value| ["size", "held", "reserved", "cooling", "declined", "free"].map(|name| grouped(&text(of, name)));
    for subnet in list(usage, "subnets") {
        let cidr = text(&subnet, "cidr");
        let names = [cidr, String::new(), text(&subnet, "name"), String::new()];
        table.row(names.into_iter().chain(counts(&subnet)).collect());
        for pool in list(&subnet, "pools") {
            let names = [String::new(), short_range(&text(&pool, "range")), text(&pool, "name"), text(&pool, "kind")];
            table.row(names.into_iter().chain(counts(&pool)).collect());
        }
    }
    table.without_plain_columns(&[("NAME", ""), ("COOLING", "0"), ("DECLINED", "0")])
}

/// From `scope.list`, those with the most addresses first.
fn scopes(scopes: &[Value]) -> Table {
    let mut table = Table::new(&["SCOPE", "#ADDRESSES", "#RESERVATIONS", "#OBSOLETE", "#UNBOUND"]);
    for scope in scopes {
        let text = |name: &str| scope.get(name).map(text_of).unwrap_or_default();
        let count = |name: &str| grouped(&text(name));
        table.row(vec![text("scope"), count("addresses"), count("reservations"), count("obsolete"), count("unbound")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let space = Space { size: 256.0, free: 1.0, full: 255.0 / 256.0, ..Space::default() };
        let lan = Network {
            network: "lan".into(),
            realm: "default".into(),
            full: space.full,
            ipv4: Some(space),
            reservations: 1_234,
            granted_per_second: 2.54,
            exhausted_in_seconds: Some(7_200.0),
            ..Network::default()
        };
        View {
            seconds: 1.0,
            networks: vec![lan],
            networks_more: 2,
            store_ready: Some(false),
            granted_per_second: 12_345.6,
            grant_seconds: Quantiles { p50: Some(0.000_1), p99: Some(0.002_5) },
            failed_per_second: [("overloaded".to_owned(), 3.0)].into(),
            ..View::default()
        }
    }

    #[test]
    fn rates_latencies_and_fill_are_shown_and_full_is_only_what_is_full() {
        let scopes = json!([{"scope": "shop", "addresses": "7", "reservations": 7, "obsolete": 0, "unbound": 1}]);
        let beside = Beside { problems: vec!["b:1 is not reached".into()], scopes: Some(scopes), ..Beside::default() };
        let text = anstream::adapter::strip_str(&text(&view(), &beside, 20)).to_string();
        for shown in [
            "12 346/s",
            "p50 0.10 ms  p99 2.50 ms",
            "3.0/s  overloaded 3.0",
            "NOT READY",
            "! b:1 is not reached",
            "99 %",
            "2.5",
            "2 h",
            "and 2 networks more",
            "shop",
            "1 234",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!text.contains("REALM") && !text.contains("IPV6"), "what is empty takes no room: {text}");
    }

    #[test]
    fn no_number_is_cut_on_a_terminal_of_80_columns() {
        let space = |free: f64| Some(Space { size: free, free, full: 0.07, ..Space::default() });
        let mut view = view();
        view.networks[0] = Network {
            network: "a-network-of-a-long-name-in-a-realm".into(),
            realm: "another-realm".into(),
            ipv4: space(16_777_216.0),
            ipv6: space(18_446_744_073_709_551_616.0),
            reservations: 1_234_567,
            granted_per_second: 12_345.0,
            released_per_second: 12_345.0,
            refused_per_second: [("quota_exceeded".to_owned(), 12_345.0)].into(),
            waiting: 17,
            exhausted_in_seconds: Some(480.0),
            ..Network::default()
        };
        let counts = json!({"cidr": "10.100.200.0/22", "name": "machines", "size": "1024", "held": "1000", "reserved": "10",
            "cooling": "12", "declined": "1", "free": "1"});
        let mut pool = counts.clone();
        (pool["range"], pool["kind"]) = (json!("10.100.200.100-10.100.203.254"), json!("dynamic"));
        let mut subnet = counts;
        subnet["pools"] = json!([pool]);
        let beside = Beside { width: Some(80), usage: Some(json!({"subnets": [subnet]})), ..Beside::default() };
        let text = anstream::adapter::strip_str(&text(&view, &beside, 20)).to_string();
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        for whole in ["8 min\n", "16 777 216", "10.100.200.100-10.100.203.254", "1 024"] {
            assert!(text.contains(whole), "{whole}: {text}");
        }
    }

    #[test]
    fn what_has_no_row_is_counted_and_a_space_with_an_address_is_not_full() {
        let text = "1\n2\n3\n4\n5\n";
        assert_eq!(shown(text, 5).len(), 5);
        let lines = shown(text, 4);
        assert_eq!(lines[..3], ["1", "2", "3"]);
        assert!(lines.len() == 4 && lines[3].starts_with("… and 2 lines more"), "{lines:?}");
        let wide = Space { size: 2f64.powi(64), free: 1.0, full: 1.0, ..Space::default() };
        assert_eq!(percent(Some(&wide)), "99 %");
    }

    #[test]
    fn a_line_is_cut_to_the_width_without_breaking_a_style() {
        assert_eq!(cut("\x1b[1mabc\x1b[0m", 3), "\x1b[1mabc\x1b[0m");
        assert_eq!(cut("\x1b[1mabcd\x1b[0m", 3), "abc");
        assert_eq!(cut("node  10.0.0.1:7401 allod, up 12 min, 1 234 MB", 42), "node  10.0.0.1:7401 allod, up 12 min …");
    }
}
