//! A Rust file for style checks: its text, its code without comments and strings, and where its tests begin.

use std::path::{Path, PathBuf};

pub struct Source {
    /// Path from the root of the tree, with `/`.
    pub path: String,
    pub text: String,
    /// The text with comments, strings and characters blanked out; as many lines as the text.
    pub code: String,
    /// The text of comments alone, line by line.
    pub comments: Vec<String>,
    /// Lines before the tests at the end: all lines if there are no tests, zero if there is nothing else.
    pub lines_without_tests: usize,
}

impl Source {
    /// Makes the file at this path from its text.
    pub fn new(path: &str, text: String) -> Self {
        let (code, comments) = split(&text);
        let is_tests = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let all = text.lines().count();
        let lines = code.lines().collect::<Vec<_>>();
        let starts_tests = |at: &usize| {
            // Only a module counts: a single function for tests does not make the rest of the file tests.
            lines[*at].trim() == "#[cfg(test)]"
                && lines.get(at + 1).is_some_and(|next| next.trim().ends_with("tests {"))
        };
        let lines_without_tests = if is_tests { 0 } else { (0..lines.len()).find(starts_tests).unwrap_or(all) };
        Self { path: path.to_owned(), code, comments, lines_without_tests, text }
    }

    /// Lines of code without tests, numbered from 1.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().take(self.lines_without_tests).enumerate().map(|(at, line)| (at + 1, line))
    }
}

/// All Rust files below a directory of the tree, by path.
pub fn rust_files(below: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    collect(&root.join(below), &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        Source::new(&name, text)
    };
    let mut sources: Vec<Source> = paths.into_iter().map(read).collect();
    let only_for_tests: Vec<bool> = sources.iter().map(|source| is_only_for_tests(source, &sources)).collect();
    for (source, is_tests) in sources.iter_mut().zip(only_for_tests) {
        if is_tests {
            source.lines_without_tests = 0;
        }
    }
    sources
}

/// Is the file, or a module that contains it, declared as `#[cfg(test)] mod name;`?
fn is_only_for_tests(source: &Source, all: &[Source]) -> bool {
    let path = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let Some((parent, name)) = path.rsplit_once('/') else { return false };
    let heads = [format!("{parent}.rs"), format!("{parent}/mod.rs"), format!("{parent}/lib.rs")];
    let head = all.iter().find(|head| heads.contains(&head.path) && head.path != source.path);
    head.is_some_and(|head| {
        let lines: Vec<&str> = head.code.lines().map(str::trim).collect();
        let declares = |line: &str| line.ends_with(&format!("mod {name};"));
        lines.windows(2).any(|pair| pair[0] == "#[cfg(test)]" && declares(pair[1])) || is_only_for_tests(head, all)
    })
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What the scanner is inside of.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Code,
    LineComment,
    BlockComment(usize),
    Text,
    /// A raw string with so many `#`.
    RawText(usize),
}

/// Splits a text into its code, with everything else blanked, and its comments by line.
fn split(text: &str) -> (String, Vec<String>) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), vec![String::new()]);
    let (mut inside, mut at) = (Inside::Code, 0);
    let follows = |at: usize, what: &str| what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    while at < chars.len() {
        let c = chars[at];
        let mut length = 1;
        let before = inside;
        match inside {
            Inside::Code if follows(at, "//") => inside = Inside::LineComment,
            Inside::Code if follows(at, "/*") => (inside, length) = (Inside::BlockComment(1), 2),
            Inside::Code if c == '"' => inside = Inside::Text,
            Inside::Code if c == 'r' && !preceded_by_word(&chars, at) => {
                let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
                if chars.get(at + 1 + hashes) == Some(&'"') {
                    (inside, length) = (Inside::RawText(hashes), hashes + 2);
                }
            }
            Inside::Code if c == '\'' => length = character_length(&chars, at),
            Inside::Code => {}
            Inside::LineComment if c == '\n' => inside = Inside::Code,
            Inside::LineComment => {}
            Inside::BlockComment(depth) if follows(at, "*/") => {
                (inside, length) = (if depth == 1 { Inside::Code } else { Inside::BlockComment(depth - 1) }, 2);
            }
            Inside::BlockComment(depth) if follows(at, "/*") => (inside, length) = (Inside::BlockComment(depth + 1), 2),
            Inside::BlockComment(_) => {}
            Inside::Text if c == '\\' => length = 2,
            Inside::Text if c == '"' => inside = Inside::Code,
            Inside::Text => {}
            Inside::RawText(hashes) if c == '"' && follows(at + 1, &"#".repeat(hashes)) => {
                (inside, length) = (Inside::Code, hashes + 1);
            }
            Inside::RawText(_) => {}
        }
        let plain = before == Inside::Code && inside == Inside::Code && length == 1;
        let comment = matches!(before, Inside::LineComment | Inside::BlockComment(_));
        for &c in chars.iter().skip(at).take(length) {
            if c == '\n' {
                code.push('\n');
                comments.push(String::new());
                continue;
            }
            code.push(if plain { c } else { ' ' });
            if let (true, Some(line)) = (comment, comments.last_mut()) {
                line.push(c);
            }
        }
        at += length;
    }
    (code, comments)
}

/// Is the character part of a word that began earlier?
fn preceded_by_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

/// Length of a character literal, or 1 for a lifetime.
fn character_length(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => chars[at + 3..].iter().position(|&c| c == '\'').map_or(1, |end| end + 4),
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

#[test]
fn comments_strings_and_characters_are_no_code() {
    let text = "let a = \"// no\"; // yes \"\nlet b = '\"'; /* /* in */ still */ let c: &'a str = r#\"x\"y\"#;\nlet d = '\\'';";
    let source = Source::new("src/x.rs", text.to_owned());
    let squeezed: Vec<String> =
        source.code.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(squeezed, ["let a = ;", "let b = ; let c: &'a str = ;", "let d = ;"]);
    assert!(source.comments[0].contains("yes") && !source.comments[0].contains("no"));
    assert_eq!(source.code.lines().count(), text.lines().count());
}

#[test]
fn tests_at_the_end_do_not_count() {
    let text = "//! Head.\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(Source::new("src/x.rs", text.to_owned()).lines_without_tests, 2);
    assert_eq!(Source::new("src/x/tests.rs", text.to_owned()).lines_without_tests, 0);
}
