//! `allod backup` and `allod restore`: copies of a data directory that no server has open.
//!
//! A copy is verified whole while it is made, and is another register: the one that it was copied from may go on and
//! give away what is free in the copy. So a restored register has a new identity and higher generations, and a late
//! request that speaks of a holding of before is refused.

use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::Exit;
use super::failure::Failure;
use super::session::Done;
use crate::serve::from_cli;

/// `allod backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// Directory to copy into; empty, or not there
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
    /// Data directory to make; empty, or not there
    #[arg(long, value_name = "DIR", default_value = "allod-data")]
    data: PathBuf,
}

/// Copies the register.
pub fn backup(args: &Backup) -> Done<Exit> {
    let asked = format!("back up `{}` into `{}`", args.data.display(), args.target.display());
    copy(
        &args.data,
        &args.target,
        asked,
        "stop the server and name an empty directory; `allod export` copies from a server that runs",
    )
}

/// Makes a register from a copy.
pub fn restore(args: &Restore) -> Done<Exit> {
    let asked = format!("restore `{}` into `{}`", args.source.display(), args.data.display());
    let done = copy(&args.source, &args.data, asked, "name an empty directory: `allod restore SOURCE --data DIR`")?;
    let data = args.data.display();
    say(&format!(
        "what was granted after the copy was made is not in it, so the server will choose no address for anybody until\n\
         what is in use was claimed (`allod ip claim`) and it was started with `allod serve --data {data} --accept-restored`"
    ));
    Ok(done)
}

fn copy(from: &Path, to: &Path, asked: String, hint: &str) -> Done<Exit> {
    let said = from_cli::copy_register(from, to).map_err(|problem| Failure::new(asked, problem, hint))?;
    say(&said);
    Ok(Exit::Success)
}

fn say(words: &str) {
    // A stderr that is gone hears nothing; the copy is there.
    let _ = std::io::Write::write_all(&mut anstream::stderr(), format!("{words}\n").as_bytes());
}
