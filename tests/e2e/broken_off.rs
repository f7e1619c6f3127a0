//! `allod backup`, `allod restore` and `allod migrate` are killed by `strace` at one system call after another: no server
//! takes what they leave behind for a register, from their first moments to their last.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::redis::process::skips::skip;
use crate::server::{Server, Starting, allod};

/// More than the number of such calls that any of them makes.
const CALLS_MAX: u32 = 400;

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(allod()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs the command, and kills it at this call that concerns the directory itself, its lock or its notice. Was it killed?
fn is_killed_at(call: u32, arguments: &[&str], target: &Path) -> bool {
    let mut command = Command::new("strace");
    command.args(["-f", "-o", "/dev/null"]);
    let files = ["LOCK", "MOVED.tmp", "MOVED"].map(|name| target.join(name));
    [target].into_iter().chain(files.iter().map(|path| &**path)).for_each(|path| _ = command.arg("-P").arg(path));
    let inject = format!("inject=%file,%desc:signal=KILL:when={call}");
    command.args(["-e", "trace=%file,%desc", "-e", &inject]).arg(allod()).args(arguments);
    let ended = command.stdin(Stdio::null()).output().unwrap();
    // `strace` ends like the command that it ran.
    assert!(ended.status.success() || ended.status.signal() == Some(9), "{}", words(&ended));
    !ended.status.success()
}

/// The reason why no server starts there.
fn refusal(data: &Path) -> String {
    let log = data.with_extension("log");
    let _ = std::fs::remove_file(&log);
    let Err((code, said)) = Starting::new(data).ready_or_ended() else {
        panic!("a server began a register in a directory with {:?}", names_in(data))
    };
    assert_eq!(code, "code 1", "{said}");
    said
}

fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    traced.is_ok_and(|traced| traced.status.success())
}

#[test]
fn what_a_copy_or_a_move_leaves_when_it_is_killed_is_never_taken_for_a_new_register() {
    if !can_trace() {
        return skip("there is no `strace`, or it may trace nothing");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().canonicalize().unwrap().join(name);
    let (data, copy) = (path("data"), path("copy"));
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.stop();
    assert!(run(&["backup", &text(&copy), "--data", &text(&data)]).status.success());
    let (from, copied) = (text(&data), text(&copy));
    let targets = ["night", "again", "moved"].map(path);
    let [night, again, moved] = targets.each_ref().map(|path| text(path));
    for (arguments, target, hint, whole) in [
        (
            ["backup", &night, "--data", &from],
            &targets[0],
            format!("`allod backup DIR --data {from}`"),
            Some("to use the backup, remove the file `MOVED` there"),
        ),
        (
            ["restore", &copied, "--data", &again],
            &targets[1],
            format!("`allod restore {copied} --data DIR`"),
            Some("remove the file `MOVED` there, and it is whole"),
        ),
        (["migrate", &from, &moved, "--yes"], &targets[2], format!("`allod migrate {from} TO`"), None),
    ] {
        let (mut seen, mut was_whole) = (BTreeSet::new(), false);
        for call in 1..CALLS_MAX {
            let _ = std::fs::remove_dir_all(target);
            let killed = is_killed_at(call, &arguments, target);
            let names = names_in(target);
            let is_whole = names.contains("META");
            if !killed || is_whole && whole.is_none() {
                break;
            }
            if names.is_empty() || !seen.insert(names.clone()) {
                continue;
            }
            if is_whole && !names.contains("MOVED") {
                // The command had finished.
                continue;
            }
            let said = refusal(target);
            let is_begun = std::fs::read(target.join("MOVED.tmp")).is_ok_and(|line| line.is_empty());
            let expected = match whole {
                Some(whole) if is_whole => whole,
                _ if is_begun && !names.contains("MOVED") => "say that command again",
                _ => &hint,
            };
            assert!(said.contains(expected), "{names:?}: {said}");
            assert!(arguments[0] != "backup" || is_begun || is_whole || !said.contains("restore"), "{said}");
            assert_eq!(names_in(target), names, "nothing was changed");
            was_whole |= is_whole;
            let doctor = words(&run(&["doctor", "--data", &text(target), "--format", "json"]));
            assert!(doctor.contains(expected), "{names:?}: {doctor}");
        }
        assert!(seen.iter().any(|names| !names.contains("MOVED")), "no kill met its first moments: {seen:?}");
        assert!(was_whole || whole.is_none(), "no kill met its last moment: {seen:?}");
        // What the last killed command left is in nobody's way.
        let _ = std::fs::remove_dir_all(target);
        std::fs::create_dir(target).unwrap();
        std::fs::File::create(target.join("MOVED.tmp")).unwrap();
        let done = run(&arguments);
        assert!(done.status.success() && !names_in(target).contains("MOVED.tmp"), "{}", words(&done));
        let server = Server::start(target);
        assert!(server.allod_ok(&["network", "list"]).contains("lan"));
        server.stop();
    }
}

#[test]
fn what_broke_off_is_said_to_whoever_copies_or_moves_from_it_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let target = text(&path("target"));
    for (name, line, said, hint) in [
        ("MOVED.tmp", "", "broke off in its first moments", "say that command again: `allod backup`"),
        (
            "MOVED.tmp",
            "copying backup of the directory /a\n",
            "is an unfinished backup of the",
            "`allod backup DIR --data /a`",
        ),
        (
            "MOVED",
            "copying the directory /a\n",
            "is the unfinished copy of the directory /a",
            "`allod restore /a --data DIR`",
        ),
        ("MOVED", "unfinished the directory /a\n", "a register that is moved here from", "`allod migrate /a TO`"),
    ] {
        let from = path("from");
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join(name), line).unwrap();
        let from_text = text(&from);
        for arguments in [
            ["backup", &target, "--data", &from_text],
            ["restore", &from_text, "--data", &target],
            ["migrate", &from_text, &target, "--yes"],
        ] {
            let refused = run(&arguments);
            let words = words(&refused);
            assert_eq!(refused.status.code(), Some(1), "{words}");
            assert!(words.contains(said), "{arguments:?}: {words}");
            assert!(arguments[0] == "migrate" || words.contains(hint), "{arguments:?}: {words}");
        }
        let doctor = words(&run(&["doctor", "--data", &from_text, "--format", "json"]));
        assert!(doctor.contains(said) && doctor.contains(hint), "{doctor}");
        assert!(
            !doctor.contains("not an allod register") && !doctor.contains("the first start creates one"),
            "{doctor}"
        );
        std::fs::remove_dir_all(&from).unwrap();
    }
    assert!(!Path::new(&target).exists());
}
