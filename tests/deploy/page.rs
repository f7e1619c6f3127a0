//! The commands of `deploy/README.md` that root types on a machine with one server, run there as they stand.

use std::fmt::Write;

use crate::package::build;
use crate::server::allod;
use crate::tools::{facts, here, needs, on_a_machine, read};

/// In the order of use: the package first, and the installation by hand after the package is gone.
const SECTIONS: [&str; 5] =
    ["### As a Debian package", "## Look at it", "## Back up and restore", "## Upgrade, and back", "### By hand"];

/// Commands that do not fit here: what cargo makes is there already, and one server cannot hand over to another.
const ELSEWHERE: [&str; 2] = ["cargo build --release", "allod cluster drain --timeout 150s"];

/// The root commands of a section, each with the output that the page shows for it.
fn commands(section: &str) -> Vec<(String, Vec<String>)> {
    let page = read("deploy/README.md");
    let (_, rest) = page.split_once(&format!("{section}\n")).unwrap_or_else(|| panic!("no {section}"));
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in rest.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && let Some(command) = line.strip_prefix("# ") {
            found.push((command.to_owned(), Vec::new()));
        } else if inside && !line.starts_with("$ ") {
            found.last_mut().unwrap().1.push(line.to_owned());
        } else if !inside && line.starts_with("##") {
            break;
        }
    }
    found.retain(|(command, _)| !ELSEWHERE.contains(&command.as_str()));
    assert!(found.len() >= 2, "{section}: {found:?}");
    found
}

#[test]
fn its_commands_do_what_it_says() {
    needs!(["dpkg-deb", "dpkg-shlibdeps", "objcopy", "apt", "curl"]);
    let share = tempfile::tempdir().unwrap();
    let mut script = String::new();
    let mut count = 0;
    for section in SECTIONS {
        writeln!(script, "section '{section}'").unwrap();
        for (command, printed) in commands(section) {
            count += 1;
            writeln!(script, "run <<'END'\n{command}\nEND").unwrap();
            for line in printed {
                writeln!(script, "printed '{line}'").unwrap();
            }
        }
    }
    std::fs::write(share.path().join("commands"), script).unwrap();
    // The repository as the commands find it, and the next release.
    let debian = share.path().join("target/debian");
    std::fs::create_dir_all(&debian).unwrap();
    build("1", &debian);
    let later = build("2", share.path());
    std::fs::rename(later, share.path().join("allod_0.2.0-1_amd64.deb")).unwrap();
    std::fs::create_dir_all(share.path().join("target/release")).unwrap();
    std::fs::copy(allod(), share.path().join("target/release/allod")).unwrap();
    for place in ["config", "deploy"] {
        crate::tools::ok(std::process::Command::new("cp").arg("-a").arg(here(place)).arg(share.path()));
    }
    if on_a_machine(share.path(), "page") {
        assert_eq!(facts(share.path()), count);
    }
}
