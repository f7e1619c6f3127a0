//! The Python client does what its page says, against the real program.

use std::process::Command;

use crate::server::Starting;

#[test]
fn the_python_client_does_what_its_page_says() {
    if Command::new("python3").arg("--version").output().is_err() {
        return crate::redis::process::skips::skip("there is no python3");
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::new(&directory.path().join("data")).ready();
    let root = env!("CARGO_MANIFEST_DIR");
    let ran = Command::new("python3")
        .arg(format!("{root}/tests/e2e/python_client.py"))
        .arg(server.address.to_string())
        .arg(format!("{root}/deploy/python"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && ran.stdout == b"ok\n", "{said}");
}
