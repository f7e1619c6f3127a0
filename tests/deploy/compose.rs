//! The compose set-up: its file as docker-compose sees it, what it mounts, and everything in it running, without a container
//! engine.

use std::fmt::Write;
use std::process::Command;

use serde_json::Value;

use crate::server::allod;
use crate::tools::{facts, here, needs, ok, on_a_machine, read, texts, yaml};

const FILE: &str = "deploy/compose/compose.yaml";
/// What the image has its server read.
const CONFIG: &str = "/etc/allod/server.toml";

fn services() -> serde_json::Map<String, Value> {
    yaml(&read(FILE)).remove(0)["services"].as_object().unwrap().clone()
}

#[test]
fn docker_compose_takes_the_file_and_refuses_a_wrong_one() {
    needs!(["docker-compose"]);
    let check = |file: &std::path::Path| {
        Command::new("docker-compose").arg("-f").arg(file).args(["config", "-q"]).output().unwrap()
    };
    let output = check(&here(FILE));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("compose.yaml");
    std::fs::write(&wrong, read(FILE).replacen("read_only:", "readonly:", 1)).unwrap();
    assert!(!check(&wrong).status.success());
}

#[test]
fn nothing_is_published_beyond_the_loopback_and_what_is_mounted_is_there() {
    let services = services();
    for (name, service) in &services {
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
        for volume in texts(&service["volumes"]) {
            let source = volume.split(':').next().unwrap();
            if source.contains('/') {
                assert!(here("deploy/compose").join(source).exists(), "{name}: {source}");
            }
        }
        let redis = name.starts_with("redis") || name.starts_with("sentinel");
        if redis {
            assert_eq!(texts(&service["networks"]), ["register"], "{name}");
        }
        // Nothing in the image can be changed: what a running node may be asked to read again is outside.
        if name.starts_with("node") {
            let mounted = texts(&service["volumes"]).into_iter().find_map(|volume| {
                let (source, place) = volume.split_once(':').unwrap();
                let file = CONFIG.strip_prefix(place.trim_end_matches(":ro"))?;
                // A mounted file would stay what it was when an editor puts another in its place.
                let file = file.strip_prefix('/').filter(|_| source.contains('/'))?;
                Some(here("deploy/compose").join(source).join(file))
            });
            assert!(mounted.is_some_and(|file| file.is_file()), "{name}: {CONFIG} is in the image only");
        }
        if redis || name.starts_with("node") {
            assert_eq!(service["read_only"], true, "{name}");
            assert_eq!(texts(&service["cap_drop"]), ["ALL"], "{name}");
        }
    }
    // Grafana finds the dashboards where they are mounted, and Prometheus by the name that it has here.
    let provider = &yaml(&read("deploy/grafana/provisioning/dashboards/allod.yaml"))[0]["providers"][0];
    let path = provider["options"]["path"].as_str().unwrap();
    let mounts = texts(&services["grafana"]["volumes"]);
    assert!(mounts.iter().any(|mount| mount == &format!("../grafana/dashboards:{path}:ro")), "{mounts:?}");
    let source = &yaml(&read("deploy/grafana/provisioning/datasources/prometheus.yaml"))[0]["datasources"][0];
    assert_eq!(source["url"], "http://prometheus:9090");
}

#[test]
fn promtool_takes_the_configuration_of_prometheus() {
    needs!(["promtool"]);
    ok(Command::new("promtool").args(["check", "config", "deploy/prometheus/prometheus.yml"]));
}

/// Each service as a shell line: a host of its name, its environment, its command.
fn commands() -> String {
    let mut text = String::new();
    for (name, service) in services() {
        let mut environment = String::new();
        for (key, value) in service["environment"].as_object().into_iter().flatten() {
            write!(environment, " '{key}={}'", value.as_str().unwrap()).unwrap();
        }
        let (user, program) = match name.split('-').next().unwrap() {
            "node" => ("65532", format!("/run/share/allod serve --config {CONFIG} --data /data")),
            "redis" | "sentinel" => {
                ("999", [texts(&service["entrypoint"]), texts(&service["command"])].concat().join(" "))
            }
            "prometheus" => ("65534", format!("/usr/bin/prometheus {}", texts(&service["command"]).join(" "))),
            // There is no Grafana to run here.
            "grafana" => continue,
            other => panic!("what is {other}?"),
        };
        // A container mounts its volume in another place than the story, which uses /data.
        let program = program.replace("/var/lib/allod", "/data").replace("=/prometheus", "=/data");
        writeln!(text, "start {name} {user} env{environment} {program}").unwrap();
    }
    text
}

#[test]
fn its_nodes_serve_through_a_failover_and_an_upgrade_and_are_scraped() {
    needs!(["redis-server", "prometheus", "curl", "ip"]);
    let share = tempfile::tempdir().unwrap();
    let put = |from: &std::path::Path, to: &str| {
        ok(Command::new("cp").arg("-aL").arg(from).arg(share.path().join(to)));
    };
    put(&allod(), "allod");
    put(&here("config"), "config");
    put(&here("deploy/redis"), "register");
    put(&here("deploy/prometheus"), "prometheus");
    std::fs::write(share.path().join("services"), commands()).unwrap();
    if on_a_machine(share.path(), "compose") {
        assert_eq!(facts(share.path()), 7);
    }
}
