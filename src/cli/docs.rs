//! `allod completions` and `allod man`: generated from the argument tree.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Unwritten;
use super::session::Done;

/// `allod completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// bash, elvish, fish, powershell or zsh
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

/// `allod man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Directory; created if it does not exist
    directory: PathBuf,
}

/// Writes completions to stdout.
pub fn completions(args: &Completions) -> Done<Exit> {
    // Generated in memory first: the generator panics if the pipe is closed.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "allod", &mut text);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&text).and_then(|()| stdout.flush()).map_err(Unwritten)?;
    Ok(Exit::Success)
}

/// Writes a page for each command: `allod.1`, `allod-ip-allocate.1`, ….
pub fn man(args: &Man) -> Done<Exit> {
    let failed = |error: std::io::Error| {
        let asked = format!("write man pages into `{}`", args.directory.display());
        Failure::new(asked, error.to_string(), "name a directory that can be written: `allod man DIR`")
    };
    fs::create_dir_all(&args.directory).map_err(failed)?;
    clap_mangen::generate_to(super::command(), &args.directory).map_err(failed)?;
    Ok(Exit::Success)
}
