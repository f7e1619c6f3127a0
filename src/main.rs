//! The `allod` program.

use std::process::ExitCode;

use allod::serve::{ServeArgs, run};

fn main() -> ExitCode {
    let mut args = ServeArgs::default();
    let mut words = std::env::args().skip(2);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        args.flags.push((key.trim_start_matches("--").to_owned(), value));
    }
    ExitCode::from(run(args))
}
