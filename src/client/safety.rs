//! Which calls may be repeated after a lost answer: PROTOCOL's paragraph of that name, method by method.
//!
//! This is the only such table: the client repeats calls by it, and the command line takes its hints from it. Unknown
//! methods (of a newer server) are never repeated.

use serde_json::{Map, Value};

use crate::wire::{Access, Method};

/// When a call may be sent again although its first try may have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Always: the answer is the same as the first time, or nothing changes.
    Always,
    /// If one of these members is given.
    With(&'static [&'static str]),
    /// If this member is not given.
    Without(&'static str),
    /// Never: look first.
    Never,
    /// The method concerns one connection, so a client that changes connections does not offer it.
    OfConnection,
}

/// What is known about a method.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name.
    pub method: &'static str,
    /// When it may be repeated.
    pub repeat: Repeat,
    /// Where to look if it may not be repeated; for a method that concerns one connection, what to use instead.
    pub look: &'static str,
}

const fn rule(method: &'static str, repeat: Repeat, look: &'static str) -> Rule {
    Rule { method, repeat, look }
}

const GENERATION: Repeat = Repeat::With(&["if_generation"]);
const VERSION: Repeat = Repeat::With(&["if_version"]);
const ABSENT: Repeat = Repeat::With(&["if_version", "if_absent"]);
const PLAN: Repeat = Repeat::With(&["plan"]);

const AT_ADDRESS: &str = "look with `ip.get`; with `if_generation` it may be repeated";
const AT_LIST: &str = "look with `ip.list`";
const AT_NETWORK: &str = "look with `network.get`; with `if_version` it may be repeated";
const AT_DEPLOYMENT: &str = "look with `deployment.get`";
const AT_SERVER: &str = "look with `cluster.nodes`";
const READS: &str = "it only reads";
const SAME: &str = "a repeat is answered as the first time";

/// One rule for each method of the protocol.
pub const RULES: &[Rule] = &[
    rule("ip.allocate", Repeat::Always, SAME),
    rule("ip.claim", Repeat::Always, SAME),
    rule("ip.acquire", Repeat::Always, SAME),
    rule("ip.renew", Repeat::Always, SAME),
    rule("ip.bind", Repeat::Always, SAME),
    rule("ip.update", Repeat::Always, SAME),
    rule("ip.decline", Repeat::Without("again"), "look with `ip.get`; without `again` it may be repeated"),
    rule("ip.release", GENERATION, AT_ADDRESS),
    rule("ip.unbind", GENERATION, AT_ADDRESS),
    rule("ip.transfer", GENERATION, AT_ADDRESS),
    rule("ip.get", Repeat::Always, READS),
    rule("ip.find", Repeat::Always, READS),
    rule("ip.list", Repeat::Always, READS),
    rule("owner.release", Repeat::Never, AT_LIST),
    rule("scope.release", Repeat::Never, AT_LIST),
    // "Repeatable", as the table of methods says: it notes the same names again.
    rule("claimant.mark", Repeat::Always, SAME),
    rule("claimant.sweep", Repeat::Never, AT_LIST),
    rule("deployment.plan", Repeat::Always, READS),
    rule("deployment.apply", Repeat::Always, SAME),
    rule("deployment.commit", PLAN, AT_DEPLOYMENT),
    rule("deployment.revert", PLAN, AT_DEPLOYMENT),
    rule("deployment.get", Repeat::Always, READS),
    rule("deployment.list", Repeat::Always, READS),
    rule("deployment.delete", Repeat::Never, AT_DEPLOYMENT),
    rule("network.create", ABSENT, "look with `network.get`; with `if_absent` it may be repeated"),
    rule("network.get", Repeat::Always, READS),
    rule("network.list", Repeat::Always, READS),
    rule("network.update", VERSION, AT_NETWORK),
    rule("network.delete", VERSION, AT_NETWORK),
    rule("network.restore", VERSION, AT_NETWORK),
    rule("network.usage", Repeat::Always, READS),
    rule("network.map", Repeat::Always, READS),
    rule("subnet.add", ABSENT, AT_NETWORK),
    rule("subnet.modify", VERSION, AT_NETWORK),
    rule("subnet.move", VERSION, AT_NETWORK),
    rule("subnet.remove", VERSION, AT_NETWORK),
    rule("pool.add", ABSENT, AT_NETWORK),
    rule("pool.modify", VERSION, AT_NETWORK),
    rule("pool.remove", VERSION, AT_NETWORK),
    rule("reserved.add", VERSION, AT_NETWORK),
    rule("reserved.remove", VERSION, AT_NETWORK),
    rule("realm.list", Repeat::Always, READS),
    rule("scope.list", Repeat::Always, READS),
    rule("events.watch", Repeat::OfConnection, "a `Watch` keeps a subscription over connections (`allod watch`)"),
    rule("events.unwatch", Repeat::OfConnection, "a `Watch` ends where it is dropped (`allod watch`)"),
    rule("events.history", Repeat::Always, READS),
    rule("inventory.compare", Repeat::Always, READS),
    rule("server.info", Repeat::Always, READS),
    rule("server.ping", Repeat::Always, READS),
    rule("cluster.nodes", Repeat::Always, READS),
    rule("cluster.locate", Repeat::Always, READS),
    rule("cluster.drain", Repeat::Never, AT_SERVER),
    rule("cluster.conflicts", Repeat::Always, READS),
    rule("cluster.accept", Repeat::Never, "look with `cluster.conflicts`"),
    rule("session.set", Repeat::OfConnection, "following redirects is an option of the client"),
    rule("auth.login", Repeat::Always, READS),
    rule("rpc.discover", Repeat::Always, READS),
];

/// The rule of a method.
pub fn rule_of(method: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.method == method)
}

/// May this call be repeated although its first try may have taken effect?
pub fn may_be_repeated(method: &str, params: &Map<String, Value>) -> bool {
    let Some(rule) = rule_of(method) else { return false };
    let given = |member: &str| params.get(member).is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
    match rule.repeat {
        Repeat::Always => true,
        Repeat::With(members) => members.iter().any(|member| given(member)) || given("dry_run"),
        Repeat::Without(member) => !given(member) || given("dry_run"),
        Repeat::Never => given("dry_run"),
        Repeat::OfConnection => false,
    }
}

/// May this call change something if it is carried out?
pub(super) fn may_change(method: &str, params: &Map<String, Value>) -> bool {
    let reads = Method::from_name(method).is_some_and(|method| method.access() == Access::Read);
    !reads && params.get("dry_run") != Some(&Value::Bool(true))
}

/// May the refusal of a repeat be caused by the first try, so that it does not tell whether that one took effect? A grant
/// with `must_create` may find its own reservation; and a condition may no longer hold because of the call itself.
pub(super) fn refusal_is_ambiguous(method: &str, params: &Map<String, Value>) -> bool {
    let reads = Method::from_name(method).is_some_and(|method| method.access() == Access::Read);
    let must_create = params.get("must_create") == Some(&Value::Bool(true));
    match rule_of(method).map(|rule| rule.repeat) {
        Some(Repeat::Always) => !reads && must_create,
        Some(Repeat::With(_)) => true,
        Some(Repeat::Without(_) | Repeat::Never | Repeat::OfConnection) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn safe(method: &str, params: Value) -> bool {
        may_be_repeated(method, params.as_object().unwrap())
    }

    #[test]
    fn every_method_of_the_published_document_has_a_rule() {
        let document: Value = serde_json::from_str(crate::wire::openrpc::document()).unwrap();
        let published = document["methods"].as_array().unwrap().iter().map(|method| method["name"].as_str().unwrap());
        let missing: Vec<&str> =
            published.chain(Method::NAMES.iter().copied()).filter(|name| rule_of(name).is_none()).collect();
        assert!(missing.is_empty(), "may these be repeated after a lost answer? {missing:?}");
        let unknown = RULES.iter().filter(|rule| Method::from_name(rule.method).is_none());
        assert_eq!(unknown.map(|rule| rule.method).collect::<Vec<_>>(), Vec::<&str>::new());
        assert_eq!(RULES.len(), Method::NAMES.len(), "a method has two rules");
    }

    #[test]
    fn what_only_reads_may_always_be_repeated() {
        for method in Method::ALL.iter().filter(|method| method.access() == Access::Read) {
            let rule = rule_of(method.name()).unwrap();
            assert!(matches!(rule.repeat, Repeat::Always | Repeat::OfConnection), "{}", rule.method);
        }
    }

    #[test]
    fn what_changes_something_may_be_repeated_as_the_protocol_says() {
        let always = ["ip.allocate", "ip.claim", "ip.acquire", "ip.renew", "ip.bind", "ip.update", "deployment.apply"];
        for method in Method::ALL.iter().filter(|method| method.access() == Access::Write) {
            let unconditionally = safe(method.name(), json!({}));
            let listed = always.contains(&method.name()) || ["ip.decline", "claimant.mark"].contains(&method.name());
            assert_eq!(unconditionally, listed, "{}", method.name());
            assert!(safe(method.name(), json!({"dry_run": true})), "{}", method.name());
        }
        for (method, member) in [
            ("ip.release", "if_generation"),
            ("ip.unbind", "if_generation"),
            ("ip.transfer", "if_generation"),
            ("network.create", "if_absent"),
            ("subnet.add", "if_absent"),
            ("pool.add", "if_version"),
            ("network.delete", "if_version"),
            ("reserved.remove", "if_version"),
            ("deployment.commit", "plan"),
            ("deployment.revert", "plan"),
        ] {
            assert!(safe(method, json!({member: 7})), "{method} with {member}");
            assert!(!safe(method, json!({member: null})), "{method} with {member}: null");
        }
        assert!(!safe("network.create", json!({"if_absent": false})));
        assert!(!safe("ip.decline", json!({"again": true})));
        for method in ["owner.release", "scope.release", "deployment.delete", "claimant.sweep"] {
            assert!(!safe(method, json!({"if_version": 1, "if_generation": 1})), "{method}");
        }
        assert!(!safe("brand.new", json!({})));
    }
}
