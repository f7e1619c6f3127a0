//! The program on a terminal: questions, colours, lines that fit, bars. `script` gives it a terminal of its own, whose
//! keyboard is our pipe.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::lan;
use crate::responder::{Responder, refusal};
use crate::write;

/// A command on a terminal.
struct Terminal<'a> {
    server: &'a Responder,
    columns: u16,
    /// A variable to set in the environment.
    set: Option<(&'a str, &'a str)>,
    /// What is typed once `asked` was printed.
    answer: &'a str,
    asked: &'a str,
}

impl<'a> Terminal<'a> {
    fn of(server: &'a Responder) -> Self {
        Self { server, columns: 80, set: None, answer: "", asked: "[y/N]" }
    }

    /// Everything that the screen got, escapes included, and the exit code.
    fn run(&self, line: &str) -> (String, i32) {
        let directory = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_allod");
        let commands = format!("stty cols {}\nexec {program} {line}\n", self.columns);
        write(&directory.path().join("run"), commands.as_bytes());
        let mut command = Command::new("script");
        command.args(["-qfec", "sh ./run", "/dev/null"]).current_dir(directory.path());
        command.env("ALLOD_SERVER", &self.server.address).env("TERM", "xterm");
        // With `CI` set, a dumb terminal would count as one with colours.
        for of_caller in ["NO_COLOR", "CI", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(of_caller);
        }
        let mut child = command.envs(self.set).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut screen, mut keys) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let (mut seen, mut bytes, mut answered) = (Vec::new(), [0; 4_096], false);
        loop {
            let count = screen.read(&mut bytes).unwrap();
            if count == 0 {
                break;
            }
            seen.extend_from_slice(&bytes[..count]);
            if !answered && String::from_utf8_lossy(&seen).contains(self.asked) {
                answered = true;
                keys.write_all(self.answer.as_bytes()).unwrap();
            }
        }
        drop(keys);
        let code = child.wait().unwrap().code().unwrap();
        (String::from_utf8(seen).unwrap().replace('\r', ""), code)
    }
}

#[test]
fn what_try_says_to_type_next_is_one_line_however_long_it_is() {
    let server = Responder::start(|_, _| Ok(json!({})));
    let terminal = Terminal { answer: "\x03", asked: "Serving until", ..Terminal::of(&server) };
    let seen = plain(&terminal.run("try --data data --listen 127.0.0.1:0 --http 127.0.0.1:0").0);
    let curl = seen.lines().find(|line| line.contains("curl -s")).unwrap_or_else(|| panic!("{seen}"));
    assert!(curl.len() > 80 && curl.ends_with("}'"), "{curl}");
}

/// The text without colours.
fn plain(seen: &str) -> String {
    anstream::adapter::strip_str(seen).to_string()
}

/// The lines that are wider than the terminal, except those that contain a command, which is to be copied whole.
fn too_wide(seen: &str, columns: usize) -> Vec<String> {
    let lines = plain(seen);
    lines.lines().filter(|line| line.chars().count() > columns && !line.contains('`')).map(str::to_owned).collect()
}

#[test]
fn a_question_is_answered_at_the_terminal_and_only_yes_is_yes() {
    let server = Responder::start(|method, _| match method {
        "network.delete" => Ok(json!({"id": "0f", "holding": 0})),
        "network.get" => Ok(lan()),
        _ => Ok(json!({"reservations": []})),
    });
    let deleted = || server.asked().iter().any(|(method, ask)| method == "network.delete" && ask["dry_run"] != true);
    for (answer, is_yes) in
        [("y\n", true), ("YES\n", true), ("n\n", false), ("\n", false), ("yea\n", false), ("\x04", false)]
    {
        server.forget();
        let (seen, code) = Terminal { answer, ..Terminal::of(&server) }.run("network delete lan");
        assert_eq!((code, deleted()), (i32::from(!is_yes), is_yes), "{answer:?}: {seen}");
        let (shown, after) = seen.split_once("really delete network `lan`? [y/N] ").unwrap();
        assert!(plain(shown).contains("what goes: network `lan` with 1 subnet, 1 pool\n"), "{shown}");
        let said = if is_yes { "deleted" } else { "nothing was changed, because the answer was not yes" };
        let words: Vec<&str> = after.split_whitespace().collect();
        assert!(words.join(" ").contains(said), "{answer:?}: {after}");
    }
    // Somebody who has answered already is not asked.
    let (seen, code) = Terminal::of(&server).run("network delete lan --yes");
    assert!(code == 0 && !seen.contains("[y/N]"), "{seen}");
}

/// Between what is shown and the yes there may be any time, and somebody else may have added to it then.
#[test]
fn a_yes_takes_from_the_network_what_was_shown_of_it_and_nothing_that_is_there_since() {
    let mut network = lan();
    network["version"] = json!(3);
    network["subnets"][0]["reserved"] = json!([{"range": "10.0.0.8-10.0.0.9", "note": "printers"}]);
    let id = network["id"].clone();
    let server = Responder::start(move |method, _| match method {
        "network.get" => Ok(network.clone()),
        "ip.list" => Ok(json!({"count": 1})),
        "subnet.modify" => Ok(json!({"id": network["subnets"][0]["id"], "pools": []})),
        "pool.modify" => Ok(json!({"range": "10.0.0.0-10.0.0.99"})),
        "reserved.add" => Ok(json!({"reserved": [{"range": "10.0.0.0-10.0.0.15"}]})),
        _ => Ok(json!({})),
    });
    // The call that was made, and the network and version that it named.
    let named = || {
        let is_made = |(method, ask): &(String, Value)| {
            ask["dry_run"] != true && !matches!(method.as_str(), "network.get" | "ip.list")
        };
        let (_, ask) = server.asked().into_iter().find(is_made).unwrap();
        (ask["network"].clone(), ask["if_version"].clone())
    };
    for line in [
        "subnet remove lan 10.0.0.0/24",
        "pool remove lan --range 10.0.0.0-10.0.0.9",
        "reserved remove lan 10.0.0.8/29",
        "subnet modify lan 10.0.0.0/24 --cidr 10.0.0.0/25",
        "pool modify lan 10.0.0.0/24 --range 10.0.0.0-10.0.0.99",
        "reserved add lan 10.0.0.0/28",
    ] {
        server.forget();
        let (seen, code) = Terminal { answer: "y\n", ..Terminal::of(&server) }.run(line);
        assert_eq!((code, named()), (0, (id.clone(), json!(3))), "{line}: {seen}");
        // What the user says comes first.
        server.forget();
        let (seen, code) = Terminal { answer: "y\n", ..Terminal::of(&server) }.run(&format!("{line} --if-version 2"));
        assert_eq!((code, named().1), (0, json!(2)), "{line}: {seen}");
        // Nobody has looked, and several scripts may change one network side by side.
        server.forget();
        let (seen, code) = Terminal::of(&server).run(&format!("{line} --yes"));
        assert_eq!((code, named()), (0, (json!("lan"), Value::Null)), "{line}: {seen}");
    }
}

#[test]
fn headings_and_errors_are_coloured_on_a_terminal_unless_no_color_is_set() {
    let server = Responder::start(|method, _| match method {
        "network.usage" => {
            Err(refusal(ErrorKind::NotFound, "network `lan` does not exist", json!({"field": "network"})))
        }
        _ => Ok(json!({"networks": [lan()]})),
    });
    for (set, is_coloured) in [(None, true), (Some(("NO_COLOR", "1")), false), (Some(("TERM", "dumb")), false)] {
        let on_terminal = |line: &str| Terminal { set, ..Terminal::of(&server) }.run(line);
        let ((list, listed), (failure, failed)) = (on_terminal("network list"), on_terminal("network usage lan"));
        assert_eq!((listed, failed), (0, 1));
        assert!(list.contains("NAME") && failure.contains("allod:") && failure.contains("hint:"), "{list}{failure}");
        assert_eq!(
            (list.contains('\x1b'), failure.contains('\x1b')),
            (is_coloured, is_coloured),
            "{list:?}{failure:?}"
        );
        assert_eq!(failure.contains("\x1b[1m\x1b[31mallod:\x1b[0m cannot count"), is_coloured, "{failure:?}");
    }
}

/// The columns that the numbers of [`wide_usage`] take; these are never cut.
const COUNTS_COLUMNS: usize = 76;

/// The counts of a network whose ranges are as long as they can get.
fn wide_usage() -> Value {
    let counts = json!({"size": "268435456", "held": "1000", "reserved": "3", "cooling": "0", "declined": "0",
        "free": "268434453"});
    let with = |member: &str, value: &str, pools: Value| {
        let mut of = counts.clone();
        (of[member], of["pools"]) = (json!(value), pools);
        of
    };
    let range = "2001:db8:ffff:ffff::2000:0-2001:db8:ffff:ffff::2000:ffe0";
    let mut usage = counts.clone();
    usage["subnets"] = json!([with("cidr", "2001:db8:ffff:ffff::/64", json!([with("range", range, json!([]))]))]);
    usage
}

#[test]
fn lines_fit_the_terminal_and_neither_commands_nor_numbers_are_cut() {
    let name = format!("net-{}", "long-name-".repeat(10));
    let network = name.clone();
    let server = Responder::start(move |method, _| match method {
        "network.usage" => Ok(wide_usage()),
        "network.get" => Ok(json!({"name": network, "subnets": []})),
        "scope.list" => Ok(json!({"scopes": []})),
        "ip.find" => Ok(json!({"found": [{"address": "10.0.0.5", "state": "reserved", "network": network}]})),
        "network.list" => Ok(json!({"networks": []})),
        "events.history" => Ok(json!({"events": []})),
        _ => Err(refusal(
            ErrorKind::NotFound,
            "there is no such thing in the register, and this sentence is longer than one line of any usual terminal is",
            json!({"field": "network"}),
        )),
    });
    for columns in [60, 80, 120] {
        let of = |line: &str| Terminal { columns, ..Terminal::of(&server) }.run(line).0;
        for line in [format!("network usage {name}"), format!("network why-full {name}")] {
            let seen = plain(&of(&line));
            assert_eq!(
                too_wide(&seen, usize::from(columns).max(COUNTS_COLUMNS)),
                Vec::<String>::new(),
                "{columns}: {seen}"
            );
            assert!(seen.contains("268 435 456") && seen.contains("268 434 453"), "{columns}: {seen}");
        }
        let who = of("who 10.0.0.5");
        assert!(plain(&who).contains(&format!("`allod network get {name}`")), "{columns}: {who}");
        let failure = of(&format!("ip get 10.0.0.5 --network {name}"));
        assert_eq!(too_wide(&failure, usize::from(columns)), Vec::<String>::new(), "{columns}: {failure}");
        assert!(plain(&failure).contains("\n  "), "it goes on, set in: {failure}");
    }
    // Into a pipe a sentence is written as one line.
    let output = crate::commands::allod(&server.address, &["ip", "get", "10.0.0.5", "--network", &name]);
    assert_eq!(crate::commands::text(&output.stderr).lines().count(), 3);
}

#[test]
fn long_work_shows_a_bar_on_a_terminal_and_takes_it_away() {
    let held = json!({"network": "lan", "network_id": lan()["id"], "address": "10.0.0.5", "owner": "web/0"});
    let server = Responder::start(move |method, params| {
        // Slow enough for a bar to appear.
        let slow = matches!(method, "ip.claim") || (method == "ip.list" && params["count_only"] != true);
        std::thread::sleep(Duration::from_millis(if slow { 150 } else { 0 }));
        let page = params["after"].as_str().map_or(0, |after| after.parse::<u32>().unwrap());
        Ok(match method {
            "network.list" => json!({"networks": [lan()]}),
            "ip.list" if params["obsolete"] == true => json!({"count": 0}),
            "ip.list" if params["count_only"] == true => json!({"count": 8}),
            "ip.list" if page < 7 => json!({"reservations": [held], "next": (page + 1).to_string()}),
            "ip.list" => json!({"reservations": [held]}),
            _ => json!({"created": true}),
        })
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("register.jsonl");
    let export = format!("export >{}", file.display());
    let (seen, code) = Terminal::of(&server).run(&export);
    assert!(code == 0 && seen.contains("exporting ") && seen.contains("/8 ("), "{seen:?}");
    // What remains is what a pipe would get; the bar was wiped.
    let last = seen.rsplit('\x1b').next().unwrap();
    assert!(last.ends_with("1 network, 8 reservations\n") && !last.contains("exporting"), "{seen:?}");

    let lines: String = (0..8)
        .map(|at| format!("{}\n", json!({"reservation": {"network": "lan", "address": format!("10.0.0.{at}"), "owner": format!("web/{at}")}})))
        .collect();
    write(&file, format!("{}\n{lines}", json!({"format": "allod-export", "version": 1})).as_bytes());
    let (seen, code) = Terminal::of(&server).run(&format!("import {}", file.display()));
    assert!(
        code == 0 && seen.contains("checking ") && seen.contains("importing ") && seen.contains("/8 ("),
        "{seen:?}"
    );
    assert!(seen.rsplit('\x1b').next().unwrap().contains("imported 0 networks and 8 reservations\n"), "{seen:?}");
    let piped = crate::commands::allod(&server.address, &["import", file.to_str().unwrap()]);
    assert_eq!(crate::commands::text(&piped.stderr), "imported 0 networks and 8 reservations\n");
}
