//! What to do about a refusal: one hint for every kind of the protocol, each naming a command or a setting.
//!
//! The match is exhaustive over the protocol's kinds: a new kind does not compile until it has a hint.

use serde_json::{Map, Value};

use super::output::number_of;
use super::phrase::text;
use super::quote::{option, owner_options, shell};
use crate::client::{RpcError, safety};
use crate::core::types::NetworkId;
use crate::wire::{Access, ErrorKind, Method};

/// The hint for a refusal of `method` with `params`.
pub fn of(method: &str, params: &Value, error: &RpcError) -> String {
    let data = &error.data;
    let Some(kind) = ErrorKind::from_word(&error.kind) else {
        return "`allod server info` shows which protocol the server speaks".to_owned();
    };
    let network = text(params, "network").or_else(|| text(data, "network")).map(shell);
    let in_network = |command: &str| match &network {
        Some(network) => format!("`allod {command} {network}`"),
        None => format!("`allod {command} NETWORK`"),
    };
    let address = text(data, "address").or_else(|| text(params, "address")).map_or("ADDRESS".to_owned(), shell);
    // In a dynamic network the server does not choose addresses, and the address to be recorded is not among the held ones.
    if method.starts_with("ip.") && error.message.contains("the infrastructure pick") {
        return records(params, network.as_deref());
    }
    match kind {
        ErrorKind::ParseError | ErrorKind::InvalidRequest => {
            "the server could not read the request; do client and server fit? `allod server info`".to_owned()
        }
        ErrorKind::MethodNotFound => "`allod call rpc.discover` lists the methods that the server knows".to_owned(),
        ErrorKind::InvalidArgument => invalid_argument(method, error, network.as_deref()),
        ErrorKind::Internal => {
            "look up the id in the server's log and report it, together with the output of `allod server info`".to_owned()
        }
        ErrorKind::NotFound => not_found(method, params, error, network.as_deref()),
        ErrorKind::AlreadyExists => already_exists(method, params, error, network.as_deref()),
        ErrorKind::AlreadyInUse => already_in_use(params, error, network.as_deref(), &address),
        ErrorKind::NotEnoughCapacity => {
            format!("{} shows what takes the space and what frees it", in_network("network why-full"))
        }
        // The object to be created cannot be looked up yet: both ranges are in the request.
        ErrorKind::OutOfRange
            if matches!(method, "network.create" | "subnet.add") && error.message.contains(" outside subnet ") =>
        {
            format!("name one inside the subnet, or make the subnet larger; `{} --help` shows how", command_of(method))
        }
        ErrorKind::OutOfRange => format!("{} shows its subnets and pools", in_network("network get")),
        ErrorKind::Reserved => reserved(method, error, network.as_deref(), &address),
        ErrorKind::Overlap => overlap(method, params, error),
        // Only the message tells that the obstacle is not a lack of nodes.
        ErrorKind::InUse if method == "cluster.drain" && error.message.contains("what is in memory would be gone") => {
            network_stopped(Some("differs")).to_owned()
        }
        ErrorKind::InUse if method == "cluster.drain" => {
            "start another node on the same register first, or take one that is drained back into service (`allod cluster drain \
             NODE --undo`); `allod cluster nodes` shows those there are"
                .to_owned()
        }
        ErrorKind::InUse => in_use(params, error, network.as_deref()),
        ErrorKind::NotOwner => format!("`allod who {address}` shows who holds it"),
        ErrorKind::WrongKind => wrong_kind(method, &in_network("network get")),
        ErrorKind::Conflict => conflict(method, params, network.as_deref(), &address),
        ErrorKind::QuotaExceeded => {
            // Only the message says whose limit it is.
            let limit = if error.message.contains("per_scope") { "--limit-per-scope" } else { "--limit-per-owner" };
            let network = network.as_deref().unwrap_or("NETWORK");
            format!("release some, or raise it: `allod network update {network} {limit} COUNT`")
        }
        ErrorKind::Brake => {
            "see what it would release with `--dry-run --max-share 1`, then allow it with `--max-share RATIO`"
                .to_owned()
        }
        ErrorKind::CursorLost => {
            let cursor = text(data, "last_common").map_or("CURSOR".to_owned(), shell);
            if method == "events.history" {
                return format!("go on from the last one that is good: `allod history --after {cursor}`");
            }
            let filter = |name: &str| Some(format!(" --{name} {}", shell(text(params, name)?)));
            let filters: String = ["network", "realm", "scope"].into_iter().filter_map(filter).collect();
            format!("read the state again, then watch from there: `allod watch{filters} --since {cursor}`")
        }
        // The store is healthy, but an operator has to confirm that the register is right.
        ErrorKind::NotReady if text(data, "reason") == Some("restored") => {
            "claim each address that is in use, `allod ip claim NETWORK ADDRESS --owner OWNER`; then start the server once \
             with `--accept-restored` added to its `allod serve`"
                .to_owned()
        }
        ErrorKind::Unavailable => unavailable(method, params, data),
        ErrorKind::NotReady if text(data, "reason") == Some("conflicts") => conflicts(data),
        _ if is_of_another_try(kind, error) => after_lost(method, params),
        ErrorKind::Overloaded => {
            format!("nothing was changed; {}; `allod server info` shows the server's limits", retry_after(data))
        }
        ErrorKind::NotReady => {
            format!("{}; `allod cluster nodes` shows who serves, `GET /readyz` says why not", retry_after(data))
        }
        ErrorKind::Moved => {
            let to = text(data, "address").map_or("HOST:PORT".to_owned(), shell);
            format!("ask the node that serves it: `--server {to}`")
        }
        ErrorKind::NetworkStopped => network_stopped(text(data, "reason")).to_owned(),
        ErrorKind::RateLimited => format!("{}; `allod server info` shows the server's limits", retry_after(data)),
        // No server of this version refuses for these reasons.
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
            "`allod server info` shows which version the server is; this command knows no way to log in".to_owned()
        }
        ErrorKind::LineTooLong => "send less at once, or raise the setting `server.max_line_bytes`".to_owned(),
    }
}

/// What to do about a network that grants nothing because two holders claim an address.
fn conflicts(data: &Value) -> String {
    let network = text(data, "network").map_or("NETWORK".to_owned(), shell);
    format!(
        "`allod cluster conflicts {network}` shows all that are left. For each, first make sure that one of the two holders stops \
         using the address: tell the late one, or reserve it for that one (`allod reserved add {network} ADDRESS --for-owner \
         LATE`, with `--for-scope SCOPE` where it has one) and release the present one; then `allod cluster accept {network} \
         ADDRESS --reason TICKET` gives the late claim up"
    )
}

/// What to do about a network that is stopped for this reason. To restart the server means to decide for the content of the
/// store.
pub fn network_stopped(reason: Option<&str>) -> &'static str {
    match reason {
        Some("differs") => {
            "`allod export > register.jsonl` saves what is in memory; do this before any restart, then find out who uses what \
             the two differ in (deploy/README.md, \"What is served is what is stored\")"
        }
        Some("unloadable") => {
            "no restart mends that: `allod export > register.jsonl` has all but this network, which is as it was in the last \
             backup (`allod restore BACKUP --data DIR`)"
        }
        _ => "start the server again (`allod serve`): that loads the network again; its log says why",
    }
}

/// Is it only said of another try than the one that nobody answered, which may have changed something?
fn is_of_another_try(kind: ErrorKind, error: &RpcError) -> bool {
    error.is_in_doubt() && matches!(kind, ErrorKind::Overloaded | ErrorKind::NotReady | ErrorKind::RateLimited)
}

fn unavailable(method: &str, params: &Value, data: &Value) -> String {
    if data.get("applied") != Some(&Value::Bool(false)) {
        return format!("{}; `allod doctor` says what is wrong with the store", after_lost(method, params));
    }
    let what = match method {
        "cluster.drain" => {
            "`allod cluster nodes` shows the nodes and their addresses (`--server HOST:PORT` asks one of them), `allod doctor` \
             what is wrong with the store"
        }
        _ => "mend the store, then try again: `allod doctor` says what is wrong with it",
    };
    format!("nothing was changed; {what}")
}

/// What to do if it is unknown whether a call took effect.
pub fn after_lost(method: &str, params: &Value) -> String {
    let no_params = Map::new();
    if Method::from_name(method).is_some_and(|method| method.access() == Access::Read) {
        return "it changes nothing: repeat the command; `allod server ping` says when the server is back".to_owned();
    }
    if safety::may_be_repeated(method, params.as_object().unwrap_or(&no_params)) {
        "it is safe to repeat the command: nothing is granted twice; `allod server ping` says when the server is back"
            .to_owned()
    } else if method == "cluster.drain" {
        "it is safe to repeat the command; `allod cluster nodes` shows how far it is".to_owned()
    } else {
        look(method)
    }
}

/// Where to look if it is unknown whether a call took effect.
pub fn look(method: &str) -> String {
    let look = if method.starts_with("deployment.") {
        "`allod deployment get NAME`"
    } else {
        "`allod ip list` or `allod network get NETWORK`"
    };
    format!("whether it took effect is unknown; look first, with {look}")
}

fn retry_after(data: &Value) -> String {
    match data.get("retry_after_ms").and_then(Value::as_u64) {
        Some(after) => format!("try again in {} s", after.div_ceil(1_000).max(1)),
        None => "try again in a moment".to_owned(),
    }
}

/// The subcommand that calls this method, or `allod call` if there is none.
fn command_of(method: &str) -> String {
    let known = [
        "ip",
        "owner",
        "scope",
        "realm",
        "claimant",
        "network",
        "subnet",
        "pool",
        "reserved",
        "server",
        "deployment",
        "cluster",
    ];
    match method.split_once('.') {
        _ if method == "events.watch" => "allod watch".to_owned(),
        _ if method == "events.history" => "allod history".to_owned(),
        Some((noun, verb)) if known.contains(&noun) => format!("allod {noun} {verb}"),
        _ => "allod call".to_owned(),
    }
}

fn invalid_argument(method: &str, error: &RpcError, network: Option<&str>) -> String {
    if error.message.contains("`mac` cannot be \"auto\"") {
        let network = network.unwrap_or("NETWORK");
        return format!("`allod network update {network} --mac-prefix aa:00:00` gives it one");
    }
    format!("`{} --help` explains the arguments", command_of(method))
}

fn not_found(method: &str, params: &Value, error: &RpcError, network: Option<&str>) -> String {
    // If no field names the missing object, the message begins with it.
    let named = ["network", "subnet", "pool"].into_iter().find(|noun| error.message.starts_with(&format!("{noun} ")));
    let field = named.or_else(|| text(&error.data, "field")).unwrap_or_default();
    let noun = method.split('.').next().unwrap_or_default();
    match network {
        _ if error.message.starts_with("deployment ") => {
            "`allod deployment list` shows the deployments there are".to_owned()
        }
        _ if error.message.starts_with("conflict ") => "`allod cluster conflicts` shows those there are".to_owned(),
        _ if field == "network" && method.starts_with("cluster.") && method != "cluster.locate" => {
            "`allod cluster conflicts` shows the networks that have any, with their ids: one that was deleted is named by its \
             id"
                .to_owned()
        }
        _ if method == "cluster.drain" => "`allod cluster nodes` shows the nodes there are".to_owned(),
        _ if method == "network.restore" => {
            "`allod network list --deleted` shows those that can be restored, by their ids".to_owned()
        }
        _ if field == "network" => {
            "`allod network list` shows the networks there are, and with `--deleted` those that can be restored"
                .to_owned()
        }
        _ if error.message.starts_with("sweep ") => {
            let [scope, sweep] = [("scope", "SCOPE"), ("sweep", "NAME")]
                .map(|(member, otherwise)| text(params, member).map_or(otherwise.to_owned(), shell));
            format!("mark the live claimants first: `allod claimant mark {scope} --sweep {sweep} CLAIMANT`")
        }
        Some(network) if matches!(noun, "subnet" | "pool" | "reserved") || matches!(field, "subnet" | "pool") => {
            format!("`allod network get {network}` shows its subnets and pools")
        }
        Some(network) if noun == "ip" => {
            format!("`allod ip list --network {network}` shows what is held there")
        }
        Some(_) | None => "`allod network list` shows the networks there are".to_owned(),
    }
}

fn already_exists(method: &str, params: &Value, error: &RpcError, network: Option<&str>) -> String {
    let data = &error.data;
    // For a network only the message says which name is taken: it may be the new name of the network.
    let taken = error.message.strip_prefix("network `").and_then(|rest| rest.split('`').next()).map(shell);
    match (method, taken) {
        ("network.restore", Some(taken)) => {
            return format!(
                "`allod network get {taken}` shows which has the name now; give that another, then restore this one: `allod \
                 network update {taken} --name NEW`"
            );
        }
        ("network.update", Some(taken)) => {
            return format!("`allod network get {taken}` shows which has the name; choose another: `--name NEW`");
        }
        _ => {}
    }
    // For a transfer, the holder is the one who is to get the address.
    let holder = if method == "ip.transfer" { params.get("to").unwrap_or(&Value::Null) } else { params };
    match (text(data, "address"), text(holder, "owner"), network) {
        (Some(address), Some(owner), Some(network)) => {
            let ways = match method {
                "ip.transfer" => "name another slot with `--to-slot NAME`, swap both with `--exchange`",
                _ if params.get("must_create") == Some(&Value::Bool(true)) => {
                    "take another slot with `--slot NAME`, leave `--must-create` out"
                }
                _ => "take another slot with `--slot NAME`, change it with `--replace`",
            };
            let owner = owner_options(owner, text(holder, "scope"));
            format!("{ways}, or give `{address}` back: `allod ip release {network} {address} {owner}`")
        }
        _ if method.starts_with("deployment.") => {
            "give each wish of an instance in one network its own `slot`: `allod deployment apply --help` shows a file"
                .to_owned()
        }
        _ if method == "network.create" => {
            let name = text(params, "name").map_or("NETWORK".to_owned(), shell);
            format!("`allod network get {name}` shows what is there; `allod network apply FILE` changes it")
        }
        (_, _, Some(network)) => format!("`allod network get {network}` shows what is there"),
        _ => "`allod network list` shows what is there".to_owned(),
    }
}

fn already_in_use(params: &Value, error: &RpcError, network: Option<&str>, address: &str) -> String {
    // The holder may be in another network of the realm.
    if error.message.starts_with("MAC ") {
        let mac = text(params, "mac").or_else(|| params.get("set").and_then(|set| text(set, "mac")));
        let mac = mac.filter(|mac| *mac != "auto").map_or("MAC".to_owned(), shell);
        return format!(
            "`allod ip list --mac {mac}` shows which has it; `allod ip update NETWORK ADDRESS --unset mac` takes it away"
        );
    }
    let held_by = error.data.get("held_by").unwrap_or(&Value::Null);
    // Only the message says that the obstacle is the claimant.
    let bound = error.message.split_once(" is bound to `").and_then(|(_, rest)| rest.split('`').next());
    if let (Some(claimant), Some(network)) = (bound, network) {
        let claimant = option("--claimant", claimant);
        return format!(
            "`allod who {address}` shows since when; once that claimant no longer uses it: `allod ip unbind {network} {address} \
             {claimant}`"
        );
    }
    match (text(held_by, "owner"), network) {
        (Some(owner), Some(network)) => {
            let options = owner_options(owner, text(held_by, "scope"));
            format!("`allod ip list --network {network} {options}` shows what `{owner}` holds")
        }
        _ => format!("`allod who {address}` shows who holds it"),
    }
}

fn reserved(method: &str, error: &RpcError, network: Option<&str>, address: &str) -> String {
    if method.starts_with("deployment.") {
        return format!("`allod who {address}` shows why; ask for another address, or let the server choose one");
    }
    // The server's message mentions `force` where it helps; for a gateway, a network address or a draining range nothing
    // helps.
    if error.message.contains("`force`") {
        return format!("`allod who {address}` shows why; `--force` claims it nevertheless");
    }
    let network = network.unwrap_or("NETWORK");
    format!("name another address, or have one chosen: `allod ip allocate {network} --owner OWNER`")
}

/// How to record an address of a dynamic network.
fn records(params: &Value, network: Option<&str>) -> String {
    let given = |member: &str, otherwise: &str| text(params, member).map_or(otherwise.to_owned(), shell);
    let [address, claimant] = [("address", "ADDRESS"), ("claimant", "CLAIMANT")].map(|(member, it)| given(member, it));
    let owner = text(params, "owner").map_or("--owner OWNER".to_owned(), |it| owner_options(it, text(params, "scope")));
    format!("`allod ip bind {} {address} {owner} --claimant {claimant}` records one", network.unwrap_or("NETWORK"))
}

fn wrong_kind(method: &str, shows: &str) -> String {
    // The network to be created cannot be looked up yet.
    if method == "network.create" {
        return "leave the subnets out, or make it of another kind: `allod network create --help` names those there are".to_owned();
    }
    format!("{shows} shows of which kind network and pools are")
}

fn overlap(method: &str, params: &Value, error: &RpcError) -> String {
    let Some(with) = error.data.get("with").and_then(|with| text(with, "network")) else {
        return "`allod network list` shows what is there".to_owned();
    };
    // A network that was deleted is named only by its id, and holds its space until its last reservation is gone.
    if with.parse::<NetworkId>().is_ok() {
        if !error.message.contains("network.restore") {
            return format!(
                "`allod ip list --network {with}` shows what it still holds, which is being released; then try again"
            );
        }
        return format!(
            "`allod ip list --network {with}` shows what it still holds: release that, or `allod network restore {with}` \
             brings it back"
        );
    }
    let within = match method {
        "network.create" => text(params, "name") == Some(with),
        "subnet.add" => error.message.starts_with("pool "),
        _ => false,
    };
    if within {
        return format!(
            "both are to be made by this request: leave one out, or make one smaller; `{} --help` shows how",
            command_of(method)
        );
    }
    let shows = format!("`allod network get {}` shows what is there", shell(with));
    if text(params, "network") == Some(with) || method.starts_with("pool.") {
        return shows;
    }
    match method {
        "network.create" => format!("{shows}; a realm of its own (`--realm NAME`) may overlap"),
        _ => format!("{shows}; only networks of different realms may overlap"),
    }
}

fn in_use(params: &Value, error: &RpcError, network: Option<&str>) -> String {
    let network = network.unwrap_or("NETWORK");
    if error.message.contains(" is protected") {
        return format!("if you are sure: `allod network update {network} --protected=false`");
    }
    let reserved = error.message.strip_prefix("reserved range ").and_then(|rest| rest.split(' ').next());
    if let Some(range) = reserved {
        return format!("`allod reserved remove {network} {}` takes it away", shell(range));
    }
    if error.data.get("count").and_then(number_of).unwrap_or(0) == 0 {
        return format!("`allod network get {network}` shows what is there");
    }
    match text(params, "subnet") {
        Some(subnet) => {
            format!("`allod ip list --network {network} --subnet {}` shows what is held in it", shell(subnet))
        }
        None => format!("`allod ip list --network {network}` shows what is held in it"),
    }
}

fn conflict(method: &str, params: &Value, network: Option<&str>, address: &str) -> String {
    let network = network.unwrap_or("NETWORK");
    if method.starts_with("ip.") {
        format!("look at it again: `allod ip get {address} --network {network}`")
    } else if method.starts_with("deployment.") {
        let name = text(params, "deployment").map_or("NAME".to_owned(), shell);
        format!("look at it again: `allod deployment get {name}`")
    } else {
        format!("look at it again: `allod network get {network}`")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hint(method: &str, params: Value, kind: &str, message: &str, data: Value) -> String {
        let error = RpcError { code: 0, kind: kind.to_owned(), message: message.to_owned(), data };
        of(method, &params, &error)
    }

    #[test]
    fn who_is_to_get_an_address_is_told_how_a_transfer_can_be_had() {
        let to = json!({"owner": "-green", "scope": "s"});
        let params = json!({"network": "lan", "address": "10.0.0.2", "owner": "blue", "to": to});
        let hint = hint("ip.transfer", params, "already_exists", "taken", json!({"address": "10.0.0.3"}));
        assert!(hint.contains("`--to-slot NAME`") && hint.contains("`--exchange`"), "{hint}");
        assert!(hint.ends_with("`allod ip release lan 10.0.0.3 --owner=-green --scope s`"), "{hint}");
    }

    #[test]
    fn what_would_give_up_claims_unseen_is_not_what_a_hint_says_first() {
        let data = json!({"reason": "conflicts", "network": "lan"});
        let several = hint("ip.claim", json!({"network": "lan"}), "not_ready", "since a failover", data);
        assert!(several.starts_with("`allod cluster conflicts lan` shows all that are left"), "{several}");
        let (first, accept) = several.split_once("`allod cluster accept lan ADDRESS --reason TICKET`").unwrap();
        assert!(first.contains("--for-scope SCOPE"), "the late one could not claim it: {several}");
        assert!(first.contains("--for-owner LATE") && !accept.contains("--for-owner"), "two would use it: {several}");
        // A network that was deleted is listed by its former name.
        for method in ["cluster.accept", "cluster.conflicts"] {
            let gone = hint(method, json!({"network": "lan"}), "not_found", "network `lan` does not exist", json!({}));
            assert!(gone.contains("one that was deleted is named by its id"), "{method}: {gone}");
        }
    }

    #[test]
    fn what_only_reads_took_no_effect_and_what_is_not_made_yet_is_not_looked_at() {
        for method in ["events.watch", "ip.list", "network.get"] {
            let hint = after_lost(method, &json!({}));
            assert!(hint.starts_with("it changes nothing: repeat"), "{method}: {hint}");
        }
        let message = "network `dyn` is dynamic and has no subnets";
        let create = hint("network.create", json!({"name": "dyn"}), "wrong_kind", message, json!({}));
        assert!(create.contains("`allod network create --help`") && !create.contains("NETWORK"), "{create}");
    }

    #[test]
    fn who_binds_what_another_uses_is_told_how_that_ends() {
        let message = "10.0.0.5 is bound to `c 1`; ip.unbind it first, or repeat ip.allocate with the new claimant";
        let data = json!({"address": "10.0.0.5", "held_by": {"owner": "a"}});
        let hint = hint("ip.bind", json!({"network": "lan", "owner": "a"}), "already_in_use", message, data);
        assert!(hint.ends_with("`allod ip unbind lan 10.0.0.5 --claimant 'c 1'`"), "{hint}");
    }

    #[test]
    fn the_limit_that_was_reached_is_the_one_to_raise() {
        let hint = |whose: &str| {
            let message = format!("more than may be; release some, or raise `limits.per_{whose}`");
            hint("ip.allocate", json!({"network": "lan"}), "quota_exceeded", &message, json!({}))
        };
        assert!(hint("owner").ends_with("`allod network update lan --limit-per-owner COUNT`"));
        assert!(hint("scope").ends_with("`allod network update lan --limit-per-scope COUNT`"));
    }

    #[test]
    fn what_guards_a_network_or_a_subnet_is_what_the_hint_takes_away() {
        let (lan, in_use) = (|| json!({"network": "lan"}), "in_use");
        let message = "network `lan` is protected; take that away before you delete it";
        let guarded = hint("network.delete", lan(), in_use, message, json!({"count": 2}));
        assert!(guarded.ends_with("`allod network update lan --protected=false`"), "{guarded}");
        let message = "reserved range 10.0.0.100-10.0.0.110 of subnet 10.0.0.0/24 would lie outside";
        let outside = hint("subnet.modify", lan(), in_use, message, json!({"count": 0}));
        assert!(outside.starts_with("`allod reserved remove lan 10.0.0.100-10.0.0.110`"), "{outside}");
    }

    #[test]
    fn what_is_wrong_within_one_request_is_not_looked_up_on_the_server() {
        let with = json!({"with": {"network": "bad", "cidr": "10.0.0.0/24"}});
        let subnets = hint("network.create", json!({"name": "bad"}), "overlap", "10.0.0.128/25 overlaps", with.clone());
        assert!(subnets.starts_with("both are to be made by this request"), "{subnets}");
        assert!(subnets.contains("`allod network create --help`") && !subnets.contains("get bad"), "{subnets}");
        let pools = hint("subnet.add", json!({"network": "bad"}), "overlap", "pool 10.0.0.64/26 overlaps pool", with);
        assert!(pools.starts_with("both are") && pools.contains("`allod subnet add --help`"), "{pools}");
        for message in [
            "`subnets[0].gateway`: 10.1.0.1 lies outside subnet 10.0.0.0/24; name",
            "subnets[0].pools[0]: pool 10.1.0.0-10.1.0.9 reaches outside subnet 10.0.0.0/24",
        ] {
            let outside = hint("network.create", json!({"name": "bad"}), "out_of_range", message, json!({}));
            assert!(outside.starts_with("name one inside the subnet") && !outside.contains("NETWORK"), "{outside}");
        }
    }

    #[test]
    fn space_of_a_network_that_is_remembered_is_looked_for_by_its_id_whatever_is_to_be_made() {
        let id = "c9e1d7a0-8137-48da-8550-b62628d4e6ea";
        let with = json!({"with": {"network": id, "cidr": "10.0.0.0/24"}});
        for (method, params) in [
            ("network.create", json!({"name": "gone"})),
            ("subnet.add", json!({"network": "lan"})),
            ("subnet.modify", json!({"network": "lan"})),
        ] {
            let shows = format!("`allod ip list --network {id}` shows what it still holds");
            let said = "10.0.0.0/24 overlaps …, bring the network back with network.restore, or …";
            let told = hint(method, params.clone(), "overlap", said, with.clone());
            assert!(told.starts_with(&shows) && told.contains(&format!("`allod network restore {id}`")), "{told}");
            // A purged network does not come back.
            let told = hint(method, params, "overlap", "10.0.0.0/24 overlaps", with.clone());
            assert!(told.starts_with(&shows) && !told.contains("restore"), "{told}");
        }
    }

    #[test]
    fn who_looks_for_an_address_of_a_dynamic_network_is_shown_the_command_that_records_it() {
        let wrong =
            |method: &str, params: Value, kind: &str, message: &str| hint(method, params, kind, message, json!({}));
        let full = "network `cloud` has no free address: the infrastructure picks its addresses; record what it picked";
        let ask = json!({"network": "cloud", "owner": "w", "scope": "s"});
        let all = wrong("ip.allocate", ask, "not_enough_capacity", full);
        assert_eq!(all, "`allod ip bind cloud ADDRESS --owner w --scope s --claimant CLAIMANT` records one");
        let none =
            "reservation of `w` in network `cloud` does not exist; to record what the infrastructure picked, give";
        let bind = json!({"network": "cloud", "address": "172.16.0.5", "claimant": "vm 1"});
        let bound = wrong("ip.bind", bind, "not_found", none);
        assert_eq!(bound, "`allod ip bind cloud 172.16.0.5 --owner OWNER --claimant 'vm 1'` records one");
    }

    #[test]
    fn a_realm_is_offered_only_where_the_command_can_name_one() {
        let hint = |method: &str, network: &str| {
            let data = json!({"with": {"network": "lan", "cidr": "10.0.0.0/24"}});
            hint(method, json!({"network": network}), "overlap", "it overlaps", data)
        };
        assert_eq!(hint("pool.add", "lan"), "`allod network get lan` shows what is there");
        assert!(!hint("subnet.add", "other").contains("--realm"));
        assert!(hint("network.create", "other").contains("`--realm NAME`"));
    }
}
