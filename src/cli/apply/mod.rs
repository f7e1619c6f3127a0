//! placeholder
pub mod dump {
    use super::super::{
        exit::Exit,
        network::Dump,
        session::{Done, Session},
    };
    pub async fn run(_s: &mut Session, _a: &Dump) -> Done<Exit> {
        Ok(Exit::Success)
    }
}
use super::{
    exit::Exit,
    network::Apply,
    session::{Done, Session},
};
/// x
pub async fn run(_s: &mut Session, _a: &Apply) -> Done<Exit> {
    Ok(Exit::Success)
}
