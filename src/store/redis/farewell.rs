//! The last that is asked of Redis before this process ends: has it all that somebody was told of? What it lost is given back as
//! ever, and what others went on without is put aside; and it is noted how far that is, for the next start (see `identity`).
//! Where that cannot be known now (Redis is away, or another node gives back its part first) all that is remembered is left on
//! this machine's disk (see `redo`): its memory ends with the process, and nobody else knew.
//!
//! Where the store stopped because Redis went back, too, that is left which was not put aside, and what was noted of it then
//! stays. Not where it failed of something else: then it was said what became of the register, and what is to be done. Nor of
//! what was emptied: whoever writes it anew has all of it.

use std::time::Duration;

use super::failed::Failed;
use super::heal;
use super::late;
use super::link::Link;
use super::redo;
use super::shared::RedisShared;
use crate::store::{Seq, StoreError};

/// A stop has waited for Redis before this.
const LOOKS_WITHIN: Duration = Duration::from_secs(2);

/// See the module's text.
pub(super) async fn say(shared: &RedisShared, link: &mut Link) {
    let has_told = shared.lines().iter().any(|line| line.told.seq > Seq(0));
    let has_failed = shared.failed_of().filter(|_| !shared.has_gone_back()).is_some();
    if !shared.serves() || shared.was_emptied() || has_failed || !has_told {
        return;
    }
    let problem = match tokio::time::timeout(LOOKS_WITHIN, has_everything(shared, link)).await {
        Ok(Ok(())) => return shared.stands(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "Redis does not answer".to_owned(),
    };
    match redo::leave(shared).await {
        Ok(None) => {}
        Ok(Some((changes, path))) => {
            let path = path.display();
            tracing::warn!(
                redis = %shared.place, %path, changes, problem,
                "it is not known whether Redis has all that this server acknowledged: the next start gives back what is missing"
            );
        }
        Err(error) => {
            tracing::error!(
                redis = %shared.place, problem, %error,
                "it is not known whether Redis has all that this server acknowledged, and what it remembers cannot be kept: what \
                 Redis lost of it stays lost"
            );
        }
    }
}

/// It has, or what it lacks is put aside.
async fn has_everything(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    late::review(shared, link).await
}
