//! Redis over TLS only: one server, sentinels, a cluster. A server or a client that is not trusted is refused, and the
//! message says what to do about it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::authority::{Authority, Signed};
use super::clock::Clock;
use super::clustered::RedisCluster;
use super::redis::{Redis, process};
use super::run::{Nodes, Run, Setting, configuration, eventually, insist};
use super::seed::seed;
use super::sentinels::Watched;
use super::server::{Starting, allod};

/// The authority of a test, and the certificate of its Redis at 127.0.0.1.
struct Trust {
    directory: TempDir,
    ca: Authority,
    redis: Signed,
}

impl Trust {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = Authority::new(directory.path(), "ca");
        let redis = ca.signs("redis", &["127.0.0.1"]);
        Self { directory, ca, redis }
    }

    /// Lines of the section `[store]` of a node that trusts this authority, and these lines.
    fn store(&self, lines: &str) -> String {
        format!("redis_ca = {:?}\n{lines}", self.ca.own.certificate)
    }

    fn settings(&self, auth_clients: &str) -> Vec<String> {
        self.ca.settings(&self.redis, auth_clients)
    }

    /// Starts a Redis that shows this certificate.
    fn start(&self, name: &str, shown: &Signed, auth_clients: &str) -> Option<Redis> {
        let place = self.directory.path().join(name);
        std::fs::create_dir(&place).unwrap();
        let settings = self.ca.settings(shown, auth_clients);
        Redis::start(&place, &borrowed(&settings))
    }

    /// Starts a node on this Redis, with these lines of the section `[store]`.
    fn node(&self, url: &str, store: &str, environment: &[(&str, &Path)]) -> Starting {
        let place = tempfile::tempdir_in(self.directory.path()).unwrap().keep();
        let (file, data) = (configuration(&place, store), place.join("data"));
        let arguments = ["serve", "--redis", url, "--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()];
        let environment = environment.iter().map(|(name, path)| ((*name).to_owned(), path.display().to_string()));
        Starting::with_environment(&data, &arguments, environment.collect())
    }

    /// Checks that the node does not start, ends with this code, and says all of this.
    #[track_caller]
    fn refused(&self, url: &str, store: &str, code: i32, said: &[&str]) {
        let (ended, log) = self.node(url, store, &[]).ends();
        assert_eq!(ended, Some(code), "{log}");
        said.iter().for_each(|words| assert!(log.contains(words), "{words}: {log}"));
        assert!(!log.contains("panic"), "{log}");
    }
}

fn borrowed(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_a_node_grants_and_knows_it_again_when_it_was_killed() {
    let trust = Trust::new();
    let Some(redis) = trust.start("one", &trust.redis, "no") else { return };
    let url = redis.url();
    assert!(url.starts_with("rediss://"));
    let store = trust.store("");
    let setting = Setting { nodes: 1, store: &store, ..Setting::default() };
    let mut nodes = Nodes::over(tempfile::tempdir().unwrap(), redis, setting);
    let mut client = nodes.client(0).await;
    let subnets = json!([{"cidr": "10.0.0.0/24"}]);
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": subnets})).await;
    let asked = json!({"network": "lan", "owner": "o"});
    let granted = insist(&mut client, "ip.allocate", &asked).await;
    nodes.cluster.crash(0);
    let again = insist(&mut nodes.client(0).await, "ip.allocate", &asked).await;
    assert_eq!(granted["address"], again["address"], "{granted} {again}");
    assert_eq!((&granted["created"], &again["created"]), (&json!(true), &json!(false)), "{granted} {again}");
    assert!(nodes.cluster.log(0).contains("tls=true"), "{}", nodes.logs());

    // `doctor` reports it too.
    let file = configuration(nodes.directory.path(), &store).display().to_string();
    let place = nodes.directory.path().join("looks").display().to_string();
    let asked = ["doctor", "--redis", &url, "--config", &file, "--data", &place, "--format", "json"];
    let looked = nodes.cluster.allod(0, &asked);
    assert!(looked.contains("over TLS, a call takes") && looked.contains("store.redis_ca = "), "{looked}");
}

#[test]
fn a_server_that_is_not_trusted_is_refused_with_what_to_do() {
    let trust = Trust::new();
    let Some(redis) = trust.start("good", &trust.redis, "no") else { return };
    let other = Authority::new(trust.directory.path(), "other");
    let others = format!("redis_ca = {:?}", other.own.certificate);
    let hint = "under \"Redis over TLS\"";
    trust.refused(&redis.url(), &others, 1, &["is signed by nobody in", "other.pem\" (`store.redis_ca`)", hint]);
    let by_name = redis.url().replace("127.0.0.1", "localhost");
    let told = ["is for 127.0.0.1, not for `localhost`; name Redis as its certificate does", hint];
    trust.refused(&by_name, &trust.store(""), 1, &told);
    let old = trust.ca.signs_until("old", &["127.0.0.1"], 2_001);
    let Some(expired) = trust.start("expired", &old, "no") else { return };
    trust.refused(&expired.url(), &trust.store(""), 75, &["has expired at 2001-01-01T00:00:00Z; give Redis a new one"]);
    let Some(of_ca) = trust.start("of-ca", &trust.ca.own, "no") else { return };
    trust.refused(&of_ca.url(), &trust.store(""), 1, &["is that of a CA (`CA:TRUE`)", "that is signed by it"]);
    let nameless = trust.ca.signs("nameless", &[]);
    let Some(nameless) = trust.start("nameless", &nameless, "no") else { return };
    trust.refused(&nameless.url(), &trust.store(""), 1, &["a common name does not count"]);

    // Without `store.redis_ca` the authorities that the system trusts count.
    let (code, log) = trust.node(&redis.url(), "", &[("SSL_CERT_FILE", &other.own.certificate)]).ends();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("by nobody whom this system trusts; name the file of who signed it by `store.redis_ca`"),
        "{log}"
    );
    trust.node(&redis.url(), "", &[("SSL_CERT_FILE", &trust.ca.own.certificate)]).ready().stop();
}

#[test]
fn a_port_that_speaks_tls_or_does_not_is_told_where_the_url_says_otherwise() {
    let trust = Trust::new();
    let Some(secured) = trust.start("secured", &trust.redis, "no") else { return };
    let place = trust.directory.path().join("plain");
    std::fs::create_dir(&place).unwrap();
    let Some(plain) = Redis::start(&place, &[]) else { return };
    // The code asks for another try, because an operator may correct this meanwhile.
    let told = ["hung up before it answered", "where it wants TLS the URL begins with `rediss`"];
    trust.refused(&secured.url().replace("rediss", "redis"), "", 75, &told);
    let told = ["speaks no TLS; name its TLS port (`tls-port`), or begin the URL with `redis`"];
    trust.refused(&plain.url().replace("redis", "rediss"), &trust.store(""), 75, &told);
    let insecure = format!("{}#insecure", secured.url());
    trust.refused(&insecure, &trust.store(""), 1, &["`#insecure`", "that of a stranger too", "`store.redis_ca`"]);
    let told = ["`store.redis_ca` is ", "over which nothing is encrypted"];
    trust.refused(&plain.url(), &trust.store(""), 1, &told);
}

#[test]
fn a_certificate_that_redis_wants_of_its_clients_is_shown_and_missed() {
    let trust = Trust::new();
    let Some(redis) = trust.start("asks", &trust.redis, "yes") else { return };
    let shows = |signed: &Signed| {
        let lines = format!("redis_certificate = {:?}\nredis_key = {:?}", signed.certificate, signed.key);
        trust.store(&lines)
    };
    let right = trust.ca.signs("client", &["client.example"]);
    trust.node(&redis.url(), &shows(&right), &[]).ready().stop();
    // The user in Redis comes from the URL, as without TLS.
    redis.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    let named = |password: &str| redis.url().replace("rediss://", &format!("rediss://allod:{password}@"));
    trust.node(&named("secret"), &shows(&right), &[]).ready().stop();
    trust.refused(
        &named("other"),
        &shows(&right),
        1,
        &["user `allod` (of `store.redis`) is not let in at ", "name the right user, password"],
    );
    let told = ["wants a certificate of its clients; set `store.redis_certificate` and `store.redis_key`"];
    trust.refused(&redis.url(), &trust.store(""), 1, &told);
    let other = Authority::new(trust.directory.path(), "other").signs("stranger", &["client.example"]);
    let told =
        ["refuses this server in the TLS handshake", "it was shown", "stranger.pem", "`tls-ca-cert-file` of Redis"];
    trust.refused(&redis.url(), &shows(&other), 1, &told);
    let mixed = Signed { certificate: right.certificate, key: other.key };
    trust.refused(&redis.url(), &shows(&mixed), 1, &["`store.redis_key` is ", "which does not fit"]);
}

/// A certificate that ends soon is reported; an exchanged one is used, even if it is no good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_exchanged_on_disk_is_shown_at_the_next_connection() {
    let trust = Trust::new();
    let shown = trust.ca.signs_for_days("shown", &["127.0.0.1"], 5);
    let Some(redis) = trust.start("asks", &shown, "yes") else { return };
    let stranger = Authority::new(trust.directory.path(), "other").signs_until("stranger", &[], 2_099);
    let (soon, late) = (trust.ca.signs_for_days("soon", &[], 3), trust.ca.signs("late", &[]));
    let own = ["own.pem", "own.key"].map(|name| trust.directory.path().join(name));
    let put = |from: &Signed| {
        for (from, to) in [(&from.certificate, &own[0]), (&from.key, &own[1])] {
            std::fs::copy(from, to).unwrap();
        }
    };
    put(&soon);
    let [certificate, key] = &own;
    let store = trust.store(&format!("redis_certificate = {certificate:?}\nredis_key = {key:?}"));
    let setting = Setting { nodes: 1, store: &store, ..Setting::default() };
    let nodes = Nodes::over(tempfile::tempdir().unwrap(), redis, setting);
    let told =
        ["the certificate of `store.redis_certificate` expires at ", ", in 2 days: put another one into the file"];
    told.iter().for_each(|told| assert!(nodes.cluster.log(0).contains(told), "{told}: {}", nodes.logs()));
    let told = format!("the certificate of 127.0.0.1:{} expires at ", nodes.redis.port());
    assert!(nodes.cluster.log(0).contains(&told), "{}", nodes.logs());
    let file = configuration(nodes.directory.path(), &store).display().to_string();
    let place = nodes.directory.path().join("looks").display().to_string();
    let asked = ["doctor", "--redis", &nodes.redis.url(), "--config", &file, "--data", &place];
    let looked = nodes.cluster.allod(0, &asked);
    assert!(looked.contains(&told) && looked.contains("`store.redis_certificate` expires at "), "{looked}");

    // The values of the figure: 1 January of 2099 and of 2100, in seconds since 1970.
    let figure = |nodes: &Nodes<Redis>| {
        let name = "allod_store_certificate_expires_timestamp_seconds{setting=\"store.redis_certificate\"}";
        nodes.cluster.figure(0, name)
    };
    put(&stranger);
    eventually("another file is seen", || figure(&nodes) == 4_070_908_800.0).await;
    nodes.redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    let refused = "refuses this server in the TLS handshake";
    eventually("a stranger is refused", || nodes.cluster.log(0).contains(refused)).await;
    put(&late);
    eventually("the right file is seen", || figure(&nodes) == 4_102_444_800.0).await;
    let asked = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut nodes.client(0).await, "network.create", &asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_the_system_trusts_since_a_node_runs_is_trusted_by_it_after_a_restart_as_its_log_says() {
    let trust = Trust::new();
    let Some(redis) = trust.start("system", &trust.redis, "no") else { return };
    let other = Authority::new(trust.directory.path(), "other");
    let later = other.signs("later", &["127.0.0.1"]);
    let system = trust.directory.path().join("system.pem");
    std::fs::copy(&trust.ca.own.certificate, &system).unwrap();
    let environments = vec![vec![("SSL_CERT_FILE".to_owned(), system.display().to_string())]];
    let setting = Setting { nodes: 1, environments, ..Setting::default() };
    let mut nodes = Nodes::over(tempfile::tempdir().unwrap(), redis, setting);
    let both = [&trust.ca, &other].map(|ca| std::fs::read_to_string(&ca.own.certificate).unwrap()).concat();
    std::fs::write(&system, both).unwrap();
    let [certificate, key] = [&later.certificate, &later.key].map(|path| path.to_str().unwrap());
    nodes.redis.ask(&["CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key]);
    nodes.redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    let told = "is read at the start: if that has changed, start again";
    eventually("it is refused", || nodes.cluster.log(0).contains(told)).await;
    nodes.cluster.crash(0);
    let asked = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut nodes.client(0).await, "network.create", &asked).await;
}

/// A resumed session would show no certificate; the certificate must be checked with each connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_expires_while_a_node_runs_is_refused_at_the_next_connection() {
    let trust = Trust::new();
    let lasts = Duration::from_secs(3_600);
    let shown = trust.ca.signs_for("short", &["127.0.0.1"], lasts);
    let Some(redis) = trust.start("short", &shown, "no") else { return };
    let Some(clock) = Clock::new(trust.directory.path(), "node") else { return };
    let store = trust.store("");
    let environments = vec![clock.environment()];
    let setting = Setting { nodes: 1, store: &store, environments, ..Setting::default() };
    let nodes = Nodes::over(tempfile::tempdir().unwrap(), redis, setting);
    clock.jump(2 * 3_600);
    // The node looks at its connections several times meanwhile.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(nodes.cluster.is_ready(0), "connections that stand go on: {}", nodes.logs());
    nodes.redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("it is refused", || nodes.cluster.log(0).contains(" has expired at ")).await;
    assert!(!nodes.cluster.is_ready(0), "{}", nodes.logs());
}

#[test]
fn check_config_refuses_files_that_are_no_certificates() {
    let trust = Trust::new();
    let check = |store: &str| {
        let file = configuration(trust.directory.path(), store);
        let checked = Command::new(allod()).args(["check-config", file.to_str().unwrap()]).output().unwrap();
        (checked.status.success(), String::from_utf8_lossy(&checked.stderr).into_owned())
    };
    let secured = "kind = \"redis\"\nredis = \"rediss://10.0.0.1:6380/0\"";
    let (is_right, said) = check(&trust.store(secured));
    assert!(is_right, "{said}");
    let (is_right, said) = check(&format!("{secured}\nredis_ca = {:?}", trust.redis.key));
    assert!(!is_right && said.contains("`store.redis_ca` is ") && said.contains("which has no certificate"), "{said}");
    let (is_right, said) = check(&format!("{secured}\nredis_key = {:?}", trust.redis.key));
    assert!(!is_right && said.contains("`store.redis_certificate` is not set; set both"), "{said}");
}

#[test]
fn a_register_is_moved_to_a_redis_over_tls() {
    let trust = Trust::new();
    let Some(redis) = trust.start("target", &trust.redis, "no") else { return };
    let data = trust.directory.path().join("files");
    let server = Starting::new(&data).ready();
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.stop();
    let (url, ca) = (redis.url(), trust.ca.own.certificate.display().to_string());
    let moves = |more: &[&str]| {
        let arguments = ["migrate", data.to_str().unwrap(), &url, "--yes"];
        let moved = Command::new(allod()).args(arguments).args(more).output().unwrap();
        (moved.status.success(), String::from_utf8_lossy(&moved.stderr).into_owned())
    };
    let other = Authority::new(trust.directory.path(), "other").own.certificate.display().to_string();
    let (is_moved, said) = moves(&["--redis-ca", &other]);
    assert!(!is_moved && said.contains("is signed by nobody in"), "{said}");
    // Without the flag the system's authorities count. The message names the flag of this command, and no setting.
    let (is_moved, said) = moves(&[]);
    assert!(!is_moved && said.contains("name the file of who signed it by `--redis-ca`"), "{said}");
    assert!(
        said.contains("hint: make sure that the new place can be reached") && !said.contains("empty directory"),
        "{said}"
    );
    let (is_moved, said) = moves(&["--redis-ca", &ca]);
    assert!(is_moved && said.contains(&format!("ALLOD_STORE__REDIS_CA={ca} allod serve --redis {url}")), "{said}");
    let plain = ["migrate", data.to_str().unwrap(), "redis://127.0.0.1:1/0", "--redis-ca", &ca];
    let refused = Command::new(allod()).args(plain).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(64), "{said}");
    assert!(said.contains("`--redis-ca` is for a Redis over TLS, and neither FROM nor TO is one"), "{said}");
    let node = trust.node(&url, &trust.store(""), &[]).ready();
    assert!(node.allod_ok(&["network", "list"]).contains("lan"));
    node.stop();
}

/// Sentinels, primary and replica speak only TLS: a node that asked one of them without TLS could not go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_sentinels_are_asked_and_the_primary_that_they_name_after_a_failover_is_gone_to() {
    let trust = Trust::new();
    let Some(watched) = Watched::start_with(&trust.settings("no")) else { return };
    let store = trust.store("redis_replicas = 1");
    let mut run = Run::over(watched, Setting { store: &store, ..Setting::default() }, seed()).await;
    run.nodes.redis.servers[0].end();
    run.nodes.redis.promoted(1);
    run.nodes.redis.servers[0].begin();
    run.gets_on(200, "after the primary was killed").await;
    run.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_the_servers_of_a_cluster_are_asked_and_whoever_has_the_slot_is_gone_to() {
    let trust = Trust::new();
    let settings = [trust.settings("no"), ["--tls-cluster", "yes", "--appendonly", "yes"].map(str::to_owned).into()];
    let Some(redis) = RedisCluster::start(3, 1, &borrowed(&settings.concat())) else { return };
    let store = trust.store("redis_replicas = 1");
    let mut run = Run::over(redis, Setting { store: &store, ..Setting::default() }, seed()).await;
    let redis = &mut run.nodes.redis;
    let slot = redis.slot("{allod}:register");
    let first = redis.owner(slot).unwrap();
    redis.members[first].kill();
    redis.failed_over(slot, first);
    redis.members[first].begin();
    run.gets_on(200, "after the failover").await;
    run.end().await;
}

/// A sentinel that is not trusted cannot name a primary.
#[test]
fn sentinels_and_members_of_a_cluster_that_are_not_trusted_are_named() {
    let trust = Trust::new();
    let Some(redis) = trust.start("one", &trust.redis, "no") else { return };
    let other = Authority::new(trust.directory.path(), "other");
    let others = format!("redis_ca = {:?}", other.own.certificate);
    let (port, away) = (redis.port(), process::ports::free_port());
    let said = format!("the certificate of 127.0.0.1:{port} is signed by nobody in");
    for url in [
        format!("rediss+sentinel://127.0.0.1:{port},127.0.0.1:{away}/register"),
        format!("rediss+cluster://127.0.0.1:{away},127.0.0.1:{port}"),
    ] {
        // Nothing is known yet about the server that is away.
        trust.refused(&url, &others, 75, &[&said]);
    }
    for url in [format!("rediss+sentinel://127.0.0.1:{port}/register"), format!("rediss+cluster://127.0.0.1:{port}")] {
        trust.refused(&url, &others, 1, &[&said]);
    }
}
