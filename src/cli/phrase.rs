//! What was asked, in words: the fragment that follows "cannot" in an error and "would" in a dry run.

use serde_json::Value;

use crate::core::address::Range;
use crate::core::plural::counted;
use crate::wire::values::text::shortened;

/// What a call asks for, in words: ``claim `10.0.0.7` in network `lan` for `db/0` ``.
pub fn of(method: &str, params: &Value) -> String {
    let quoted = |member: &str| text(params, member).map(|value| format!("`{}`", shortened(value)));
    let named = |member: &str, otherwise: &str| quoted(member).unwrap_or_else(|| otherwise.to_owned());
    let after = |word: &str, member: &str| quoted(member).map_or_else(String::new, |value| format!(" {word} {value}"));
    let in_network = after("in network", "network");
    let holding = match (quoted("address"), quoted("owner")) {
        (Some(address), _) => address,
        (None, Some(owner)) => format!("what {owner} holds"),
        (None, None) => "an address".to_owned(),
    };
    let for_owner = after("for", "owner");
    match method {
        "ip.allocate" => {
            let block = params.get("prefix_length").map(|bits| format!("a /{bits} block"));
            format!("allocate {}{in_network}{for_owner}", block.unwrap_or_else(|| "an address".to_owned()))
        }
        "ip.claim" => format!("claim {}{in_network}{for_owner}", named("address", "an address")),
        "ip.acquire" => {
            let count = params.get("ips").and_then(Value::as_array).map_or(0, Vec::len);
            format!("acquire {}{in_network}{for_owner}", counted(count, "address"))
        }
        "ip.release" => format!("release {holding}{in_network}"),
        "ip.renew" => format!("renew {holding}{in_network}"),
        "ip.bind" => format!("bind {holding}{in_network}{}", after("to", "claimant")),
        "ip.unbind" => format!("unbind {holding}{in_network}{}", after("from", "claimant")),
        "ip.update" => format!("update {holding}{in_network}"),
        "ip.transfer" => {
            let to = params.get("to").and_then(|to| text(to, "owner")).unwrap_or("another owner");
            format!("transfer {holding}{in_network} to `{}`", shortened(to))
        }
        "ip.decline" => format!("decline {holding}{in_network}"),
        "ip.get" | "ip.find" => format!("look up {}", named("address", "the address")),
        "ip.list" => "list reservations".to_owned(),
        "owner.release" => format!("release what {} holds", named("owner", "the owner")),
        "scope.release" => format!("release what scope {} holds", named("scope", "default")),
        "scope.list" => format!("list the scopes{}", after("of network", "network")),
        "realm.list" => "list the realms".to_owned(),
        "claimant.mark" => format!("mark claimants for sweep {}", named("sweep", "")),
        "claimant.sweep" => format!("sweep the claimants of scope {}", named("scope", "default")),
        "network.create" => format!("create network {}", named("name", "")),
        "network.get" => format!("show network {}", named("network", "")),
        "network.list" => "list the networks".to_owned(),
        "network.update" => format!("update network {}", named("network", "")),
        "network.delete" => format!("delete network {}", named("network", "")),
        "network.restore" => format!("restore network {}", named("network", "")),
        "network.usage" => format!("count the addresses of network {}", named("network", "")),
        "network.map" => format!("draw network {}", named("network", "")),
        "subnet.add" => format!("add subnet {} to network {}", named("cidr", ""), named("network", "")),
        "subnet.modify" => format!("modify subnet {}{in_network}", named("subnet", "")),
        "subnet.move" => format!("move subnet {} to network {}", named("subnet", ""), named("to", "")),
        "subnet.remove" => format!("remove subnet {}{in_network}", named("subnet", "")),
        "pool.add" => format!("add pool {}{in_network}", quoted("range").unwrap_or_else(|| named("subnet", ""))),
        "pool.modify" => format!("modify pool {}{in_network}", named("pool", "")),
        "pool.remove" => {
            let what = quoted("pool").or_else(|| quoted("range"));
            let what = what.unwrap_or_else(|| format!("of subnet {}", named("subnet", "")));
            format!("remove pool {what}{in_network}")
        }
        "reserved.add" => format!("reserve {}{in_network}", named("range", "")),
        "reserved.remove" => format!("end the reservation of {}{in_network}", named("range", "")),
        "deployment.plan" => format!("plan deployment {}", named("deployment", "")),
        "deployment.apply" => format!("apply deployment {}", named("deployment", "")),
        "deployment.commit" | "deployment.revert" => {
            let verb = method.trim_start_matches("deployment.");
            let plan = params.get("plan").map_or_else(String::new, |plan| format!(" {plan}"));
            let of = match params.get("instances").and_then(Value::as_array).map_or(0, Vec::len) {
                0 => String::new(),
                count => format!(" for {}", counted(count, "instance")),
            };
            format!("{verb} plan{plan} of deployment {}{of}", named("deployment", ""))
        }
        "deployment.get" => format!("show deployment {}", named("deployment", "")),
        "deployment.list" => "list the deployments".to_owned(),
        "deployment.delete" => format!("delete deployment {}", named("deployment", "")),
        "events.history" => match quoted("address").or_else(|| quoted("owner")).or_else(|| quoted("network")) {
            Some(of) => format!("tell the history of {of}"),
            None => "tell the history".to_owned(),
        },
        "cluster.drain" => {
            let back = params.get("drain") == Some(&Value::Bool(false));
            format!("take {} {} service", named("node", "the node"), if back { "back into" } else { "out of" })
        }
        "cluster.locate" => format!("locate network {}", named("network", "")),
        "cluster.nodes" => "list the nodes".to_owned(),
        "cluster.conflicts" => "list the conflicts".to_owned(),
        "cluster.accept" => format!("accept what is present in network {}", named("network", "")),
        "events.watch" => "watch events".to_owned(),
        "server.info" | "server.ping" => "ask the server".to_owned(),
        // Any other method comes from `allod call`, where its name was typed.
        other => format!("call `{}`", shortened(other)),
    }
}

/// The same if the outcome is unknown. A drain takes long and goes on although nobody waits for it, so it is not said to
/// have failed.
pub fn in_doubt(method: &str, params: &Value) -> String {
    if method != "cluster.drain" {
        return of(method, params);
    }
    let back = params.get("drain") == Some(&Value::Bool(false));
    let node = text(params, "node").map_or("the node".to_owned(), |node| format!("`{}`", shortened(node)));
    format!("tell whether {node} is {} service", if back { "back in" } else { "out of" })
}

/// A text member.
pub fn text<'a>(params: &'a Value, member: &str) -> Option<&'a str> {
    params.get(member).and_then(Value::as_str)
}

/// A member that is a range or a prefix.
pub fn range(of: &Value, member: &str) -> Option<Range> {
    text(of, member)?.parse().ok()
}
