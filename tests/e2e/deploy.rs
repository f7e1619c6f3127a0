//! What `deploy/` ships fits the program: the unit's command starts a server, and the pages name metrics that exist.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{Server, Starting, http_get};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The longest time until the metrics of a changed network are published, even on a busy machine.
const FIGURES_WAIT_MAX: Duration = Duration::from_secs(60);

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{path}")).unwrap()
}

fn setting<'a>(unit: &'a str, key: &str) -> &'a str {
    let mut values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.next().unwrap_or_else(|| panic!("the unit has no {key}"))
}

/// Starts the server as the unit does, but in another directory and on free ports.
#[test]
fn the_unit_starts_a_server_and_stops_it_in_time() {
    let unit = read("deploy/allod.service");
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut words = setting(&unit, "ExecStart").split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/allod"));
    let arguments: Vec<String> = words
        .map(|word| match word {
            "/etc/allod/server.toml" => format!("{ROOT}/config/server.toml"),
            "/var/lib/allod" => data.display().to_string(),
            word => word.to_owned(),
        })
        .collect();
    assert!(arguments.iter().any(|argument| *argument == data.display().to_string()), "{arguments:?}");
    let begun = Starting::with_arguments(&data, &arguments).ready();
    begun.allod_ok(&["server", "ping"]);
    begun.stop();
    assert!(data.join("META").exists());

    // The bounds of the unit agree with those of the server, which may take twice its own bound to stop.
    let number = |key: &str| setting(&unit, key).parse::<u64>().unwrap();
    let config = allod::config::Config::default();
    assert!(number("TimeoutStopSec") > 2 * config.server.shutdown_seconds);
    assert!(number("LimitNOFILE") > 2 * config.server.max_connections);
    let never: Vec<&str> = setting(&unit, "RestartPreventExitStatus").split(' ').collect();
    assert!(!never.contains(&allod::serve::EXIT_STORE_FAILED.to_string().as_str()), "{never:?}");
    assert!(!never.contains(&allod::serve::EXIT_CANNOT_START_NOW.to_string().as_str()), "{never:?}");
    assert!(never.contains(&allod::serve::EXIT_CANNOT_START.to_string().as_str()), "{never:?}");
}

#[test]
fn metrics_that_are_named_are_served() {
    let wanted: BTreeSet<String> =
        ["README.md", "deploy/README.md"].iter().flat_map(|page| metrics_in(&read(page))).collect();
    assert!(wanted.len() >= 6, "{wanted:?}");
    let directory = tempfile::tempdir().unwrap();
    let server: Server = Starting::with_store(&directory.path().join("data"), "memory").ready();
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let begun = Instant::now();
    loop {
        let served = http_get(server.http, "/metrics");
        let missing: Vec<&String> =
            wanted.iter().filter(|name| !served.contains(&format!("# HELP {name} ")) && !may_be_empty(name)).collect();
        if missing.is_empty() {
            break;
        }
        assert!(begun.elapsed() < FIGURES_WAIT_MAX, "not served: {missing:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks a real scrape against Prometheus' own rules for names, units and types.
#[test]
fn what_is_scraped_is_what_prometheus_wants() {
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut check) = check.spawn() else {
        return crate::redis::process::skips::skip("there is no promtool");
    };
    let directory = tempfile::tempdir().unwrap();
    let server: Server = Starting::with_store(&directory.path().join("data"), "embedded").ready();
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/30,gateway=10.0.0.1"]);
    for owner in ["a", "a"] {
        server.allod_ok(&["ip", "allocate", "lan", "--owner", owner]);
    }
    server.allod_ok(&["ip", "release", "lan", "--owner", "a", "--yes"]);
    let begun = Instant::now();
    let mut scraped = http_get(server.http, "/metrics");
    while !scraped.contains("allod_network_releases_total") {
        assert!(begun.elapsed() < FIGURES_WAIT_MAX, "{scraped}");
        scraped = http_get(server.http, "/metrics");
    }
    let body = scraped.split_once("\r\n\r\n").map_or(scraped.as_str(), |(_, body)| body);
    check.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.trim().is_empty(), "{said}");
}

/// Metrics that may be absent: counters by label, before the first count; the time until a network is full, if it does not
/// fill; and what only a server over Redis knows.
fn may_be_empty(name: &str) -> bool {
    [
        ("src/metrics.rs", "allod_commit_failures_total"),
        ("src/metrics.rs", "allod_request_waited_duration_seconds"),
        ("src/actors/figures/capacity.rs", "allod_network_exhausted_in_seconds"),
        ("src/actors/figures/node.rs", "allod_store_appends"),
        ("src/actors/figures/process.rs", "allod_store_certificate_expires_timestamp_seconds"),
        ("src/actors/figures/node.rs", "allod_store_left_for_releases_bytes"),
    ]
    .into_iter()
    .any(|(source, empty)| name == empty && read(source).contains(&format!("\"{name}\"")))
}

/// The words of a page that look like metrics. `allod_0.1.0-1_amd64.deb` is a package.
fn metrics_in(page: &str) -> Vec<String> {
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named = |word: &&str| word.strip_prefix("allod_").is_some_and(|rest| rest.starts_with(char::is_alphabetic));
    words.filter(named).map(str::to_owned).collect()
}
