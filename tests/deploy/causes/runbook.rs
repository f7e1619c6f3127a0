//! What `deploy/README.md` says to do about an alert, done as it stands there: commands are read from the page, and only the
//! words in capitals are filled in.
//!
//! Where a server, its files and Redis are is another place here; there is no systemd, so what it is asked for is done to the
//! processes, and what `journalctl` would show is the log that they wrote.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::server::allod;
use crate::tools::read;

/// Programs that the page has somebody run.
const PROGRAMS: [&str; 6] = ["allod", "systemctl", "journalctl", "curl", "redis-cli", "df"];

/// The commands of an alert, in their order.
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

/// Somebody who looks after these.
pub struct Operator<'a> {
    pub rpc: SocketAddr,
    pub http: SocketAddr,
    /// Where Redis is, if there is one.
    pub redis: u16,
    /// What is `/var/lib/allod` elsewhere; the log is beside it.
    pub data: &'a Path,
}

impl Operator<'_> {
    /// Does what the page says of an alert; what was printed. `says` fills in the words in capitals; `systemd` is asked to
    /// `start`, `stop`, `restart` or tell the `status` of a unit.
    #[track_caller]
    pub fn follows(&self, alert: &str, says: &[(&str, &str)], systemd: &mut dyn FnMut(&str, &str)) -> String {
        commands(alert).iter().map(|command| self.does(command, says, systemd)).collect()
    }

    /// One command, as it stands somewhere.
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
        // What would go into a file is what is printed.
        let command = command.split(" > ").next().unwrap_or_default();
        let words: Vec<String> = command.split(' ').map(word).collect();
        let (program, arguments) = words.split_first().unwrap();
        let mut run = match program.as_str() {
            "systemctl" => {
                systemd(&arguments[0], &arguments[1]);
                return String::new();
            }
            "journalctl" => {
                assert_eq!(arguments[..2], ["-u", "allod"]);
                return std::fs::read_to_string(self.data.with_extension("log")).unwrap();
            }
            "allod" => {
                let mut run = Command::new(allod());
                // Nobody is here to be asked.
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
        // A Redis that is gone answers no `ping`: that is what one wants to know.
        assert!(output.status.success() || program == "redis-cli", "`{command}`: {printed}");
        printed
    }
}

/// Where nothing is asked of systemd.
pub fn no_unit(verb: &str, unit: &str) {
    panic!("`systemctl {verb} {unit}` has nothing to do with this");
}
