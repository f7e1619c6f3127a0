//! Checks what the register's own key says besides its identity, which every look at the nodes compares: its format, and its
//! number of shards. Otherwise only a start reads them, and believes them: with too small a number, nobody would miss the
//! networks in the other shards.
//!
//! Called by `load`, once in each round of the self-check.

use redis::{Cmd, Value};

use super::failed::Failed;
use super::heal;
use super::keys::FORMAT;
use super::link::Link;
use super::load::{PIECE_WITHIN, damaged, list};
use super::shared::RedisShared;
use crate::store::StoreError;

/// Compares the key with what this process opened.
///
/// # Errors
/// [`StoreError::Damaged`] says what differs, and what to do.
pub(super) async fn check(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    shared.sound()?;
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    let (key, known) =
        (shared.keys.register(), [("format", FORMAT.to_owned()), ("shards", shared.info.shards.to_string())]);
    let mut command = Cmd::new();
    command.arg("HMGET").arg(&key);
    for (field, _) in &known {
        command.arg(field);
    }
    let found = list(shared, link.ask(command, PIECE_WITHIN).await?)?;
    // A key that is gone as a whole is found by the look at the nodes, and may be written anew.
    if found.iter().all(|value| matches!(value, Value::Nil)) {
        return Ok(());
    }
    for ((field, known), found) in known.iter().zip(found) {
        let found = match found {
            Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            _ => "nothing".to_owned(),
        };
        if found != *known {
            let problem = format!(
                "says `{field}` is {found}, and this server opened it with {known}: put that back, `HSET {key} {field} {known}`"
            );
            return Err(damaged(shared, &key, problem));
        }
    }
    Ok(())
}
