//! The dashboards: their panels do not overlap and have units, and each of their queries is answered by a real Prometheus
//! that scrapes a real server under load.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::prometheus::Prometheus;
use crate::server::Starting;
use crate::tools::{files, here, needs, ok, read, skip};

const DASHBOARDS: &str = "deploy/grafana/dashboards";

fn dashboards() -> Vec<(String, Value)> {
    let paths = files(&here(DASHBOARDS));
    let named = paths.into_iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    named.map(|name| (name.clone(), serde_json::from_str(&read(&format!("{DASHBOARDS}/{name}"))).unwrap())).collect()
}

fn list<'a>(of: &'a Value, member: &str) -> &'a [Value] {
    of[member].as_array().map_or(&[], Vec::as_slice)
}

/// The panels that show something.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(dashboard, "panels").iter().filter(|panel| panel["type"] != "row")
}

#[test]
fn dashboards_are_laid_out_as_grafana_wants_them() {
    let all = dashboards();
    let uids: BTreeSet<&str> = all.iter().map(|(_, dashboard)| dashboard["uid"].as_str().unwrap()).collect();
    assert!(all.len() >= 3 && uids.len() == all.len(), "{uids:?}");
    for (name, dashboard) in &all {
        assert!(dashboard["uid"].as_str().unwrap().len() <= 40);
        let variables: BTreeSet<&str> =
            list(&dashboard["templating"], "list").iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert!(["datasource", "job"].iter().all(|variable| variables.contains(variable)), "{name}");
        // Other programs publish metrics of processes, too, so the variable must not match their jobs.
        assert_eq!(all_of(dashboard, "job"), "allod.*", "{name}");
        for link in list(dashboard, "links") {
            assert!(uids.contains(link["url"].as_str().unwrap().trim_start_matches("/d/")), "{name}: {link}");
        }
        let ids: BTreeSet<u64> = list(dashboard, "panels").iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), list(dashboard, "panels").len(), "{name}: ids");
        let mut places: BTreeSet<(u64, u64)> = BTreeSet::new();
        for panel in list(dashboard, "panels") {
            let place = |member: &str| panel["gridPos"][member].as_u64().unwrap();
            assert!(place("x") + place("w") <= 24, "{name}: {panel}");
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(places.insert((x, y)), "{name}: `{}` lies over another panel", panel["title"]);
                }
            }
        }
        for panel in panels(dashboard) {
            let title = panel["title"].as_str().unwrap();
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title} has no unit");
            assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}: {title}");
            for target in list(panel, "targets") {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
                let expression = target["expr"].as_str().unwrap();
                // One Prometheus may have two registers, so every metric is restricted to the chosen jobs.
                let metrics: usize =
                    ["allod_", "process_", "up{"].map(|of| expression.matches(of).count()).iter().sum();
                assert_eq!(expression.matches("{job=~\"$job\"").count(), metrics, "{name}: {title}: {expression}");
                let used = expression.split('$').skip(1).map(|rest| {
                    rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
                });
                for variable in used {
                    assert!(
                        variable == "__rate_interval" || variables.contains(variable),
                        "{name}: {title}: ${variable}"
                    );
                }
            }
        }
    }
}

/// Grafana escapes a variable for a match only if it may have several values, and names may contain a `.`.
#[test]
fn a_variable_of_one_value_is_compared_as_it_stands() {
    for (name, dashboard) in dashboards() {
        let several = |variable: &str| {
            let mut all = list(&dashboard["templating"], "list").iter();
            all.any(|one| one["name"] == variable && (one["multi"] == true || one["includeAll"] == true))
        };
        for target in panels(&dashboard).flat_map(|panel| list(panel, "targets")) {
            let expression = target["expr"].as_str().unwrap();
            for (before, rest) in expression.match_indices("\"$").map(|(at, _)| expression.split_at(at)) {
                let variable = rest[2..].split('"').next().unwrap();
                assert_eq!(before.ends_with("=~"), several(variable), "{name}: ${variable} in {expression}");
            }
        }
    }
}

/// The labels of each `by (…)` of an expression.
fn grouped(expression: &str) -> Vec<Vec<&str>> {
    let groups = expression.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
    groups.map(|labels| labels.split(',').map(str::trim).collect()).collect()
}

/// Two registers may have networks, subnets and pools of the same names.
#[test]
fn what_is_told_of_a_network_is_told_of_its_register() {
    for (name, dashboard) in dashboards() {
        for target in panels(&dashboard).flat_map(|panel| list(panel, "targets")) {
            let expression = target["expr"].as_str().unwrap();
            for labels in grouped(expression) {
                let of_a_register = ["realm", "network", "subnet", "pool"].iter().any(|label| labels.contains(label));
                assert!(!of_a_register || labels.contains(&"job"), "{name}: {expression}");
            }
        }
    }
}

/// Every query with its dashboard, and with values for its variables.
pub fn queries() -> Vec<(String, String)> {
    let of = |(name, dashboard): (String, Value)| {
        let targets: Vec<Value> = panels(&dashboard).flat_map(|panel| list(panel, "targets").to_vec()).collect();
        targets.into_iter().map(move |target| (name.clone(), filled(&dashboard, target["expr"].as_str().unwrap())))
    };
    dashboards().into_iter().flat_map(of).collect()
}

/// The value of a variable if everything is chosen.
fn all_of(dashboard: &Value, variable: &str) -> String {
    let found = list(&dashboard["templating"], "list").iter().find(|one| one["name"] == variable);
    found.and_then(|one| one["allValue"].as_str()).unwrap_or(".*").to_owned()
}

/// Fills in all registers, realms and nodes, and the network `lan`.
fn filled(dashboard: &Value, expression: &str) -> String {
    let query = expression.replace("$__rate_interval", "1m").replace("$network", "lan");
    let all = |query: String, variable: &&str| query.replace(&format!("${variable}"), &all_of(dashboard, variable));
    ["job", "realm", "instance"].iter().fold(query, all)
}

/// The panel of this title.
fn panel(dashboard: &str, title: &str) -> Value {
    let (_, dashboard) = dashboards().into_iter().find(|(name, _)| name == dashboard).unwrap();
    panels(&dashboard).find(|panel| panel["title"] == title).unwrap().clone()
}

/// The first query of a panel, and its legend.
fn query_of(dashboard: &str, title: &str) -> (String, String) {
    let panel = panel(dashboard, title);
    let (_, dashboard) = dashboards().into_iter().find(|(name, _)| name == dashboard).unwrap();
    let target = &list(&panel, "targets")[0];
    let text = |member: &str| target[member].as_str().unwrap().to_owned();
    (filled(&dashboard, &text("expr")), text("legendFormat"))
}

/// Checks with promtool that, given these series of constant value, the first query of a panel finds these samples.
#[track_caller]
fn finds(series: &[(&str, u32)], (dashboard, title): (&str, &str), samples: &[(&str, u32)]) {
    let series: Vec<_> =
        series.iter().map(|(series, value)| json!({"series": series, "values": format!("{value}x8")})).collect();
    let samples: Vec<_> = samples.iter().map(|(labels, value)| json!({"labels": labels, "value": value})).collect();
    let (query, _) = query_of(dashboard, title);
    let asked = json!([{"expr": query, "eval_time": "1m", "exp_samples": samples}]);
    let story = json!({"tests": [{"interval": "15s", "input_series": series, "promql_expr_test": asked}]});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), story.to_string()).unwrap();
    ok(Command::new("promtool").args(["test", "rules"]).arg(file.path()));
}

/// When the last node of a register dies, its own metrics are gone; that it is scraped remains.
#[test]
fn of_several_registers_one_that_nobody_serves_or_whose_nodes_are_dead_is_shown_so() {
    needs!(["promtool"]);
    let series = [
        ("up{job=\"allod-dead\",instance=\"a\"}", 0),
        ("up{job=\"allod-east\",instance=\"b\"}", 1),
        ("up{job=\"allod-east\",instance=\"c\"}", 0),
        ("allod_owner{job=\"allod-east\",instance=\"b\"}", 1),
        ("allod_store_ready{job=\"allod-east\",instance=\"b\"}", 1),
        ("up{job=\"allod-nobody\",instance=\"d\"}", 1),
        ("allod_owner{job=\"allod-nobody\",instance=\"d\"}", 0),
        ("up{job=\"node-exporter\",instance=\"e\"}", 1),
    ];
    let shown = [("{job=\"allod-dead\"}", 0), ("{job=\"allod-east\"}", 1), ("{job=\"allod-nobody\"}", 0)];
    for title in ["Owners", "Store takes changes"] {
        finds(&series, ("overview.json", title), &shown);
        assert_eq!(query_of("overview.json", title).1, "{{job}}");
    }
    let nodes = [
        ("{job=\"allod-dead\",instance=\"a\"}", 0),
        ("{job=\"allod-east\",instance=\"b\"}", 1),
        ("{job=\"allod-east\",instance=\"c\"}", 0),
        ("{job=\"allod-nobody\",instance=\"d\"}", 0),
    ];
    finds(&series, ("nodes.json", "Owner"), &nodes);
    assert_eq!(query_of("overview.json", "Networks").0, "sum(max by (job) (allod_networks{job=~\"allod.*\"}))");
}

/// A network with no pool of a family has nothing left of it, and that is no trouble: it is not shown as one that is full.
#[test]
fn nothing_is_said_to_be_left_of_a_family_that_a_network_grants_nothing_of_or_in_a_network_that_nobody_serves() {
    needs!(["promtool"]);
    let of = |network: &str| format!("job=\"allod\",realm=\"r\",network=\"{network}\"");
    let told = format!("allod_network_reservations{{{}}}", of("lan"));
    let six = |metric: &str, network: &str| format!("allod_network_addresses_{metric}{{{},family=\"6\"}}", of(network));
    let (left, size) = (six("grantable", "lan"), six("grantable_size", "lan"));
    let (other, of_other) = (six("grantable", "other"), six("grantable_size", "other"));
    // How much is left, of how much, and what is shown; of a size of 0 all pools are static.
    for (count, all, shown) in [(200, 256, Some(200)), (0, 256, Some(0)), (0, 0, None)] {
        let series = [(&*told, 3), (&*left, count), (&*size, all), (&*other, 7), (&*of_other, 7)];
        let samples: Vec<_> = shown.map(|count| ("{}", count)).into_iter().collect();
        finds(&series, ("network.json", "Left, IPv6"), &samples);
        finds(&series, ("network.json", "Left, IPv4"), &[]);
        finds(&series, ("network.json", "Largest free block, IPv4"), &[("{}", 0)]);
    }
    for title in ["Left, IPv4", "Left, IPv6", "Largest free block, IPv4"] {
        finds(&[("up{job=\"allod\"}", 0)], ("network.json", title), &[]);
    }
    // Grafana shows what has no value in the colour of the lowest step.
    for title in ["Left, IPv4", "Left, IPv6"] {
        let defaults = panel("network.json", title)["fieldConfig"]["defaults"].clone();
        let steps: Vec<_> =
            list(&defaults["thresholds"], "steps").iter().map(|step| (&step["value"], &step["color"])).collect();
        assert!(steps[0].0.is_null() && *steps[0].1 != "red" && steps[1] == (&json!(0), &json!("red")), "{steps:?}");
        assert!(defaults["noValue"].is_string(), "{title}");
    }
}

#[test]
fn every_column_of_a_table_has_a_place_and_a_name() {
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard).filter(|panel| panel["type"] == "table") {
            let title = format!("{name}: {}", panel["title"]);
            let columns = &list(panel, "transformations")[0]["options"];
            for target in list(panel, "targets") {
                let labels = grouped(target["expr"].as_str().unwrap()).swap_remove(0);
                for column in labels.into_iter().chain(["Value"]) {
                    assert!(columns["indexByName"][column].is_u64(), "{title}: {column}");
                    assert!(columns["renameByName"][column].is_string(), "{title}: {column}");
                }
            }
            // A share of grantable addresses is not called free, and a coloured column exists.
            let names = columns["renameByName"].as_object().unwrap();
            assert!(names.values().all(|name| name != "Free"), "{title}");
            for one in list(&panel["fieldConfig"], "overrides") {
                assert!(names.values().any(|name| *name == one["matcher"]["options"]), "{title}: {one}");
            }
        }
    }
}

/// Grafana's own schema of a dashboard: the names of members and their types. `Plain` accepts a text for an enumerated
/// value, and lets members be left out, which then have their defaults.
const SCHEMA: &str = "
import type { Dashboard } from '@grafana/schema';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
    : T extends object ? { [K in keyof T]?: Plain<T[K]> } : T;
";

/// The dashboards as expressions of that type, and the options of their panels.
fn typed() -> String {
    let mut text = SCHEMA.to_owned();
    for (_, dashboard) in dashboards() {
        text += &format!("({dashboard}) satisfies Plain<Dashboard>;\n");
        for panel in panels(&dashboard) {
            let (kind, options) = (panel["type"].as_str().unwrap(), &panel["options"]);
            text += &format!("({options}) satisfies Plain<{kind}.Options>;\n");
            let custom = &panel["fieldConfig"]["defaults"]["custom"];
            if custom.is_object() {
                text += &format!("({custom}) satisfies Plain<{kind}.FieldConfig>;\n");
            }
        }
    }
    text
}

#[test]
fn dashboards_fit_grafanas_own_schema() {
    needs!(["node"]);
    let is_there = |at: &PathBuf| ["@grafana/schema", "typescript"].iter().all(|package| at.join(package).exists());
    let Some(modules) = std::env::var_os("NODE_PATH").map(PathBuf::from).filter(is_there) else {
        return skip("there is no @grafana/schema, or no typescript, in NODE_PATH");
    };
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&modules, directory.path().join("node_modules")).unwrap();
    let judged = |text: &str| {
        let file = directory.path().join("dashboards.ts");
        std::fs::write(&file, text).unwrap();
        let mut checker = Command::new("node");
        checker.arg(modules.join("typescript/bin/tsc")).current_dir(directory.path());
        let options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"];
        let output = checker.args(options).args(["--module", "preserve"]).arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let text = typed();
    let (good, said) = judged(&text);
    assert!(good, "{said}");
    // The checker would find a mistake, both in a dashboard and in the options of a panel.
    for (member, wrong) in
        [("\"gridPos\"", "\"gridPosition\""), ("\"lineWidth\"", "\"lineWidht\""), ("\"multi\"", "\"many\"")]
    {
        let (before, behind) = text.rsplit_once(member).unwrap();
        let (good, said) = judged(&format!("{before}{wrong}{behind}"));
        assert!(!good && said.contains(wrong.trim_matches('"')), "{wrong}: {said}");
    }
}

#[test]
fn every_query_of_the_dashboards_is_answered_over_a_server_under_load() {
    needs!(["prometheus", "python3"]);
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::with_store(&directory.path().join("data"), "embedded").ready();
    let prometheus = Prometheus::scraping(&[server.http], "1s", "");
    server.allod_ok(&[
        "network",
        "create",
        "lan",
        "--subnet",
        "10.0.0.0/24,gateway=10.0.0.1",
        "--subnet",
        "2001:db8::/120",
    ]);
    server.allod_ok(&["network", "create", "of-four", "--realm", "four", "--subnet", "10.0.0.0/24"]);
    let mut unanswered = queries();
    assert!(unanswered.len() > 30, "{}", unanswered.len());
    // This one exists only while a disk is full.
    unanswered.retain(|(_, query)| !query.starts_with("allod_store_left_for_releases_bytes"));
    let end = Instant::now() + Duration::from_secs(120);
    let mut n = 0;
    // The state of a register must not depend on the node that publishes it: after a take-over everything would be there twice.
    let of_the_register = |name: &str| name != "nodes.json";
    while !unanswered.is_empty() {
        assert!(Instant::now() < end, "no series: {unanswered:#?}");
        // Makes a little of everything that the dashboards show.
        let owner = format!("o{n}");
        server.allod_ok(&["ip", "allocate", "lan", "--owner", &owner]);
        if n % 3 == 0 {
            server.allod_ok(&["ip", "release", "lan", "--owner", &owner, "--yes"]);
        }
        n += 1;
        unanswered.retain(|(name, query)| {
            let series = prometheus.series(query).unwrap_or_default();
            let of_a_node = series.iter().any(|one| one["metric"]["instance"].is_string());
            assert!(!of_a_node || !of_the_register(name), "{name}: {query}");
            series.is_empty()
        });
        std::thread::sleep(Duration::from_millis(300));
    }
    // A network that grants nothing of IPv6 is not one with nothing left of it.
    for (family, is_shown) in [("4", true), ("6", false)] {
        let (query, _) = query_of("network.json", &format!("Left, IPv{family}"));
        let series = prometheus.series(&query.replace("\"lan\"", "\"of-four\"")).unwrap();
        assert_eq!(!series.is_empty(), is_shown, "{query}: {series:?}");
    }
    // The pictures are drawn from the same data.
    for (name, dashboard) in dashboards() {
        let drawn = ok(Command::new("deploy/grafana/draw")
            .args(["--prometheus", &format!("http://{}", prometheus.address), "--range", "2m", "--rate", "1m"])
            .arg(format!("{DASHBOARDS}/{name}")));
        for panel in list(&dashboard, "panels") {
            let title = panel["title"].as_str().unwrap();
            assert!(drawn.contains(&format!(">{title}</text>")), "{name}: {title} is not drawn");
        }
        assert!(!drawn.contains("no data") && drawn.ends_with("</svg>\n"), "{name}: {drawn}");
    }
}
