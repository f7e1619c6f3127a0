//! Which values are allowed: for each key the type, the range of numbers, the words; and which settings conflict.
//!
//! Everything is checked before any port is opened, whoever reads the configuration: a value that is refused later, or
//! never, means a server that starts and does not do what it was told.
//!
//! Review notes: does each sentence name the key, the value and what is allowed? Could it show a password?

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Config, StoreKind};
use crate::peer::secret::Secret;
use crate::store::redis::{TlsFiles, check_prefix, check_url, is_over_tls};
use crate::{limits, telemetry};

/// Keys with numbers, and the range of each.
const RANGES: &[(&str, u64, u64)] = &[
    ("server.threads", 0, 64),
    ("server.max_line_bytes", 1 << 10, 64 << 20),
    ("server.max_body_bytes", 1 << 10, 1 << 30),
    ("server.max_connections", 1, 65_536),
    ("server.max_behind_bytes", 0, 4 << 30),
    ("server.idle_timeout_seconds", 0, 604_800),
    ("server.slow_client_seconds", 1, 3_600),
    ("server.partial_line_seconds", 1, 3_600),
    ("server.shutdown_seconds", 1, 300),
    ("store.shards", 0, limits::SHARDS_MAX as u64),
    ("store.redis_replicas", 0, 16),
    ("store.redis_heal_bytes", 0, 4 << 30),
    ("store.record_format", 0, limits::RECORD_FORMAT_NEWEST as u64),
    ("store.self_check_seconds", 0, 366 * 86_400),
    ("metrics.networks_max", 0, 1_000_000),
    ("history.keep_seconds", 0, 100 * 366 * 86_400),
    ("history.keep_bytes", 0, 1 << 44),
];

/// Several times what can be under way at once.
const DEGRADED_HEAL_BYTES_MIN: u64 = 16 << 20;

/// Keys that take one of a few words.
const WORDS: &[(&str, &[&str])] =
    &[("store.kind", &["embedded", "redis", "memory"]), ("log.format", &["text", "json"])];

/// The forms of a Redis URL.
const URLS: &str = "redis://HOST:PORT/DATABASE, redis+unix:///PATH, redis+sentinel://HOST:PORT,…/SERVICE/DATABASE or \
                    redis+cluster://HOST:PORT,…; over TLS rediss://, rediss+sentinel:// or rediss+cluster://";

fn at<'a>(tree: &'a Value, key: &str) -> &'a Value {
    key.split('.').fold(tree, |value, part| &value[part])
}

/// Problems with values of the wrong type, shown as they were given. The crate that reads them would report only the first,
/// in terms of Rust, or convert it (1.5 to 1).
pub(super) fn mistyped(given: &Value) -> Vec<String> {
    let values = Config::default().values().into_iter();
    values.filter_map(|(key, default)| mistyped_at(&key, at(given, &key), &default)).collect()
}

fn mistyped_at(key: &str, value: &Value, default: &Value) -> Option<String> {
    let words = WORDS.iter().find(|(of, _)| *of == key).map(|(_, words)| *words);
    // Values from flags and from the environment are text.
    let text = value.as_str();
    let (fits, allowed) = match default {
        _ if value.is_null() => return None,
        Value::Number(_) => {
            let range = RANGES.iter().find(|(of, _, _)| *of == key);
            let range = range.map_or_else(String::new, |(_, min, max)| format!(", {min} to {max}"));
            let fits = value.is_u64() || text.is_some_and(|text| text.parse::<u64>().is_ok());
            (fits, format!("a whole number{range}"))
        }
        Value::Bool(_) => {
            let known = |text: &str| {
                let known = ["1", "true", "on", "yes", "0", "false", "off", "no"];
                known.contains(&text.to_lowercase().as_str())
            };
            let fits = value.is_boolean() || matches!(value.as_u64(), Some(0 | 1)) || text.is_some_and(known);
            (fits, "true or false".to_owned())
        }
        _ => match words {
            Some(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                (text.is_some_and(|text| words.contains(&text)), quoted.join(", "))
            }
            // A number could not be returned as it was written: 1.10, 0010.
            None => (text.is_some(), "a text in quotes".to_owned()),
        },
    };
    // The value may hold a password.
    let shown = if key == "store.redis" { "no text".to_owned() } else { value.to_string() };
    (!fits).then(|| format!("`{key}` is {shown}; it must be {allowed}"))
}

impl Config {
    /// Everything that is wrong with the values.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.out_of_range();
        problems.extend(self.ports());
        problems.extend(self.names());
        if self.store.kind != StoreKind::Memory && self.store.directory.as_os_str().is_empty() {
            problems.push("`store.directory` is empty; the store needs a directory".to_owned());
        }
        problems.extend(self.degrading());
        problems.extend(self.securing());
        if let Err(problem) = telemetry::filter(&self.log.level) {
            problems.push(format!("`log.level` {problem}"));
        }
        problems
    }

    /// Degrading stands in for replicas, so some must be waited for; and what is kept for the next process is in memory,
    /// too.
    fn degrading(&self) -> Option<String> {
        let store = &self.store;
        let needs = if store.redis_replicas == 0 {
            "`store.redis_replicas` is 0: no replica is waited for, so none can be missing; say how many there are"
                .to_owned()
        } else if store.redis_heal_bytes < DEGRADED_HEAL_BYTES_MIN {
            format!(
                "`store.redis_heal_bytes` is {}, which limits what is acknowledged without replicas; with `store.redis_degrade` \
                 it must be {DEGRADED_HEAL_BYTES_MIN} or more",
                store.redis_heal_bytes
            )
        } else {
            return None;
        };
        store.redis_degrade.then(|| format!("`store.redis_degrade` is true and {needs}"))
    }

    /// A client certificate needs both of its files; and a server that is given files for TLS must not connect without TLS.
    fn securing(&self) -> Vec<String> {
        let store = &self.store;
        let files = [
            ("store.redis_ca", &store.redis_ca),
            ("store.redis_certificate", &store.redis_certificate),
            ("store.redis_key", &store.redis_key),
        ];
        let is_set = |(_, path): &(&str, &PathBuf)| !path.as_os_str().is_empty();
        let mut problems = Vec::new();
        for (one, other) in [(files[1], files[2]), (files[2], files[1])] {
            if is_set(&one) && !is_set(&other) {
                problems.push(format!("`{}` is {:?} and `{}` is not set; set both, or neither", one.0, one.1, other.0));
            }
        }
        if store.kind == StoreKind::Redis && check_url(&store.redis).is_ok() && !is_over_tls(&store.redis) {
            let shown = without_user(&store.redis);
            problems.extend(files.iter().filter(|file| is_set(file)).map(|(key, path)| {
                format!(
                    "`{key}` is {path:?}, and `store.redis` is {shown:?}, over which nothing is encrypted; use a URL over TLS \
                     (rediss://, rediss+sentinel://, rediss+cluster://), or leave `{key}` out"
                )
            }));
        }
        problems
    }

    /// What is wrong with the files that a start reads; `seen` says where each is found. Otherwise a running server would
    /// only fail at its next start, when nobody expects it.
    pub(super) fn unfit_files(&self, seen: impl Fn(&Path) -> PathBuf) -> Vec<String> {
        let unfit_secret = || Secret::read_with_mode(&seen(&self.cluster.secret_file)).err();
        let secret = self.has_nodes().then(unfit_secret).flatten().map(|error| error.to_string());
        self.unfit_tls_files(&seen).into_iter().chain(secret).collect()
    }

    /// What is wrong with the files that TLS to Redis needs.
    fn unfit_tls_files(&self, seen: impl Fn(&Path) -> PathBuf) -> Option<String> {
        let store = &self.store;
        let TlsFiles { ca, certificate, key } = store.tls_files();
        let is_whole = certificate.as_os_str().is_empty() == key.as_os_str().is_empty();
        if store.kind != StoreKind::Redis || !is_over_tls(&store.redis) || !is_whole {
            return None;
        }
        TlsFiles { ca: seen(&ca), certificate: seen(&certificate), key: seen(&key) }.check().err()
    }

    /// May there be other nodes? The port for them is opened only then.
    fn has_nodes(&self) -> bool {
        self.store.kind == StoreKind::Redis && !self.cluster.secret_file.as_os_str().is_empty()
    }

    fn out_of_range(&self) -> Vec<String> {
        let tree = serde_json::to_value(self).unwrap_or_default();
        let ranges = RANGES.iter().map(|(key, min, max)| (key, at(&tree, key).as_u64().unwrap_or(0), min, max));
        let outside = ranges.filter(|(_, value, min, max)| value < min || value > max);
        outside.map(|(key, value, min, max)| format!("`{key}` is {value}; it must be {min} to {max}")).collect()
    }

    /// Checks that each port can be listened on, that only those meant to be can be reached from outside, and that no two
    /// are the same.
    fn ports(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let ports = [
            ("server.listen", &self.server.listen),
            ("server.http_listen", &self.server.http_listen),
            ("cluster.listen", &self.cluster.listen),
        ];
        for (key, text) in ports {
            match text.parse::<SocketAddr>() {
                Err(_) => problems
                    .push(format!("`{key}` is {text:?}; it must be an address and a port, for example 127.0.0.1:7400")),
                Ok(address) if !address.ip().is_loopback() && !self.server.insecure_listen => problems.push(format!(
                    "`{key}` is {text}, which others can reach, and nothing is encrypted; use a loopback address, or any \
                     address with --insecure-listen (`server.insecure_listen = true`)"
                )),
                Ok(_) => {}
            }
        }
        problems.extend(self.nowhere());
        let opened = &ports[..if self.has_nodes() { 3 } else { 2 }];
        for (nth, (key, text)) in opened.iter().enumerate() {
            if let Some((other, _)) = opened[..nth].iter().find(|(_, other)| is_same_port(text, other)) {
                let problem =
                    format!("`{key}` is {text}, which `{other}` uses; choose another port, or 0 for a free one");
                problems.push(problem);
            }
        }
        problems
    }

    /// A port on all addresses has no address that others could be given: other nodes, and clients that ask to be
    /// redirected.
    fn nowhere(&self) -> Option<String> {
        let (nodes, clients) = (&self.cluster.listen, &self.server.listen);
        let everywhere = |text: &str| text.parse().is_ok_and(|at: SocketAddr| at.ip().is_unspecified());
        if !self.has_nodes() || !self.cluster.advertise.is_empty() {
            return None;
        }
        if everywhere(nodes) {
            return Some(format!(
                "`cluster.listen` is {nodes}, which tells other nodes no address of this one; also set `cluster.advertise` \
                 (`--advertise`), where they reach it, for example 10.0.0.7:7402"
            ));
        }
        everywhere(clients).then(|| {
            format!(
                "`server.listen` is {clients}, which tells clients that ask to be redirected no address of this node; set it to one \
                 address, or also set `cluster.advertise` (`--advertise`), where other nodes reach this one, for example \
                 10.0.0.7:7402: clients are sent to its host"
            )
        })
    }

    /// Checks the names of this server and of its keys in Redis, and the addresses where they are found.
    fn names(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let (node, longest) = (&self.server.node, limits::NAME_CHARACTERS_MAX);
        // If it is empty, the machine's name is used, whatever that is.
        if node.len() > longest || !node.bytes().all(|byte| byte.is_ascii_graphic()) {
            problems.push(format!(
                "`server.node` is {node:?}; it must be 1 to {longest} ASCII letters, digits and signs without blanks, or empty \
                 for the machine's name"
            ));
        }
        let advertise = &self.cluster.advertise;
        if !advertise.is_empty() && !can_be_reached(advertise) {
            problems.push(format!(
                "`cluster.advertise` is {advertise:?}; it must be a host and a port, for example 10.0.0.7:7402, node-1:7402 or \
                 [2001:db8::7]:7402"
            ));
        }
        let prefix = &self.store.prefix;
        if check_prefix(prefix).is_err() {
            problems.push(format!("`store.prefix` is {prefix:?}; it must be 1 to 64 letters, digits and `-_.:/`"));
        }
        if let Err(why) = check_url(&self.store.redis) {
            let shown = without_user(&self.store.redis);
            problems
                .push(format!("`store.redis` is {shown:?}, which is not a URL of Redis ({why}); it must be {URLS}"));
        }
        problems
    }
}

/// Would the second one find its port taken? Port 0 is a different port each time.
fn is_same_port(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (one.parse::<SocketAddr>(), other.parse::<SocketAddr>()) else { return false };
    let covers = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && one.is_ipv4() == other.is_ipv4() && covers
}

/// Can other nodes connect to it: does it have a host, by name or address, and a port?
fn can_be_reached(at: &str) -> bool {
    let Some((host, port)) = at.rsplit_once(':') else { return false };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_is_right = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok_and(|address| !address.is_unspecified()),
        None => {
            let word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            let everywhere = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
            !host.is_empty() && host.chars().all(word) && !everywhere
        }
    };
    host_is_right && port.parse::<u16>().is_ok_and(|port| port != 0)
}

/// A URL, or whatever was given as one, without a user name and a password, wherever they are in it.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(_, rest)| (&url[..url.len() - rest.len()], rest));
    match rest.split_once('?') {
        // Nobody can tell where a name and a password end.
        Some((_, settings)) if settings.contains('@') => format!("{scheme}…"),
        // In the URL of a socket, they are among the settings.
        Some((place, _)) => format!("{scheme}{}?…", place.rsplit_once('@').map_or(place, |(_, host)| host)),
        None => format!("{scheme}{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sources, variable_of};
    use super::*;

    fn refused(text: &str) -> String {
        Config::load(&Sources { file: Some(("t.toml".into(), text.to_owned())), ..Default::default() }).expect_err(text)
    }

    #[test]
    fn a_value_of_another_sort_is_refused_by_its_key_with_what_is_allowed() {
        for (text, said) in [
            ("[server]\nthreads = 1.5", "`server.threads` is 1.5; it must be a whole number, 0 to 64"),
            ("[server]\nthreads = -1", "`server.threads` is -1; it must be a whole number, 0 to 64"),
            ("[server]\nthreads = true", "`server.threads` is true; it must be a whole number, 0 to 64"),
            ("[server]\nthreads = \"two\"", "`server.threads` is \"two\"; it must be a whole number, 0 to 64"),
            (
                "[server]\ninsecure_listen = \"maybe\"",
                "`server.insecure_listen` is \"maybe\"; it must be true or false",
            ),
            ("[server]\nlisten = [1]", "`server.listen` is [1]; it must be a text in quotes"),
            ("[server]\nnode = 1.10", "`server.node` is 1.1; it must be a text in quotes"),
            ("[store]\ndirectory = true", "`store.directory` is true; it must be a text in quotes"),
            ("[store]\nkind = \"files\"", "`store.kind` is \"files\"; it must be \"embedded\", \"redis\", \"memory\""),
            ("[log]\nformat = 7", "`log.format` is 7; it must be \"text\", \"json\""),
        ] {
            assert_eq!(refused(text), said);
        }
        let both = refused("[store]\nkind = 1\nshards = -1");
        assert_eq!(both.lines().count(), 2, "{both}");
        let many = refused("[store]\nshards = 1025");
        assert!(many.contains("1025") && many.contains("0 to 1024"), "{many}");
    }

    #[test]
    fn every_key_is_set_by_its_variable_or_a_flag_to_what_was_said_letter_for_letter() {
        let texts = [
            ("server.listen", "127.0.0.1:1"),
            ("server.http_listen", "127.0.0.1:1"),
            ("server.node", "1.10"),
            ("store.kind", "redis"),
            ("store.directory", "1e3"),
            ("store.redis", "redis://h:1/0"),
            ("store.redis_ca", "1.10"),
            ("store.redis_certificate", "1.pem"),
            ("store.redis_key", "0010"),
            ("store.prefix", "0010"),
            ("cluster.listen", "127.0.0.1:1"),
            ("cluster.advertise", "10:1"),
            ("cluster.secret_file", "TRUE"),
            ("log.level", "debug"),
            ("log.format", "json"),
        ];
        for (key, default) in Config::default().values() {
            let (said, wanted) = match default {
                Value::Bool(_) => ("Yes".to_owned(), true.into()),
                Value::Number(_) => {
                    let max = RANGES.iter().find(|(of, _, _)| *of == key).unwrap().2;
                    (format!("00{max}"), max.into())
                }
                _ => {
                    let text = texts.iter().find(|(of, _)| *of == key).expect(&key).1;
                    (text.to_owned(), Value::from(text))
                }
            };
            let own = |key: &str, said: &str| (key.to_owned(), said.to_owned());
            // `store.redis_degrade` needs replicas, and a key needs its certificate.
            let mut set = vec![own("store.redis_replicas", "1")];
            if ["store.redis_certificate", "store.redis_key"].contains(&key.as_str()) {
                set.extend(["certificate", "key"].map(|of| (format!("store.redis_{of}"), "x".to_owned())));
            }
            // With Redis the files must exist; with another store that overrides it, any name will do.
            let files = ["store.redis_ca", "store.redis_certificate", "store.redis_key", "cluster.secret_file"];
            let is_file = files.contains(&key.as_str());
            let kind = own("store.kind", if is_file { "memory" } else { "redis" });
            let above = if is_file {
                vec![kind]
            } else {
                set.push(kind);
                Vec::new()
            };
            set.push((key.clone(), said));
            let variables = set.iter().map(|(key, said)| (variable_of(key).into(), said.into()));
            let environment = Sources { environment: variables.collect(), flags: above, ..Sources::default() };
            let flags = (!is_file).then(|| Sources { flags: set.clone(), ..Sources::default() });
            let sources = std::iter::once(environment).chain(flags);
            for sources in sources {
                let values = Config::load(&sources).expect(&key).values();
                assert!(values.contains(&(key.clone(), wanted.clone())), "{key}: {values:?}");
            }
        }
    }

    #[test]
    fn a_wrong_value_of_a_variable_is_refused_with_its_name() {
        for (key, value, said) in [
            ("server.threads", "1.5", "`server.threads` is \"1.5\"; it must be a whole number, 0 to 64"),
            ("server.threads", "", "`server.threads` is \"\"; it must be a whole number, 0 to 64"),
            ("server.threads", "65", "`server.threads` is 65; it must be 0 to 64"),
            ("metrics.networks_max", "-1", "`metrics.networks_max` is \"-1\"; it must be a whole number, 0 to 1000000"),
            ("store.redis_degrade", "2", "`store.redis_degrade` is \"2\"; it must be true or false"),
            ("log.format", "7", "`log.format` is \"7\"; it must be \"text\", \"json\""),
            ("server.lissten", "x", "there is no key `server.lissten`; did you mean `server.listen`?"),
        ] {
            let variable = variable_of(key);
            let environment = [(variable.clone().into(), value.into())].into();
            let problem = Config::load(&Sources { environment, ..Sources::default() }).expect_err(key);
            assert_eq!(problem, format!("{said} (set by {variable})"));
        }
    }

    #[test]
    fn a_place_that_cannot_be_reached_is_refused_before_a_start() {
        for url in ["http://x", "x", "", "redis://", "redis+sentinel://h:1", "redis+cluster://h:1/3", "redis://h/x"] {
            let said = refused(&format!("[store]\nredis = \"{url}\""));
            assert!(said.starts_with(&format!("`store.redis` is \"{url}\", which is not a URL of Redis (")), "{said}");
            assert!(said.contains("it must be redis://") && !said.contains("InvalidClientConfig"), "{said}");
        }
        let said = refused("[store]\nredis = \"http://me:pass/word@x:1\"");
        assert!(said.contains("\"http://x:1\"") && !said.contains("word"), "{said}");
        for url in [
            "redis+unix:///run/redis.sock?user=u&pass=word&protocol=resp3",
            "redis://u:word@h/0?protocol=resp3",
            "redis+unix:///s?pass=a@word&protocol=resp3",
            "http://me:a?word@x",
        ] {
            let said = refused(&format!("[store]\nredis = \"{url}\""));
            assert!(said.contains("which is not a URL of Redis") && !said.contains("word"), "{said}");
        }
        for prefix in ["a b", ""] {
            let said = refused(&format!("[store]\nkind = \"redis\"\nprefix = \"{prefix}\""));
            assert_eq!(said, format!("`store.prefix` is {prefix:?}; it must be 1 to 64 letters, digits and `-_.:/`"));
        }
        for advertise in ["x", "10.0.0.7", ":7402", "x:", "x:0", "x:70000", "a b:1", "2001:db8::7:7402", "0.0.0.0:7402"]
        {
            let said = refused(&format!("[cluster]\nadvertise = \"{advertise}\""));
            assert!(said.starts_with(&format!("`cluster.advertise` is {advertise:?}; it must be a host")), "{said}");
        }
    }

    #[test]
    fn what_is_right_is_not_refused() {
        let mut config = Config::default();
        for url in [
            "redis://127.0.0.1:6379/0",
            "redis://:secret@h:1",
            "redis+unix:///run/redis.sock",
            "redis+sentinel://u:p@a:26379,b/main/0",
            "redis+cluster://a:1,b:2",
            "rediss://u:p@a:6380/0",
            "rediss+sentinel://u:p@a:26379,b/main/0",
            "rediss+cluster://a:1,b:2",
        ] {
            url.clone_into(&mut config.store.redis);
            assert_eq!(config.problems(), Vec::<String>::new(), "{url}");
        }
        for advertise in ["", "10.0.0.7:7402", "allod-0.allod-nodes:7402", "[2001:db8::7]:7402"] {
            advertise.clone_into(&mut config.cluster.advertise);
            assert_eq!(config.problems(), Vec::<String>::new(), "{advertise}");
        }
        for node in ["", "n", "rack-1/node_7:a", &"n".repeat(128)] {
            node.clone_into(&mut config.server.node);
            assert_eq!(config.problems(), Vec::<String>::new(), "{node}");
        }
    }

    #[test]
    fn a_name_of_a_node_is_one_short_word() {
        for node in ["a b", " ", "tab\\tbed", "ä", &"n".repeat(129)] {
            let said = refused(&format!("[server]\nnode = \"{node}\""));
            assert!(said.starts_with("`server.node` is ") && said.contains("1 to 128"), "{said}");
        }
    }

    #[test]
    fn two_ports_are_not_the_same() {
        let mut config = Config::default();
        config.server.insecure_listen = true;
        let mut said = |listen: &str, http: &str| {
            listen.clone_into(&mut config.server.listen);
            http.clone_into(&mut config.server.http_listen);
            config.problems().join("\n")
        };
        let both = said("127.0.0.1:7400", "127.0.0.1:7400");
        assert!(
            both.starts_with("`server.http_listen` is 127.0.0.1:7400, which `server.listen` uses; choose"),
            "{both}"
        );
        assert_ne!(said("127.0.0.1:7400", "0.0.0.0:7400"), "");
        assert_eq!(said("127.0.0.1:0", "127.0.0.1:0"), "");
        assert_eq!(said("127.0.0.1:7400", "127.0.0.2:7400"), "");
        // The port for other nodes only counts if it is opened.
        assert_eq!(said("127.0.0.1:7402", "127.0.0.1:7401"), "");
        config.store.kind = StoreKind::Redis;
        config.cluster.secret_file = "secret".into();
        assert!(
            config.problems().concat().starts_with("`cluster.listen` is 127.0.0.1:7402, which `server.listen` uses")
        );
    }

    #[test]
    fn what_tls_needs_is_whole_and_is_not_set_beside_a_url_without_it() {
        let plain = "[store]\nkind = \"redis\"\nredis = \"redis://u:secret@h/0\"\n";
        let secured = plain.replace("redis://", "rediss://");
        let said = refused(&format!("{plain}redis_ca = \"ca.pem\""));
        assert!(said.starts_with("`store.redis_ca` is \"ca.pem\", and `store.redis` is \"redis://h/0\""), "{said}");
        assert!(said.contains("nothing is encrypted") && !said.contains("secret"), "{said}");
        for (one, other) in [("certificate", "key"), ("key", "certificate")] {
            let said = refused(&format!("{secured}redis_{one} = \"x.pem\""));
            let wanted = format!("`store.redis_{one}` is \"x.pem\" and `store.redis_{other}` is not set; set both");
            assert!(said.starts_with(&wanted), "{said}");
        }
        let said = refused(&format!("{secured}redis_ca = \"no/such.pem\""));
        assert!(said.starts_with("`store.redis_ca` is \"no/such.pem\", which cannot be read: "), "{said}");
        // Another store that overrides Redis does not read these files.
        let file = Some(("t.toml".into(), format!("{plain}redis_ca = \"no/such.pem\"")));
        let flags = vec![("store.kind".to_owned(), "embedded".to_owned())];
        Config::load(&Sources { file, flags, ..Default::default() }).unwrap();
        let said = refused(&secured.replace("/0", "/0#insecure"));
        assert!(said.contains("that of a stranger") && said.contains("it must be redis://"), "{said}");
    }

    #[test]
    fn what_other_nodes_need_of_this_one_is_looked_at_before_a_start() {
        use std::fs::File;
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        let shared = format!("[store]\nkind = \"redis\"\n[cluster]\nsecret_file = {file:?}\n");
        let begins = format!("`cluster.secret_file` is {file:?}, which ");
        let said = refused(&shared);
        assert!(
            said.starts_with(&format!("{begins}cannot be read: No such file")) && said.contains("head -c 32"),
            "{said}"
        );
        let write = |text: &str| File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
        write("abc");
        let said = refused(&shared);
        assert!(
            said.starts_with(&format!("{begins}has 3 bytes")) && said.contains("it must have 16 to 4096"),
            "{said}"
        );
        write("0123456789abcdef");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o400)).unwrap();
        let load = |text: &str, flags: &[(&str, &str)]| {
            let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Config::load(&Sources { file: Some(("t.toml".into(), text.to_owned())), flags, ..Default::default() })
        };
        assert!(load(&shared, &[]).is_ok());
        for listen in ["0.0.0.0:7402", "[::]:7402"] {
            let everywhere = format!("[server]\ninsecure_listen = true\n{shared}listen = {listen:?}\n");
            let said = refused(&everywhere);
            assert!(said.starts_with(&format!("`cluster.listen` is {listen}, which tells")), "{said}");
            assert!(said.contains("; also set `cluster.advertise` (`--advertise`), where"), "{said}");
            assert!(load(&everywhere, &[("cluster.advertise", "10.0.0.7:7402")]).is_ok());
            // The port for other nodes is not opened.
            assert!(load(&everywhere, &[("store.kind", "memory")]).is_ok());
        }
        for listen in ["0.0.0.0:7400", "[::]:7400"] {
            let everywhere =
                format!("[server]\ninsecure_listen = true\nlisten = {listen:?}\n{shared}listen = \"10.0.0.7:7402\"\n");
            let said = refused(&everywhere);
            assert!(said.starts_with(&format!("`server.listen` is {listen}, which tells clients")), "{said}");
            assert!(said.contains("also set `cluster.advertise` (`--advertise`), where"), "{said}");
            assert!(load(&everywhere, &[("cluster.advertise", "10.0.0.7:7402")]).is_ok());
            // Nobody is sent from there to another node.
            assert!(load(&everywhere, &[("cluster.secret_file", "")]).is_ok());
        }
    }
}
