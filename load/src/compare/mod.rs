//! placeholder
use clap::Args;
#[derive(Args)]
pub struct CompareArguments {}
pub fn run(_: &CompareArguments) -> std::io::Result<bool> {
    Ok(false)
}
