//! Opens the store that the configuration names, or says what stands in the way.

use std::path::Path;
use std::sync::Arc;

use super::cannot::CannotStart;
use crate::config::{Config, Store as StoreSettings, StoreKind};
use crate::limits::SHARDS_OF_NEW;
use crate::store::codec::Format;
use crate::store::embedded::{self, EmbeddedStore, nameplate};
use crate::store::memory::MemoryStore;
use crate::store::owner::{self, Unwritable};
use crate::store::redis::{RedisOptions, RedisStore, without_secret};
use crate::store::{Store, StoreError, chain, lock};

/// Opens the store that the configuration names.
///
/// # Errors
/// What stands in the way.
pub fn open_store(config: &Config) -> Result<Arc<dyn Store>, CannotStart> {
    if config.store.kind != StoreKind::Memory
        && let Some((problem, hint)) = as_root(&config.store.directory)
    {
        return Err(CannotStart::new(problem, hint));
    }
    match config.store.kind {
        StoreKind::Memory => {
            tracing::warn!("the memory store keeps nothing: everything is lost when the server ends");
            let (bytes, seconds) = (config.history.bytes_in(StoreKind::Memory), config.history.keep_seconds);
            Ok(Arc::new(MemoryStore::keeping_for(config.store.shards().unwrap_or(SHARDS_OF_NEW), bytes, seconds)))
        }
        StoreKind::Redis => connect(config),
        StoreKind::Embedded => {
            let directory = &config.store.directory;
            let options = embedded::EmbeddedOptions {
                accept_restored: config.store.once.accept_restored,
                give_up_history: config.store.once.give_up_history,
                give_up_snapshot: config.store.once.give_up_snapshot,
                record_format: Format::new(config.store.record_format),
                history_seconds: config.history.keep_seconds,
                history_bytes: config.history.bytes_in(StoreKind::Embedded),
                ..embedded::EmbeddedOptions::default()
            };
            let store = EmbeddedStore::open(directory, config.store.shards(), options);
            let store = store.map_err(|error| unopened(directory, &error))?;
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

/// What is wrong if this process is root and the register in the directory belongs to another user, and what to do.
pub(super) fn as_root(directory: &Path) -> Option<(String, String)> {
    let owner = owner::other_than_root(directory)?;
    let shown = directory.display();
    let problem = format!(
        "{shown} belongs to user {owner}, and this process runs as root: the server of that user could not write to the files \
         that it makes there"
    );
    let hint = format!(
        "run the same command as that user, with `{}` before it; or give the directory to root: `chown -R root {shown}`",
        owner.runs_by()
    );
    Some((problem, hint))
}

/// Files in the directory that the server cannot write: what was found, and what to do.
pub(super) fn left_by_others(directory: &Path) -> Option<(String, String)> {
    let Unwritable { owner, file, files, is_own } = owner::unwritable(directory)?;
    let more = if files > 1 { format!(" and {} more", files - 1) } else { String::new() };
    let (file, shown) = (directory.join(file), directory.display());
    let seen = format!("user {owner} may not write {}{more}", file.display());
    if is_own {
        return Some((format!("{seen}, by its mode"), format!("give him his rights back: `chmod -R u+rwX {shown}`")));
    }
    let seen = format!("{seen}, perhaps of a start as root");
    Some((seen, format!("as root, while no server has it open: `chown -R {owner} {shown}`")))
}

/// Why the register in files cannot be opened.
fn unopened(directory: &Path, error: &StoreError) -> CannotStart {
    let problem = format!("cannot open the store in {}: {}", directory.display(), chain(error));
    let cannot = match error {
        StoreError::Io { .. } if nameplate::may_be_there(directory) => CannotStart::files(problem, error, directory),
        StoreError::Locked(_) if nameplate::may_be_there(directory) => CannotStart::in_use(problem),
        _ => CannotStart::store(problem, error, StoreKind::Embedded),
    };
    match nameplate::notice(directory) {
        None if nameplate::is_of_node(directory) && matches!(error, StoreError::Foreign(_)) => {
            CannotStart { hint: hint_of_node(directory), ..cannot }
        }
        // The register went elsewhere: neither another directory nor write permission would help.
        Some(notice) if matches!(error, StoreError::Foreign(_)) => CannotStart { hint: notice.hint(), ..cannot },
        Some(_) | None => cannot,
    }
}

/// Another process has the configured directory open: the error that a start would report when it opens the directory.
pub(super) fn in_use(config: &Config) -> Option<CannotStart> {
    let directory = &config.store.directory;
    match config.store.kind {
        StoreKind::Memory => None,
        StoreKind::Embedded => nameplate::held(directory).map(|error| unopened(directory, &error)),
        StoreKind::Redis => lock::held_by_node(directory).map(|error| unconnected(config, &error)),
    }
}

/// Location of the configured register, for people: without a password.
pub(super) fn place(config: &Config) -> String {
    let StoreSettings { kind, directory, redis, prefix, .. } = &config.store;
    match kind {
        StoreKind::Memory => "memory".to_owned(),
        StoreKind::Embedded => format!("the directory {}", directory.display()),
        StoreKind::Redis => format!("{}, keys `{{{prefix}}}:…`", without_secret(redis)),
    }
}

/// Options of the store in Redis, as configured.
pub(super) fn redis_options(config: &Config) -> RedisOptions {
    let settings = &config.store;
    RedisOptions {
        tls: settings.tls_files(),
        prefix: settings.prefix.clone(),
        owner: config.node(),
        directory: Some(settings.directory.clone()),
        accept_new_store: settings.once.accept_new_store,
        accept_rollback: settings.once.accept_rollback,
        record_format: Format::new(settings.record_format),
        history_seconds: config.history.keep_seconds,
        history_bytes: config.history.bytes_in(StoreKind::Redis),
        heal_bytes: usize::try_from(settings.redis_heal_bytes).unwrap_or(usize::MAX),
        replicas: u32::try_from(settings.redis_replicas).unwrap_or(u32::MAX),
        degrade: settings.redis_degrade,
        expects_others: !config.cluster.secret_file.as_os_str().is_empty(),
        ..RedisOptions::new(settings.redis.clone(), settings.shards())
    }
}

/// What to do if a directory is opened as a register but belongs to a node whose register is in Redis.
pub(super) fn hint_of_node(directory: &Path) -> String {
    let files: Vec<String> = nameplate::files_of_node(directory).iter().map(|name| format!("`{name}`")).collect();
    let both = match &files[..] {
        _ if !nameplate::may_be_there(directory) => String::new(),
        [only] if only == "`REDIS`" => {
            "; if the register in these files is the one that all clients use, move the file `REDIS` elsewhere first"
                .to_owned()
        }
        _ => format!(
            "; if the register in these files is the one that all clients use, move {} elsewhere first, and claim what is in use \
             (`allod ip claim`) before others are granted",
            files.join(", ")
        ),
    };
    format!(
        "name its Redis by `--redis URL`, or in the configuration (`store.kind = \"redis\"`, `store.redis`; `--config FILE`): \
         nothing was changed here, and in a new register every address is free{both}"
    )
}

/// The register in the files of the directory that a start over Redis would leave behind, and what to do about it.
pub(super) fn left_behind(config: &Config) -> Option<(String, String)> {
    let StoreSettings { directory, redis, prefix, .. } = &config.store;
    let holds = embedded::left_behind(directory).ok().flatten()?;
    let keys =
        if *prefix == StoreSettings::default().prefix { String::new() } else { format!(" --redis-prefix {prefix}") };
    let hint = format!(
        "`allod migrate {} {}{keys}` moves it there; then start it again. Otherwise what it has granted would be granted again. \
         A node of a register that is already in Redis needs a directory of its own (`--data DIR`)",
        directory.display(),
        without_secret(redis)
    );
    Some((holds, hint))
}

fn connect(config: &Config) -> Result<Arc<dyn Store>, CannotStart> {
    let options = redis_options(config);
    let store = RedisStore::open(options).map_err(|error| unconnected(config, &error))?;
    tracing::info!(survives = store.info().durability, "the register is in Redis");
    Ok(Arc::new(store))
}

/// Why the register in Redis cannot be opened.
fn unconnected(config: &Config, error: &StoreError) -> CannotStart {
    let problem = format!("cannot open the store in Redis: {}", chain(error));
    let cannot = CannotStart::of_node(problem, error, &config.store.directory);
    // Looking for a register in files means reading its whole log: not at each start that cannot reach Redis.
    if !matches!(error, StoreError::Foreign(_)) || nameplate::is_of_node(&config.store.directory) {
        return cannot;
    }
    match left_behind(config) {
        Some((_, hint)) => CannotStart { hint, ..cannot },
        None => cannot,
    }
}
