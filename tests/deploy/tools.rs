//! Programs that the tests here call. A test for which one is missing is skipped, and says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Ends the test if one of these programs is missing, and tells the reader and `tests/run`: `needs!(["kubectl"])`.
macro_rules! needs {
    ($programs:expr) => {
        if let Some(missing) = $programs.into_iter().find(|program| !$crate::tools::is_there(program)) {
            return $crate::tools::skip(&format!("there is no {missing}"));
        }
    };
}
pub(crate) use needs;

/// Is the program in the path?
pub fn is_there(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|place| place.join(program).is_file())
}

/// Reports what is not tested, apart from other skips, for those who do not ship what is in `deploy/`.
pub fn skip(why: &str) {
    crate::skips::skip_of("deploy ", why);
}

pub fn here(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(here(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The load harness. Its package is built with all others (`cargo build --workspace`).
pub fn load() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_allod")).with_file_name("allod-load");
    assert!(path.exists(), "there is no `allod-load` beside allod: cargo build --workspace");
    path
}

/// Runs a command that must succeed, and returns what it prints.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let output = command.current_dir(ROOT).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// All documents of a YAML text, with anchors and merges resolved.
#[track_caller]
pub fn yaml(text: &str) -> Vec<Value> {
    use serde::Deserialize;
    let documents = serde_yaml_ng::Deserializer::from_str(text).map(|document| {
        let mut value = serde_yaml_ng::Value::deserialize(document).unwrap();
        value.apply_merge().unwrap();
        serde_json::to_value(value).unwrap()
    });
    documents.collect()
}

/// The texts of a list.
pub fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// All files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Runs a story on a machine of its own that shares this directory. False if there can be none, which is reported as a skip.
#[track_caller]
pub fn on_a_machine(share: &Path, story: &str) -> bool {
    let place = share.join("story");
    std::fs::copy(here(&format!("tests/deploy/stories/{story}")), &place).unwrap();
    let output = Command::new(here("tests/deploy/machine")).arg(share).arg("/run/share/story").output().unwrap();
    let told = std::fs::read_to_string(share.join("told")).unwrap_or_default();
    match output.status.code() {
        Some(0) => true,
        Some(77) => {
            skip(String::from_utf8_lossy(&output.stdout).trim());
            false
        }
        _ => panic!("{story}: {}\n{told}{}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}

/// How many facts a story reported: one that ended early reported fewer.
pub fn facts(share: &Path) -> usize {
    let told = std::fs::read_to_string(share.join("told")).unwrap();
    told.lines().filter(|line| line.starts_with("fact: ")).count()
}
