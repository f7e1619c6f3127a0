//! `allod backup` and `allod restore` on what people have: sources that only others may write, mistyped names, copies in odd
//! places.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::redis::process::skips::skip;
use crate::server::{Server, Starting, allod};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn in_words(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes everything below readable for anybody and writable for nobody.
fn read_only(path: &Path) {
    let mode = if path.is_dir() { 0o555 } else { 0o444 };
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| read_only(&entry.unwrap().path()));
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs the program as a user who owns nothing here.
pub fn as_nobody(arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(allod());
    let command = if rustix::process::geteuid().is_root() { &mut command } else { &mut Command::new(allod()) };
    command.args(arguments).output().unwrap()
}

/// Can the program run as a user for whom file modes hold? As root that needs `setpriv`; any other user is one.
pub fn modes_hold() -> bool {
    let there = || Command::new("setpriv").arg("--version").output().is_ok();
    !rustix::process::geteuid().is_root() || (there() && as_nobody(&["--version"]).status.success())
}

#[test]
fn a_copy_that_only_others_may_write_is_restored_unless_a_server_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let [data, copy, into] = ["data", "copy", "into"].map(|name| directory.path().join(name));
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.stop();
    let backup = Command::new(allod()).args(["backup", in_words(&copy), "--data", in_words(&data)]).output().unwrap();
    assert!(backup.status.success(), "{}", said(&backup));
    read_only(&copy);
    if !modes_hold() {
        return skip("root may write everywhere, and there is no setpriv");
    }
    let restored = as_nobody(&["restore", in_words(&copy), "--data", in_words(&into)]);
    assert!(restored.status.success() && into.join("META").exists(), "{}", said(&restored));

    // A server, as somebody who may write, may nevertheless run on such files.
    let held = Server::start(&data);
    std::fs::set_permissions(data.join("LOCK"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let other = directory.path().join("other");
    let refused = as_nobody(&["restore", in_words(&data), "--data", in_words(&other)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains(&format!("is in use by process {}", held.pid())), "{}", said(&refused));
    assert!(!other.exists());
    held.stop();
}

#[test]
fn what_stands_in_the_way_of_a_copy_is_said_with_its_cause_and_a_hint_that_fits() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy, none] = ["data", "copy", "none"].map(|name| directory.path().join(name));
    Server::start(&data).stop();
    let asked = |arguments: &[&str]| {
        let output = Command::new(allod()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        said(&output)
    };
    let [data_text, copy_text, none_text] = [&data, &copy, &none].map(|path| in_words(path).to_owned());
    let missing = asked(&["restore", &none_text, "--data", &copy_text]);
    assert!(missing.contains("No such file or directory (os error 2)"), "{missing}");
    assert!(missing.contains("name a directory that `allod backup` wrote"), "{missing}");
    let missing = asked(&["backup", &copy_text, "--data", &none_text]);
    assert!(missing.contains("(os error 2)") && missing.contains("--data DIR"), "{missing}");
    let no_directory = asked(&["backup", "/dev/null", "--data", &data_text]);
    assert!(no_directory.contains("(os error ") && no_directory.contains("may write to"), "{no_directory}");
    let occupied = asked(&["backup", &data_text, "--data", &data_text]);
    assert!(occupied.contains("is not empty") && occupied.contains("empty or not there"), "{occupied}");

    // A copy in there would be taken for something of the server's, or for nobody's.
    for inside in ["backups/monday", "log/copy"] {
        let inside = data.join(inside);
        let refused = asked(&["backup", in_words(&inside), "--data", &data_text]);
        assert!(refused.contains("lies inside") && refused.contains("elsewhere"), "{refused}");
        assert!(!inside.exists());
    }
}

#[test]
fn an_index_of_the_history_that_is_damaged_or_missing_is_made_again_and_the_log_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| directory.path().join(name));
    let index = data.join("HISTORY");
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "a"]);
    let told = server.allod_ok(&["history", "--network", "lan"]);
    assert!(!server.log_text().contains("index of the history"), "a new register has none, and that is right");
    server.stop();
    let head = std::fs::read(&index).unwrap();
    let missing = || std::fs::remove_file(&index).unwrap();
    let damaged = || std::fs::write(&index, [b"DEADBEEF", &head[8..]].concat()).unwrap();
    let torn = || std::fs::write(&index, [&head[..], &[7; 100]].concat()).unwrap();
    let asks: [(&dyn Fn(), &str); 4] = [
        (&|| (), ""),
        (&missing, "the index of the history is missing: it is made again"),
        (&damaged, "the index of the history is damaged"),
        (&torn, "the index of the history cannot be read from here on"),
    ];
    for (harm, warning) in asks {
        harm();
        // All starts write to one log file.
        let before = std::fs::read_to_string(data.with_extension("log")).unwrap().len();
        let server = Server::start(&data);
        let log = server.log_text().split_off(before);
        assert_eq!(log.contains("index of the history"), !warning.is_empty(), "{log}");
        assert!(warning.is_empty() || (log.contains("WARN") && log.contains(warning)), "{log}");
        assert_eq!(server.allod_ok(&["history", "--network", "lan"]), told);
        server.stop();
    }

    // A copy has no index of its own that could be missing.
    let backup = Command::new(allod()).args(["backup", in_words(&copy), "--data", in_words(&data)]).output().unwrap();
    assert!(backup.status.success(), "{}", said(&backup));
    let server = Server::start(&copy);
    assert!(!server.log_text().contains("index of the history"), "{}", server.log_text());
    server.stop();
}

/// Runs a copy on a terminal and stops it for a while once it has made `target`, as a slow disk would. Returns what the
/// screen got.
fn held_up(directory: &Path, line: &str, target: &str) -> String {
    let run = format!(
        "stty cols 80\n\
         (sh -c 'echo $$ >pid; exec {} {line}'; echo $? >code) &\n\
         until [ -s pid ]; do :; done; read pid <pid\n\
         until [ -e {target} ] || [ -e code ]; do :; done\n\
         kill -STOP $pid; sleep 0.7; kill -CONT $pid; wait\n",
        allod().display()
    );
    std::fs::write(directory.join("run"), run).unwrap();
    let mut command = Command::new("script");
    command.args(["-qfec", "sh ./run", "/dev/null"]).current_dir(directory).env("TERM", "xterm");
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert_eq!(std::fs::read_to_string(directory.join("code")).unwrap().trim(), "0", "{seen}");
    std::fs::remove_file(directory.join("code")).unwrap();
    std::fs::remove_file(directory.join("pid")).unwrap();
    seen
}

/// How often a copy is tried, because it may be done before it can be stopped.
const TRIES_MAX: usize = 30;

#[test]
fn a_copy_that_takes_long_shows_a_bar_on_a_terminal_and_takes_it_away() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let server = Server::start(&place.join("data"));
    let note = "n".repeat(1_000);
    let mut lines = "{\"format\":\"allod-export\",\"version\":1}\n{\"network\":{\"name\":\"lan\",\"subnets\":[{\"cidr\":\"10.0.0.0/12\"}]}}\n".to_owned();
    for at in 1..20_000 {
        let address = format!("10.1.{}.{}", at / 256, at % 256);
        lines += &format!(
            "{{\"reservation\":{{\"network\":\"lan\",\"address\":\"{address}\",\"owner\":\"vm/{at}\",\"note\":\"{note}\"}}}}\n"
        );
    }
    std::fs::write(place.join("register.jsonl"), lines).unwrap();
    server.allod_ok(&["import", in_words(&place.join("register.jsonl"))]);
    server.stop();
    for (line, target) in [("backup copy --data data", "copy"), ("restore copy --data again", "again")] {
        let mut tries = (0..TRIES_MAX).map(|_| {
            let _ = std::fs::remove_dir_all(place.join(target));
            held_up(place, line, target)
        });
        let seen = tries.find(|seen| seen.contains("copying "));
        let seen = seen.unwrap_or_else(|| panic!("{line}: no bar in {TRIES_MAX} tries"));
        assert!(seen.contains("MiB/"), "{line}: {seen:?}");
        let left = seen.rsplit('\x1b').next().unwrap();
        assert!(left.contains("copied and verified: ") && !left.contains("copying"), "{line}: {seen:?}");
    }
    // What is said into a file or a pipe has no bar.
    let piped = Command::new(allod()).args(["backup", "more", "--data", "data"]).current_dir(place).output().unwrap();
    assert!(said(&piped).starts_with("copied and verified: ") && said(&piped).lines().count() == 1, "{}", said(&piped));
}

/// How often a copy is killed at its beginning, because it may be whole by then.
const KILLS_MAX: usize = 30;

#[test]
fn a_copy_that_was_killed_is_no_register_and_is_made_anew_when_it_is_said_again() {
    let directory = tempfile::tempdir().unwrap();
    let [data, into] = ["data", "into"].map(|name| directory.path().join(name));
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.stop();
    let restore = || {
        let mut command = Command::new(allod());
        command.args(["restore", in_words(&data), "--data", in_words(&into)]).stderr(std::process::Stdio::null());
        command
    };
    let is_killed = |_| {
        let _ = std::fs::remove_dir_all(&into);
        let mut copy = restore().spawn().unwrap();
        while !into.join("log").exists() && copy.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        copy.kill().unwrap();
        copy.wait().unwrap();
        !into.join("META").exists()
    };
    assert!((0..KILLS_MAX).any(is_killed), "no kill met the copy");
    let Err((code, said)) = Starting::new(&into).ready_or_ended() else { panic!("every address is free in it") };
    assert!(code == "code 1" && said.contains("is the unfinished copy of the directory"), "{code}: {said}");
    assert!(said.contains(&format!("`allod restore {}", in_words(&data.canonicalize().unwrap()))), "{said}");
    assert!(restore().status().unwrap().success(), "it begins anew");
    let server = Server::start(&into);
    assert!(server.allod_ok(&["network", "list"]).contains("lan"));
    server.stop();
}

/// The files are copied one after the other, as `cp -a` reads them.
#[test]
fn files_that_were_copied_beside_a_server_that_went_on_are_told_from_a_damaged_disk() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| directory.path().join(name));
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let copied = |from: &str| {
        // It fails if a file goes while it copies, as the server gives one its name, and copies all others.
        let copied = Command::new("cp").arg("-a").arg(data.join(from)).arg(&copy).output().unwrap();
        assert!(copied.status.success() || said(&copied).contains("No such file"), "{}", said(&copied));
    };
    std::fs::create_dir(&copy).unwrap();
    ["META", "log", "snap"].into_iter().for_each(copied);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "a"]);
    copied("MARK");
    server.stop();
    let Err((code, said)) = Starting::new(&copy).ready_or_ended() else { panic!("what was acknowledged is free") };
    assert!(
        code == "code 1" && said.contains("with anything but `allod backup` while a server had it open"),
        "{code}: {said}"
    );
}

#[test]
fn a_start_beside_a_copy_is_to_be_tried_again_and_no_other_directory_is_named_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    Server::start(&data).stop();
    // A copy holds this lock for as long as it takes.
    let lock = std::fs::OpenOptions::new().read(true).open(data.join("LOCK")).unwrap();
    lock.lock_shared().unwrap();
    let Err((code, said)) = Starting::new(&data).ready_or_ended() else { panic!("both have it") };
    assert!(code == "code 75" && said.contains("is in use by") && said.contains("hint: "), "{code}: {said}");
    assert!(!said.contains("another data directory") && !said.contains("--data DIR"), "{said}");
    drop(lock);
    Starting::new(&data).ready().stop();
}

#[test]
fn the_root_of_a_new_file_system_is_empty_enough_to_copy_into() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy, into] = ["data", "copy", "into"].map(|name| directory.path().join(name));
    Server::start(&data).stop();
    for (command, named, of, target) in [("backup", &copy, &data, &copy), ("restore", &copy, &into, &into)] {
        std::fs::create_dir_all(target.join("lost+found")).unwrap();
        let arguments = [command, in_words(named), "--data", in_words(of)];
        let copied = Command::new(allod()).args(arguments).output().unwrap();
        assert!(copied.status.success() && target.join("lost+found").exists(), "{}", said(&copied));
    }
    Server::start(&into).stop();
}
