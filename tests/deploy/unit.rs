//! The unit and its drop-in, as systemd's own tools see them. That it starts a server is shown by `package`.

use std::process::Command;

use crate::tools::{needs, ok, read};

/// Exposure by `systemd-analyze security`: 0 to 10, the less the better. A unit that says nothing has 9.6.
const EXPOSURE_MAX: f64 = 1.5;

#[test]
fn systemd_understands_the_unit_and_finds_it_confined() {
    needs!(["systemd-analyze"]);
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("allod.service");
    // A program that is there.
    let text = read("deploy/allod.service").replace("/usr/local/bin/allod", "/bin/true");
    std::fs::write(&unit, text).unwrap();
    let verify = || {
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // What it says of units of the machine is not ours.
        said.lines().filter(|line| line.contains("allod") || line.contains("node.conf")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(verify(), "");
    let drop_ins = directory.path().join("allod.service.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(drop_ins.join("node.conf"), read("deploy/node.conf")).unwrap();
    assert_eq!(verify(), "");
    // A wrong line would be seen.
    std::fs::write(drop_ins.join("node.conf"), "[Service]\nIPAddressAlow=10.0.0.0/24\n").unwrap();
    assert!(verify().contains("IPAddressAlow"), "{}", verify());

    let said = ok(Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(&unit));
    let overall = said.lines().find(|line| line.contains("Overall exposure level")).unwrap_or_else(|| panic!("{said}"));
    let exposure: f64 = overall.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(exposure <= EXPOSURE_MAX, "{said}");
}
