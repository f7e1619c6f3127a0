//! One request and one answer of every method that is served, as JSON texts in their only canonical form.

/// Method, params, result. This library reads each text and writes it again byte for byte.
#[rustfmt::skip]
pub const EXAMPLES: &[(&str, &str, &str)] = &[
    ("ip.allocate",
     r#"{"network":"lan","owner":"web/0","scope":"shop","slot":"1","family":4,"subnet":"10.0.0.0/24","pool":"front","zone":"z1","prefix_length":32,"owner_uid":"u1","must_create":false,"replace":true,"transient":false,"ttl_seconds":60,"claimant":"vm-1","release_with_claimant":true,"labels":{"k":"v"},"note":"n","hostname":"web-0","mac":"auto","wait_seconds":0,"brief":false,"dry_run":true,"reason":"why","deadline_ms":500}"#,
     GRANTED),
    ("ip.claim",
     r#"{"network":"0f8fad5b-d9cb-469f-a165-70867728950e","address":"2001:db8::5","owner":"web/0","prefix_length":128,"force":true,"mac":"52:54:00:12:34:56"}"#,
     r#"{"address":"2001:db8::5","prefix_length":128,"generation":7,"created":true}"#),
    ("ip.acquire",
     r#"{"owner":"web/0","network":"lan","slot_prefix":"nic","ips":[{},{"network":"wan","address":"192.0.2.1","slot":"x"},{"pool":"a","subnet":"b","family":6,"zone":"z","prefix_length":64,"optional":true}],"exact":true}"#,
     r#"{"reservations":[{"address":"10.0.0.5","prefix_length":32,"generation":7,"created":true}],"released":[]}"#),
    ("ip.release", r#"{"network":"lan","address":"10.0.0.5","owner":"web/0","if_generation":7,"force":false,"strict":true}"#, r#"{"released":["10.0.0.5"]}"#),
    ("ip.renew", r#"{"network":"lan","address":"10.0.0.5","ttl_seconds":null}"#, RESERVATION),
    ("ip.bind", r#"{"address":"10.0.0.5","scope":"s","claimant":"vm-2","if_generation":7}"#, RESERVATION),
    ("ip.unbind", r#"{"network":"lan","owner":"web/0","slot":"1","claimant":"vm-2"}"#, UNBOUND),
    ("ip.update", r#"{"network":"lan","address":"10.0.0.5","set":{"labels":{"a":null,"b":"x"},"note":null,"hostname":"h","mac":"auto","owner_uid":"u"}}"#, RESERVATION),
    ("ip.transfer", r#"{"network":"lan","address":"10.0.0.5","owner":"a","to":{"owner":"b","scope":"s","slot":"1"},"exchange":true,"if_generation":7}"#, r#"{"reservations":[]}"#),
    ("ip.decline", r#"{"network":"lan","address":"10.0.0.5","owner":"a","seen":"52:54:00:12:34:56","probation_seconds":60,"again":true}"#, r#"{"declined":"10.0.0.5"}"#),
    ("ip.get", r#"{"address":"10.0.0.5","realm":"default"}"#, r#"{"address":"10.0.0.5","state":"free","network":"lan"}"#),
    ("ip.find", r#"{"address":"10.0.0.5"}"#, r#"{"found":[{"address":"10.0.0.5","state":"cooling","network":"lan"}]}"#),
    ("ip.list",
     r#"{"network":"lan","realm":"default","scope":"s","owner":"o","owner_prefix":"o","claimant":"c","bound":true,"label":"k=v","subnet":"a","pool":"10.0.0.0-10.0.0.9","kind":"static","range":"10.0.0.1-10.0.0.4","hostname":"h","mac":"52:54:00:12:34:56","obsolete":false,"expires_before":"2026-03-01T09:12:44.031Z","created_before":"2026-03-01T09:12:44.031Z","count_only":false,"after":"x","limit":10}"#,
     r#"{"reservations":[],"next":"n","cursor":"c"}"#),
    ("owner.release", r#"{"owner":"o","scope":"s","network":"lan","reason":"gone"}"#, r#"{"released":[{"network":"lan","address":"10.0.0.5"}],"more":false}"#),
    ("scope.release", r#"{"scope":"s"}"#, r#"{"released":[],"more":true}"#),
    ("claimant.mark", r#"{"scope":"s","sweep":"2026-03-01","claimants":["vm-1","vm-2"],"reason":"nightly"}"#, r#"{"marked":2}"#),
    ("claimant.sweep", r#"{"scope":"s","alive":["vm-1"],"sweep":"x","network":"lan","grace_seconds":0,"max_share":0.25}"#,
     r#"{"unbound":[{"network":"lan","address":"10.0.0.5","claimant":"vm-2"}],"released":[],"waiting":[]}"#),
    ("network.create",
     r#"{"name":"lan","realm":"default","kind":"manual","l2":{"mode":"bridge","link":"br0","mac_prefix":"52:54:00"},"policy":"lowest","cooldown_seconds":0,"cooldown_yields":true,"static_only":false,"protected":true,"limits":{"per_owner":4,"per_scope":100},"tags":{"t":"1"},"description":"d","subnets":[{"name":"a","cidr":"10.0.0.0/24","gateway":"10.0.0.1","dhcp":true,"dns":{"servers":["10.0.0.2"],"search":["example.org"]},"zones":["z1"],"tags":{},"draining":false,"pools":[{"range":"10.0.0.10-10.0.0.20","name":"p","kind":"dynamic","draining":false}],"reserved":[{"range":"10.0.0.3-10.0.0.3","note":"printer","for":{"scope":"s","owner":"o","slot":"0"}}]},{"cidr":"2001:db8::/64","pools":[]}],"if_absent":true}"#,
     NETWORK),
    ("network.get", r#"{"network":"lan","deadline_ms":1}"#, NETWORK),
    ("network.list", r#"{"realm":"default","tag":"t","usage":true,"deleted":false,"after":"x","limit":10000}"#, r#"{"networks":[]}"#),
    ("network.update", r#"{"network":"lan","set":{"name":"lan2","l2":{"mode":null,"link":"x"},"policy":"oldest","cooldown_seconds":5,"limits":{"per_owner":null},"tags":{"t":null},"description":null,"subnets":[{"id":"0f8fad5b-d9cb-469f-a165-70867728950e"},{"id":"0f8fad5b-d9cb-469f-a165-70867728950f","cidr":"10.0.0.0/25","gateway":null,"name":null,"dhcp":true,"dns":{"servers":null,"search":["example.org"]},"zones":null,"tags":{"t":null},"draining":false,"pools":[{"range":"10.0.0.10-10.0.0.20"}],"reserved":[{"range":"10.0.0.3-10.0.0.3","for":{"owner":"o"}}]},{"cidr":"10.0.1.0/24","name":"b"}]},"if_version":3}"#, NETWORK),
    ("network.delete", r#"{"network":"lan","force":true,"purge":false}"#, r#"{"id":"0f8fad5b-d9cb-469f-a165-70867728950e","holding":3}"#),
    ("network.restore", r#"{"network":"0f8fad5b-d9cb-469f-a165-70867728950e"}"#, NETWORK),
    ("network.usage", r#"{"network":"lan"}"#, USAGE),
    ("network.map", r#"{"network":"lan","subnet":"a","pool":"p","format":"cells","cell_prefix_length":64}"#,
     r#"{"pools":[{"range":"10.0.0.0-10.0.0.3","name":"p","first":"10.0.0.0","last":"10.0.0.3","map":"XX.."},{"range":"10.0.1.0-10.0.1.3","first":"10.0.1.0","last":"10.0.1.3","runs":[["10.0.1.0","10.0.1.1","X"],["10.0.1.2","10.0.1.3","."]]},{"range":"2001:db8::-2001:db8::ffff","first":"2001:db8::","last":"2001:db8::ffff","cell_prefix_length":120,"cells":[["2001:db8::","1","1","254"]]}]}"#),
    ("subnet.add", r#"{"network":"lan","name":"a","cidr":"10.0.0.0/24","gateway":"10.0.0.1","pools":[],"if_absent":true,"if_version":1}"#, SUBNET),
    ("subnet.modify", r#"{"network":"lan","subnet":"a","set":{"cidr":"10.0.0.0/23","gateway":null,"name":"b","dhcp":false,"dns":{"servers":null,"search":["a.b"]},"zones":[],"tags":null,"draining":true,"pools":[]}}"#, SUBNET),
    ("subnet.move", r#"{"network":"lan","subnet":"10.0.0.0/24","to":"wan"}"#, SUBNET),
    ("subnet.remove", r#"{"network":"lan","subnet":"10.0.0.0/24"}"#, "{}"),
    ("pool.add", r#"{"network":"lan","subnet":"a","name":"p","kind":"static","if_absent":true}"#, r#"{"range":"10.0.0.0-10.0.0.255","name":"p","kind":"static","draining":false,"created":false}"#),
    ("pool.modify", r#"{"network":"lan","pool":"10.0.0.1-10.0.0.9","set":{"range":"10.0.0.1-10.0.0.8","name":null,"kind":"dynamic","draining":true}}"#, r#"{"range":"10.0.0.1-10.0.0.8","kind":"dynamic","draining":true}"#),
    ("pool.remove", r#"{"network":"lan","range":"10.0.0.1-10.0.0.9"}"#, "{}"),
    ("reserved.add", r#"{"network":"lan","range":"10.0.0.1-10.0.0.9","note":"n","for":{"owner":"o"}}"#, r#"{"reserved":[{"range":"10.0.0.1-10.0.0.9","note":"n","for":{"owner":"o"}}]}"#),
    ("reserved.remove", r#"{"network":"lan","range":"10.0.0.1-10.0.0.9"}"#, r#"{"reserved":[]}"#),
    ("realm.list", "{}", r#"{"realms":[{"realm":"default","networks":2}]}"#),
    ("scope.list", r#"{"network":"lan","after":"a","limit":1}"#, r#"{"scopes":[{"scope":"s","reservations":2,"addresses":"3","obsolete":0,"unbound":1}],"next":"s"}"#),
    ("deployment.plan", r#"{"deployment":"shop","instances":[{"id":"web/0","zone":"z1","fresh":true,"networks":[{"network":"lan","slot":"1","pool":"p"},{"network":"vip","address":"10.9.0.1"}]}]}"#, PLANNED),
    ("deployment.apply", r#"{"deployment":"shop","groups":[{"name":"web","instances":["web/0"],"zones":["z1"],"networks":[{"network":"lan","slot":"1","static_ips":["10.0.0.10-10.0.0.19"]}]}],"dry_run":false,"reason":"why","deadline_ms":5}"#, PLANNED),
    ("deployment.commit", r#"{"deployment":"shop","plan":3,"instances":["web/0"]}"#, r#"{"released":[{"network":"lan","address":"10.0.0.5"}]}"#),
    ("deployment.revert", r#"{"deployment":"shop","plan":3}"#, r#"{"released":[]}"#),
    ("deployment.get", r#"{"deployment":"shop"}"#,
     r#"{"deployment":"shop","plan":3,"uncommitted_since":"2026-03-01T09:12:44.031Z","instances":[{"id":"web/0","reservations":[],"obsolete":[]}]}"#),
    ("deployment.list", r#"{"after":"a","limit":1}"#, r#"{"deployments":[{"deployment":"shop","plan":3}],"next":"shop"}"#),
    ("deployment.delete", r#"{"deployment":"shop"}"#, r#"{"released":[],"more":false}"#),
    ("events.watch", r#"{"network":"lan","realm":"default","scope":"s","since":"c"}"#, r#"{"subscription":1}"#),
    ("events.unwatch", r#"{"subscription":1}"#, r#"{"subscription":1}"#),
    ("events.history",
     r#"{"network":"lan","realm":"default","address":"10.0.0.5","owner":"o","scope":"s","from":"2026-03-01T09:12:44.031Z","to":"2026-03-01T09:12:44.031Z","after":"c","limit":5}"#,
     HISTORY),
    ("server.info", "{}",
     r#"{"version":"0.1.0","protocol":1,"node":"a","store":"memory","durability":"none","limits":{"max_line_bytes":1,"max_body_bytes":2,"max_answer_bytes":3,"max_batch_members":4,"max_in_flight":5,"max_acquire_ips":6,"max_list_records":7,"max_waiting":8,"max_waiting_in_network":9,"max_wait_seconds":10},"time":"2026-03-01T09:12:44.031Z","uptime_seconds":3}"#),
    ("server.ping", "{}", r#""pong""#),
    ("cluster.nodes", "{}",
     r#"{"nodes":[{"name":"a","id":"0f","version":"0.1.0","address":"127.0.0.1:7400","owner":true,"draining":false,"seen_ms":3}]}"#),
    ("cluster.locate", r#"{"network":"lan"}"#,
     r#"{"network":"lan","network_id":"00000000-0000-0000-0000-000000000001","shard":3,"node":"a","address":"127.0.0.1:7400","epoch":2}"#),
    ("cluster.drain", r#"{"node":"a","drain":true}"#, r#"{"node":"a","draining":true,"owner":"b"}"#),
    ("cluster.conflicts", r#"{"network":"lan"}"#,
     r#"{"conflicts":[{"network":"lan","network_id":"00000000-0000-0000-0000-000000000001","address":"10.0.0.5","prefix_length":32,"late":{"scope":"s","owner":"web/0","slot":"0","generation":7,"since":"2026-11-22T10:00:00.000Z","mac":"aa:00:00:00:00:01"},"present":{"network":"other","network_id":"00000000-0000-0000-0000-000000000002","address":"10.1.0.5","prefix_length":32,"scope":"s","owner":"db/0","slot":"0","generation":9,"since":"2026-11-22T10:01:00.000Z"},"found_at":"2026-11-22T10:02:00.000Z"}]}"#),
    ("cluster.accept", r#"{"network":"lan","address":"10.0.0.5"}"#,
     r#"{"accepted":[{"network":"lan","network_id":"00000000-0000-0000-0000-000000000001","address":"10.0.0.5","prefix_length":32,"late":{"scope":"s","owner":"web/0","slot":"0","generation":7,"since":"2026-11-22T10:00:00.000Z"},"present":{"network":"lan","network_id":"00000000-0000-0000-0000-000000000001","address":"10.0.0.5","prefix_length":32,"scope":"s","owner":"db/0","slot":"0","generation":9,"since":"2026-11-22T10:01:00.000Z"},"found_at":"2026-11-22T10:02:00.000Z"}]}"#),
    ("session.set", r#"{"redirect":true}"#, r#"{"redirect":true}"#),
    ("rpc.discover", "{}", r#"{"openrpc":"1.3.2"}"#),
];

macro_rules! reservation {
    ($more:literal) => {
        concat!(
            r#"{"network":"lan","network_id":"0f8fad5b-d9cb-469f-a165-70867728950e","address":"10.0.0.5","prefix_length":32,"#,
            r#""interface":"10.0.0.5/24","subnet":"10.0.0.0/24","subnet_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","#,
            r#""pool":"10.0.0.0-10.0.0.255","pool_name":"p","gateway":"10.0.0.1","dhcp":true,"#,
            r#""dns":{"servers":["10.0.0.2"]},"l2":{"mode":"bridge"},"scope":"default","owner":"web/0","slot":"0","#,
            r#""owner_uid":"u","kind":"dynamic","claimant":"vm","release_with_claimant":true,"transient":false,"#,
            r#""labels":{"k":"v"},"note":"n","hostname":"h","mac":"52:54:00:12:34:56","#,
            r#""created_at":"2026-03-01T09:12:44.031Z","expires_at":"2026-03-01T09:13:44.031Z","expires_in_seconds":60,"#,
            r#""generation":7,"obsolete":{"since":"2026-03-01T09:12:44.031Z","plan":2}"#,
            $more
        )
    };
}
macro_rules! counts {
    () => {
        r#""size":"256","held":"3","dynamic":"2","static":"1","obsolete":"0","reserved":"3","cooling":"0","declined":"0","free":"250","used_ratio":0.5,"reservations":3"#
    };
}

/// A reservation with every member.
pub const RESERVATION: &str = reservation!("}");
/// A grant with every member.
pub const GRANTED: &str = reservation!(r#","created":false,"previous_claimant":"vm0","replaced":"10.0.0.4"}"#);
const PLANNED: &str = concat!(
    r#"{"plan":3,"instances":[{"id":"web/0","networks":[{"network":"lan","slot":"0","state":"new","reservation":"#,
    reservation!("}"),
    r#","replaces":"10.0.0.4"},{"network":"cloud","slot":"0","state":"none"}]}],"obsolete":[]}"#
);
const UNBOUND: &str = reservation!(r#","released":true}"#);
const SUBNET: &str = r#"{"id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","name":"a","cidr":"10.0.0.0/24","gateway":"10.0.0.1","dhcp":false,"dns":{"servers":["10.0.0.2"]},"zones":["z1"],"tags":{"t":"1"},"draining":false,"pools":[{"range":"10.0.0.0-10.0.0.255","kind":"dynamic","draining":false}],"reserved":[{"range":"10.0.0.3-10.0.0.3"}],"created":true}"#;
const NETWORK: &str = r#"{"id":"0f8fad5b-d9cb-469f-a165-70867728950e","name":"lan","realm":"default","kind":"manual","l2":{"mode":"bridge"},"policy":"lowest","cooldown_seconds":0,"cooldown_yields":false,"static_only":false,"protected":false,"limits":{"per_owner":4},"tags":{"t":"1"},"description":"d","subnets":[{"id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","cidr":"10.0.0.0/24","dhcp":false,"draining":false}],"version":3,"cursor":"c"}"#;
const USAGE: &str = concat!(
    "{",
    counts!(),
    r#","subnets":[{"cidr":"10.0.0.0/24","name":"a","#,
    counts!(),
    r#","pools":[{"range":"10.0.0.0-10.0.0.255","name":"p","kind":"dynamic","#,
    counts!(),
    r#"}]}],"cursor":"c"}"#
);
macro_rules! holding_state {
    () => {
        concat!(
            r#"{"scope":"s","owner":"o","slot":"0","owner_uid":"u","kind":"dynamic","claimant":"c","#,
            r#""release_with_claimant":false,"transient":false,"labels":{"k":"v"},"note":"n","hostname":"h","#,
            r#""mac":"52:54:00:12:34:56","created_at":"2026-03-01T09:12:44.031Z","#,
            r#""expires_at":"2026-03-01T09:13:44.031Z","generation":7,"#,
            r#""obsolete":{"since":"2026-03-01T09:12:44.031Z","plan":2}}"#
        )
    };
}
/// A page of the history: an event of a holding and one of a network, with every member.
const HISTORY: &str = concat!(
    r#"{"events":[{"cursor":"c1","time":"2026-03-01T09:12:44.031Z","type":"transferred","network":"lan","#,
    r#""network_id":"0f8fad5b-d9cb-469f-a165-70867728950e","address":"10.0.0.5","prefix_length":32,"scope":"s","#,
    r#""owner":"o","slot":"0","claimant":"c","generation":7,"kind":"dynamic","by":"b","reason":"r","before":"#,
    holding_state!(),
    r#","after":"#,
    holding_state!(),
    r#"},{"cursor":"c2","time":"2026-03-01T09:12:44.031Z","type":"network_created","network":"lan","#,
    r#""network_id":"0f8fad5b-d9cb-469f-a165-70867728950e","by":"b","after":"#,
    r#"{"name":"lan","realm":"default","kind":"manual","l2":{"mode":"bridge"},"policy":"lowest","cooldown_seconds":0,"#,
    r#""cooldown_yields":false,"static_only":false,"protected":false,"limits":{"per_owner":4},"tags":{"t":"1"},"#,
    r#""description":"d","version":3,"deleted":false,"removed":["7c9e6679-7425-40de-944b-e07fc1f90ae7"]}}],"next":"n"}"#
);
