//! Files that people write for the server, in TOML, YAML or JSON: reads any of them as one JSON value.
//!
//! The reader of the value (`apply::file`, `deployment`) checks its content with the protocol's own types.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::failure::Failure;

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// Whichever fits: TOML, JSON, YAML.
    Any,
}

impl Form {
    /// The format according to the name of a file; for stdin (`-`) the name does not tell.
    pub fn of(path: &Path) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("yaml" | "yml") => Self::Yaml,
            Some("json") => Self::Json,
            Some(_) | None if path.as_os_str() == "-" => Self::Any,
            Some(_) | None => Self::Toml,
        }
    }
}

/// The most YAML brackets that may be open at once. The YAML reader takes time quadratic in this number.
const DEPTH_MAX: usize = 1_000;

/// Are more than `most` brackets open anywhere? Brackets inside strings count too: no file of ours has that many.
fn opens_deeper_than(text: &str, most: usize) -> bool {
    let mut open = 0usize;
    text.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > most
    })
}

/// The text of a file, or of stdin for `-`.
///
/// # Errors
/// It cannot be read; `asked` is what the message says was asked.
pub fn text(path: &Path, asked: &str) -> Result<String, Failure> {
    let read = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    read.map_err(|error| Failure::new(asked, error.to_string(), "name a file that exists and can be read (`ls -l`)"))
}

/// The content of a text. An empty text is null.
///
/// # Errors
/// The text is not well-formed.
pub fn content(text: &str, form: Form) -> Result<Value, String> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let from_yaml = || {
        if opens_deeper_than(text, DEPTH_MAX) {
            return Err(format!("it opens more than {DEPTH_MAX} brackets at once; such a file has a handful"));
        }
        serde_yaml_ng::from_str(text).map_err(|error| error.to_string()).and_then(once)
    };
    let from_json = || json(text).map_err(|error| format!("it is no JSON: {error}"));
    let from_toml =
        || toml::from_str::<Value>(text).map_err(|error| format!("it is no TOML\n{}", error.to_string().trim_end()));
    match form {
        Form::Toml => from_toml(),
        Form::Yaml => from_yaml(),
        Form::Json => from_json(),
        Form::Any => from_toml().or_else(|wrong| {
            // In YAML any text is a value: a string. No file of ours is just a string.
            let is_file = |value: &Value| matches!(value, Value::Object(_) | Value::Array(_) | Value::Null);
            let read = from_json().or_else(|_| from_yaml())?;
            if is_file(&read) { Ok(read) } else { Err(wrong) }
        }),
    }
}

/// The content of a JSON text.
///
/// # Errors
/// The text is not well-formed, or gives a member twice.
pub fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string()).and_then(once)
}

/// Converts a document to JSON. It was read as a YAML value, because that refuses duplicate members.
fn once(value: serde_yaml_ng::Value) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_content_is_read_from_every_form() {
        let expected = json!({"a": [{"b": 1}]});
        for (text, name) in [
            ("[[a]]\nb = 1\n", "x.toml"),
            ("a:\n- b: 1\n", "x.yaml"),
            ("a:\n- b: 1\n", "x.yml"),
            ("{\"a\":[{\"b\":1}]}", "x.json"),
            ("{\"a\":[{\"b\":1}]}", "-"),
            ("a:\n- b: 1\n", "-"),
            ("[[a]]\nb = 1\n", "-"),
        ] {
            assert_eq!(content(text, Form::of(Path::new(name))).unwrap(), expected, "{name}");
        }
        assert_eq!(content("\u{feff}a:\n- b: 1\n", Form::Yaml).unwrap(), expected, "with a mark of its encoding");
        assert_eq!(content("", Form::Yaml).unwrap(), Value::Null);
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused_in_every_form() {
        for (text, form) in
            [("a = 1\na = 2\n", Form::Toml), ("a: 1\na: 2\n", Form::Yaml), ("{\"a\":1,\"a\":2}", Form::Json)]
        {
            assert!(content(text, Form::Any).is_err(), "{text}");
            assert!(content(text, form).is_err(), "{text}");
        }
    }
}
