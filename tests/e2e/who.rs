//! `allod who` of an address that nobody holds: it prints the right words in every state, and the commands that it suggests
//! are not refused.

use std::process::Output;

use crate::server::Server;

/// Networks in which addresses are in every state.
const SCENE: [&str; 21] = [
    "network create lan --cooldown 1h --subnet 10.0.0.0/24,gateway=10.0.0.1,pool=10.0.0.10-10.0.0.99,static-pool=10.0.0.100/30",
    "reserved add lan 10.0.0.20-10.0.0.29 --note printers",
    "reserved add lan 10.0.0.30 --for-owner db/0 --for-scope prod --for-slot 1",
    "reserved add lan 10.0.0.31 --for-owner db/1",
    "ip claim lan 10.0.0.50 --owner web/0 --scope prod --label rack=7 --label row=b",
    "ip claim lan 10.0.0.51 --owner web/1",
    "ip release lan 10.0.0.51 --owner web/1",
    "ip claim lan 10.0.0.52 --owner web/2",
    "ip decline lan 10.0.0.52 --owner web/2",
    "network create six --subnet 2001:db8:1::/64,gateway=2001:db8:1::1",
    "network create strict --static-only --cooldown 1h --subnet 10.1.0.0/24,pool=10.1.0.10-10.1.0.99,static-pool=10.1.0.100/30",
    "reserved add strict 10.1.0.40",
    "ip claim strict 10.1.0.100 --owner web/0",
    "network create full --subnet 10.2.0.0/24,pool=10.2.0.0/25,pool=10.2.0.128/25",
    "subnet modify full 10.2.0.0/24 --draining true",
    "network create half --subnet 10.3.0.0/24,pool=10.3.0.0/25,pool=10.3.0.128/25",
    "pool modify half 10.3.0.0/25 --draining true",
    "network create both --subnet 10.4.0.0/24,pool=10.4.0.0/25,draining",
    "pool modify both 10.4.0.0/25 --draining true",
    "network create gone --subnet 10.5.0.0/24",
    "ip claim gone 10.5.0.9 --owner web/0",
];

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// Looks an address up, compares everything that is printed, and runs the commands that it suggests.
#[track_caller]
fn tells(server: &Server, address: &str, fields: &[(&str, &str)], next: &str) {
    let (told, said) = said(&server.allod(&["who", address]));
    let width = fields.iter().map(|(name, _)| name.len()).chain(["address".len()]).max().unwrap();
    let field = |(name, value): (&str, &str)| format!("{name:<width$}  {value}\n");
    let expected: String = [("address", address)].into_iter().chain(fields.iter().copied()).map(field).collect();
    assert_eq!(told, expected);
    assert_eq!(said.trim(), format!("next: {next}"), "{address}");
    for command in next.split('`').skip(1).step_by(2) {
        let words = command.strip_prefix("allod ").unwrap();
        let words = words.split(' ').map(|word| match word {
            "OWNER" => "somebody",
            "ADDRESS" => "10.0.0.2",
            "NETWORK" => "lan",
            "CIDR" => "10.99.0.0/24",
            word => word,
        });
        // Each command uses its own slot, because one owner takes many addresses.
        let slot = if command.contains(" OWNER") { vec!["--slot", address] } else { Vec::new() };
        let typed: Vec<&str> = words.chain(slot).chain(["--yes"]).collect();
        server.allod_ok(&typed);
    }
}

#[test]
fn who_tells_why_nobody_holds_an_address_and_what_it_says_to_type_is_not_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    for line in SCENE {
        server.allod_ok(&line.split(' ').collect::<Vec<_>>());
    }
    server.allod_ok(&["network", "delete", "gone", "--force", "--yes"]);
    unusable(&server);
    reserved(&server);
    draining(&server);
    free(&server);
    static_only(&server);
    // An address that is held, and one of no network.
    let (told, said) = said(&server.allod(&["who", "10.0.0.50"]));
    assert!(told.contains("state       held\nnetwork     lan\nheld by     `web/0` of scope `prod`\n"), "{told}");
    assert!(told.contains("labels      rack=7 row=b\n"), "{told}");
    assert_eq!(said.trim(), "next: `allod ip release lan 10.0.0.50 --owner web/0 --scope prod` gives it back");
    server.allod_ok(&["ip", "release", "lan", "10.0.0.50", "--owner", "web/0", "--scope", "prod"]);
    let next = "`allod subnet add NETWORK CIDR` makes room for it, `allod network list` shows what there is";
    tells(&server, "10.99.0.1", &[("state", "unknown"), ("why", "it lies in no subnet of any network")], next);
    server.stop();
}

fn unusable(server: &Server) {
    let tells = |address: &str, why: &str, network: &str, subnet: &str, pool: &str, next: &str| {
        let why = format!("{why} of subnet {subnet}: never handed out");
        let fields = [("state", "unusable"), ("why", &*why), ("network", network), ("subnet", subnet), ("pool", pool)];
        tells(server, address, &fields, next);
    };
    let (lan, six) = ("10.0.0.0/24", "2001:db8:1::/64");
    let gateway = "`allod subnet modify lan 10.0.0.0/24 --gateway ADDRESS` makes another one the gateway";
    let shows = |network: &str| format!("`allod network get {network}` shows which addresses it has besides");
    tells("10.0.0.0", "the network address", "lan", lan, "none", &shows("lan"));
    tells("10.0.0.255", "the broadcast address", "lan", lan, "none", &shows("lan"));
    tells("10.0.0.1", "the gateway", "lan", lan, "none", gateway);
    tells("2001:db8:1::", "the subnet-router anycast address", "six", six, "2001:db8:1::/64 (dynamic)", &shows("six"));
}

fn reserved(server: &Server) {
    let tells = |address: &str, why: &str, reserved: &[(&str, &str)], next: &str| {
        let place = [("network", "lan"), ("subnet", "10.0.0.0/24"), ("pool", "10.0.0.10-10.0.0.99 (dynamic)")];
        let fields = [&[("state", "reserved"), ("why", why)], &place[..], reserved].concat();
        let ends = format!("`allod reserved remove lan {address}` ends that it is kept");
        tells(server, address, &fields, &format!("{next}, {ends}"));
    };
    let range = ("reserved", "10.0.0.20-10.0.0.29 (printers)");
    let why = "kept from automatic allocation; `--force` claims it nevertheless";
    tells("10.0.0.20", why, &[range], "`allod ip claim lan 10.0.0.20 --owner OWNER --force` takes it");
    let why = "kept for one owner, who claims it as any other address";
    let claims = |address: &str, whom: &str| format!("`allod ip claim lan {address} {whom}` takes it for its owner");
    let whom = [("reserved", "10.0.0.30"), ("for", "`db/0` of scope `prod`, slot `1`")];
    tells("10.0.0.30", why, &whom, &claims("10.0.0.30", "--owner db/0 --scope prod --slot 1"));
    let whom = [("reserved", "10.0.0.31"), ("for", "`db/1`")];
    tells("10.0.0.31", why, &whom, &claims("10.0.0.31", "--owner db/1"));
}

fn draining(server: &Server) {
    let tells = |address: &str, network: &str, which: &str, subnet: &str, pool: &str, next: &str| {
        let why = format!("{which} draining: nothing new is granted there");
        let fields = [("state", "reserved"), ("why", &*why), ("network", network), ("subnet", subnet), ("pool", pool)];
        tells(server, address, &fields, next);
    };
    tells(
        "10.2.0.9",
        "full",
        "subnet 10.2.0.0/24 is",
        "10.2.0.0/24",
        "10.2.0.0-10.2.0.127 (dynamic)",
        "`allod subnet modify full 10.2.0.0/24 --draining false` ends that",
    );
    tells(
        "10.3.0.9",
        "half",
        "pool 10.3.0.0-10.3.0.127 is",
        "10.3.0.0/24",
        "10.3.0.0-10.3.0.127 (dynamic)",
        "`allod pool modify half 10.3.0.0-10.3.0.127 --draining false` ends that",
    );
    tells(
        "10.4.0.9",
        "both",
        "subnet 10.4.0.0/24 and pool 10.4.0.0-10.4.0.127 are",
        "10.4.0.0/24",
        "10.4.0.0-10.4.0.127 (dynamic)",
        "`allod subnet modify both 10.4.0.0/24 --draining false` and `allod pool modify both 10.4.0.0-10.4.0.127 \
         --draining false` end that",
    );
    // After the suggested commands these addresses are free.
    for address in ["10.2.0.9", "10.3.0.9", "10.4.0.9"] {
        assert!(server.allod_ok(&["who", address]).contains("state    free"), "{address}");
    }
}

fn free(server: &Server) {
    let tells = |address: &str, why: &str, pool: &str, next: &str| {
        let place = [("network", "lan"), ("subnet", "10.0.0.0/24"), ("pool", pool)];
        tells(server, address, &[&[("state", "free"), ("why", why)], &place[..]].concat(), next);
    };
    let claim = |address: &str| format!("`allod ip claim lan {address} --owner OWNER` takes it");
    tells("10.0.0.60", "nobody holds it", "10.0.0.10-10.0.0.99 (dynamic)", &claim("10.0.0.60"));
    let why = "nobody holds it; it lies in no pool, so only a claim takes it";
    tells("10.0.0.200", why, "none", &claim("10.0.0.200"));
    let why = "nobody holds it; its pool is static, so only a claim takes it";
    tells("10.0.0.101", why, "10.0.0.100-10.0.0.103 (static)", &claim("10.0.0.101"));
    // The last event has a time that no test can know.
    let (told, said) = said(&server.allod(&["who", "10.0.0.51"]));
    let why = "state       cooling\nwhy         released a short time ago; its last owner gets it back at once\n";
    assert!(told.contains(why) && told.contains("last event  released at "), "{told}");
    assert_eq!(said.trim(), "next: `allod ip claim lan 10.0.0.51 --owner OWNER` takes it nevertheless");
    server.allod_ok(&["ip", "claim", "lan", "10.0.0.51", "--owner", "other"]);
    // A declined address is out of circulation until its probation ends, or somebody claims it nevertheless.
    let (told, said) = self::said(&server.allod(&["who", "10.0.0.52"]));
    assert!(told.contains("state       declined\n"), "{told}");
    let ends = "`allod ip claim lan 10.0.0.52 --owner OWNER --force` takes it nevertheless and ends that";
    assert!(said.contains(ends), "{said}");
    server.allod_ok(&["ip", "claim", "lan", "10.0.0.52", "--owner", "web/3", "--force"]);
    assert!(server.allod_ok(&["who", "10.0.0.52"]).contains("held by     `web/3`"));
    let gone = server.allod_ok(&["who", "10.5.0.10"]);
    let why = "its network is deleted, and remembered while it holds something";
    assert!(gone.contains(&format!("state    free\nwhy      {why}\nnetwork  gone\n")), "{gone}");
}

fn static_only(server: &Server) {
    let tells = |address: &str, state: &str, why: &str, pool: &str, reserved: &[(&str, &str)], next: &str| {
        let place = [("network", "strict"), ("subnet", "10.1.0.0/24"), ("pool", pool)];
        tells(server, address, &[&[("state", state), ("why", why)], &place[..], reserved].concat(), next);
    };
    let only = "`strict` takes claims in its static pools only";
    let dynamic = "10.1.0.10-10.1.0.99 (dynamic)";
    let nobody = format!("nobody holds it; {only}");
    let why = "nobody holds it; its pool is static, so only a claim takes it";
    let claim = "`allod ip claim strict 10.1.0.101 --owner OWNER` takes it";
    tells("10.1.0.101", "free", why, "10.1.0.100-10.1.0.103 (static)", &[], claim);
    let add = "`allod pool add strict 10.1.0.200 --kind static` lets it be claimed";
    tells("10.1.0.200", "free", &nobody, "none", &[], add);
    server.allod_ok(&["ip", "claim", "strict", "10.1.0.200", "--owner", "somebody"]);
    let kept = format!("kept from automatic allocation; {only}");
    let ends = "`allod reserved remove strict 10.1.0.40` ends that it is kept";
    tells("10.1.0.40", "reserved", &kept, dynamic, &[("reserved", "10.1.0.40")], ends);
    let update = "`allod network update strict --static-only=false` lets it be claimed";
    tells("10.1.0.50", "free", &nobody, dynamic, &[], update);
    server.allod_ok(&["ip", "claim", "strict", "10.1.0.50", "--owner", "else"]);
}
