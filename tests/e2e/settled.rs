//! How plans of deployments end, from the command line: instances swap addresses, and a revert after a part was committed.

use std::path::Path;

use crate::server::Server;

/// Writes a file in which each of these instances wishes an address.
fn file(directory: &Path, name: &str, wishes: &[(&str, &str)]) -> String {
    let wish =
        |(id, address): &(&str, &str)| format!("- {{id: {id}, networks: [{{network: lan, address: {address}}}]}}\n");
    let text: String = wishes.iter().map(wish).collect();
    let path = directory.join(name);
    std::fs::write(&path, format!("deployment: cy\ninstances:\n{text}")).unwrap();
    path.display().to_string()
}

/// Applies a file. Returns the number of the plan, and what was said.
#[track_caller]
fn apply(server: &Server, file: &str) -> (String, String) {
    let output = server.allod(&["deployment", "apply", file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = server.allod_ok(&["deployment", "get", "cy"]);
    let plan = shown.lines().find_map(|line| line.strip_prefix("plan")).unwrap().trim().to_owned();
    (plan, String::from_utf8(output.stderr).unwrap())
}

/// Ends a plan. Returns what was said, with single blanks.
#[track_caller]
fn ends(server: &Server, line: &str, plan: &str) -> String {
    let words: Vec<&str> = line.split(' ').chain(["--plan", plan]).collect();
    let output = server.allod(&words);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stderr).unwrap();
    lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn what_instances_swap_is_told_by_the_commit_and_by_the_revert_that_undoes_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.20.0.0/24"]);
    let first = file(directory.path(), "first.yaml", &[("a", "10.20.0.10"), ("b", "10.20.0.11")]);
    let swapped = file(directory.path(), "swapped.yaml", &[("a", "10.20.0.11"), ("b", "10.20.0.10")]);
    let (plan, _) = apply(&server, &first);
    ends(&server, "deployment commit cy", &plan);
    let (_, again) = apply(&server, &first);
    assert!(again.ends_with(": 2 kept; nothing is left to commit or to revert\n"), "{again}");
    let (plan, _) = apply(&server, &swapped);
    let part = ends(&server, "deployment commit cy --instance a", &plan);
    assert!(part.contains("10.20.0.10 lan a → b\n10.20.0.11 lan obsolete for b, until its own commit\n"), "{part}");
    let would = ends(&server, "deployment revert cy --dry-run", &plan);
    assert!(would.contains("10.20.0.11 lan current again for b\n10.20.0.10 lan b → a\nso it undoes what"), "{would}");
    let done = ends(&server, "deployment revert cy --yes", &plan);
    let moved = "this moved:\nADDRESS NETWORK WHAT\n10.20.0.10 lan b → a\n10.20.0.11 lan current again for b\n";
    assert!(done.ends_with(moved), "{done}");
    let (plan, _) = apply(&server, &swapped);
    let whole = ends(&server, "deployment commit cy", &plan);
    assert_eq!(whole, "this moved:\nADDRESS NETWORK WHAT\n10.20.0.10 lan a → b\n10.20.0.11 lan b → a\n");
    server.stop();
}

/// The next deploy, and a lease, depend on whether such a plan was committed.
#[test]
fn a_plan_that_only_noted_something_is_to_be_committed_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.20.0.0/24"]);
    let wishes = file(directory.path(), "cy.yaml", &[("a", "10.20.0.10")]);
    server.allod_ok(&["ip", "claim", "lan", "10.20.0.10", "--owner", "a", "--scope", "cy", "--ttl", "1h"]);
    let words = |said: &str| said.split_whitespace().collect::<Vec<_>>().join(" ");
    let (plan, said) = apply(&server, &wishes);
    let leased =
        "1 kept; commit it all the same: reservations that are kept and have a lease (1 reservation) then have none";
    assert!(words(&said).contains(leased) && said.contains("deployment revert cy"), "{said}");
    ends(&server, "deployment commit cy", &plan);
    let (_, said) = apply(&server, &wishes);
    assert!(said.ends_with(": 1 kept; nothing is left to commit or to revert\n"), "{said}");
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "c", "--scope", "cy", "--transient"]);
    let (plan, said) = apply(&server, &wishes);
    let missed = "1 kept; commit it all the same: what is transient and not listed (1 reservation) is released by the deploy after this one";
    assert!(words(&said).contains(missed) && said.contains("deployment commit cy"), "{said}");
    assert_eq!(apply(&server, &wishes), (plan.clone(), said), "the same plan");
    ends(&server, "deployment commit cy", &plan);
    let (_, said) = apply(&server, &wishes);
    assert!(said.contains("1 kept, 1 obsolete\n"), "{said}");
    server.stop();
}
