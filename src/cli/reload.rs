//! `allod reload PID`: has a server of this machine read its configuration again, where there is no `kill` (the image has
//! no shell) and none but a server that listens for it must get the signal.

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use super::exit::Exit;
use super::failure::Failure;
use super::session::Done;

/// `allod reload`.
#[derive(Debug, Args)]
#[command(after_help = "\
What is taken over while it runs is `log.level`; the log of the server says what
came of it, and names keys that wait for the next start. A file that is wrong
changes nothing. Under systemd: `systemctl reload allod`.")]
pub struct Reload {
    /// Process of the server; in a container it is 1
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
}

/// Sends the signal, to a server only.
pub fn run(args: &Reload) -> Done<Exit> {
    let asked = format!("have process {} read its configuration again", args.pid);
    let fail = |problem: String, hint: &str| Failure::new(asked.clone(), problem, hint);
    let not_there = "`pidof allod` lists the processes; under systemd `systemctl reload allod` knows which";
    let read = |file: &str| {
        let path = format!("/proc/{}/{file}", args.pid);
        std::fs::read_to_string(&path).map_err(|error| fail(format!("{path}: {error}"), not_there))
    };
    let serves = read("cmdline")?.split('\0').any(|argument| argument == "serve");
    if !serves || !catches_hangup(&read("status")?) {
        return Err(fail("it is no server that listens for that, and would end".to_owned(), not_there).into());
    }
    let sent = Pid::from_raw(args.pid).map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, Signal::HUP));
    sent.map_err(|error| fail(error.to_string(), "say it as the user of the server, or as root"))?;
    eprintln!("asked; the log of the server says what came of it");
    Ok(Exit::Success)
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
