//! stub
use super::Network;
use crate::core::command::{Configure, Context, Moved, SubnetRef};
use crate::core::outcome::Decision;
use crate::core::refusal::Refusal;
use crate::core::types::Version;
impl Network {
    pub(super) fn decide_configure(&self, _: &Configure, _: Option<Version>, _: Context) -> Result<Decision, Refusal> {
        Err(Refusal::invalid("method", "later"))
    }
    pub(super) fn decide_move_out(&self, _: &SubnetRef, _: Option<Version>, _: Context) -> Result<Decision, Refusal> {
        Err(Refusal::invalid("method", "later"))
    }
    pub(super) fn decide_move_in(&self, _: &Moved, _: Context) -> Result<Decision, Refusal> {
        Err(Refusal::invalid("method", "later"))
    }
}
