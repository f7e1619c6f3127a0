//! The manifests: built by kustomize, judged by the published schemas, and consistent with each other and with the program.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::server::allod;
use crate::tools::{ROOT, here, needs, ok, read, texts, yaml};

pub const SETUPS: [&str; 2] = ["one-node", "cluster"];
const OPERATOR: &str = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
const RULES: &str = "deploy/kubernetes/monitoring/rules.yaml";

pub fn built(setup: &str) -> (String, Vec<Value>) {
    let text = ok(Command::new("kubectl").arg("kustomize").arg(here("deploy/kubernetes").join(setup)));
    let documents = yaml(&text);
    (text, documents)
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let found: Vec<&Value> = documents.iter().filter(|document| document["kind"] == kind).collect();
    assert!(!found.is_empty(), "no {kind}");
    found
}

pub fn named<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = of_kind(documents, kind).into_iter().find(|document| document["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Does a selector's map choose these labels?
fn chooses(selector: &Value, labels: &Value) -> bool {
    selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value)
}

#[test]
fn manifests_fit_the_schemas_of_kubernetes() {
    needs!(["kubectl", "kubernetes-validate"]);
    let directory = tempfile::tempdir().unwrap();
    for setup in SETUPS {
        let file = directory.path().join(setup);
        let (text, documents) = built(setup);
        // The operator's kinds are not Kubernetes' own: see the next test.
        let own = documents.iter().filter(|document| document["apiVersion"] != "monitoring.coreos.com/v1").count();
        std::fs::write(&file, &text).unwrap();
        for version in ["1.29", "1.37"] {
            let said =
                Command::new("kubernetes-validate").args(["--strict", "-k", version]).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
            let passed = said.lines().filter(|line| line.contains(" passed for resource ")).count();
            assert_eq!(passed, own, "{said}");
        }
        // A misspelt member would be found.
        std::fs::write(&file, text.replacen("serviceName:", "serviceNam:", 1)).unwrap();
        let status =
            Command::new("kubernetes-validate").args(["--strict", "--quiet"]).arg(&file).output().unwrap().status;
        assert!(!status.success());
    }
}

#[test]
fn monitor_and_rules_fit_the_operators_schema_and_the_monitor_finds_the_metrics_port() {
    needs!(["kubectl", "node"]);
    let Some(modules) =
        std::env::var_os("NODE_PATH").map(std::path::PathBuf::from).filter(|at| at.join(OPERATOR).exists())
    else {
        return crate::tools::skip("there is no @kubernetes-models/prometheus-operator in NODE_PATH");
    };
    let judge = |document: &Value| {
        let kind = document["kind"].as_str().unwrap();
        let script = format!(
            "const {{ {kind} }} = await import('{}/{kind}.js'); \
             new {kind}(JSON.parse((await import('fs')).readFileSync(0))).validate();",
            modules.join(OPERATOR).display()
        );
        let mut child = Command::new("node")
            .args(["--input-type=module", "-e", &script])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(document.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    for setup in SETUPS {
        let (_, documents) = built(setup);
        let monitor = named(&documents, "ServiceMonitor", "allod");
        let judged = judge(monitor);
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
        let mut wrong = monitor.clone();
        wrong["spec"]["endpoints"][0]["path"] = json!(3);
        assert!(!judge(&wrong).status.success());
        let rules = named(&documents, "PrometheusRule", "allod");
        let judged = judge(rules);
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
        let mut wrong = rules.clone();
        wrong["spec"]["groups"][0]["rules"][0]["expr"] = Value::Null;
        assert!(!judge(&wrong).status.success());
        let endpoint = &monitor["spec"]["endpoints"][0];
        assert_eq!(endpoint["path"], "/metrics");
        // The alerts look at jobs whose names begin like this; each job is a register, that of its namespace.
        let job =
            json!({"sourceLabels": ["__meta_kubernetes_namespace"], "targetLabel": "job", "replacement": "allod-$1"});
        assert_eq!(endpoint["relabelings"], json!([job]), "{setup}");
        let scraped = of_kind(&documents, "Service").into_iter().filter(|service| {
            chooses(&monitor["spec"]["selector"]["matchLabels"], &service["metadata"]["labels"])
                && service["spec"]["ports"].as_array().unwrap().iter().any(|port| port["name"] == endpoint["port"])
        });
        // With two such services each node would be scraped twice.
        assert_eq!(scraped.count(), 1);
    }
}

/// The operator's kind around the rules, line by line.
#[test]
fn the_rules_of_the_operator_are_those_of_prometheus() {
    let head = "# deploy/prometheus/rules/allod.yml as the Prometheus Operator takes it: change it there. See kustomization.yaml.\n\
                apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: allod\n  labels:\n    \
                app.kubernetes.io/name: allod\nspec:\n";
    let source = read("deploy/prometheus/rules/allod.yml");
    let wanted = source.lines().fold(head.to_owned(), |text, line| text + format!("  {line}").trim_end() + "\n");
    if std::env::var_os("ALLOD_BLESS").is_some() {
        std::fs::write(here(RULES), &wanted).unwrap();
    }
    assert!(
        read(RULES) == wanted,
        "{RULES} is not made of deploy/prometheus/rules/allod.yml: run this with ALLOD_BLESS=1"
    );
    assert_eq!(yaml(&wanted)[0]["spec"], yaml(&source)[0]);
}

/// Every selector of pods chooses some that exist, and every port that is named is one of theirs.
#[test]
fn selectors_and_ports_lead_to_pods() {
    needs!(["kubectl"]);
    for setup in SETUPS {
        let (_, documents) = built(setup);
        let sets = of_kind(&documents, "StatefulSet");
        let pods = |selector: &Value| {
            let template = |set: &&&Value| chooses(selector, &set["spec"]["template"]["metadata"]["labels"]);
            sets.iter().find(template).unwrap_or_else(|| panic!("{setup}: nothing has {selector}"))
        };
        let has_port = |set: &Value, port: &Value| {
            let containers = set["spec"]["template"]["spec"]["containers"].as_array().unwrap();
            let mut ports = containers.iter().flat_map(|container| container["ports"].as_array().unwrap());
            assert!(
                ports.any(|known| known["name"] == *port || known["containerPort"] == *port),
                "{setup}: {} has no port {port}",
                set["metadata"]["name"]
            );
        };
        for service in of_kind(&documents, "Service") {
            let set = pods(&service["spec"]["selector"]);
            for port in service["spec"]["ports"].as_array().unwrap() {
                has_port(set, port.get("targetPort").unwrap_or(&port["port"]));
            }
        }
        for budget in of_kind(&documents, "PodDisruptionBudget") {
            pods(&budget["spec"]["selector"]["matchLabels"]);
        }
        for policy in of_kind(&documents, "NetworkPolicy") {
            let set = pods(&policy["spec"]["podSelector"]["matchLabels"]);
            for rule in policy["spec"]["ingress"].as_array().unwrap() {
                assert!(rule["from"].as_array().is_some_and(|from| !from.is_empty()), "everybody is let in");
                rule["ports"].as_array().unwrap().iter().for_each(|port| has_port(set, &port["port"]));
            }
            // Our own pods accept only those they know, so what one policy lets out, the other must let in.
            for rule in policy["spec"]["egress"].as_array().unwrap() {
                let own = |to: &&Value| to.get("namespaceSelector").is_none();
                for to in rule["to"].as_array().unwrap().iter().filter(own) {
                    let set = pods(&to["podSelector"]["matchLabels"]);
                    rule["ports"].as_array().unwrap().iter().for_each(|port| has_port(set, &port["port"]));
                }
            }
        }
        for set in &sets {
            let service = named(&documents, "Service", set["spec"]["serviceName"].as_str().unwrap());
            assert_eq!(service["spec"]["clusterIP"], "None", "pods have names by a headless service");
            for container in set["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    for kind in ["httpGet", "tcpSocket"] {
                        container[probe].get(kind).into_iter().for_each(|ask| has_port(set, &ask["port"]));
                    }
                }
            }
        }
    }
}

/// A full or restored register still answers reads, renewals, releases and claims; readiness decides whether clients can ask
/// for them.
#[test]
fn clients_are_led_to_a_node_that_answers_though_it_grants_nothing() {
    needs!(["kubectl"]);
    for setup in SETUPS {
        let (_, documents) = built(setup);
        let container = &named(&documents, "StatefulSet", "allod")["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz?answers");
        // Clients are also led away from a node that does not reach the owner, or is being stopped.
        let clients = &named(&documents, "Service", "allod")["spec"];
        assert_eq!(clients.get("publishNotReadyAddresses"), None);
    }
}

/// A size as a file of Redis or a manifest writes it: `1gb`, `3Gi`.
fn bytes(size: &str) -> u64 {
    let (number, unit) = size.split_at(size.find(|c: char| !c.is_ascii_digit()).unwrap());
    let shift = match unit {
        "mb" | "Mi" => 20,
        "gb" | "Gi" => 30,
        other => panic!("{size}: what is {other}?"),
    };
    number.parse::<u64>().unwrap() << shift
}

/// The limit of a pod kills Redis; its own limit refuses writes and goes on with the rest.
#[test]
fn a_full_redis_refuses_before_its_pod_is_killed_and_history_alone_does_not_fill_it() {
    needs!(["kubectl"]);
    let (_, documents) = built("cluster");
    let maps = of_kind(&documents, "ConfigMap");
    let file = maps.iter().find_map(|map| map["data"]["register.conf"].as_str()).unwrap();
    let set = |key: &str| {
        let value = file.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("register.conf sets no {key}"))
    };
    let maxmemory = bytes(set("maxmemory"));
    let redis = &named(&documents, "StatefulSet", "redis")["spec"]["template"]["spec"]["containers"][0];
    let limit = bytes(redis["resources"]["limits"]["memory"].as_str().unwrap());
    // A copy of the process rewrites the file, and the backlog comes on top.
    assert!(limit >= 2 * maxmemory + bytes(set("repl-backlog-size")), "{limit} for twice {maxmemory}");

    let node = &named(&documents, "StatefulSet", "allod")["spec"]["template"]["spec"]["containers"][0];
    let keeps = |variable: &&Value| variable["name"] == "ALLOD_HISTORY__KEEP_BYTES";
    let history = node["env"].as_array().unwrap().iter().find(keeps).unwrap()["value"].as_str().unwrap();
    let beside = yaml(&read("deploy/compose/compose.yaml")).remove(0);
    assert_eq!(beside["x-settings"]["ALLOD_HISTORY__KEEP_BYTES"], history, "the same file of Redis");
    // The requests of the pods are made for this plan; `plan` asks for a fifth more than the usual memory.
    let plan = ok(Command::new(allod())
        .args(["plan", "--networks", "100", "--reservations", "100000", "--store", "redis"])
        .args(["--allocations-per-second", "1", "--format", "json", "--history-bytes", history]));
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let usual = plan["sizing"]["redis_memory"]["usual"].as_u64().unwrap_or_else(|| panic!("{plan}"));
    assert!(maxmemory >= usual + usual / 5, "{maxmemory} for {usual}");
}

/// The restricted standard of Kubernetes, which the namespace enforces, and a disk that is kept.
#[test]
fn pods_are_confined_and_keep_their_files() {
    needs!(["kubectl"]);
    for setup in SETUPS {
        let (_, documents) = built(setup);
        for set in of_kind(&documents, "StatefulSet") {
            let pod = &set["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            assert_eq!(pod["automountServiceAccountToken"], false);
            assert_eq!(
                set["spec"]["persistentVolumeClaimRetentionPolicy"],
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
            );
            let claim = &set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
            for container in pod["containers"].as_array().unwrap() {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false);
                assert_eq!(context["readOnlyRootFilesystem"], true);
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
                let mut mounts = container["volumeMounts"].as_array().unwrap().iter();
                assert!(mounts.any(|mount| mount["name"] == *claim), "{container}");
            }
        }
    }
}

/// The server accepts the container's command with the environment that a pod named `allod-0` has.
#[test]
fn the_server_takes_the_settings_of_its_pod() {
    needs!(["kubectl"]);
    let dockerfile = crate::tools::read("deploy/Dockerfile");
    for setup in SETUPS {
        let (_, documents) = built(setup);
        let set = named(&documents, "StatefulSet", "allod");
        let pod = &set["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let user = pod["securityContext"]["runAsUser"].to_string();
        assert!(dockerfile.contains(&format!("USER {user}:{user}\n")));
        let mut environment = BTreeMap::from([("ALLOD_SERVER__NODE".to_owned(), "allod-0".to_owned())]);
        for variable in container["env"].as_array().unwrap() {
            if let Some(value) = variable["value"].as_str() {
                let value = value.replace("$(ALLOD_SERVER__NODE)", "allod-0");
                environment.insert(variable["name"].as_str().unwrap().to_owned(), value);
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let config = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "config").unwrap();
        let map = named(&documents, "ConfigMap", config["configMap"]["name"].as_str().unwrap());
        let file = directory.path().join("server.toml");
        std::fs::write(&file, map["data"]["server.toml"].as_str().unwrap()).unwrap();
        // What is mounted in the pod is in another place here.
        if let Some(secret) = environment.get_mut("ALLOD_CLUSTER__SECRET_FILE") {
            let here = directory.path().join("secret");
            std::fs::write(&here, "0123456789abcdef").unwrap();
            *secret = here.display().to_string();
        }
        ok(Command::new(allod()).arg("check-config").arg(&file).envs(&environment));
        environment.insert("ALLOD_STORE__KIND".to_owned(), "nonsense".to_owned());
        let refused = Command::new(allod()).arg("check-config").arg(&file).envs(&environment).output().unwrap();
        assert!(!refused.status.success(), "the environment counts");

        // Both commands of the container parse.
        let arguments = texts(&container["args"]);
        assert_eq!(arguments, ["serve", "--config", "/etc/allod/server.toml", "--data", "/var/lib/allod"]);
        let hook = texts(&container["lifecycle"]["preStop"]["exec"]["command"]);
        assert!(dockerfile.contains(&format!("ENTRYPOINT [\"{}\"]", hook[0])));
        let drained = Command::new(allod()).args(&hook[1..]).env("ALLOD_SERVER", "127.0.0.1:1").output().unwrap();
        assert_eq!(
            drained.status.code(),
            Some(3),
            "it parses, and finds no server: {}",
            String::from_utf8_lossy(&drained.stderr)
        );
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        // The hook waits as long as a handover may take. While a register is being written anew, this node has its only copy.
        let drain = allod::limits::DRAIN_WAIT_SECONDS;
        assert_eq!(hook[1..], ["cluster", "drain", "--timeout", &format!("{drain}s")]);
        assert!(grace >= drain + 300 + 2 * allod::config::Config::default().server.shutdown_seconds);
    }
    assert!(here("deploy/kubernetes").starts_with(ROOT));
}
