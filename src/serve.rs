//! Stands in for the server until it is merged.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::failure::Failure;
use crate::cli::serve_args::ServeArgs;

/// Runs the server.
pub fn run(_args: ServeArgs) -> ExitCode {
    missing("run the server")
}

/// Checks a configuration file.
pub fn check_config(_file: &Path) -> ExitCode {
    missing("check the configuration")
}

fn missing(asked: &str) -> ExitCode {
    let failure = Failure::new(asked, "this build has none", "build the whole tree with `cargo build`");
    failure.print();
    failure.exit.into()
}
