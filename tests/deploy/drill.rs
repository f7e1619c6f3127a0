//! `deploy/drill` proves a backup, and does not prove one that lost something.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::server::{Server, allod};
use crate::tools::{here, needs, ok};

fn drill(server: &Server, programs: &Path, arguments: &[&str]) -> Output {
    drill_beside(server, programs, arguments, &[])
}

/// Runs a drill with these settings in its environment, too.
fn drill_beside(server: &Server, programs: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut path = OsString::from(programs);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let address = server.address.to_string();
    let mut drill = Command::new(here("deploy/drill"));
    drill
        .args(arguments)
        .env("PATH", path)
        .env("ALLOD_SERVER", address)
        .envs(settings.iter().copied())
        .output()
        .unwrap()
}

/// Makes a directory in which this script is found as `allod`.
fn in_place_of_allod(programs: &Path, script: &str) {
    std::fs::create_dir(programs).unwrap();
    std::fs::write(programs.join("allod"), script).unwrap();
    std::fs::set_permissions(programs.join("allod"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server with a network, two leases, a fixed address and an IPv6 one.
fn with_reservations(data: &Path) -> Server {
    let server = Server::start(data);
    server.allod_ok(&["network", "apply", here("config/first-network.toml").to_str().unwrap(), "--yes"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "web/0", "--ttl", "2h", "--claimant", "vm-1"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "web/1", "--ttl", "3d"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "web/0", "--slot", "v6", "--family", "6"]);
    server.allod_ok(&["ip", "claim", "lan", "10.0.0.10", "--owner", "db/0", "--scope", "shop"]);
    server
}

/// The directory of such a server, which was stopped, and a directory with a copy of it.
fn copied(directory: &Path) -> (PathBuf, PathBuf) {
    let (data, copy) = (directory.join("data"), directory.join("copy"));
    with_reservations(&data).stop();
    ok(Command::new(allod()).arg("backup").arg(&copy).arg("--data").arg(&data));
    (data, copy)
}

#[test]
fn a_backup_of_a_running_server_is_restored_and_compared() {
    needs!(["diff", "mkfifo"]);
    let directory = tempfile::tempdir().unwrap();
    let server = with_reservations(&directory.path().join("data"));
    let programs = allod().parent().unwrap().to_owned();
    let kept = directory.path().join("kept.jsonl");
    let kept_text = kept.to_str().unwrap();
    let proved = drill(&server, &programs, &["--keep", kept_text]);
    let wanted = format!("proved: networks 1, reservations 4, kept in {kept_text}\n");
    assert_eq!(text(&proved.stdout), wanted, "{}", text(&proved.stderr));
    assert!(proved.status.success());
    let backup = std::fs::read_to_string(&kept).unwrap();
    assert_eq!(backup.lines().filter(|line| line.starts_with("{\"reservation\"")).count(), 4);
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o077, 0, "others cannot read it");

    // A restore that loses a reservation is found out, and the previous backup is kept. The last line but one is the IPv6
    // address.
    let lossy = directory.path().join("lossy");
    let real = allod().display().to_string();
    let short = directory.path().join("short").display().to_string();
    let script = format!(
        "#!/bin/bash\ncase \" $* \" in\n*' import '*)\n  head -n -2 \"${{@: -2:1}}\" >'{short}'\n  \
         echo '{{\"end\":{{\"networks\":1,\"reservations\":4}}}}' >>'{short}'\n  \
         set -- \"${{@:1:$#-2}}\" '{short}' --yes ;;\nesac\nexec '{real}' \"$@\"\n"
    );
    in_place_of_allod(&lossy, &script);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "web/2"]);
    let refused = drill(&server, &lossy, &["--keep", kept_text]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("not what was backed up: 1 lines differ"), "{}", text(&refused.stderr));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), backup);
}

/// A machine that boots at night has its address for some minutes, until it is confirmed.
#[test]
fn a_lease_that_ends_while_the_drill_runs_is_not_taken_for_lost() {
    needs!(["diff", "mkfifo"]);
    let directory = tempfile::tempdir().unwrap();
    let server = with_reservations(&directory.path().join("data"));
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "boots", "--ttl", "10s"]);
    let kept = directory.path().join("kept.jsonl");
    // The restored register is asked for all that it has when the lease is over there.
    let (slow, real) = (directory.path().join("slow"), allod().display().to_string());
    in_place_of_allod(
        &slow,
        &format!("#!/bin/bash\ncase \" $* \" in *' --server '*' export '*) sleep 12 ;; esac\nexec '{real}' \"$@\"\n"),
    );
    let proved = drill(&server, &slow, &["--keep", kept.to_str().unwrap()]);
    let said = text(&proved.stderr);
    assert!(text(&proved.stdout).starts_with("proved: networks 1, reservations 4, kept in "), "{proved:?}");
    assert!(said.contains("not compared: 1 whose lease ended meanwhile"), "{said}");
    assert!(std::fs::read_to_string(&kept).unwrap().contains("\"boots\""));
}

#[test]
fn an_option_without_its_file_is_answered_with_how_it_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let programs = allod().parent().unwrap().to_owned();
    for option in ["--keep", "--copy", "--data"] {
        let refused = drill(&server, &programs, &[option]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(64) && said.contains("deploy/drill [--keep FILE]"), "{option}: {said}");
    }
}

#[test]
fn what_is_deleted_and_remembered_is_left_out_of_a_backup_and_said_to_be() {
    needs!(["diff", "mkfifo"]);
    let directory = tempfile::tempdir().unwrap();
    let server = with_reservations(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "old", "--subnet", "10.9.0.0/24"]);
    server.allod_ok(&["ip", "allocate", "old", "--owner", "web/0"]);
    server.allod_ok(&["network", "delete", "old", "--force", "--yes"]);
    let taken = server.allod_ok(&["ip", "allocate", "lan", "--owner", "gone", "--format", "json"]);
    let taken: serde_json::Value = serde_json::from_str(&taken).unwrap();
    server.allod_ok(&["ip", "decline", "lan", taken["address"].as_str().unwrap(), "--owner", "gone"]);
    let kept = directory.path().join("kept.jsonl");
    let programs = allod().parent().unwrap().to_owned();
    let proved = drill(&server, &programs, &["--keep", kept.to_str().unwrap()]);
    assert!(text(&proved.stdout).starts_with("proved: networks 1, reservations 4, kept in "), "{proved:?}");
    let said = text(&proved.stderr);
    assert!(said.contains("left out: 1 reservation of networks that are deleted and remembered"), "{said}");
    assert!(said.contains("left out: 1 address declined and 0 addresses in their cooldown"), "{said}");
    assert!(!std::fs::read_to_string(&kept).unwrap().contains("10.9.0."));
}

#[test]
fn a_copy_of_the_files_is_proved_unless_it_is_damaged() {
    needs!(["diff", "mkfifo"]);
    let directory = tempfile::tempdir().unwrap();
    let (_, copy) = copied(directory.path());
    // It does not matter which server is asked: here it is one with another register.
    let server = Server::start(&directory.path().join("other"));
    let programs = allod().parent().unwrap().to_owned();
    let copy_text = copy.to_str().unwrap();
    let proved = drill(&server, &programs, &["--copy", copy_text]);
    let wanted = format!("proved: networks 1, reservations 4, of {copy_text}\n");
    assert_eq!(text(&proved.stdout), wanted, "{}", text(&proved.stderr));
    let segment = copy.join("log/00000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&segment, bytes).unwrap();
    let refused = drill(&server, &programs, &["--copy", copy_text]);
    assert_eq!(refused.status.code(), Some(1), "{}{}", text(&refused.stdout), text(&refused.stderr));
    assert_eq!(text(&refused.stdout), "");
}

#[test]
fn what_is_proved_is_what_was_restored_whatever_is_set_for_servers() {
    needs!(["diff", "mkfifo"]);
    let directory = tempfile::tempdir().unwrap();
    let (data, copy) = copied(directory.path());
    let server = Server::start(&data);
    let programs = allod().parent().unwrap().to_owned();
    let (copy_text, nowhere) = (copy.to_str().unwrap(), ("ALLOD_STORE__REDIS", "redis://127.0.0.1:1/0"));
    for settings in [&[("ALLOD_STORE__KIND", "memory")][..], &[("ALLOD_STORE__KIND", "redis"), nowhere]] {
        for arguments in [&["--copy", copy_text][..], &[]] {
            let proved = drill_beside(&server, &programs, arguments, settings);
            let said = text(&proved.stdout);
            assert!(said.starts_with("proved: networks 1, reservations 4"), "{said}{}", text(&proved.stderr));
        }
    }

    // Another register is no proof, however well it is exported.
    let elsewhere = directory.path().join("elsewhere");
    let real = allod().display().to_string();
    let script =
        format!("#!/bin/bash\n[ \"$1\" != serve ] || set -- \"${{@/%\\/data//other}}\"\nexec '{real}' \"$@\"\n");
    in_place_of_allod(&elsewhere, &script);
    let refused = drill(&server, &elsewhere, &["--copy", copy_text]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("what is served is not what was restored"), "{}", text(&refused.stderr));
}
