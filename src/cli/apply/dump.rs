//! `allod network dump`: the server's networks as a file that applies without differences.

use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::failure::Failure;
use super::super::network::Dump;
use super::super::output::{Format, print};
use super::super::session::{Done, Session};
use super::{file, networks};

/// Writes networks to stdout.
pub async fn run(session: &mut Session, args: &Dump) -> Done<Exit> {
    let found = if args.networks.is_empty() {
        networks(session, args.realm.as_deref()).await?
    } else {
        let mut found = Vec::new();
        for name in &args.networks {
            found.push(session.call("network.get", json!({"network": name})).await?);
        }
        found
    };
    let tables: Vec<Value> = found.iter().map(|network| file::table_of(network, args.ids)).collect();
    print(&write(&tables, session.options.style.format)?)?;
    Ok(Exit::Success)
}

/// A file of these tables.
pub fn write(tables: &[Value], format: Format) -> Result<String, Failure> {
    let content = json!({"network": tables});
    let failed = |error: String| Failure::new("write the networks", error, "`allod network list --format json` works");
    match format {
        Format::Table | Format::Toml => toml::to_string_pretty(&content).map_err(|error| failed(error.to_string())),
        Format::Yaml => serde_yaml_ng::to_string(&content).map_err(|error| failed(error.to_string())),
        Format::Json => Ok(format!("{content:#}\n")),
        Format::Env => Err(Failure::usage(
            "write the networks",
            "a file of networks is no list of variables",
            "choose `--format toml` or `--format yaml`",
        )),
    }
}
