//! Fields of log statements. As JSON an event is one flat object, so no field may have the name of what every line has.

use super::source::Source;
use super::{assert_none, product};

/// Names that every line has by itself.
const TAKEN: &[&str] = &["timestamp", "level", "target", "message", "span", "spans"];
const EVENTS: &[&str] = &["trace!(", "debug!(", "info!(", "warn!(", "error!(", "event!("];

/// Log statements of a file that have a field with such a name.
fn clashes(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices("tracing::") {
        let behind = &source.code[at + "tracing::".len()..];
        let Some(event) = EVENTS.iter().find(|event| behind.starts_with(*event)) else { continue };
        let line = source.code[..at].lines().count().max(1);
        let clash = fields(&behind[event.len()..]).into_iter().filter(|name| TAKEN.contains(&name.as_str()));
        found.extend(clash.map(|name| format!("{}:{line}: `{name}`", source.path)));
    }
    found
}

/// Names of the fields among the arguments that begin here. What is set by a `:`, like the target of an event, is no field.
fn fields(arguments: &str) -> Vec<String> {
    let (mut depth, mut all) = (0_usize, vec![String::new()]);
    for c in arguments.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => all.push(String::new()),
            _ => {}
        }
        if depth == 0
            && c != ','
            && let Some(last) = all.last_mut()
        {
            last.push(c);
        }
    }
    let name =
        |part: &String| part.split('=').next().unwrap_or_default().trim_matches(['%', '?', ' ', '\n']).to_owned();
    all.iter().map(name).collect()
}

#[test]
fn no_field_of_a_log_statement_is_called_as_what_each_line_has() {
    assert_none("another name for the field", product().iter().flat_map(clashes).collect());
}

#[test]
fn a_field_that_clashes_is_found_in_any_spelling() {
    let found = |code: &str| clashes(&Source::new("src/a.rs", format!("//! Head.\nfn f() {{\n    {code}\n}}\n"))).len();
    for clash in [
        r#"tracing::info!(%file, level, "read")"#,
        r#"tracing::warn!(level = %to.level(), "read")"#,
        r#"return tracing::debug!(?target, %error, "left")"#,
        "tracing::debug!(\n        target = %target.display(),\n        %error,\n        \"left\"\n    )",
        r#"tracing::info!(a = f(b, c), timestamp = now, "read")"#,
    ] {
        assert_eq!(found(clash), 1, "{clash}");
    }
    for other in [
        r#"tracing::info!(log_level = level, "the level, target")"#,
        r#"tracing::info!(target: "allod", from, "read")"#,
        r#"tracing::info!(a = f(level, target), "read")"#,
        r#"tracing::enabled!(level)"#,
    ] {
        assert_eq!(found(other), 0, "{other}");
    }
}
