//! Shows what a command would take away: before the question, and with `--dry-run`.
//!
//! One rule, stated in `--help` (`exit`) and in config/recipes.md, decides which commands ask: those that take away what
//! others may count on. No single command restores a network as it was, and once a range is no longer reserved, its
//! addresses may be granted a moment later. A command that names the owner of an address releases it without a question.

use serde_json::{Map, Value, json};

use super::args::Ask;
use super::block;
use super::output::{list, number_of, reservation_rows, space};
use super::phrase::{self, text};
use super::quote::shell;
use super::session::{Done, Session};
use super::shrink::is_pool;
use crate::core::address::{Cidr, Range};
use crate::core::plural::counted;

/// The most rows that are shown; the rest is counted.
const ROWS_MAX: usize = 20;
/// The width of these tables on stderr.
const WIDTH: Option<usize> = Some(80);

/// Does the call take away a part of the configuration? Its answer does not say which part.
pub fn is_of_configuration(method: &str) -> bool {
    matches!(method, "network.delete" | "subnet.remove" | "pool.remove" | "reserved.remove")
}

/// What is known about a call before it is made.
#[derive(Debug, Default)]
pub struct Would {
    /// Does it take anything away, or do anything else?
    pub takes: bool,
    /// The single reservation that it takes, if that was looked up.
    pub held: Option<Value>,
    /// The network whose configuration it takes from, as it was shown.
    network: Option<Value>,
}

impl Would {
    /// Params by which the call takes what was shown and nothing that is in its place by then: the question may have waited for
    /// any time. What the user says about generation or version comes first. Whoever was not asked may change other parts of the
    /// network at the same time: only a network as a whole is then taken as it was shown.
    pub fn pinned(&self, ask: &Ask, was_asked: bool) -> Map<String, Value> {
        let mut params = ask.params.clone();
        match (ask.method, &self.network) {
            ("ip.release", _) if self.takes && params.contains_key("address") => {
                // No reservation ever has generation 0: one that is made there meanwhile is not the one that was meant.
                let generation =
                    self.held.as_ref().and_then(|held| held.get("generation")).cloned().unwrap_or(json!(0));
                params.entry("if_generation").or_insert(generation);
            }
            (method, Some(network)) if was_asked || method == "network.delete" => pin(&mut params, network),
            _ => {}
        }
        params
    }
}

/// Makes the call one to this network as it was shown. It is refused if the network has changed since.
pub fn pin(params: &mut Map<String, Value>, network: &Value) {
    if let (Some(id), Some(version)) = (network.get("id"), network.get("version")) {
        params.insert("network".to_owned(), id.clone());
        params.entry("if_version").or_insert(version.clone());
    }
}

/// Shows on stderr what the call would take away.
pub async fn show(session: &mut Session, ask: &Ask) -> Done<Would> {
    // The dry run comes first, so that a refusal is worded like that of the call.
    let would = session.make(&ask.clone().with("dry_run", true)).await?;
    let releases = matches!(ask.method, "ip.release" | "owner.release" | "scope.release");
    if releases && would.get("released").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        return Ok(Would::default());
    }
    let mut taken = None;
    let network = configuration(session, ask).await?;
    match (ask.method, ask.text("network"), ask.text("address")) {
        ("ip.release", Some(network), Some(address)) => {
            let found = session.call("ip.get", json!({"network": network, "address": address})).await?;
            if let Some(held) = found.get("reservation") {
                session.show(&reservation_rows(std::iter::once(held)).render(WIDTH));
                taken = Some(held.clone());
            }
        }
        ("network.delete", Some(network), _) => {
            let first = session.call("ip.list", json!({"network": network, "limit": ROWS_MAX})).await?;
            let held = first.get("reservations").and_then(Value::as_array).cloned().unwrap_or_default();
            if !held.is_empty() {
                let first = if held.len() < ROWS_MAX { String::new() } else { format!("the first {ROWS_MAX} of ") };
                session.say(&format!("{first}what it holds:"));
                session.show(&reservation_rows(held.iter()).render(WIDTH));
            }
        }
        _ => {}
    }
    match would.get("released").filter(|released| released.is_array()) {
        Some(_) => {
            let would = block::with_length(&would, taken.as_ref());
            show_released(session, ask, &would);
        }
        None => {
            if let Some(words) = held(session, ask, &would).await? {
                session.say(&words);
            }
        }
    }
    Ok(Would { takes: true, held: taken, network })
}

/// What happens to the reservations, in words.
async fn held(session: &mut Session, ask: &Ask, would: &Value) -> Done<Option<String>> {
    if let Some(holding) = would.get("holding").and_then(Value::as_u64) {
        let is = |flag: &str| ask.params.get(flag) == Some(&Value::Bool(true));
        if !is("purge") {
            let remembered = if is("force") && holding > 0 { ", and is remembered while it does" } else { "" };
            return Ok(Some(format!("the network holds {}{remembered}", counted(holding, "reservation"))));
        }
        // `holding` is what would be left afterwards, which is nothing.
        let count = count(session, json!({"network": ask.text("network")})).await?;
        return Ok(Some(format!("the network holds {}, which would be released", counted(count, "reservation"))));
    }
    Ok(match ask.method {
        "subnet.remove" => Some("nothing is held in it".to_owned()),
        "pool.remove" => {
            let mut there = json!({"network": ask.text("network")});
            for member in ["pool", "range", "subnet"] {
                if let Some(value) = ask.params.get(member) {
                    there[member] = value.clone();
                }
            }
            let count = counted(count(session, there).await?, "reservation");
            Some(format!("what is held stays held ({count}); nothing new is granted there"))
        }
        "reserved.remove" => Some("whoever asks for an address may be given one of them".to_owned()),
        _ => None,
    })
}

pub async fn count(session: &mut Session, mut filter: Value) -> Done<u128> {
    filter["count_only"] = json!(true);
    Ok(session.call("ip.list", filter).await?.get("count").and_then(number_of).unwrap_or(0))
}

/// Shows the first rows of what is released.
pub fn show_released(session: &Session, ask: &Ask, would: &Value) {
    let released: Vec<&Value> = list(would, "released").collect();
    if released.is_empty() {
        return session.say("nothing is held, so nothing would be released");
    }
    let more = would.get("more") == Some(&Value::Bool(true));
    let at_least = if more { "at least " } else { "" };
    let rows = released.iter().take(ROWS_MAX).map(|item| match *item {
        Value::String(address) => json!({"address": address, "network": ask.text("network")}),
        item => item.clone(),
    });
    let rows: Vec<Value> = rows.collect();
    session.say(&format!("this would be released ({at_least}{}):", released.len()));
    session.show(&reservation_rows(rows.iter()).render(WIDTH));
    let rest = released.len().saturating_sub(ROWS_MAX);
    if rest > 0 {
        session.say(&format!("… and {at_least}{rest} more"));
    }
}

/// Shows which parts of a network's configuration would go, and returns the network.
async fn configuration(session: &mut Session, ask: &Ask) -> Done<Option<Value>> {
    let Some(name) = ask.text("network").filter(|_| is_of_configuration(ask.method)) else { return Ok(None) };
    let network = session.call("network.get", json!({"network": name})).await?;
    let going = going(ask, &network);
    let (words, shown) = (in_words(ask, &network, &going), first_of(&going));
    let rest = parts(&going).saturating_sub(parts(&shown));
    // Nothing is shown if someone else has removed them already.
    if parts(&going) > 0 || ask.method == "network.delete" {
        session.say(&format!("what goes: {words}"));
    }
    let table = space(&shown, WIDTH);
    if !table.is_empty() {
        session.show(&table);
    }
    if rest > 0 {
        session.say(&format!("… and {rest} more: `allod network get {}`", shell(name)));
    }
    Ok(Some(network))
}

/// What the call takes away, as subnets that contain only these parts. If the subnet itself stays, it has no `cidr`.
fn going(ask: &Ask, network: &Value) -> Vec<Value> {
    let given = |member: &str| ask.text(member);
    let range = |member: &str| given(member).and_then(|text| text.parse::<Range>().ok());
    let named = |subnet: &&Value| {
        given("subnet").is_some_and(|wanted| {
            let cidr = |text: &str| text.parse::<Cidr>().ok();
            let is_cidr = cidr(wanted).is_some() && cidr(wanted) == text(subnet, "cidr").and_then(cidr);
            is_cidr || [text(subnet, "name"), text(subnet, "id")].contains(&Some(wanted))
        })
    };
    // The parts of a list within a range.
    let within = |of: &Value, name: &str, range: Range| -> Vec<Value> {
        let part = |item: &Value| {
            let part = phrase::range(item, "range")?.intersection(range)?;
            let mut item = item.clone();
            item["range"] = json!(part.to_string());
            Some(item)
        };
        list(of, name).filter_map(part).collect()
    };
    let pools = |subnet: &Value| match (ask.method, range("range"), given("pool")) {
        ("reserved.remove", Some(range), _) => json!({"reserved": within(subnet, "reserved", range)}),
        (_, Some(range), _) => json!({"pools": within(subnet, "pools", range)}),
        (_, None, Some(wanted)) => {
            json!({"pools": list(subnet, "pools").filter(|pool| is_pool(pool, wanted)).collect::<Vec<_>>()})
        }
        (_, None, None) => json!({"pools": subnet.get("pools")}),
    };
    let subnets = list(network, "subnets");
    match (ask.method, given("subnet")) {
        ("network.delete", _) => subnets.cloned().collect(),
        ("subnet.remove", _) => subnets.filter(named).cloned().collect(),
        (_, Some(_)) => subnets.filter(named).map(pools).collect(),
        (_, None) => subnets.map(pools).collect(),
    }
}

/// The number of subnets, pools and reserved ranges.
fn parts(going: &[Value]) -> usize {
    counts(going).into_iter().sum()
}

fn counts(going: &[Value]) -> [usize; 3] {
    let all = |name: &str| going.iter().map(|subnet| list(subnet, name).count()).sum();
    [going.iter().filter(|subnet| subnet.get("cidr").is_some()).count(), all("pools"), all("reserved")]
}

/// ``network `lan` with 1 subnet, 2 pools``.
fn in_words(ask: &Ask, network: &Value, going: &[Value]) -> String {
    let nouns = ["subnet", "pool", "reserved range"];
    let counts = counts(going).into_iter().zip(nouns).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, noun)| counted(count, noun)).collect();
    if ask.method != "network.delete" {
        return counts.join(", ");
    }
    let with = if counts.is_empty() { "no subnet".to_owned() } else { counts.join(", ") };
    format!("network `{}` with {with}", text(network, "name").unwrap_or_default())
}

/// The first subnets, and their first parts.
fn first_of(going: &[Value]) -> Vec<Value> {
    let mut room = ROWS_MAX;
    let mut shown: Vec<Value> = going.iter().take(ROWS_MAX).cloned().collect();
    for subnet in &mut shown {
        for name in ["pools", "reserved"] {
            if let Some(Value::Array(items)) = subnet.get_mut(name) {
                items.truncate(room);
                room -= items.len();
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Value {
        json!({"name": "lan", "subnets": [
            {"cidr": "10.0.0.0/24", "name": "a", "id": "0a",
                "pools": [{"range": "10.0.0.0-10.0.0.99", "name": "web"}, {"range": "10.0.0.100-10.0.0.199"}],
                "reserved": [{"range": "10.0.0.5-10.0.0.9", "note": "printers"}]},
            {"cidr": "10.1.0.0/24", "id": "0b", "pools": [{"range": "10.1.0.0-10.1.0.255", "name": "web"}]}]})
    }

    /// The ranges that go, and the words for them.
    fn goes(method: &'static str, params: Value) -> (Vec<String>, String) {
        let ask = Ask::new(method, &params);
        let going = going(&ask, &network());
        let ranges = |subnet: &Value| -> Vec<String> {
            let all = list(subnet, "pools").chain(list(subnet, "reserved"));
            all.filter_map(|part| text(part, "range").map(str::to_owned)).collect()
        };
        (going.iter().flat_map(ranges).collect(), in_words(&ask, &network(), &going))
    }

    #[test]
    fn what_goes_is_what_the_server_would_take() {
        let web = (vec!["10.0.0.0-10.0.0.99".to_owned(), "10.1.0.0-10.1.0.255".to_owned()], "2 pools".to_owned());
        assert_eq!(goes("pool.remove", json!({"pool": "web"})), web);
        let (one, words) = goes("pool.remove", json!({"pool": "10.0.0.0+100"}));
        assert_eq!((one.as_slice(), words.as_str()), (&["10.0.0.0-10.0.0.99".to_owned()][..], "1 pool"));
        let (parts, _) = goes("pool.remove", json!({"range": "10.0.0.90-10.0.0.110"}));
        assert_eq!(parts, ["10.0.0.90-10.0.0.99", "10.0.0.100-10.0.0.110"]);
        assert_eq!(goes("pool.remove", json!({"subnet": "a"})).1, "2 pools");
        assert_eq!(goes("subnet.remove", json!({"subnet": "10.0.0.0/24"})).1, "1 subnet, 2 pools, 1 reserved range");
        assert_eq!(goes("subnet.remove", json!({"subnet": "0b"})).1, "1 subnet, 1 pool");
        let (reserved, words) = goes("reserved.remove", json!({"range": "10.0.0.8/29"}));
        assert_eq!((reserved.as_slice(), words.as_str()), (&["10.0.0.8-10.0.0.9".to_owned()][..], "1 reserved range"));
        let words = goes("network.delete", json!({"network": "lan"})).1;
        assert_eq!(words, "network `lan` with 2 subnets, 3 pools, 1 reserved range");
    }

    #[test]
    fn of_many_parts_the_first_are_shown() {
        let pools: Vec<Value> = (0..15).map(|at| json!({"range": format!("10.0.0.{at}-10.0.0.{at}")})).collect();
        let subnets: Vec<Value> = (0..30).map(|_| json!({"cidr": "10.0.0.0/24", "pools": pools})).collect();
        let shown = first_of(&subnets);
        assert_eq!((parts(&subnets), counts(&shown)), (480, [20, 20, 0]));
    }
}
