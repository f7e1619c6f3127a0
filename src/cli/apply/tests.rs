//! Differences between files and canned answers of a server.

mod checks;
mod renames;

use serde_json::{Value, json};

use super::super::output::Format;
use super::diff::{Step, otherwise_ordered, steps};
use super::dump::write;
use super::file::{Table, table_of, tables};

const FILE: &str = r#"
[[network]]
name = "lan"
cooldown_seconds = 60
tags = { site = "a" }

[[network.subnets]]
cidr = "10.0.0.0/24"
gateway = "10.0.0.1"
pools = [{ range = "10.0.0.10+11" }, { range = "10.0.0.100-10.0.0.120", name = "web", kind = "static" }]
reserved = [{ range = "10.0.0.12", note = "printer" }]
"#;

fn read(text: &str) -> Vec<Table> {
    tables(toml::from_str(text).unwrap()).unwrap()
}

/// The network of `FILE` in the server's form.
fn lan() -> Value {
    json!({
        "id": "00000000-0000-4000-8000-000000000001", "name": "lan", "realm": "default", "kind": "manual",
        "policy": "lowest", "cooldown_seconds": 60, "cooldown_yields": false, "static_only": false,
        "protected": false, "tags": {"site": "a"}, "version": 7,
        "subnets": [{
            "id": "00000000-0000-4000-8000-0000000000aa", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1",
            "dhcp": false, "draining": false,
            "pools": [
                {"range": "10.0.0.10-10.0.0.20", "kind": "dynamic", "draining": false},
                {"range": "10.0.0.100-10.0.0.120", "name": "web", "kind": "static", "draining": false},
            ],
            "reserved": [{"range": "10.0.0.12-10.0.0.12", "note": "printer"}],
        }],
    })
}

fn diff(file: &str, prune: bool) -> Vec<Step> {
    steps(&read(file), &[lan()], prune).unwrap()
}

fn words(steps: &[Step]) -> Vec<&str> {
    steps.iter().flat_map(|step| &step.words).map(String::as_str).collect()
}

#[test]
fn what_is_there_is_left_alone() {
    assert_eq!(diff(FILE, false), []);
    assert_eq!(diff(FILE, true), []);
}

#[test]
fn a_subnet_without_pools_has_one_that_is_the_whole_of_it_when_pruned() {
    let without = FILE.lines().filter(|line| !line.starts_with("pools")).collect::<Vec<_>>().join("\n");
    assert_eq!(diff(&without, false), []);
    let pruned = diff(&without, true);
    let said = [
        "~ pool 10.0.0.10-10.0.0.20 → 10.0.0.0-10.0.0.255 (subnet 10.0.0.0/24)",
        "- remove pool 10.0.0.100-10.0.0.120 `web` static (subnet 10.0.0.0/24)",
    ];
    assert_eq!(words(&pruned), said);
    assert_eq!(pruned[0].params["set"]["subnets"][0]["pools"], json!([{"range": "10.0.0.0-10.0.0.255"}]));
    let mut whole = lan();
    whole["subnets"][0]["pools"] = json!([{"range": "10.0.0.0-10.0.0.255", "kind": "dynamic", "draining": false}]);
    assert_eq!(steps(&read(&without), &[whole], true).unwrap(), []);
}

#[test]
fn subnets_that_the_server_has_in_another_order_are_named() {
    let mut two = lan();
    let other = json!({"id": "00000000-0000-4000-8000-0000000000bb", "cidr": "10.0.1.0/24", "pools": []});
    two["subnets"].as_array_mut().unwrap().push(other);
    let file = |cidrs: [&str; 2]| {
        let subnets = cidrs.map(|cidr| format!("[[network.subnets]]\ncidr = \"{cidr}\"\n")).join("\n");
        read(&format!("[[network]]\nname = \"lan\"\n{subnets}"))
    };
    let named = |cidrs, there: &Value| otherwise_ordered(&file(cidrs), std::slice::from_ref(there)).len();
    assert_eq!(named(["10.0.0.0/24", "10.0.1.0/24"], &two), 0);
    assert_eq!(named(["10.0.1.0/24", "10.0.0.0/24"], &two), 1);
    // A new subnet is added after the existing ones.
    assert_eq!(named(["10.0.0.0/24", "10.0.2.0/24"], &two), 0);
    assert_eq!(named(["10.0.2.0/24", "10.0.0.0/24"], &two), 1);
}

#[test]
fn a_dump_applies_without_differences_in_both_forms() {
    for with_ids in [false, true] {
        let table = table_of(&lan(), with_ids);
        let toml = write(std::slice::from_ref(&table), Format::Toml).unwrap();
        assert_eq!(steps(&read(&toml), &[lan()], true).unwrap(), [], "{toml}");
        let yaml = write(&[table], Format::Yaml).unwrap();
        let read = tables(serde_yaml_ng::from_str(&yaml).unwrap()).unwrap();
        assert_eq!(steps(&read, &[lan()], true).unwrap(), [], "{yaml}");
    }
}

#[test]
fn words_that_older_yaml_takes_for_truth_values_are_quoted() {
    let table = json!({"name": "no", "tags": {"on": "Yes", "port": "10:20", "text": "a\nno\n"}, "protected": true});
    let yaml = write(std::slice::from_ref(&table), Format::Yaml).unwrap();
    for line in ["name: 'no'\n", "'on': 'Yes'\n", "port: '10:20'\n", "protected: true\n"] {
        assert!(yaml.contains(line), "{line} is not in\n{yaml}");
    }
    let read: Value = serde_yaml_ng::from_str(&yaml).unwrap();
    assert_eq!(read, json!({"network": [table]}));
}

#[test]
fn a_new_network_is_one_call_with_everything() {
    let steps = steps(&read(FILE), &[], false).unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].method, "network.create");
    assert_eq!(steps[0].params["subnets"][0]["pools"][0]["range"], "10.0.0.10-10.0.0.20");
}

#[test]
fn settings_of_a_network_are_one_call_with_the_version_compared() {
    let steps = diff(&FILE.replace("cooldown_seconds = 60", "cooldown_seconds = 90\npolicy = \"random\""), false);
    assert_eq!(steps.len(), 1);
    assert_eq!(
        Value::Object(steps[0].params.clone()),
        json!({"network": lan()["id"], "set": {"policy": "random", "cooldown_seconds": 90}, "if_version": 7})
    );
    assert_eq!(words(&steps), ["~ policy: lowest → random", "~ cooldown_seconds: 60 → 90"]);
}

#[test]
fn all_that_differs_in_a_network_is_one_call_and_subnets_that_the_file_does_not_name_stay() {
    let mut network = lan();
    let other = json!({"id": "00000000-0000-4000-8000-0000000000bb", "cidr": "10.0.9.0/24", "name": "other",
        "dhcp": true, "draining": false, "pools": []});
    network["subnets"].as_array_mut().unwrap().insert(0, other.clone());
    let file = FILE
        .replace("cooldown_seconds = 60", "cooldown_seconds = 90")
        .replace("gateway = \"10.0.0.1\"", "gateway = \"10.0.0.2\"")
        .replace("reserved = [", "reserved = [{ range = \"10.0.0.13\" }, ")
        + "[[network.subnets]]\ncidr = \"10.0.1.0/24\"\npools = []\n";
    let made = |prune| {
        let [step] = &steps(&read(&file), std::slice::from_ref(&network), prune).unwrap()[..] else { panic!() };
        assert_eq!((step.method, &step.params["if_version"]), ("network.update", &json!(7)));
        (step.words.clone(), step.params["set"].clone())
    };
    let changed = json!({"id": lan()["subnets"][0]["id"], "gateway": "10.0.0.2", "reserved": [
        {"range": "10.0.0.12-10.0.0.12", "note": "printer"}, {"range": "10.0.0.13-10.0.0.13"}
    ]});
    let new = json!({"cidr": "10.0.1.0/24", "pools": []});
    let words = [
        "~ cooldown_seconds: 60 → 90",
        "~ gateway: 10.0.0.1 → 10.0.0.2 (subnet 10.0.0.0/24)",
        "+ reserve 10.0.0.13 (subnet 10.0.0.0/24)",
        "+ subnet 10.0.1.0/24",
    ];
    let (said, set) = made(false);
    assert_eq!(said, words);
    assert_eq!(set, json!({"cooldown_seconds": 90, "subnets": [changed, new, {"id": other["id"]}]}));
    let (said, set) = made(true);
    assert_eq!((said.len(), said[1].as_str()), (5, "- remove subnet 10.0.9.0/24"));
    assert_eq!(set, json!({"cooldown_seconds": 90, "subnets": [changed, new]}));
}

#[test]
fn what_the_file_does_not_name_goes_only_when_pruned() {
    let file = "[[network]]\nname = \"lan\"\n";
    assert_eq!(diff(file, false), []);
    let steps = diff(file, true);
    assert_eq!(steps.iter().map(|step| step.method).collect::<Vec<_>>(), ["network.update"]);
    assert_eq!(steps[0].params["set"], json!({"cooldown_seconds": 0, "tags": null, "subnets": []}));
    assert_eq!(words(&steps)[2], "- remove subnet 10.0.0.0/24");
}

#[test]
fn pools_are_replaced_in_one_call_and_lost_only_when_pruned() {
    let file = FILE.replace("{ range = \"10.0.0.10+11\" }, ", "{ range = \"10.0.0.30-10.0.0.40\" }, ");
    let kept = diff(&file, false);
    assert_eq!(kept.len(), 1);
    let ranges = |steps: &[Step]| -> Vec<String> {
        let pools = steps[0].params["set"]["subnets"][0]["pools"].as_array().unwrap();
        pools.iter().map(|pool| pool["range"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ranges(&kept), ["10.0.0.30-10.0.0.40", "10.0.0.100-10.0.0.120", "10.0.0.10-10.0.0.20"]);
    let pruned = diff(&file, true);
    assert_eq!(ranges(&pruned), ["10.0.0.30-10.0.0.40", "10.0.0.100-10.0.0.120"]);
    assert!(words(&pruned).contains(&"- remove pool 10.0.0.10-10.0.0.20 (subnet 10.0.0.0/24)"), "{pruned:?}");
}

#[test]
fn a_pool_that_grows_is_the_same_pool() {
    let steps = diff(&FILE.replace("10.0.0.10+11", "10.0.0.10+21"), false);
    assert_eq!(words(&steps), ["~ pool 10.0.0.10-10.0.0.20 → 10.0.0.10-10.0.0.30 (subnet 10.0.0.0/24)"]);
}

#[test]
fn reserved_ranges_are_compared_by_what_they_cover() {
    let more = FILE.replace("reserved = [", "reserved = [{ range = \"10.0.0.200/29\" }, ");
    let steps = diff(&more, false);
    assert_eq!(steps.len(), 1);
    let reserved = |steps: &[Step]| steps[0].params["set"]["subnets"][0]["reserved"].clone();
    let printer = json!({"range": "10.0.0.12-10.0.0.12", "note": "printer"});
    assert_eq!(reserved(&steps), json!([printer, {"range": "10.0.0.200-10.0.0.207"}]));
    assert_eq!(words(&steps), ["+ reserve 10.0.0.200/29 (subnet 10.0.0.0/24)"]);
    let fewer = FILE.replace("reserved = [{ range = \"10.0.0.12\", note = \"printer\" }]", "");
    assert_eq!(diff(&fewer, false), []);
    assert_eq!(reserved(&diff(&fewer, true)), json!([]));
}

#[test]
fn another_note_of_a_reserved_range_is_a_change_of_it() {
    let renoted = FILE.replace("note = \"printer\"", "note = \"scanner\"");
    assert_eq!(words(&diff(&renoted, false)), ["~ note of 10.0.0.12: printer → scanner (subnet 10.0.0.0/24)"]);
    let wider = FILE.replace("range = \"10.0.0.12\"", "range = \"10.0.0.12/31\"");
    assert_eq!(words(&diff(&wider, false)), ["+ reserve 10.0.0.13 (subnet 10.0.0.0/24)"]);
}

#[test]
fn an_owner_for_whom_is_reserved_loses_it_only_by_a_change_that_says_so() {
    let mut network = lan();
    network["subnets"][0]["reserved"] = json!([
        {"range": "10.0.0.199"},
        {"range": "10.0.0.200", "note": "printer", "for": {"scope": "default", "owner": "printer/0"}},
        {"range": "10.0.0.201-10.0.0.209"},
    ]);
    let of = |reserved: &str, prune: bool| {
        let from = "reserved = [{ range = \"10.0.0.12\", note = \"printer\" }]";
        let file = FILE.replace(from, &format!("reserved = [{reserved}]"));
        let steps = steps(&read(&file), std::slice::from_ref(&network), prune).unwrap();
        words(&steps).iter().map(|line| line.replace(" (subnet 10.0.0.0/24)", "")).collect::<Vec<_>>()
    };
    // Members that a range of the file does not name stay, until it is pruned.
    assert_eq!(of("{ range = \"10.0.0.199-10.0.0.209\" }", false), Vec::<String>::new());
    assert_eq!(
        of("{ range = \"10.0.0.199-10.0.0.209\" }", true),
        ["- reserve 10.0.0.200 no longer for `printer/0`", "+ reserve 10.0.0.200"]
    );
    assert_eq!(
        of("{ range = \"10.0.0.200-10.0.0.201\", for = { owner = \"other\" } }", false),
        ["- reserve 10.0.0.200 no longer for `printer/0`", "+ reserve 10.0.0.200/31"]
    );
    assert_eq!(of("{ range = \"10.0.0.200\", for = { owner = \"other\" } }", false), ["+ reserve 10.0.0.200"]);
    // Of two overlapping ranges of the file the later one counts, now as when they were made.
    let both = "{ range = \"10.0.0.199-10.0.0.209\", note = \"\" }, \
                { range = \"10.0.0.200\", note = \"printer\", for = { owner = \"printer/0\" } }";
    assert_eq!(of(both, false), Vec::<String>::new());
}

#[test]
fn a_rename_is_recognised_by_former_name_by_id_and_by_realm_and_subnets() {
    let renamed = FILE.replace("name = \"lan\"", "name = \"office\"");
    let by_name = renamed.replace("name = \"office\"", "name = \"office\"\nrenamed_from = \"lan\"");
    let by_id =
        renamed.replace("name = \"office\"", "name = \"office\"\nid = \"00000000-0000-4000-8000-000000000001\"");
    for file in [renamed, by_name, by_id] {
        let steps = diff(&file, true);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert_eq!(steps[0].params["set"], json!({"name": "office"}));
        assert_eq!(words(&steps), ["~ rename it from `lan`"]);
    }
}

#[test]
fn a_table_that_leaves_out_the_realm_of_its_network_prunes_that_realm_and_no_other() {
    let there = |name: &str, realm: &str| json!({"id": name, "name": name, "realm": realm, "version": 1});
    let networks = [there("tenant", "a"), there("stray", "a"), there("other", "default")];
    let gone = |file: &str| -> Vec<String> {
        steps(&read(file), &networks, true).unwrap().into_iter().map(|step| step.network).collect()
    };
    assert_eq!(gone("[[network]]\nname = \"tenant\"\n"), ["stray"]);
    // However the network is recognised.
    assert_eq!(gone("[[network]]\nname = \"tenant\"\nid = \"tenant\"\n"), ["stray"]);
}

#[test]
fn a_network_takes_a_subnet_after_another_has_given_it_up_whatever_the_order_of_their_tables() {
    let subnet = |id: &str, cidr: &str| json!({"id": id, "cidr": cidr});
    let there = |name: &str, subnets: Value| json!({"id": name, "name": name, "realm": "default", "version": 1, "subnets": subnets});
    let networks = [
        there("lab", json!([subnet("a", "10.9.0.0/24")])),
        there("prod", json!([subnet("b", "10.0.0.0/24"), subnet("c", "10.0.1.0/24")])),
        there("test", json!([subnet("d", "10.8.0.0/24")])),
    ];
    // `test` gives to `prod`, and `prod` to `lab`, which grows over what it gets.
    let table = |name: &str, cidrs: &[&str]| {
        let subnets: Vec<String> = cidrs.iter().map(|cidr| format!("{{ cidr = \"{cidr}\" }}")).collect();
        format!("[[network]]\nname = \"{name}\"\nsubnets = [{}]\n", subnets.join(", "))
    };
    let tables = [
        table("lab", &["10.9.0.0/24", "10.0.0.0/23"]),
        table("prod", &["10.8.0.0/25"]),
        table("test", &["10.7.0.0/24"]),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let file = order.map(|at| tables[at].as_str()).concat();
        let steps = steps(&read(&file), &networks, true).unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.network.as_str()).collect();
        assert_eq!(names, ["test", "prod", "lab"], "{file}");
    }
    // An exchange is left to the server, which refuses it.
    let exchange = [table("lab", &["10.0.0.0/24"]), table("prod", &["10.9.0.0/24"])].concat();
    assert_eq!(steps(&read(&exchange), &networks[..2], true).unwrap().len(), 2);
}

#[test]
fn a_network_that_is_not_in_the_file_goes_only_when_pruned_and_only_in_its_realms() {
    let file = "[[network]]\nname = \"dmz\"\nsubnets = [{ cidr = \"10.9.0.0/24\" }]\n";
    let mut elsewhere = lan();
    elsewhere["realm"] = json!("lab");
    let methods = |prune: bool, network: Value| -> Vec<&str> {
        steps(&read(file), &[network], prune).unwrap().iter().map(|step| step.method).collect()
    };
    assert_eq!(methods(false, lan()), ["network.create"]);
    assert_eq!(methods(true, lan()), ["network.delete", "network.create"]);
    assert_eq!(methods(true, elsewhere), ["network.create"]);
}

#[test]
fn a_subnet_is_recognised_by_name_when_it_grows() {
    let mut network = lan();
    network["subnets"][0]["name"] = json!("main");
    let file = FILE.replace("cidr = \"10.0.0.0/24\"", "cidr = \"10.0.0.0/23\"\nname = \"main\"");
    let steps = steps(&read(&file), std::slice::from_ref(&network), false).unwrap();
    assert_eq!(steps.len(), 1);
    // Otherwise the server would adjust its pools.
    let pools = json!([
        {"range": "10.0.0.10-10.0.0.20"},
        {"range": "10.0.0.100-10.0.0.120", "name": "web", "kind": "static"}
    ]);
    let grown = json!([{"id": network["subnets"][0]["id"], "cidr": "10.0.0.0/23", "pools": pools}]);
    assert_eq!((steps[0].method, &steps[0].params["set"]), ("network.update", &json!({"subnets": grown})));
}

#[test]
fn pools_that_a_smaller_subnet_cuts_are_shown_and_asked_about() {
    let mut network = lan();
    network["subnets"][0]["name"] = json!("main");
    network["subnets"][0]["reserved"] = json!([]);
    let shrunk = "[[network]]\nname = \"lan\"\n[[network.subnets]]\ncidr = \"10.0.0.0/26\"\nname = \"main\"\n";
    let gone = "- remove pool 10.0.0.100-10.0.0.120 `web` static (subnet 10.0.0.0/24)";
    for (pools, expected) in [
        ("", None),
        // Pools that the file names are taken as they are; others are trimmed as the server does.
        ("pools = [{ range = \"10.0.0.10-10.0.0.20\" }]\n", Some(json!([{"range": "10.0.0.10-10.0.0.20"}]))),
    ] {
        let steps = steps(&read(&format!("{shrunk}{pools}")), std::slice::from_ref(&network), false).unwrap();
        assert_eq!(words(&steps), ["- cidr: 10.0.0.0/24 → 10.0.0.0/26 (subnet 10.0.0.0/24)", gone]);
        assert!(steps[0].takes_away());
        assert_eq!(steps[0].params["set"]["subnets"][0].get("pools").cloned(), expected);
    }
}

#[test]
fn a_pool_or_a_subnet_that_becomes_smaller_takes_something_away() {
    let mut network = lan();
    network["subnets"][0]["reserved"] = json!([]);
    network["subnets"][0]["pools"] = json!([{"range": "10.0.0.10-10.0.0.20"}]);
    let file = |cidr: &str, pools: &str| {
        let pools = pools.split(' ').map(|range| format!("{{ range = \"{range}\" }}")).collect::<Vec<_>>().join(", ");
        format!("[[network]]\nname = \"lan\"\n[[network.subnets]]\ncidr = \"{cidr}\"\npools = [{pools}]\n")
    };
    for (cidr, pools, takes_away) in [
        ("10.0.0.0/24", "10.0.0.10-10.0.0.30", false),
        ("10.0.0.0/24", "10.0.0.10-10.0.0.19", true),
        // All its addresses are still in a pool.
        ("10.0.0.0/24", "10.0.0.10-10.0.0.15 10.0.0.16-10.0.0.20", false),
        ("10.0.0.0/24", "10.0.0.10-10.0.0.14 10.0.0.16-10.0.0.20", true),
        ("10.0.0.0/23", "10.0.0.10-10.0.0.20", false),
        ("10.0.0.0/25", "10.0.0.10-10.0.0.20", true),
    ] {
        let steps = steps(&read(&file(cidr, pools)), std::slice::from_ref(&network), false).unwrap();
        assert_eq!((steps.len(), steps[0].takes_away()), (1, takes_away), "{cidr} {pools}: {:?}", words(&steps));
    }
}

#[test]
fn what_never_changes_is_refused_before_anything_is_done() {
    let file = FILE.replace("name = \"lan\"", "name = \"lan\"\nrealm = \"lab\"");
    let problem = steps(&read(&file), &[lan()], false).unwrap_err();
    assert!(problem.contains("realm") && problem.contains("never changes"), "{problem}");
}

#[test]
fn a_file_is_checked_whole_and_every_bad_network_is_named() {
    let file = "[[network]]\nname = \"a\"\npolicy = \"best\"\n[[network]]\nname = \"b\"\ncolour = 1\n\
                [[network]]\nname = \"c\"\nsubnets = [{ cidr = \"10.0.0.5/24\" }]\n";
    let problem = tables(toml::from_str(file).unwrap()).unwrap_err();
    for part in ["network[0] (`a`)", "network[1] (`b`)", "network[2] (`c`)", "policy", "colour", "10.0.0.0/24"] {
        assert!(problem.contains(part), "{part} is not in\n{problem}");
    }
    assert!(problem.contains("`subnets`, `renamed_from`, `id`\n") && !problem.contains("`dry_run`"), "{problem}");
    assert!(tables(json!({"networks": []})).is_err());
    let twice = "[[network]]\nname = \"a\"\n[[network]]\nname = \"a\"\n";
    assert!(tables(toml::from_str(twice).unwrap()).unwrap_err().contains("twice"));
}

/// The server shows zones sorted, each once.
#[test]
fn zones_are_a_set_in_whatever_order_they_are_written() {
    let tables = read(
        "[[network]]\nname = \"z\"\n[[network.subnets]]\ncidr = \"10.0.0.0/24\"\nzones = [\"z2\", \"z1\", \"z2\"]\n",
    );
    assert_eq!(tables[0].members["subnets"][0]["zones"], json!(["z1", "z2"]));
}

#[test]
fn a_tag_with_an_empty_value_is_set_and_then_there() {
    let file = FILE.replace("tags = { site = \"a\" }", "tags = { site = \"a\", empty = \"\" }");
    let steps = diff(&file, false);
    assert_eq!(steps[0].params["set"], json!({"tags": {"empty": ""}}));
}
