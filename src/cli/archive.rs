//! placeholder
use super::{
    exit::Exit,
    session::{Done, Session},
};
use std::path::PathBuf;
/// `allod export`.
#[derive(Debug, clap::Args)]
pub struct Export {}
/// `allod import`.
#[derive(Debug, clap::Args)]
pub struct Import {
    file: PathBuf,
}
/// x
pub async fn export(_s: &mut Session, _a: &Export) -> Done<Exit> {
    Ok(Exit::Success)
}
/// x
pub async fn import(_s: &mut Session, _a: &Import) -> Done<Exit> {
    Ok(Exit::Success)
}
