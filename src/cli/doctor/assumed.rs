//! The server that is meant if the user named none: the one that the package, or `deploy/README.md`, installs on this
//! machine.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cli::serve_args::ServeArgs;
use crate::serve::from_cli::Check;

/// The configuration with which its unit is started.
pub const CONFIG: &str = "/etc/allod/server.toml";
const DATA: &str = "/var/lib/allod";
/// Where a server without settings keeps its register.
const DEFAULT_DATA: &str = "allod-data";

/// The arguments of that server, and a check that says what was assumed.
pub fn server_here(named: ServeArgs) -> (ServeArgs, Option<Check>) {
    // Only a variable that names a table is a setting of the server: `ALLOD_SERVER` alone is the client's.
    let by_environment = std::env::vars_os().any(|(name, _)| {
        let name = name.to_string_lossy();
        name.starts_with("ALLOD_") && name.contains("__")
    });
    if by_environment || Path::new(DEFAULT_DATA).exists() {
        return (named, None);
    }
    assumed(named, Path::new(CONFIG), Path::new(DATA))
}

fn assumed(named: ServeArgs, config: &Path, data: &Path) -> (ServeArgs, Option<Check>) {
    let is_named = named.config.is_some() || named.data.is_some() || named.store.is_some() || named.redis.is_some();
    if is_named || !config.exists() {
        return (named, None);
    }
    let (config_text, data_text) = (config.display(), data.display());
    if let Err(error) = File::open(config) {
        let seen = format!(
            "{config_text} exists but cannot be read ({error}): what follows is not about a server on this machine"
        );
        let hint = format!("runuser -u allod -- allod doctor --config {config_text} --data {data_text}");
        return (named, Some(Check::warning("assumed", seen, hint)));
    }
    let seen =
        format!("assuming `--config {config_text} --data {data_text}`, because no option says which server is meant");
    let serve = ServeArgs { config: Some(PathBuf::from(config)), data: Some(PathBuf::from(data)), ..named };
    (serve, Some(Check::ok("assumed", seen)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a file of the test")]

    use super::*;

    #[test]
    fn the_installed_server_is_meant_where_no_option_says_which_and_that_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let (config, data) = (directory.path().join("server.toml"), directory.path().join("data"));
        let (serve, said) = assumed(ServeArgs::default(), &config, &data);
        assert!(serve.config.is_none() && said.is_none(), "nothing is installed");

        std::fs::write(&config, "").unwrap();
        let (serve, said) = assumed(ServeArgs::default(), &config, &data);
        assert_eq!((serve.config.as_deref(), serve.data.as_deref()), (Some(&*config), Some(&*data)));
        assert!(said.unwrap().seen.contains(&format!("--config {}", config.display())));

        let named = ServeArgs { data: Some("elsewhere".into()), ..ServeArgs::default() };
        let (serve, said) = assumed(named, &config, &data);
        assert!(serve.config.is_none() && said.is_none(), "{:?}", serve.data);
    }
}
