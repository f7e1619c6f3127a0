//! `allod backup` and `allod restore`: copies of a data directory that no server has open.
//!
//! A copy is verified completely while it is made, and is another register: the original may go on and grant what is free in
//! the copy. So a restored register has a new identity and higher generations, and refuses a late request about a
//! reservation from before.

use std::path::{Path, PathBuf};

use clap::Args;

use super::doctor::assumed;
use super::exit::Exit;
use super::failure::Failure;
use super::output::words::say;
use super::progress::Progress;
use super::quote::shell;
use super::session::Done;
use crate::serve::from_cli::{self, Copier, Obstacle};

/// `allod backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// Directory to copy into; empty or absent
    target: PathBuf,
    /// Data directory of the server, which must be stopped
    #[arg(long, value_name = "DIR", default_value = "allod-data")]
    data: PathBuf,
}

/// `allod restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Directory that `allod backup` wrote
    source: PathBuf,
    /// Data directory to make; empty or absent
    #[arg(long, value_name = "DIR", default_value = "allod-data")]
    data: PathBuf,
}

/// Copies the register.
pub fn backup(args: &Backup) -> Done<Exit> {
    let asked = format!("back up `{}` into `{}`", args.data.display(), args.target.display());
    if let Some(problem) = from_cli::moved(&args.data) {
        // Otherwise the old register would be copied night after night, unnoticed.
        let hint = "back up the register where it is now; `allod restore OLD --data NEW` makes one of what is here";
        return Err(Failure::new(asked, problem, hint).into());
    }
    if let Some((problem, hint)) = from_cli::unfinished(&args.data) {
        return Err(Failure::new(asked, problem, hint).into());
    }
    copy((&args.data, &args.target), Copier::Backup, asked, |obstacle| match obstacle {
        Obstacle::NoSource => "name the data directory of the server: `allod backup TARGET --data DIR`",
        Obstacle::InRedis => {
            "the register of that node is in Redis: copy the files of Redis, or ask for all of it: `allod export > register.jsonl`"
        }
        Obstacle::InUse => "stop the server first, or copy from it while it runs: `allod export > register.jsonl`",
        Obstacle::Foreign => {
            "nothing was copied; if a newer allod wrote it, run the same command of that version: `allod --version`"
        }
        Obstacle::Damaged => "nothing was copied; an earlier copy comes back by `allod restore SOURCE --data DIR`",
        Obstacle::Unreadable => {
            "run it as a user who can read it: `runuser -u allod -- allod backup TARGET --data DIR`"
        }
        Obstacle::Refused => {
            "nothing was copied; look at the kernel's log (`journalctl -k`) and `ulimit -n`, then run it again"
        }
        Obstacle::Occupied => "name a directory elsewhere that is empty or not there: `allod backup TARGET --data DIR`",
        Obstacle::Unwritable => "name a directory that you may write to, with room: `allod backup TARGET --data DIR`",
        Obstacle::NoRoom => {
            "nothing was written; make room there, or name a directory elsewhere: `allod backup TARGET --data DIR`"
        }
    })
}

/// Makes a register from a copy.
pub fn restore(args: &Restore) -> Done<Exit> {
    let asked = format!("restore `{}` into `{}`", args.source.display(), args.data.display());
    if args.source.is_file() {
        let hint = format!(
            "a file of `allod export` goes into an empty register that is served: `allod import {}`",
            shell(&args.source.to_string_lossy())
        );
        return Err(Failure::new(asked, "it is a file, and a copy is a directory", hint).into());
    }
    if let Some((problem, hint)) = from_cli::as_root(&args.data) {
        return Err(Failure::new(asked, problem, hint).into());
    }
    if let Some((problem, hint)) = from_cli::unfinished(&args.source) {
        return Err(Failure::new(asked, problem, hint).into());
    }
    let done = copy((&args.source, &args.data), Copier::Restore, asked, |obstacle| match obstacle {
        Obstacle::NoSource | Obstacle::InRedis => {
            "name a directory that `allod backup` wrote: `allod restore SOURCE --data DIR`"
        }
        Obstacle::InUse => "stop the server that has it open, or name a copy: `allod restore SOURCE --data DIR`",
        Obstacle::Foreign => {
            "nothing was copied; if a newer allod wrote it, run the same command of that version: `allod --version`"
        }
        Obstacle::Damaged => "name another copy: `allod restore SOURCE --data DIR`",
        Obstacle::Unreadable => {
            "run it as a user who can read it, or have it copied: `allod restore SOURCE --data DIR`"
        }
        Obstacle::Refused => {
            "nothing was copied; look at the kernel's log (`journalctl -k`) and `ulimit -n`, then run it again"
        }
        Obstacle::Occupied => {
            "name a directory elsewhere that is empty or not there: `allod restore SOURCE --data DIR`"
        }
        Obstacle::Unwritable => "name a directory that you may write to, with room: `allod restore SOURCE --data DIR`",
        Obstacle::NoRoom => {
            "nothing was written; make room there, or name a directory elsewhere: `allod restore SOURCE --data DIR`"
        }
    })?;
    let start = start_of(&args.data, Path::new(assumed::CONFIG));
    say(&format!(
        "what was granted after the copy was made is not in it, so the server chooses no address for anybody until what is in \
         use has been claimed (`allod ip claim`) and it was started with `{start} --accept-restored`"
    ));
    Ok(done)
}

/// The command that starts the server on this directory. It names the configuration file if there is one: without it the
/// server would use other settings, and drop history that is older than they allow.
fn start_of(data: &Path, config: &Path) -> String {
    let quoted = |path: &Path| shell(&path.to_string_lossy());
    let data = quoted(data);
    if config.exists() {
        format!("allod serve --config {} --data {data}", quoted(config))
    } else {
        format!("allod serve --data {data}")
    }
}

fn copy((from, to): (&Path, &Path), by: Copier, asked: String, hint: fn(Obstacle) -> &'static str) -> Done<Exit> {
    let progress = Progress::bytes("copying");
    let copied = from_cli::copy_register(from, to, by, move |read, of| progress.at_of(read, of));
    let said = copied.map_err(|(problem, obstacle)| Failure::new(asked, problem, hint(obstacle)))?;
    say(&said);
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_register_is_started_with_the_settings_of_its_server() {
        let directory = tempfile::tempdir().unwrap();
        let (data, config) = (Path::new("/var/lib/allod"), directory.path().join("server.toml"));
        assert_eq!(start_of(data, &config), "allod serve --data /var/lib/allod");
        std::fs::File::create(&config).unwrap();
        let said = format!("allod serve --config {} --data /var/lib/allod", config.display());
        assert_eq!(start_of(data, &config), said);
        // It is meant to be pasted into a shell.
        assert!(start_of(Path::new("/srv/a b"), &config).ends_with(" --data '/srv/a b'"));
    }
}
