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

/// A file with these tables.
pub fn write(tables: &[Value], format: Format) -> Result<String, Failure> {
    let content = json!({"network": tables});
    let failed = |error: String| Failure::new("write the networks", error, "`allod network list --format json` works");
    match format {
        Format::Table | Format::Toml => toml::to_string_pretty(&content).map_err(|error| failed(error.to_string())),
        Format::Yaml => {
            let mark = mark_of(&content);
            let marked =
                serde_yaml_ng::to_string(&quoted(content, &mark)).map_err(|error| failed(error.to_string()))?;
            Ok(marked.replace(&mark, "'"))
        }
        Format::Json => Ok(format!("{content:#}\n")),
        Format::Env => Err(Failure::usage(
            "write the networks",
            "a file of networks is not a list of variables",
            "choose `--format toml` or `--format yaml`",
        )),
    }
}

/// A mark that does not occur in the content. It stands in for quotes, which the YAML writer would leave out.
fn mark_of(content: &Value) -> String {
    let (text, mut mark) = (content.to_string(), "quote".to_owned());
    while text.contains(&mark) {
        mark.push('e');
    }
    mark
}

/// The content with marks around texts that YAML 1.1 would read as a boolean or a number.
fn quoted(content: Value, mark: &str) -> Value {
    let text = |text: String| if is_plain_in_1_1(&text) { text } else { format!("{mark}{text}{mark}") };
    match content {
        Value::String(content) => Value::String(text(content)),
        Value::Array(items) => items.into_iter().map(|item| quoted(item, mark)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(member, value)| (text(member), quoted(value, mark))).collect()
        }
        other => other,
    }
}

/// Whether a text needs no quotes, even for YAML 1.1, where `no` is false and `10:20` is a number in base 60.
fn is_plain_in_1_1(text: &str) -> bool {
    let is_word = ["y", "n", "yes", "no", "on", "off"].iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_sixties = text.contains(':') && text.chars().all(|c| c.is_ascii_digit() || ":._".contains(c));
    !is_word && !is_sixties
}
