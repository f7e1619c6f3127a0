//! The unit and its drop-in, as systemd's own tools see them. `package` shows that the unit starts a server.

use std::collections::BTreeSet;
use std::process::Command;

use allod::limits::DIFFERENCES_TOLD_MAX;

use crate::tools::{needs, ok, read};

/// Exposure according to `systemd-analyze security`, from 0 to 10; less is better. A unit without any restriction has 9.6.
const EXPOSURE_MAX: f64 = 1.5;

#[test]
fn systemd_understands_the_unit_and_finds_it_confined() {
    needs!(["systemd-analyze"]);
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("allod.service");
    // A program that exists.
    let text = read("deploy/allod.service").replace("/usr/local/bin/allod", "/bin/true");
    std::fs::write(&unit, text).unwrap();
    let verify = || {
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // What it says about other units of the machine does not matter here.
        said.lines().filter(|line| line.contains("allod") || line.contains("node.conf")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(verify(), "");
    let drop_ins = directory.path().join("allod.service.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(drop_ins.join("node.conf"), read("deploy/node.conf")).unwrap();
    assert_eq!(verify(), "");
    // A wrong line would be found.
    std::fs::write(drop_ins.join("node.conf"), "[Service]\nIPAddressAlow=10.0.0.0/24\n").unwrap();
    assert!(verify().contains("IPAddressAlow"), "{}", verify());

    let said = ok(Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(&unit));
    let overall = said.lines().find(|line| line.contains("Overall exposure level")).unwrap_or_else(|| panic!("{said}"));
    let exposure: f64 = overall.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(exposure <= EXPOSURE_MAX, "{said}");
}

/// The values of a key in a section of a unit.
fn values<'a>(unit: &'a str, section: &str, key: &str) -> Vec<&'a str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in unit.lines() {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if let Some((of, value)) = line.split_once('=')
            && inside
            && of == key
        {
            found.extend(value.split_whitespace());
        }
    }
    found
}

/// The system calls of a set of systemd, and of the sets in it.
fn calls(set: &str) -> BTreeSet<String> {
    let said = ok(Command::new("systemd-analyze").args(["syscall-filter", set]));
    let names = said.lines().skip(1).map(str::trim).filter(|name| !name.is_empty() && !name.starts_with('#'));
    names.flat_map(|name| if name.starts_with('@') { calls(name) } else { BTreeSet::from([name.to_owned()]) }).collect()
}

/// Threads for work in no hurry could not lower their priority, and nothing would show it but how fast all others are.
#[test]
fn a_thread_may_lower_its_priority_and_nothing_else_that_the_unit_keeps_from_it() {
    needs!(["systemd-analyze"]);
    let unit = read("deploy/allod.service");
    let mut allowed = BTreeSet::new();
    for filter in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let forbidden = filter.strip_prefix('~');
        for name in forbidden.unwrap_or(filter).split(' ') {
            let named = if name.starts_with('@') { calls(name) } else { BTreeSet::from([name.to_owned()]) };
            match forbidden {
                None => allowed.extend(named),
                Some(_) => allowed.retain(|name| !named.contains(name)),
            }
        }
    }
    assert!(allowed.contains("epoll_wait") && allowed.contains("getpriority"), "{allowed:?}");
    assert!(allowed.contains("setpriority"), "{allowed:?}");
    for kept in calls("@resources").into_iter().chain(calls("@privileged")).filter(|name| name != "setpriority") {
        assert!(!allowed.contains(&kept), "{kept}");
    }
}

#[test]
fn the_journal_takes_what_ten_networks_tell_of_how_memory_and_store_differ() {
    let unit = read("deploy/allod.service");
    let burst: usize = values(&unit, "Service", "LogRateLimitBurst")[0].parse().unwrap();
    assert!(burst >= 10 * DIFFERENCES_TOLD_MAX, "{burst}");
    // The page does not promise more than is logged.
    let thousands = DIFFERENCES_TOLD_MAX / 1_000;
    let page = read("deploy/README.md");
    assert!(page.contains(&format!("It lists {thousands} 000 places of a network at most")));
    assert!(page.contains(&format!("each place that differs, up to {thousands} 000 of a network")));
}

#[test]
fn a_register_on_a_disk_of_its_own_is_not_served_while_that_is_not_mounted() {
    // systemd by itself requires the mounts of this directory.
    let unit = read("deploy/allod.service");
    assert_eq!(values(&unit, "Service", "StateDirectory"), ["allod"]);
    assert!(unit.contains("--data /var/lib/allod\n"), "{unit}");
    let page = read("deploy/README.md");
    let drop_ins: Vec<&str> = page.split("```ini\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let elsewhere = drop_ins.iter().filter(|drop_in| drop_in.contains("--data "));
    let mut places = 0;
    for drop_in in elsewhere {
        places += 1;
        let (_, data) = drop_in.split_once("--data ").unwrap();
        let data = [data.lines().next().unwrap()];
        assert_eq!(values(drop_in, "Service", "ReadWritePaths"), data, "{drop_in}");
        assert_eq!(values(drop_in, "Unit", "RequiresMountsFor"), data, "{drop_in}");
    }
    assert_eq!(places, 1, "{drop_ins:?}");
}
