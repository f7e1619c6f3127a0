//! Says where a file is not valid TOML, and what is wrong there. Its lines are not shown, because the wrong one may hold the
//! password of Redis, and the message ends up in a log.
//!
//! Review notes: does the message show anything of the file except the name of a known key?

use super::known_keys;

/// The place and the problem, with the key of that line if it is one of ours.
pub(super) fn no_toml(path: &std::path::Path, text: &str, error: &toml::de::Error) -> String {
    let (path, message) = (path.display(), error.message());
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else { return format!("{path}: {message}") };
    let (begun, from) = (before.matches('\n').count(), before.rfind('\n').map_or(0, |at| at + 1));
    let (line, column) = (begun + 1, before[from..].chars().count() + 1);
    let key = key_in(text[from..].lines().next().unwrap_or_default());
    let key = key.map_or_else(String::new, |key| format!(" (`{key}`)"));
    format!("{path}, line {line}{key}, column {column}: {message}")
}

/// The key that a line sets, if there is one of that name.
fn key_in(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let is_known = known_keys().iter().any(|known| known.rsplit('.').next() == Some(key));
    is_known.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Sources};

    #[test]
    fn a_file_that_is_no_toml_is_told_by_line_and_key_and_shows_no_password() {
        for (text, said) in [
            ("kind = \"redis\"\nredis = \"redis://:word@h/0", "t.toml, line 3 (`redis`), column "),
            (
                "redis = \"redis://:word@h/0\"\nredis = \"redis://:word@h/1\"",
                "t.toml, line 3 (`redis`), column 1: duplicate key",
            ),
            ("redis = 'redis://:word@h/0\n", "t.toml, line 2 (`redis`), column "),
            ("redis = redis://:word@h/0", "t.toml, line 2 (`redis`), column "),
            ("redis = \"\"\"\nredis://:word@h/0", "t.toml, line 3, column "),
            ("redis = \"redis://:\\word@h/0\"", "t.toml, line 2 (`redis`), column "),
            ("redis \"redis://:word@h/0\"", "t.toml, line 2, column "),
            ("redis = \"redis://:word@h/0\"\n[store]\n", "t.toml, line 3, column "),
            ("redis://:word@h/0?a=b", "t.toml, line 2, column "),
            ("redis = { url = \"redis://:word@h/0\" ", "t.toml, line 2 (`redis`), column "),
        ] {
            let file = Some(("t.toml".into(), format!("[store]\n{text}")));
            let problem = Config::load(&Sources { file, ..Sources::default() }).unwrap_err();
            assert!(problem.starts_with(said) && !problem.contains("word"), "{text}: {problem}");
        }
    }
}
