//! Where a value comes from, and how two configurations differ: for an operator who looks for the reason of a setting.

use std::ffi::OsStr;
use std::fmt;

use serde_json::Value;

use super::{Config, Sources, known_keys, leaves, variable_of};

/// The source of a value. Later ones win.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nothing sets it: it is the program's default.
    Default,
    /// The configuration file.
    File,
    /// This variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File => write!(f, "file"),
            Self::Environment(variable) => write!(f, "{variable}"),
            Self::Flag => write!(f, "flag"),
        }
    }
}

impl Sources {
    /// The source of `key`, such as `log.level`.
    pub fn origin(&self, key: &str) -> Origin {
        self.origin_beside(&self.in_file(), key)
    }

    /// The source of each of these keys, in their order.
    pub fn origins<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Vec<Origin> {
        let in_file = self.in_file();
        keys.map(|key| self.origin_beside(&in_file, key)).collect()
    }

    /// Adds the variable that set the key with which a problem begins, if one did: otherwise a reader would search the file
    /// in vain.
    pub(super) fn with_variable(&self, problem: String) -> String {
        let key = problem.split('`').nth(1).unwrap_or_default();
        match self.origin(key) {
            Origin::Environment(variable) => format!("{problem} (set by {variable})"),
            Origin::Default | Origin::File | Origin::Flag => problem,
        }
    }

    fn origin_beside(&self, in_file: &[String], key: &str) -> Origin {
        if self.flags.iter().any(|(flag, _)| flag == key) {
            return Origin::Flag;
        }
        let variable = variable_of(key);
        if self.environment.contains_key(OsStr::new(&variable)) {
            return Origin::Environment(variable);
        }
        if in_file.iter().any(|given| given == key) { Origin::File } else { Origin::Default }
    }

    /// The keys that the file sets.
    fn in_file(&self) -> Vec<String> {
        let table = self.file.as_ref().and_then(|(_, text)| toml::from_str::<toml::Table>(text).ok());
        let tree = table.and_then(|table| serde_json::to_value(table).ok()).unwrap_or_default();
        leaves(&tree)
    }
}

impl Config {
    /// Each key with its value, in the order of the file `config/server.toml`.
    pub fn values(&self) -> Vec<(String, Value)> {
        let tree = serde_json::to_value(self).unwrap_or_default();
        let value = |key: &str| key.split('.').fold(&tree, |value, part| &value[part]).clone();
        known_keys().into_iter().map(|key| (key.clone(), value(&key))).collect()
    }

    /// Keys whose values differ.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let pairs = self.values().into_iter().zip(other.values());
        pairs.filter(|(one, other)| one != other).map(|((key, _), _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn each_value_is_told_with_what_set_it() {
        let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let sources = Sources {
            process: None,
            file: Some((PathBuf::from("f"), "[server]\nthreads = 1\n[log]\nlevel = \"warn\"\n".to_owned())),
            environment: [("ALLOD_LOG__LEVEL".into(), "debug".into())].into(),
            flags: vec![own("store.directory", "here")],
        };
        assert_eq!(sources.origin("server.threads"), Origin::File);
        assert_eq!(sources.origin("log.level"), Origin::Environment("ALLOD_LOG__LEVEL".to_owned()));
        assert_eq!(sources.origin("store.directory"), Origin::Flag);
        assert_eq!(sources.origin("store.kind"), Origin::Default);
        let config = Config::load(&sources).unwrap();
        assert_eq!(config.log.level, "debug", "the variable that is named is the one that is read");
        let values = config.values();
        assert!(values.contains(&("server.threads".to_owned(), Value::from(1))), "{values:?}");
    }

    #[test]
    fn only_keys_that_differ_are_named() {
        let mut other = Config::default();
        assert_eq!(Config::default().differing(&other), Vec::<String>::new());
        other.server.node = "b".to_owned();
        other.log.level = "trace".to_owned();
        let mut differing = Config::default().differing(&other);
        differing.sort();
        assert_eq!(differing, ["log.level", "server.node"]);
    }
}
