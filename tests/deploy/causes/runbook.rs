//! Does what `deploy/README.md` says to do about an alert, as it stands there: commands are read from the page, and only the
//! words in capitals are filled in.
//!
//! The server, its files and Redis are in other places here. There is no systemd: what it is asked to do is done to the
//! processes, and `journalctl` shows the log that they wrote, with `-p err` what an operator would see of it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::journal::journalctl;
use crate::server::allod;
use crate::tools::read;

/// The programs that the page tells an operator to run.
const PROGRAMS: [&str; 6] = ["allod", "systemctl", "journalctl", "curl", "redis-cli", "df"];

/// The commands for an alert, in their order.
fn commands(alert: &str) -> Vec<String> {
    let page = read("deploy/README.md");
    let named = |line: &&str| {
        line.starts_with('|') && line.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{alert}`")))
    };
    let row = page.lines().find(named).unwrap_or_else(|| panic!("deploy/README.md says nothing of {alert}"));
    let to_do = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
    let quoted = to_do.split('`').skip(1).step_by(2);
    let is_command = |quoted: &&str| {
        PROGRAMS.iter().any(|program| quoted.split(' ').next() == Some(program) && quoted.contains(' '))
    };
    let commands: Vec<String> = quoted.filter(is_command).map(str::to_owned).collect();
    assert!(!commands.is_empty(), "{alert}: there is nothing to do: {to_do}");
    commands
}

/// Somebody who looks after these servers.
pub struct Operator<'a> {
    pub rpc: SocketAddr,
    pub http: SocketAddr,
    /// The port of Redis, if there is one.
    pub redis: u16,
    /// The directory in place of `/var/lib/allod`; the log is beside it.
    pub data: &'a Path,
}

impl Operator<'_> {
    /// Does what the page says about an alert, and returns what was printed. `says` fills in the words in capitals;
    /// `systemd` is asked to `start`, `stop` or `restart` a unit, or for its `status`.
    #[track_caller]
    pub fn follows(&self, alert: &str, says: &[(&str, &str)], systemd: &mut dyn FnMut(&str, &str)) -> String {
        commands(alert).iter().map(|command| self.does(command, says, systemd)).collect()
    }

    /// Runs one command as it is printed, on the page or by another command.
    #[track_caller]
    pub fn does(&self, command: &str, says: &[(&str, &str)], systemd: &mut dyn FnMut(&str, &str)) -> String {
        let http = self.http.to_string();
        let word = |word: &str| {
            let is_blank = word.chars().all(|c| c.is_ascii_uppercase());
            if is_blank {
                let said = says.iter().find(|(blank, _)| *blank == word);
                return said.unwrap_or_else(|| panic!("`{command}`: what is {word}?")).1.to_owned();
            }
            word.replace("127.0.0.1:7401", &http).replace("/var/lib/allod", &self.data.display().to_string())
        };
        // What would go into a file is returned as printed.
        let command = command.split(" > ").next().unwrap_or_default();
        let words: Vec<String> = command.split(' ').map(word).collect();
        let (program, arguments) = words.split_first().unwrap();
        let mut run = match program.as_str() {
            "systemctl" => {
                systemd(&arguments[0], &arguments[1]);
                return String::new();
            }
            "journalctl" => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                return journalctl(&arguments, &std::fs::read_to_string(self.data.with_extension("log")).unwrap());
            }
            "allod" => {
                let mut run = Command::new(allod());
                // There is nobody to ask.
                run.env("ALLOD_SERVER", self.rpc.to_string()).arg("--yes");
                run
            }
            "redis-cli" => {
                let mut run = Command::new(program);
                run.args(["-p", &self.redis.to_string()]);
                run
            }
            _ => Command::new(program),
        };
        let output = run.args(arguments).output().unwrap();
        let printed = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        // A Redis that is gone does not answer `ping`, which is what the command is meant to find out.
        assert!(output.status.success() || program == "redis-cli", "`{command}`: {printed}");
        printed
    }
}

/// For commands that ask nothing of systemd.
pub fn no_unit(verb: &str, unit: &str) {
    panic!("`systemctl {verb} {unit}` has nothing to do with this");
}
