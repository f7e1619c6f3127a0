//! Which module may use which. The table is the architecture: each line in it is a decision.

use super::source::Source;

/// What a module of the library may use, besides itself and the leaves. An entry with `::` allows only that part of a
/// module.
const MAY_USE: &[(&str, &[&str])] = &[
    ("core", &[]),
    // Documentation.
    ("consistency", &[]),
    ("limits", &[]),
    ("metrics", &[]),
    ("telemetry", &[]),
    ("seldom", &[]),
    // Only for tests.
    ("fuzz", &[]),
    // The store knows which URLs and prefixes it takes; the peers know what a secret is.
    ("config", &["store::redis", "peer::secret"]),
    // Values of the wire are parsed by the core's own types, so that there is one spelling of an address.
    ("wire", &["core::types", "core::address", "core::compact"]),
    ("store", &["core"]),
    // Only the trait: `main` decides which store it is.
    ("actors", &["core", "store"]),
    // Nodes talk to each other in terms of actors and core, and use nothing of the protocol with clients.
    ("peer", &["actors", "core"]),
    ("server", &["wire", "actors", "core", "peer"]),
    ("http", &["server", "wire"]),
    ("client", &["wire"]),
    // Sentences count things alike everywhere. `serve` and `try` start a server; commands that look at its store or files
    // use `serve`, too.
    ("cli", &["client", "wire", "core::types", "core::address", "core::plural", "serve"]),
    // What `allod serve` does: the only place in the library that constructs a server.
    ("serve", &["core", "store", "actors", "peer", "server", "http", "config", "wire"]),
];

/// All modules but `core` may use these; `core` may use only `limits`.
const LEAVES: &[&str] = &["limits", "metrics", "seldom", "telemetry", "fuzz"];

/// Parts that a module may not use, although it may use the rest of their module.
const NEVER: &[(&str, &[&str])] =
    &[("actors", &["store::memory", "store::embedded", "store::redis"]), ("server", &["core::network", "core::space"])];

/// Crates and parts of the standard library that the core must not use: no clock, randomness, I/O, tasks or formats.
const CORE_NEVER_SEES: &[&str] = &[
    "tokio",
    "actix",
    "serde_json",
    "postcard",
    "tracing",
    "prometheus",
    "rand",
    "jiff",
    "redis",
    "axum",
    "std::time",
    "std::fs",
    "std::io",
    "std::thread",
    "std::process",
    "std::env",
    "std::net::TcpStream",
    "Uuid::new_v4",
];

/// Crates that belong to one layer.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("actix", &["actors", "serve"]),
    ("axum", &["http"]),
    ("clap", &["cli", "config"]),
    ("redis", &["store"]),
    ("postcard", &["peer"]),
    ("hmac", &["peer"]),
];

/// Everything that a file uses but must not, in words.
pub fn violations(source: &Source) -> Vec<String> {
    let Some(module) = module_of(&source.path) else { return Vec::new() };
    if module == "main" || module == "lib" {
        return Vec::new();
    }
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{}: module `{module}` is not in the table of directions", source.path)];
    };
    let mut found = Vec::new();
    let code = code_of(source);
    for used in crate_paths(&code, &source.path) {
        let is = |entry: &&str| lies_in(&used, entry);
        let itself = used == module || used.starts_with(&format!("{module}::"));
        let leaf = module != "core" && LEAVES.iter().any(&is);
        let limits = used == "limits" || used.starts_with("limits::");
        let never = NEVER.iter().any(|(name, parts)| *name == module && parts.iter().any(&is));
        if never || !(itself || leaf || limits || allowed.iter().any(&is)) {
            found.push(format!("{}: `{module}` must not use `{used}`", source.path));
        }
    }
    if module == "core" {
        let seen = CORE_NEVER_SEES.iter().filter(|name| mentions_path(&code, name));
        found.extend(seen.map(|name| format!("{}: the core must not see `{name}`", source.path)));
    }
    let misplaced = ONLY_IN.iter().filter(|(name, modules)| mentions_path(&code, name) && !modules.contains(&module));
    found.extend(misplaced.map(|(name, _)| format!("{}: `{name}` does not belong into `{module}`", source.path)));
    found
}

/// Everything that is allowed but that no file does, in words: the table describes the present, not the past or the future.
pub fn idle(sources: &[Source]) -> Vec<String> {
    let of = |module: &'static str| sources.iter().filter(move |source| module_of(&source.path) == Some(module));
    let mut found = Vec::new();
    for (module, allowed) in MAY_USE {
        let used: Vec<String> = of(module).flat_map(|source| crate_paths(&code_of(source), &source.path)).collect();
        let idle = allowed.iter().filter(|entry| !used.iter().any(|used| lies_in(used, entry)));
        found.extend(idle.map(|entry| format!("`{module}` may use `{entry}`, and does not")));
    }
    for (name, modules) in ONLY_IN {
        let mentions = |module: &&&'static str| of(module).any(|source| mentions_path(&code_of(source), name));
        let idle = modules.iter().filter(|module| !mentions(module));
        found.extend(idle.map(|module| format!("`{name}` may be in `{module}`, and is not")));
    }
    found
}

fn code_of(source: &Source) -> String {
    source.code_lines().map(|(_, line)| format!("{line}\n")).collect()
}

/// Is a path this entry of the table, or a part of it?
fn lies_in(used: &str, entry: &str) -> bool {
    used.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// `src/wire/types.rs` and `src/wire.rs` are `wire`.
fn module_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("src/")?;
    Some(rest.split_once('/').map_or_else(|| rest.trim_end_matches(".rs"), |(module, _)| module))
}

/// Is there a path that begins with this crate, such as `tokio::`?
fn mentions_path(code: &str, name: &str) -> bool {
    let wanted = format!("{name}::");
    let also = [format!("use {name};"), format!("{name}(")];
    code.match_indices(&wanted).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    }) || also.iter().any(|also| code.contains(also))
}

/// The first two parts of every path from the library's root, by `crate::` or by enough of `super::`.
fn crate_paths(code: &str, path: &str) -> Vec<String> {
    let is_mod = path.ends_with("/mod.rs");
    let depth = path.split('/').count() - 1 - usize::from(is_mod);
    let mut found = Vec::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&root) {
            let before = &code[..at];
            // `$crate::` of a macro counts as `crate::`; `x::super::` does not exist.
            if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut paths = Vec::new();
            paths_after(&code[at + root.len()..], "", &mut paths);
            // In a module within the file, `super` reaches less far than it seems.
            paths.retain(|path| {
                root == "crate::" || MAY_USE.iter().any(|(name, _)| path.split("::").next() == Some(name))
            });
            found.append(&mut paths);
        }
    }
    found.retain(|used| !used.is_empty());
    found.sort();
    found.dedup();
    found
}

/// Collects `a::b` from `a::b::c`, and from each member of `{a::b, c::{d}}`.
fn paths_after(rest: &str, prefix: &str, found: &mut Vec<String>) {
    let rest = rest.trim_start();
    if let Some(group) = rest.strip_prefix('{') {
        let mut level = 0;
        let mut start = 0;
        for (at, c) in group.char_indices() {
            match c {
                '{' => level += 1,
                '}' if level > 0 => level -= 1,
                ',' | '}' if level == 0 => {
                    paths_after(&group[start..at], prefix, found);
                    start = at + 1;
                    if c == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let word: String = rest.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
    let after = &rest[word.len()..];
    // Anything but a module (a type, a function, a macro of the root) counts as the module before it.
    let is_module = word.starts_with(|c: char| c.is_lowercase()) && word != "self";
    let path = match (prefix, is_module) {
        ("", true) => word,
        ("", false) => return,
        (prefix, true) => return found.push(format!("{prefix}::{word}")),
        (prefix, false) => return found.push(prefix.to_owned()),
    };
    match after.strip_prefix("::") {
        Some(further) => paths_after(further, &path, found),
        None if after.starts_with('!') => {}
        None => found.push(path),
    }
}

#[test]
fn an_allowance_of_which_no_file_makes_use_is_told() {
    let told = |text: &str| idle(&[Source::new("src/http/a.rs", text.to_owned())]);
    let is_told = |text: &str, entry: &str| told(text).contains(&format!("`http` may use `{entry}`, and does not"));
    assert!(is_told("", "server") && is_told("use crate::wire::Method;", "server"));
    assert!(!is_told("use crate::server::Server;", "server"));
    assert!(is_told("use crate::server_of_another_name::Server;", "server"));
    assert!(told("use crate::wire::Method;").contains(&"`axum` may be in `http`, and is not".to_owned()));
    assert!(!told("use axum::Router;").contains(&"`axum` may be in `http`, and is not".to_owned()));
}

#[test]
fn directions_are_read_out_of_any_spelling() {
    let check = |path: &str, text: &str| violations(&Source::new(path, text.to_owned()));
    for (path, text) in [
        ("src/core/a.rs", "use crate::store::Batch;"),
        ("src/core/a.rs", "use std::time::Instant;"),
        ("src/core/a.rs", "fn f() { tokio::spawn(x) }"),
        ("src/core/a.rs", "use crate::{limits, wire::types};"),
        ("src/core/mod.rs", "use super::store::Batch;"),
        ("src/core/a/b.rs", "use super::super::super::store::Batch;"),
        ("src/wire/a.rs", "use crate::core::{types::Name, network::Network};"),
        ("src/actors/a.rs", "use crate::store::embedded::Log;"),
        ("src/store/a.rs", "fn f(x: crate::wire::methods::Call) {}"),
        ("src/server/a.rs", "use axum::Router;"),
        ("src/brand_new.rs", "fn f() {}"),
    ] {
        assert_eq!(check(path, text).len(), 1, "{path}: {text}: {:?}", check(path, text));
    }
    for (path, text) in [
        ("src/core/a.rs", "use crate::limits::NAME_CHARACTERS_MAX; // not crate::store"),
        ("src/core/a.rs", "use super::types::Name;"),
        ("src/wire/a.rs", "use crate::core::{types::Name, address::Cidr};"),
        ("src/actors/a.rs", "use crate::store::{Store, Batch};"),
        ("src/core/a.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\nuse crate::store::Batch;\n}"),
    ] {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}
