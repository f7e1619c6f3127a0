//! What a package ships beside the program.

use crate::program::{load, said};

#[test]
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("pages");
    let output = load().arg("man").arg(&pages).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let help = load().arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout);
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names: Vec<&str> = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !["", "help"].contains(name)).collect();
    assert!(names.len() > 8 && names.contains(&"goals"), "{help}");
    for name in names {
        let page = std::fs::read_to_string(pages.join(format!("allod-load-{name}.1")));
        assert!(page.unwrap_or_else(|error| panic!("{name}: {error}")).contains(".SH OPTIONS"), "{name}");
    }
    assert!(pages.join("allod-load.1").exists());
}
