//! Quoting for shells: a value that is printed for `eval`, or in a command to copy, is taken literally.

use std::fmt::Write;

/// `text` as one word of a POSIX shell. Plain words stay as they are.
pub fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { always(text) }
}

/// An option with its value, even if that begins with `-`.
pub fn option(name: &str, value: &str) -> String {
    let joint = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{joint}{}", shell(value))
}

/// The options that name an owner.
pub fn owner_options(owner: &str, scope: Option<&str>) -> String {
    let scope = scope.filter(|&scope| scope != "default").map(|scope| format!(" {}", option("--scope", scope)));
    format!("{}{}", option("--owner", owner), scope.unwrap_or_default())
}

/// `text` in single quotes, in which a shell expands nothing. For a quote in the text, the quotes are closed, the quote is
/// escaped, and they are opened again.
pub fn always(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for c in text.chars() {
        // Writing to a String cannot fail.
        let _ = if c == '\'' { quoted.write_str("'\\''") } else { quoted.write_char(c) };
    }
    quoted.push('\'');
    quoted
}

/// Whether a shell accepts `name` as a variable.
pub fn is_variable(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_shell_would_change_is_quoted() {
        assert_eq!(shell("web/0"), "web/0");
        assert_eq!(shell("a b"), "'a b'");
        assert_eq!(shell("it's"), "'it'\\''s'");
        assert_eq!(shell("$(reboot)"), "'$(reboot)'");
        assert_eq!(shell(""), "''");
        assert_eq!(shell("~root"), "'~root'");
    }

    #[test]
    fn a_variable_begins_with_a_letter() {
        assert!(is_variable("NETWORK_GATEWAY_0") && is_variable("_"));
        assert!(!is_variable("0IP") && !is_variable("A-B") && !is_variable("") && !is_variable("Ä"));
    }
}
