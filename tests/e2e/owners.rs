//! Who owns files: what root leaves in the directory of a server that runs as another user, and who may read a password.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::copies::{as_nobody, modes_hold};
use crate::redis::process::skips::skip;
use crate::server::{Starting, allod};

/// The user who owns nothing on a machine; here the server runs as this user.
const SERVER: u32 = 65_534;

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn in_words(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn as_root(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("timeout").arg("60").arg(allod()).args(arguments).output().unwrap();
    (output.status.code(), told(&output))
}

/// Starts a server as that user.
fn as_server(data: &Path) -> Starting {
    let program = allod();
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", in_words(&program)];
    Starting::of(Path::new("setpriv"), data, &[&user[..], &["serve", "--data", in_words(data)]].concat(), Vec::new())
}

/// A directory of that user with a register in it. None if the test cannot act as another user.
fn of_server(directory: &Path) -> Option<PathBuf> {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    if !rustix::process::geteuid().is_root() || !modes_hold() {
        skip("only root is told of another user, by setpriv");
        return None;
    }
    let data = directory.join("data");
    std::fs::create_dir(&data).unwrap();
    chown(&data, Some(SERVER), Some(SERVER)).unwrap();
    as_server(&data).ready().stop();
    Some(data)
}

fn owners(data: &Path) -> Vec<u32> {
    let folders = [data.to_owned(), data.join("log"), data.join("snap")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    entries.map(|entry| entry.unwrap().metadata().unwrap().uid()).collect()
}

#[test]
fn root_leaves_nothing_in_the_directory_of_a_server_that_is_another_user() {
    let directory = tempfile::tempdir().unwrap();
    let Some(data) = of_server(directory.path()) else { return };
    let (text, copy) = (in_words(&data), directory.path().join("copy"));
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    chown(&empty, Some(SERVER), Some(SERVER)).unwrap();
    let (code, said) = as_root(&["backup", in_words(&copy), "--data", text]);
    assert_eq!(code, Some(0), "what is only read may be another's: {said}");
    for (at, arguments) in [
        (&data, &["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", text][..]),
        (&empty, &["restore", in_words(&copy), "--data", in_words(&empty)]),
        (&data, &["migrate", text, in_words(&directory.path().join("new")), "--yes"]),
        (&empty, &["migrate", in_words(&copy), in_words(&empty), "--yes"]),
    ] {
        let (code, said) = as_root(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains(&format!("{} belongs to user nobody", at.display())), "{said}");
        assert!(said.contains("`runuser -u nobody --`"), "{said}");
    }
    assert!(owners(&data).iter().all(|&owner| owner == SERVER));
    assert!(std::fs::read_dir(&empty).unwrap().next().is_none());
    // In a directory of its own root may do everything as usual.
    assert_eq!(as_root(&["restore", in_words(&copy), "--data", in_words(&directory.path().join("own"))]).0, Some(0));
    as_server(&data).ready().stop();
}

#[test]
fn a_file_that_the_server_cannot_write_is_named_with_what_helps_by_doctor_and_by_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let Some(data) = of_server(directory.path()) else { return };
    let segment = data.join("log/00000001.seg");
    std::fs::set_permissions(&segment, std::fs::Permissions::from_mode(0o644)).unwrap();
    let looks = ["doctor", "--data", in_words(&data), "--format", "json"];
    let is_whole = |said: &str| !said.contains("\"files\"");
    assert!(is_whole(&as_root(&looks).1) && is_whole(&told(&as_nobody(&looks))));
    chown(&segment, Some(0), Some(0)).unwrap();
    let cure = format!("chown -R nobody {}", data.display());
    let seen = as_nobody(&looks);
    for (code, said) in [as_root(&looks), (seen.status.code(), told(&seen))] {
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("user nobody may not write") && said.contains("log/00000001.seg"), "{said}");
        assert!(said.contains(&cure), "{said}");
    }
    let Err((code, said)) = as_server(&data).ready_or_ended() else { panic!("it cannot write its log") };
    assert!(code == "code 1" && said.contains("Permission denied") && said.contains(&cure), "{code}: {said}");
    chown(&segment, Some(SERVER), None).unwrap();
    // A wrong mode is not mended by another owner or another user.
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for (path, usual) in [(&segment, 0o644), (&data.join("log"), 0o755), (&data.join("snap"), 0o755)] {
        mode(path, 0o000);
        let seen = as_nobody(&looks);
        for (code, said) in [as_root(&looks), (seen.status.code(), told(&seen))] {
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains(&format!("user nobody may not write {}, by its mode", path.display())), "{said}");
            assert!(said.contains(&format!("chmod -R u+rwX {}", data.display())), "{said}");
            assert!(!said.contains("chown"), "{said}");
        }
        let Err((code, said)) = as_server(&data).ready_or_ended() else { panic!("it cannot reach {}", path.display()) };
        assert!(code == "code 1" && said.contains("chmod -R u+rwX"), "{code}: {said}");
        mode(path, usual);
    }
    as_server(&data).ready().stop();
}

#[test]
fn a_secret_that_the_user_of_the_server_may_not_read_is_refused_before_a_start_and_not_to_be_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    if !rustix::process::geteuid().is_root() || !modes_hold() {
        return skip("root may read everything, and there is no setpriv");
    }
    let [secret, config] = ["secret", "server.toml"].map(|name| directory.path().join(name));
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&config, format!("[store]\nkind = \"redis\"\n[cluster]\nsecret_file = {secret:?}\n")).unwrap();
    let check = ["check-config", in_words(&config)];
    assert_eq!(as_root(&check), (Some(0), String::new()), "which is why the package asks as its user");
    let refused = as_nobody(&check);
    let said = told(&refused);
    assert!(refused.status.code() == Some(1) && said.contains("Permission denied"), "{said}");
    assert!(said.contains(&format!("`chown 65534 {}`", secret.display())) && !said.contains("head -c"), "{said}");
}

#[test]
fn a_password_that_everybody_may_read_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("server.toml");
    std::fs::write(&config, "[store]\nkind = \"redis\"\nredis = \"redis://:hush@127.0.0.1:1/0\"\n").unwrap();
    let said = |mode: u32, arguments: &[&str]| {
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(mode)).unwrap();
        Command::new(allod()).args(arguments).output().unwrap()
    };
    let data = in_words(&directory.path().join("data")).to_owned();
    let check = ["check-config", in_words(&config)];
    let looks = ["doctor", "--config", in_words(&config), "--data", &data, "--format", "json"];
    let seen = "has a password, and everybody can read that file (mode 644)";
    for arguments in [&check[..], &looks] {
        // The words are wrapped at the width of a terminal.
        let warned = told(&said(0o644, arguments)).replace('\n', " ");
        assert!(warned.contains(seen) && warned.contains("chmod 640") && !warned.contains("hush"), "{warned}");
        assert!(!told(&said(0o640, arguments)).contains("password"), "{arguments:?}");
    }
    assert_eq!(said(0o644, &check).status.code(), Some(0));
}
