//! `allod reload PID`: makes a server on this machine read its configuration again. It serves where there is no `kill` (the
//! image has no shell), and makes sure that only a server which handles the signal gets it.
//!
//! The server reports a wrong configuration only in its log. So the file is checked first, in the same way as the server
//! would do it.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use clap::{Args, Parser};
use rustix::process::{Pid, Signal, kill_process};

use super::exit::Exit;
use super::failure::Failure;
use super::output::words;
use super::serve_args::ServeArgs;
use super::session::Done;
use super::{Cli, Command};
use crate::serve::from_cli;

/// `allod reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
Only `log.level` changes while the server runs; its log says from what to what,
and names keys that wait for the next start. A wrong file is refused and changes
nothing. Under systemd: `systemctl reload allod`.")]
pub struct Reload {
    /// Process of the server; in a container it is 1
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
}

/// Sends the signal, but only to a server, and only if its file is right.
pub fn run(args: &Reload) -> Done<Exit> {
    let asked = format!("have process {} read its configuration again", args.pid);
    let fail = |problem: String, hint: &str| Failure::new(asked.clone(), problem, hint);
    let not_there = "`pidof allod` lists the processes; under systemd `systemctl reload allod` knows which";
    let not_ours = "run it as the user of the server, or as root";
    let read = |file: &str, hint: &str| {
        let path = format!("/proc/{}/{file}", args.pid);
        std::fs::read(&path).map_err(|error| match error.kind() {
            // The process may end meanwhile.
            ErrorKind::NotFound => fail("there is no such process".to_owned(), not_there),
            _ => fail(format!("{path}: {error}"), hint),
        })
    };
    let arguments = read("cmdline", not_there)?;
    let serves = arguments.split(|byte| *byte == 0).any(|argument| argument == b"serve");
    if !serves || !catches_hangup(&String::from_utf8_lossy(&read("status", not_there)?)) {
        return Err(fail("it is not a server that listens for that signal, and would end".to_owned(), not_there).into());
    }
    match served(&arguments) {
        // The server is of another release, which knows better what its arguments mean.
        None => words::warn("its arguments are not those of this release, so its file is not checked before"),
        Some(served) => {
            let Some(file) = &served.config else {
                let problem = "it was started without `--config`: there is nothing to read again";
                return Err(fail(problem.to_owned(), "start it with `allod serve --config FILE`").into());
            };
            from_cli::check_again(args.pid, file, &read("environ", not_ours)?, served.flags())
                .map_err(|problem| super::wrong_config(file, &problem))?;
        }
    }
    let sent = Pid::from_raw(args.pid).map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, Signal::HUP));
    sent.map_err(|error| fail(error.to_string(), not_ours))?;
    words::say("asked; the log of the server says what came of it");
    Ok(Exit::Success)
}

/// Parses the arguments of a server process; each ends with a NUL.
fn served(arguments: &[u8]) -> Option<ServeArgs> {
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments).split(|byte| *byte == 0).map(OsStr::from_bytes);
    match Cli::try_parse_from(arguments).ok()?.command {
        Command::Serve(served) => Some(served),
        _ => None,
    }
}

/// Does a process with this `status` have a handler for SIGHUP?
fn catches_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    // SIGHUP is signal 1, the lowest bit.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_with_a_handler_is_sent_a_hangup() {
        assert!(catches_hangup("Name:\tallod\nSigCgt:\t0000000100004001\n"));
        assert!(!catches_hangup("Name:\tallod\nSigCgt:\t0000000100004002\n"));
        assert!(!catches_hangup("Name:\tallod\n"));
    }
}
