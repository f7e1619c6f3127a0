//! Runs every shell block of `config/recipes.md` against a server of its own and compares what it prints.
//!
//! A section (`## `) is one story: its blocks run in order, against a fresh server. A line `# => text` says that the
//! command before it prints the text somewhere; several in a row are wanted in that order. `# => ! text` wants it not
//! to be printed. A command that is to be refused is written `! allod …`.
//!
//! A story that needs what the server says it does not serve yet is counted as skipped, see `tests/run`.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::server::{Starting, allod};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/recipes.md");

/// How the server says that a part of the protocol is still to come.
const NOT_YET: &str = "is not served by this version yet";

/// One section of the page.
struct Story {
    title: String,
    /// Line of the page, command lines, and what they should print.
    steps: Vec<Step>,
}

/// A command, over one or more lines, and what it should print.
#[derive(Debug, Default, PartialEq)]
struct Step {
    line: usize,
    command: String,
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

#[test]
fn recipes_do_what_they_say() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let stories = stories(&page);
    assert!(stories.len() >= 10, "{} stories", stories.len());
    let failures: Vec<String> = stories.iter().flat_map(run).collect();
    assert!(failures.is_empty(), "{} steps failed\n\n{}", failures.len(), failures.join("\n\n"));
}

/// Reads the blocks that are marked `sh`.
fn stories(page: &str) -> Vec<Story> {
    let mut stories: Vec<Story> = Vec::new();
    let (mut in_block, mut step) = (false, Step::default());
    for (at, line) in page.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ").filter(|_| !in_block) {
            stories.push(Story { title: title.to_owned(), steps: Vec::new() });
        } else if line.starts_with("```") {
            in_block = line == "```sh";
        } else if in_block && let Some(text) = line.strip_prefix("# => ") {
            let story = stories.last_mut().unwrap_or_else(|| panic!("line {}: a block before any section", at + 1));
            let before = story.steps.last_mut().unwrap_or_else(|| panic!("line {}: nothing before it", at + 1));
            match text.strip_prefix("! ") {
                Some(unwanted) => before.unwanted.push(unwanted.to_owned()),
                None => before.wanted.push(text.to_owned()),
            }
        } else if in_block && !line.trim().is_empty() && (!line.starts_with('#') || !step.command.is_empty()) {
            if step.command.is_empty() {
                step.line = at + 1;
            }
            step.command.push_str(line);
            step.command.push('\n');
            if is_complete(&step.command) {
                let story = stories.last_mut().unwrap_or_else(|| panic!("line {}: a block before any section", at + 1));
                story.steps.push(std::mem::take(&mut step));
            }
        }
    }
    assert!(step.command.is_empty(), "line {}: not a complete command", step.line);
    stories.retain(|story| !story.steps.is_empty());
    stories
}

/// A line that ends in a backslash, or opens a here-document, goes on.
fn is_complete(command: &str) -> bool {
    if command.trim_end().ends_with('\\') {
        return false;
    }
    match command.split_once("<<'") {
        Some((_, rest)) => {
            let end = rest.split('\'').next().unwrap_or_default();
            command.lines().skip(1).any(|line| line == end)
        }
        None => true,
    }
}

/// Runs a story and tells what went wrong; what follows a failure is not run.
fn run(story: &Story) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::with_store(&directory.path().join("data"), "memory").ready();
    for step in &story.steps {
        if let Err(problem) = run_step(step, directory.path(), &server.address.to_string()) {
            if problem.contains(NOT_YET) {
                skip(&format!("recipe `{}` from line {} on: {}", story.title, step.line, line_with(&problem)));
                return None;
            }
            return Some(format!("`{}`, line {}:\n{}{problem}", story.title, step.line, step.command));
        }
    }
    None
}

fn run_step(step: &Step, directory: &Path, server: &str) -> Result<(), String> {
    let program = allod();
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    // `set -e` does not see what `!` turns round, so that is checked here.
    let refused = step.command.starts_with("! ");
    let script = step.command.strip_prefix("! ").unwrap_or(&step.command);
    let output = Command::new("sh")
        .args(["-eu", "-c", script])
        .current_dir(directory)
        .env("PATH", path)
        .env("ALLOD_SERVER", server)
        .output()
        .unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() == refused {
        return Err(format!("ended with {}:\n{printed}", output.status));
    }
    let mut rest = printed.as_str();
    for wanted in &step.wanted {
        match rest.find(wanted.as_str()) {
            Some(at) => rest = &rest[at + wanted.len()..],
            None => return Err(format!("does not print `{wanted}` (in this order):\n{printed}")),
        }
    }
    match step.unwanted.iter().find(|unwanted| printed.contains(unwanted.as_str())) {
        Some(unwanted) => Err(format!("prints `{unwanted}`:\n{printed}")),
        None => Ok(()),
    }
}

fn line_with(problem: &str) -> &str {
    problem.lines().find(|line| line.contains(NOT_YET)).unwrap_or_default()
}

/// Tells what is not tested, to the reader and to `tests/run`.
fn skip(what: &str) {
    eprintln!("skipped: {what}");
    if let Some(path) = std::env::var_os("ALLOD_SKIPS_FILE") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.unwrap(), "{what}").unwrap();
    }
}

#[test]
fn a_page_is_read_as_stories_of_steps() {
    let page = "# Page\n## One\ntext\n```sh\n# why\nallod a \\\n  b\n# => x\n# => ! y\n! allod c\n```\n```toml\nno = 1\n```\n## Two\n";
    let stories = stories(page);
    assert_eq!(stories.len(), 1);
    let steps = &stories[0].steps;
    assert_eq!(steps[0].command, "allod a \\\n  b\n");
    assert_eq!((&steps[0].wanted[..], &steps[0].unwanted[..]), (&["x".to_owned()][..], &["y".to_owned()][..]));
    assert_eq!((steps[0].line, steps[1].line, steps[1].command.as_str()), (6, 10, "! allod c\n"));
}
