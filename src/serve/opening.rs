//! Opens the store that a configuration names, or says what stands in the way.

use std::sync::Arc;

use super::cannot::CannotStart;
use crate::actors::committer::chain;
use crate::config::{Config, StoreKind};
use crate::store::codec::Format;
use crate::store::embedded::{self, EmbeddedStore, nameplate};
use crate::store::memory::MemoryStore;
use crate::store::redis::{RedisOptions, RedisStore};
use crate::store::{Store, StoreError};

/// Opens the store that the configuration names.
///
/// # Errors
/// What stands in the way.
pub fn open_store(config: &Config) -> Result<Arc<dyn Store>, CannotStart> {
    let shards = u16::try_from(config.store.shards).unwrap_or(1);
    match config.store.kind {
        StoreKind::Memory => {
            tracing::warn!("the memory store keeps nothing: everything is lost when the server ends");
            let (bytes, seconds) = (config.history.bytes_in(StoreKind::Memory), config.history.keep_seconds);
            Ok(Arc::new(MemoryStore::keeping_for(shards, bytes, seconds)))
        }
        StoreKind::Redis => connect(config),
        StoreKind::Embedded => {
            let directory = &config.store.directory;
            let options = embedded::EmbeddedOptions {
                accept_restored: config.store.accept_restored,
                record_format: Format::new(config.store.record_format),
                history_seconds: config.history.keep_seconds,
                history_bytes: config.history.bytes_in(StoreKind::Embedded),
                ..embedded::EmbeddedOptions::default()
            };
            let store = EmbeddedStore::open(directory, shards, options).map_err(|error| {
                let problem = format!("cannot open the store in {}: {}", directory.display(), chain(&error));
                let cannot = match &error {
                    StoreError::Io { .. } if nameplate::may_be_there(directory) => CannotStart::files(problem, &error),
                    _ => CannotStart::store(problem, &error, StoreKind::Embedded),
                };
                match nameplate::notice(directory) {
                    // It went somewhere else: no other directory helps, and no right to write.
                    Some(notice) if matches!(error, StoreError::Foreign(_)) => {
                        CannotStart { hint: notice.hint(), ..cannot }
                    }
                    Some(_) | None => cannot,
                }
            })?;
            if store.restored_from().is_some() {
                tracing::warn!(
                    directory = %directory.display(),
                    "this register was restored from a copy: no address is chosen for anybody until what is in use was \
                     claimed and the server was started with --accept-restored"
                );
            }
            Ok(Arc::new(store))
        }
    }
}

/// The store in Redis as the configuration has it.
pub(super) fn redis_options(config: &Config) -> RedisOptions {
    let settings = &config.store;
    RedisOptions {
        tls: settings.tls_files(),
        prefix: settings.prefix.clone(),
        owner: config.node(),
        directory: Some(settings.directory.clone()),
        accept_new_store: settings.accept_new_store,
        accept_rollback: settings.accept_rollback,
        record_format: Format::new(settings.record_format),
        history_seconds: config.history.keep_seconds,
        history_bytes: config.history.bytes_in(StoreKind::Redis),
        heal_bytes: usize::try_from(settings.redis_heal_bytes).unwrap_or(usize::MAX),
        replicas: u32::try_from(settings.redis_replicas).unwrap_or(u32::MAX),
        degrade: settings.redis_degrade,
        ..RedisOptions::new(settings.redis.clone(), u16::try_from(settings.shards).unwrap_or(1))
    }
}

fn connect(config: &Config) -> Result<Arc<dyn Store>, CannotStart> {
    let options = redis_options(config);
    let store = RedisStore::open(options).map_err(|error| {
        let problem = format!("cannot open the store in Redis: {}", chain(&error));
        CannotStart::of_node(problem, &error, &config.store.directory)
    })?;
    tracing::info!(survives = store.info().durability, "the register is in Redis");
    Ok(Arc::new(store))
}
