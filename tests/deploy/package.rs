//! The Debian package: made from the binaries of the tests, judged by lintian, and really installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::allod;
use crate::tools::{facts, files, here, load, needs, ok, on_a_machine};

const BUILDS_WITH: [&str; 4] = ["dpkg-deb", "dpkg-shlibdeps", "objcopy", "gzip"];

/// Makes the package, with fast compression: its size is not tested.
pub fn build(revision: &str, output: &Path) -> PathBuf {
    let said = ok(Command::new(here("deploy/debian/build"))
        .arg("--binary")
        .arg(allod())
        .arg("--load")
        .arg(load())
        .args(["--revision", revision, "--output"])
        .arg(output)
        .envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")]));
    said.trim_end().into()
}

#[test]
fn the_package_installs_serves_upgrades_and_leaves_nothing() {
    needs!(BUILDS_WITH);
    let share = tempfile::tempdir().unwrap();
    for (revision, name) in [("1", "first.deb"), ("2", "second.deb")] {
        std::fs::rename(build(revision, share.path()), share.path().join(name)).unwrap();
    }
    if on_a_machine(share.path(), "package") {
        assert_eq!(facts(share.path()), 18);
    }
}

#[test]
fn the_alerts_and_dashboards_of_the_package_are_those_of_the_repository() {
    needs!(BUILDS_WITH);
    let directory = tempfile::tempdir().unwrap();
    let (package, root) = (build("1", directory.path()), directory.path().join("root"));
    ok(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root));
    for (shipped, from) in [("prometheus", "deploy/prometheus/rules"), ("grafana", "deploy/grafana/dashboards")] {
        let shipped = root.join("usr/share/allod").join(shipped);
        let (there, here) = (files(&shipped), files(&here(from)));
        assert_eq!(there.len(), here.len(), "{there:?}");
        for (there, here) in there.iter().zip(&here) {
            assert_eq!(there.file_name(), here.file_name());
            assert_eq!(std::fs::read(there).unwrap(), std::fs::read(here).unwrap(), "{}", there.display());
        }
    }
}

#[test]
fn lintian_finds_nothing_in_the_package() {
    needs!(BUILDS_WITH);
    needs!(["lintian"]);
    let directory = tempfile::tempdir().unwrap();
    let package = build("1", directory.path());
    // In a test lintian may run as root.
    let said = ok(Command::new("lintian").args(["--allow-root", "--fail-on", "error,warning"]).arg(package));
    assert_eq!(said, "");
}
