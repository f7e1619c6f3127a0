//! Reads pages of commands as stories and runs them against the real program, comparing what they print.
//!
//! A section (`## `, `### `) is one story: its blocks marked `sh` run in order, against a fresh server, in a directory of
//! their own that has the repository's `config`. A line `# => text` says that the command before it prints the text
//! somewhere; several in a row must be printed in that order. `# => ! text` says that it is not printed. A command that must
//! be refused is written `! allod …`. At the line `# The server is stopped.` the server is asked to stop.
//!
//! The standard ports on a page stand for the free ones of the story's server, and for those of a Redis of its own if a
//! command names one.

use std::path::Path;
use std::process::Command;

use crate::redis::Redis;
use crate::server::{Server, Starting, allod};

/// The line of a page at which the server is stopped.
const STOP: &str = "# The server is stopped.";
/// The URL of Redis on a page.
const REDIS: &str = "redis://127.0.0.1:6379/0";

/// One section of a page.
pub struct Story {
    title: String,
    steps: Vec<Step>,
}

/// A command, over one or more lines, and what it should print.
#[derive(Debug, Default, PartialEq)]
struct Step {
    /// The line of the page on which it begins.
    line: usize,
    command: String,
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

/// Runs all stories of a page, each against a server with this store, and fails with everything that went wrong.
#[track_caller]
pub fn run_page(page: &str, least: usize, store: &str) {
    let stories = stories(page);
    assert!(stories.len() >= least, "{} stories", stories.len());
    let failures: Vec<String> = stories.iter().filter_map(|story| run(story, store)).collect();
    assert!(failures.is_empty(), "{} stories failed\n\n{}", failures.len(), failures.join("\n\n"));
}

/// Runs all stories of a page one after the other in this directory, as somebody who types them. Before each story the
/// command `make_room`, which the page gives, makes room for an empty register.
#[track_caller]
pub fn run_in_order(page: &str, least: usize, store: &str, directory: &Path, make_room: &str) {
    link_config(directory);
    let stories = stories(page);
    assert!(stories.len() >= least, "{} stories", stories.len());
    for story in stories {
        let room = Command::new("sh").args(["-eu", "-c", make_room]).current_dir(directory).status().unwrap();
        assert!(room.success(), "{make_room}: {room}");
        if let Some(problem) = run_in(&story, store, directory) {
            panic!("{problem}");
        }
    }
}

fn link_config(directory: &Path) {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    std::os::unix::fs::symlink(shipped, directory.join("config")).unwrap();
}

/// Reads the blocks that are marked `sh`.
fn stories(page: &str) -> Vec<Story> {
    let mut stories: Vec<Story> = Vec::new();
    let (mut in_block, mut step) = (false, Step::default());
    for (at, line) in page.lines().enumerate() {
        let title = line.strip_prefix("## ").or_else(|| line.strip_prefix("### "));
        if let Some(title) = title.filter(|_| !in_block) {
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
        } else if in_block
            && !line.trim().is_empty()
            && (!line.starts_with('#') || line == STOP || !step.command.is_empty())
        {
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

/// Is the command complete? It goes on after a line that ends in a backslash or opens a here-document.
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

/// Runs a story, and says what went wrong. Nothing is run after a failure.
fn run(story: &Story, store: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    link_config(directory.path());
    run_in(story, store, directory.path())
}

/// Runs a story in this directory, and says what went wrong.
fn run_in(story: &Story, store: &str, directory: &Path) -> Option<String> {
    let beside = tempfile::tempdir().unwrap();
    let names_redis = story.steps.iter().any(|step| step.command.contains(REDIS));
    let redis = if names_redis { Some(Redis::start(beside.path(), &[])?) } else { None };
    let mut server = Some(Starting::with_store(&directory.join("allod-data"), store).ready());
    let mut ports = server.as_ref().map(Ports::of).unwrap();
    ports.redis = redis.as_ref().map(Redis::url);
    for step in &story.steps {
        if step.command.trim_end() == STOP {
            server.take().expect("stopped once").stop();
        } else if let Err(problem) = run_step(step, directory, &ports) {
            return Some(format!("`{}`, line {}:\n{}{problem}", story.title, step.line, step.command));
        }
    }
    None
}

/// Where the story's server listens, as pages spell it.
struct Ports {
    tcp: String,
    http: String,
    redis: Option<String>,
}

impl Ports {
    fn of(server: &Server) -> Self {
        Self { tcp: server.address.to_string(), http: server.http.to_string(), redis: None }
    }

    /// The command with the free ports in place of the standard ones.
    fn put_into(&self, command: &str) -> String {
        command
            .replace("127.0.0.1:7400", &self.tcp)
            .replace("127.0.0.1 7400", &self.tcp.replace(':', " "))
            .replace("127.0.0.1:7401", &self.http)
            .replace(REDIS, self.redis.as_deref().unwrap_or(REDIS))
    }
}

fn run_step(step: &Step, directory: &Path, ports: &Ports) -> Result<(), String> {
    let program = allod();
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    // `set -e` does not notice a command that `!` inverts, so that is checked here.
    let refused = step.command.starts_with("! ");
    let script = ports.put_into(step.command.strip_prefix("! ").unwrap_or(&step.command));
    let output = Command::new("sh")
        .args(["-eu", "-c", &script])
        .current_dir(directory)
        .env("PATH", path)
        .env("ALLOD_SERVER", &ports.tcp)
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
