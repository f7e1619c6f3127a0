//! The configuration: whether it is valid, and where each value that is not the default comes from.

use super::Check;
use crate::config::{Config, Origin, Sources, StoreKind};
use crate::core::plural::counted;
use crate::peer::secret::Secret;
use crate::store::redis::{has_password, is_over_tls, without_secret};

const CHECK: &str = "config";

/// It is invalid, or cannot be read.
pub(super) fn refused(problem: &str) -> Check {
    let hint = "config/server.toml explains every key; then `allod check-config FILE`";
    Check::wrong(CHECK, problem.replace('\n', "; "), hint)
}

/// It is valid: one line that says where it comes from, and one for each value that is not the default.
pub(super) fn told(sources: &Sources, config: &Config) -> Vec<Check> {
    let from = match &sources.file {
        Some((path, _)) => path.display().to_string(),
        None => "no file (--config)".to_owned(),
    };
    let values = config.values();
    let origins = sources.origins(values.iter().map(|(key, _)| key.as_str()));
    let set: Vec<(String, String, Origin)> = values
        .into_iter()
        .zip(origins)
        .map(|((key, value), origin)| {
            let value = match value.as_str() {
                // It may hold a password.
                Some(url) if key == "store.redis" => format!("{:?}", without_secret(url)),
                _ => value.to_string(),
            };
            (key, value, origin)
        })
        .filter(|(_, _, origin)| *origin != Origin::Default)
        .collect();
    let count = set.len();
    let mut checks =
        vec![Check::ok(CHECK, format!("{from}: {} set, all others at their defaults", counted(count as u64, "key")))];
    checks.extend(set.into_iter().map(|(key, value, origin)| Check::ok(CHECK, format!("{key} = {value} ({origin})"))));
    checks.extend(open_password(sources).map(|(seen, hint)| Check::warning(CHECK, seen, hint)));
    if config.store.kind == StoreKind::Redis {
        checks.push(secret(config));
        checks.extend(key_of_certificate(config));
        checks.extend(certificates(config));
    }
    if config.server.insecure_listen {
        let listen = [&config.server.listen, &config.server.http_listen, &config.cluster.listen];
        let open = listen.into_iter().filter(|at| !at.starts_with("127.") && !at.starts_with("[::1]"));
        let open: Vec<&str> = open.map(String::as_str).collect();
        if !open.is_empty() {
            checks.push(Check::warning(
                CHECK,
                format!(
                    "{} can be reached from outside: there is no authentication, and nothing is encrypted",
                    open.join(", ")
                ),
                "admit only networks that may take and release any address (a firewall, `IPAddressAllow=`)",
            ));
        }
    }
    checks
}

/// A Redis password in a file that everybody on this machine can read: which file, and what to do.
pub fn open_password(sources: &Sources) -> Option<(String, String)> {
    use std::os::unix::fs::PermissionsExt;
    let (path, text) = sources.file.as_ref()?;
    let table = toml::from_str::<toml::Table>(text).ok()?;
    // Even if a flag or a variable overrides it, it can be read in the file.
    let url = table.get("store")?.get("redis")?.as_str()?;
    let mode = std::fs::metadata(sources.seen(path)).ok()?.permissions().mode() & 0o777;
    if mode & 0o004 == 0 || !has_password(url) {
        return None;
    }
    let shown = path.display();
    let seen = format!("`store.redis` in {shown} has a password, and everybody can read that file (mode {mode:03o})");
    let hint = format!("`chmod 640 {shown}`, and `chgrp` it to the group of the server (the package uses allod)");
    Some((seen, hint))
}

/// Nodes that share a register need a secret.
fn secret(config: &Config) -> Check {
    let file = &config.cluster.secret_file;
    if file.as_os_str().is_empty() {
        let seen =
            "no cluster.secret_file: this node serves alone, and does not start if another one shares its register";
        return Check::ok("secret", seen);
    }
    match Secret::read_with_mode(file) {
        Ok((_, None)) => Check::ok("secret", format!("{} exists, and only its owner can read it", file.display())),
        Ok((_, Some(mode))) => Check::warning(
            "secret",
            format!("others than its owner can read {} (mode {mode:03o})", file.display()),
            format!("chmod 600 {}", file.display()),
        ),
        // It could be read a moment ago, with the rest of the configuration.
        Err(error) => Check::wrong("secret", error.to_string(), "see who changes that file"),
    }
}

/// Whoever can read this key can pass for this server at Redis.
fn key_of_certificate(config: &Config) -> Option<Check> {
    use std::os::unix::fs::PermissionsExt;
    let file = &config.store.redis_key;
    // Whether this process can read it was checked with the rest of the configuration.
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let seen = format!("others than its owner can read {} (mode {mode:03o})", file.display());
    (mode & 0o077 != 0).then(|| Check::warning("redis", seen, format!("chmod 600 {}", file.display())))
}

/// Certificates for TLS to Redis that end soon.
fn certificates(config: &Config) -> Vec<Check> {
    if !is_over_tls(&config.store.redis) {
        return Vec::new();
    }
    // Whether they can be read was checked with the rest of the configuration.
    let near = config.store.tls_files().ends().map(|ends| ends.near()).unwrap_or_default();
    near.into_iter().map(Check::of_near_end).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::serve::doctor::CheckState;

    #[test]
    fn a_secret_that_others_may_read_is_a_warning() {
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"0123456789abcdef").unwrap();
        let mut config = Config::default();
        config.cluster.secret_file = file.path().to_owned();
        for (mode, state) in [
            (0o666, CheckState::Warning),
            (0o640, CheckState::Warning),
            (0o600, CheckState::Ok),
            (0o400, CheckState::Ok),
        ] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let check = secret(&config);
            assert_eq!(check.state, state, "{mode:o}: {check:?}");
            assert_eq!(check.seen.contains(&format!("mode {mode:03o}")), state == CheckState::Warning, "{check:?}");
            config.store.redis_key = file.path().to_owned();
            assert_eq!(key_of_certificate(&config).is_some(), state == CheckState::Warning, "{mode:o}");
        }
    }

    #[test]
    fn what_is_set_is_told_with_its_origin_and_without_a_password() {
        let text = "[store]\nkind = \"redis\"\nredis = \"redis://me:secret@127.0.0.1:1/0\"\n[server]\nlisten = \"0.0.0.0:1\"\n";
        let sources = Sources {
            file: Some((PathBuf::from("f.toml"), text.to_owned())),
            environment: [("ALLOD_SERVER__INSECURE_LISTEN".into(), "true".into())].into(),
            flags: vec![("server.node".to_owned(), "n".to_owned())],
            ..Sources::default()
        };
        let config = Config::load(&sources).unwrap();
        let told = told(&sources, &config);
        let seen: Vec<&str> = told.iter().map(|check| check.seen.as_str()).collect();
        assert_eq!(seen[0], "f.toml: 5 keys set, all others at their defaults");
        for line in [
            "store.redis = \"redis://127.0.0.1:1/0\" (file)",
            "server.insecure_listen = true (ALLOD_SERVER__INSECURE_LISTEN)",
            "server.node = \"n\" (flag)",
        ] {
            assert!(seen.contains(&line), "{line}: {seen:?}");
        }
        let open = told.iter().find(|check| check.state == CheckState::Warning).unwrap();
        assert!(open.seen.contains("0.0.0.0:1"), "{open:?}");
    }
}
