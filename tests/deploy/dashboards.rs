//! The dashboards: laid out without overlap, with units, and each of their queries answered by a real Prometheus that
//! scrapes a real server under load.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

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

/// Panels that show something.
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
                // Two registers in one Prometheus are told apart: everything is of the jobs that were chosen.
                let metrics = expression.matches("allod_").count() + expression.matches("process_").count();
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

/// Grafana escapes what is matched only where a variable may have several values, and names may have a `.` in them.
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

/// Labels of each `by (…)` of an expression.
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

#[test]
fn several_registers_have_an_owner_each_and_their_networks_together() {
    let (_, overview) = dashboards().into_iter().find(|(name, _)| name == "overview.json").unwrap();
    let target = |title: &str| {
        let panel = panels(&overview).find(|panel| panel["title"] == title).unwrap();
        list(panel, "targets")[0].clone()
    };
    let owners = target("Owners");
    assert_eq!(owners["expr"], "sum by (job) (allod_owner{job=~\"$job\"})");
    assert_eq!(owners["legendFormat"], "{{job}}");
    assert_eq!(target("Networks")["expr"], "sum(max by (job) (allod_networks{job=~\"$job\"}))");
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
            // A share that is not free but grantable is not called so, and what is coloured is there.
            let names = columns["renameByName"].as_object().unwrap();
            assert!(names.values().all(|name| name != "Free"), "{title}");
            for one in list(&panel["fieldConfig"], "overrides") {
                assert!(names.values().any(|name| *name == one["matcher"]["options"]), "{title}: {one}");
            }
        }
    }
}

/// What Grafana itself says a dashboard is: names of members and what they may be. `Plain` lets a text stand for an
/// enumerated value, and members be left out, which have their defaults then.
const SCHEMA: &str = "
import type { Dashboard } from '@grafana/schema';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
    : T extends object ? { [K in keyof T]?: Plain<T[K]> } : T;
";

/// The dashboards as expressions of that type, each with the options of its panels.
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
    // It would say so, of the dashboard and of the options of a panel.
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
    let queries: Vec<(String, String)> = dashboards()
        .into_iter()
        .flat_map(|(name, dashboard)| {
            let targets: Vec<Value> = panels(&dashboard).flat_map(|panel| list(panel, "targets").to_vec()).collect();
            targets.into_iter().map(move |target| (name.clone(), target["expr"].as_str().unwrap().to_owned()))
        })
        .collect();
    assert!(queries.len() > 30, "{}", queries.len());
    let mut unanswered: Vec<(String, String)> = queries
        .into_iter()
        .map(|(name, query)| {
            let query = query.replace("$__rate_interval", "1m").replace("$network", "lan");
            (name, ["$job", "$realm", "$instance"].iter().fold(query, |query, variable| query.replace(variable, ".*")))
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(120);
    let mut n = 0;
    // Which node answers is no part of what a register has: after a takeover everything would be there twice.
    let of_the_register = |name: &str| name != "nodes.json";
    while !unanswered.is_empty() {
        assert!(Instant::now() < end, "no series: {unanswered:#?}");
        // Some of everything that they show.
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
    // They are drawn from the same.
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
