//! `allod network apply` against a server: it says what the server would refuse before anything is changed.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::Server;

/// A server in a directory of the test; the applied file is beside its data.
struct Scene {
    directory: tempfile::TempDir,
    server: Server,
}

impl Scene {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(&directory.path().join("data"));
        Self { directory, server }
    }

    /// Applies a file. Returns the exit code, and what was said.
    fn apply(&self, file: &str, options: &[&str]) -> (i32, String) {
        let path = self.directory.path().join("networks.toml");
        write(&path, file);
        let output = self.server.allod(&[&["network", "apply", path.to_str().unwrap()], options].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// Names, cidrs and versions of the networks on the server.
    fn networks(&self) -> Vec<(String, Vec<String>, u64)> {
        let text = self.server.allod_ok(&["network", "list", "--format", "json"]);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let cidr = |subnet: &Value| subnet["cidr"].as_str().unwrap().to_owned();
        let network = |network: &Value| {
            let cidrs = network["subnets"].as_array().into_iter().flatten().map(cidr).collect();
            (network["name"].as_str().unwrap().to_owned(), cidrs, network["version"].as_u64().unwrap())
        };
        answer["networks"].as_array().unwrap().iter().map(network).collect()
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn network(name: &str, rest: &str, cidrs: &[&str]) -> String {
    let subnets: Vec<String> = cidrs.iter().map(|cidr| format!("{{ cidr = {} }}", json!(cidr))).collect();
    format!("[[network]]\nname = {}\n{rest}\nsubnets = [{}]\n", json!(name), subnets.join(", "))
}

#[test]
fn nothing_is_changed_where_the_server_would_refuse_any_of_it() {
    let scene = Scene::start();
    scene.server.allod_ok(&["network", "create", "held", "--subnet", "10.0.0.0/24"]);
    scene.server.allod_ok(&["network", "create", "idle", "--subnet", "10.1.0.0/24"]);
    scene.server.allod_ok(&["network", "create", "lab", "--realm", "lab", "--subnet", "10.2.0.0/24"]);
    scene.server.allod_ok(&["ip", "allocate", "held", "--owner", "web/0"]);
    let before = scene.networks();
    let held = network("held", "", &["10.0.0.0/24"]);
    let fine = network("fine", "", &["10.9.0.0/24"]);
    for (file, prune, refused) in [
        // Of two networks that are pruned, one holds something.
        (fine.clone(), true, "held"),
        (held.clone() + &network("cloud", "kind = \"dynamic\"", &["10.8.0.0/24"]), true, "cloud"),
        // Of two subnets that are removed, the second one holds something.
        (network("held", "", &["10.7.0.0/24"]), true, "10.0.0.0/24"),
        (held.clone() + &network("more", "", &["10.1.0.0/16"]) + &fine, false, "idle"),
        (held.clone() + &network("a", "", &["10.4.0.0/24"]) + &network("b", "", &["10.4.0.0/16"]), true, "10.4.0.0/16"),
        (held.clone() + &network("all", "", &["0.0.0.0/0"]), true, "0.0.0.0/0"),
    ] {
        for option in ["--dry-run", "--yes"] {
            let options = if prune { vec![option, "--prune"] } else { vec![option] };
            let (code, said) = scene.apply(&file, &options);
            assert!(code == 1 && said.contains(refused), "{file}\n{code} {said}");
            assert_eq!(scene.networks(), before, "{said}");
        }
    }
}

#[test]
fn what_an_earlier_change_makes_room_for_is_not_refused() {
    let scene = Scene::start();
    scene.server.allod_ok(&["network", "create", "old", "--subnet", "10.0.0.0/24"]);
    scene.server.allod_ok(&["network", "create", "wide", "--subnet", "10.1.0.0/16"]);
    let file = network("new", "", &["10.0.0.0/25"])
        + &network("beside", "", &["10.1.128.0/17"])
        + "[[network]]\nname = \"wide\"\nsubnets = [{ cidr = \"10.1.0.0/17\", name = \"main\" }]\n";
    scene.server.allod_ok(&["subnet", "modify", "wide", "10.1.0.0/16", "--name", "main"]);
    let (code, said) = scene.apply(&file, &["--dry-run", "--prune"]);
    assert!(code == 2 && !said.contains("refused"), "{code} {said}");
    let (code, said) = scene.apply(&file, &["--yes", "--prune"]);
    assert_eq!(code, 0, "{said}");
    let names: Vec<String> = scene.networks().into_iter().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["beside", "new", "wide"]);
}

#[test]
fn renames_of_one_file_take_turns() {
    let scene = Scene::start();
    scene.server.allod_ok(&["network", "create", "prod", "--subnet", "10.0.0.0/24"]);
    scene.server.allod_ok(&["network", "create", "new", "--subnet", "10.1.0.0/24"]);
    scene.server.allod_ok(&["ip", "claim", "prod", "10.0.0.9", "--owner", "web/0"]);
    let from = |name: &str| format!("renamed_from = {}", json!(name));
    let chain = network("prod", &from("new"), &["10.1.0.0/24"]) + &network("prod-old", &from("prod"), &["10.0.0.0/24"]);
    let swap =
        network("prod", &from("prod-old"), &["10.0.0.0/24"]) + &network("prod-old", &from("prod"), &["10.1.0.0/24"]);
    let cidrs = |name: &str| scene.networks().into_iter().find(|network| network.0 == name).unwrap().1;
    for (file, prod) in [(chain, "10.1.0.0/24"), (swap, "10.0.0.0/24")] {
        let (code, said) = scene.apply(&file, &["--dry-run", "--prune"]);
        assert!(code == 2 && !said.contains("refused"), "{code} {said}");
        let (code, said) = scene.apply(&file, &["--yes", "--prune"]);
        assert_eq!((code, scene.networks().len()), (0, 2), "{said}");
        assert_eq!(cidrs("prod"), [prod]);
        let (code, said) = scene.apply(&file, &["--dry-run", "--prune"]);
        assert_eq!(code, 0, "{said}");
    }
    assert!(scene.server.allod_ok(&["who", "10.0.0.9"]).contains("prod"));
}

#[test]
fn a_reserved_address_keeps_its_note_and_its_owner_when_a_range_is_added_over_it() {
    let scene = Scene::start();
    scene.server.allod_ok(&["network", "create", "lan4", "--subnet", "10.4.0.0/24"]);
    let add = |options: &[&str]| scene.server.allod(&[&["reserved", "add", "lan4"], options].concat());
    assert!(add(&["10.4.0.200", "--note", "printer", "--for-owner", "printer/0"]).status.success());
    let added = add(&["10.4.0.199-10.4.0.201", "--for-owner", "other"]);
    assert!(String::from_utf8(added.stderr).unwrap().contains("10.4.0.200 stays reserved for `printer/0`"));
    let text = scene.server.allod_ok(&["network", "get", "lan4", "--format", "json"]);
    let network: Value = serde_json::from_str(&text).unwrap();
    let reserved = |network: &Value| network["subnets"][0]["reserved"].clone();
    let part = |range: &str, owner: &str| json!({"range": format!("{range}-{range}"), "for": {"scope": "default", "owner": owner}});
    let mut printer = part("10.4.0.200", "printer/0");
    printer["note"] = json!("printer");
    assert_eq!(reserved(&network), json!([part("10.4.0.199", "other"), printer, part("10.4.0.201", "other")]));
    assert!(scene.server.allod_ok(&["ip", "allocate", "lan4", "--owner", "printer/0"]).contains("10.4.0.200"));
    // A file that says otherwise changes that, and is applied only once.
    let file = "[[network]]\nname = \"lan4\"\n[[network.subnets]]\ncidr = \"10.4.0.0/24\"\n\
                reserved = [{ range = \"10.4.0.199-10.4.0.201\", for = { owner = \"other\" } }]\n";
    assert_eq!(scene.apply(file, &["--yes"]).0, 0);
    assert_eq!(scene.apply(file, &["--dry-run"]).0, 0);
}

#[test]
fn a_smaller_subnet_shows_the_pools_that_go() {
    let scene = Scene::start();
    let subnet = "10.0.0.0/24,pool=10.0.0.10-10.0.0.20,static-pool=10.0.0.200-10.0.0.210";
    scene.server.allod_ok(&["network", "create", "lan", "--subnet", subnet]);
    let line = ["subnet", "modify", "lan", "10.0.0.0/24", "--cidr", "10.0.0.0/25"];
    let output = scene.server.allod(&line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("- remove pool 10.0.0.200-10.0.0.210 static"), "{said}");
    assert_eq!(scene.networks()[0].1, ["10.0.0.0/24"]);
    scene.server.allod_ok(&[&line[..], &["--yes"]].concat());
    assert_eq!(scene.networks()[0].1, ["10.0.0.0/25"]);
}

/// The types of the events of a network, oldest first.
fn history(scene: &Scene, network: &str) -> Vec<String> {
    let text = scene.server.allod_ok(&["history", "--network", network, "--format", "json"]);
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
    text.lines().map(event).collect()
}

const OFFICE: &str = r#"
[[network]]
name = "office"
renamed_from = "lan"
cooldown_seconds = 60
description = "third floor"

[[network.subnets]]
cidr = "10.0.0.0/25"
name = "desks"
gateway = "10.0.0.1"
dhcp = false
pools = [{ range = "10.0.0.64/27", name = "machines" }, { range = "10.0.0.96/27", kind = "static" }]
reserved = [{ range = "10.0.0.70", note = "the old printer" }]

[[network.subnets]]
cidr = "10.0.0.128/25"
name = "phones"
dhcp = true
"#;

#[test]
fn all_that_differs_in_a_network_is_one_commit_and_applied_twice_changes_nothing() {
    let scene = Scene::start();
    let subnet = "10.0.0.0/24,name=desks,dhcp";
    scene.server.allod_ok(&["network", "create", "lan", "--subnet", subnet, "--subnet", "10.0.9.0/24,name=spare"]);
    scene.server.allod_ok(&["ip", "claim", "lan", "10.0.0.9", "--owner", "web/0"]);
    let (code, said) = scene.apply(OFFICE, &["--dry-run"]);
    assert_eq!(code, 2, "{said}");
    for line in [
        "network `office`\n  ~ rename it from `lan`\n",
        "- cidr: 10.0.0.0/24 → 10.0.0.0/25 (subnet 10.0.0.0/24)",
        "~ dhcp: true → false (subnet 10.0.0.0/24)",
        "+ reserve 10.0.0.70 (subnet 10.0.0.0/24)",
        "+ subnet 10.0.0.128/25",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert_eq!(history(&scene, "lan"), ["network_created", "granted"]);
    let (code, said) = scene.apply(OFFICE, &["--yes"]);
    assert!(code == 0 && said.ends_with("1 change made\n"), "{said}");
    assert_eq!(history(&scene, "office"), ["network_created", "granted", "network_changed"]);
    let cidrs = ["10.0.0.0/25", "10.0.9.0/24", "10.0.0.128/25"].map(str::to_owned).to_vec();
    assert_eq!(scene.networks(), [("office".to_owned(), cidrs, 2)], "what the file does not name stays");
    assert_eq!(scene.apply(OFFICE, &["--yes"]).0, 0);
    assert_eq!(history(&scene, "office").len(), 3, "applied twice changes nothing");
    let dump = scene.server.allod_ok(&["network", "dump"]);
    assert_eq!(scene.apply(&dump, &["--dry-run", "--prune"]).0, 0, "{dump}");
    let (code, said) = scene.apply(OFFICE, &["--yes", "--prune"]);
    assert!(code == 0 && said.contains("- remove subnet 10.0.9.0/24"), "{said}");
    assert_eq!(history(&scene, "office").len(), 4);
    assert_eq!(scene.apply(OFFICE, &["--dry-run", "--prune"]).0, 0);
}

#[test]
fn a_file_that_is_refused_in_its_last_member_changes_nothing_of_the_network() {
    let scene = Scene::start();
    scene.server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24,name=desks"]);
    // An address is held in what becomes the second half of the file.
    scene.server.allod_ok(&["ip", "claim", "lan", "10.0.0.200", "--owner", "web/0"]);
    let before = scene.networks();
    for option in ["--dry-run", "--yes"] {
        let (code, said) = scene.apply(OFFICE, &[option]);
        assert!(code == 1 && said.contains("the server refuses 1 of 1 change; nothing was changed"), "{code} {said}");
        assert_eq!(said.matches("! refused: ").count(), 1, "{said}");
        assert_eq!(scene.networks(), before);
    }
    assert_eq!(history(&scene, "lan"), ["network_created", "granted"]);
}

#[test]
fn names_dhcp_and_space_change_hands_between_subnets_of_one_file() {
    let scene = Scene::start();
    let subnets = ["--subnet", "10.0.0.0/25,name=a,dhcp", "--subnet", "10.0.0.128/25,name=b"];
    scene.server.allod_ok(&[&["network", "create", "lan"][..], &subnets].concat());
    let swapped = "[[network]]\nname = \"lan\"\nsubnets = [\n\
        { cidr = \"10.0.0.0/25\", name = \"b\", dhcp = false }, { cidr = \"10.0.0.128/25\", name = \"a\", dhcp = true }]\n";
    let joined = "[[network]]\nname = \"lan\"\nsubnets = [{ cidr = \"10.0.0.0/24\", name = \"b\", dhcp = true }]\n";
    let split = "[[network]]\nname = \"lan\"\nsubnets = [\n\
        { cidr = \"10.0.0.0/25\", name = \"b\", dhcp = false }, { cidr = \"10.0.0.128/25\", dhcp = true }]\n";
    for (version, file) in (2..).zip([swapped, joined, split]) {
        let (code, said) = scene.apply(file, &["--yes", "--prune"]);
        assert_eq!((code, scene.networks()[0].2), (0, version), "{said}");
        assert_eq!(scene.apply(file, &["--dry-run", "--prune"]).0, 0);
    }
}

/// The server fits pools to a subnet's new size only where nobody says what they shall be. A file says it.
#[test]
fn a_subnet_of_another_size_has_the_pools_of_the_file() {
    let scene = Scene::start();
    let file = |cidr: &str| {
        let subnet = format!("{{ cidr = \"{cidr}\", pools = [{{ range = \"10.8.0.0-10.8.0.255\" }}] }}");
        format!("[[network]]\nname = \"lan\"\nsubnets = [{subnet}]\n")
    };
    for cidr in ["10.8.0.0/24", "10.8.0.0/23"] {
        let (code, said) = scene.apply(&file(cidr), &["--yes"]);
        assert_eq!((code, scene.networks()[0].1.clone()), (0, vec![cidr.to_owned()]), "{said}");
        assert_eq!(scene.apply(&file(cidr), &["--dry-run"]).0, 0, "it is not as the file says: {cidr}");
    }
    let before = scene.networks();
    for option in ["--dry-run", "--yes"] {
        let (code, said) = scene.apply(&file("10.8.0.0/25"), &[option]);
        assert!(code == 1 && said.contains("10.8.0.0-10.8.0.255"), "{code} {said}");
        assert_eq!(scene.networks(), before);
    }
}

#[test]
fn a_subnet_without_a_name_may_change_its_size_and_one_that_is_cut_in_two_may_not() {
    let scene = Scene::start();
    for cidrs in [&["10.0.0.0/24", "10.9.0.0/24"][..], &["10.0.0.0/16", "10.9.0.0/24"], &["10.0.0.0/23", "10.9.0.0/24"]]
    {
        let file = network("lan", "", cidrs);
        let (code, said) = scene.apply(&file, &["--yes"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(scene.networks()[0].1, cidrs);
        assert_eq!(scene.apply(&file, &["--dry-run"]).0, 0);
    }
    let halves = network("lan", "", &["10.0.0.0/24", "10.0.1.0/24", "10.9.0.0/24"]);
    let (code, said) = scene.apply(&halves, &["--yes"]);
    assert!(code == 1 && said.contains("overlaps 10.0.0.0/23"), "{code} {said}");
}
