//! The pod that does one thing while no node runs, made as `deploy/README.md` says.

use std::process::Command;

use serde_json::{Value, json};

use crate::kubernetes::{SETUPS, built, named};
use crate::server::allod;
use crate::tools::{needs, ok, read, texts, yaml};

/// A volume that is made by hand.
const DATA: &str = "deploy/kubernetes/once/data.yaml";

/// The commands of the page for the first set-up, changed for this set-up, and without the part that applies them to a cluster.
fn commands(setup: &str) -> Vec<String> {
    let page = read("deploy/README.md");
    let told =
        page.lines().filter_map(|line| line.trim_start().strip_prefix("$ ")?.strip_suffix(" | kubectl apply -f -"));
    let commands: Vec<String> =
        told.map(|command| command.replace("/once/one-node", &format!("/once/{setup}"))).collect();
    assert_eq!(commands.len(), 3, "a flag, a backup, a restore");
    commands
}

#[test]
fn what_the_page_has_done_once_fits_the_schemas_and_is_what_the_program_takes() {
    needs!(["kubectl", "kubernetes-validate", "sed"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("once");
    for command in SETUPS.iter().flat_map(|setup| commands(setup)) {
        let text = ok(Command::new("sh").args(["-c", &command]));
        std::fs::write(&file, format!("{text}---\n{}", read(DATA))).unwrap();
        for version in ["1.29", "1.37"] {
            ok(Command::new("kubernetes-validate").args(["--strict", "--quiet", "-k", version]).arg(&file));
        }
        let documents = yaml(&text);
        let arguments = texts(&named(&documents, "Pod", "allod-once")["spec"]["containers"][0]["args"]);
        assert!(arguments.contains(&"/var/lib/allod".to_owned()), "{arguments:?}");
        ok(Command::new(allod()).args(arguments).arg("--help"));
    }
}

/// The environment of a container, without its node's name and without the address for other nodes, which nobody uses here.
fn settings(container: &Value) -> Vec<&Value> {
    let of_pod = ["ALLOD_SERVER__NODE", "ALLOD_CLUSTER__ADVERTISE"];
    let settings = container["env"].as_array().unwrap().iter();
    let mut settings: Vec<_> = settings.filter(|setting| of_pod.iter().all(|name| setting["name"] != *name)).collect();
    settings.sort_by_key(|setting| setting["name"].as_str());
    settings
}

/// A pod that lacks the settings of the store would begin a register elsewhere.
#[test]
fn what_is_done_once_has_the_volume_the_store_and_the_confinement_of_a_node() {
    needs!(["kubectl"]);
    for setup in SETUPS {
        let ((_, nodes), (_, once)) = (built(setup), built(&format!("once/{setup}")));
        let set = named(&nodes, "StatefulSet", "allod");
        let (node, pod) = (&set["spec"]["template"]["spec"], &named(&once, "Pod", "allod-once")["spec"]);
        for key in
            ["securityContext", "serviceAccountName", "automountServiceAccountToken", "terminationGracePeriodSeconds"]
        {
            assert_eq!(pod[key], node[key], "{key}");
        }
        assert_eq!(pod["restartPolicy"], "Never", "once");
        let (container, of_node) = (&pod["containers"][0], &node["containers"][0]);
        for key in ["image", "resources", "securityContext"] {
            assert_eq!(container[key], of_node[key], "{key}");
        }
        assert_eq!(settings(container), settings(of_node), "{setup}");
        // The pod has the node's files and its secret; the settings for ports are of no use here.
        for mount in of_node["volumeMounts"].as_array().unwrap().iter().filter(|mount| mount["name"] != "config") {
            assert!(container["volumeMounts"].as_array().unwrap().contains(mount), "{setup}: {mount}");
        }
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-allod-0"}});
        assert!(pod["volumes"].as_array().unwrap().contains(&claim), "{pod}");
        let data = yaml(&read(DATA)).remove(0);
        assert_eq!(data["metadata"]["name"], "data-allod-0");
        assert_eq!(data["spec"], set["spec"]["volumeClaimTemplates"][0]["spec"], "as the set makes it");
    }
    // Redis lets the pod in, and no client is led to it.
    let ((_, nodes), (_, once)) = (built("cluster"), built("once/cluster"));
    let labels = &named(&once, "Pod", "allod-once")["metadata"]["labels"];
    let let_in = named(&nodes, "NetworkPolicy", "redis")["spec"]["ingress"][0]["from"].as_array().unwrap();
    assert!(let_in.iter().any(|from| from["podSelector"]["matchLabels"] == *labels), "{let_in:?}");
    assert_ne!(named(&nodes, "Service", "allod")["spec"]["selector"], *labels);
}
