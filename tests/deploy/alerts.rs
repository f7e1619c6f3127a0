//! The alert rules: promtool accepts them, each has a story that makes it fire, their metrics exist, and the page says what
//! to do.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::dashboards::queries;
use crate::server::{Starting, http_get};
use crate::tools::{needs, ok, read, yaml};

const RULES: &str = "deploy/prometheus/rules/allod.yml";
const STORIES: &str = "deploy/prometheus/tests/allod.yml";

/// Name and expression of each alert.
pub fn alerts() -> Vec<(String, String)> {
    let rules = &yaml(&read(RULES))[0];
    let groups = rules["groups"].as_array().unwrap();
    let all = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, member: &str| rule[member].as_str().unwrap().to_owned();
    all.map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect()
}

#[test]
fn promtool_takes_the_rules_and_their_stories_come_true() {
    needs!(["promtool"]);
    ok(Command::new("promtool").args(["check", "rules", RULES]));
    ok(Command::new("promtool").args(["test", "rules", STORIES]));
}

#[test]
fn every_alert_has_a_story_in_which_it_fires() {
    let stories = &yaml(&read(STORIES))[0];
    let told: BTreeSet<String> = stories["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|story| story["alert_rule_test"].as_array().unwrap())
        .filter(|test| test["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()))
        .map(|test| test["alertname"].as_str().unwrap().to_owned())
        .collect();
    let missing: Vec<_> = alerts().into_iter().map(|(name, _)| name).filter(|name| !told.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} never fire in {STORIES}");
}

/// The windows of the rules are made for this interval: with a longer one, copied from the page, they would contain fewer
/// scrapes.
#[test]
fn who_follows_the_page_scrapes_as_often_as_the_rules_want() {
    let page = read("deploy/README.md");
    let example = page.split("```").find(|part| part.starts_with("yaml\nscrape_configs:")).unwrap();
    let example = &yaml(example.trim_start_matches("yaml"))[0]["scrape_configs"][0];
    let compose = &yaml(&read("deploy/prometheus/prometheus.yml"))[0]["global"];
    let monitor = &yaml(&read("deploy/kubernetes/monitoring/servicemonitor.yaml"))[0]["spec"]["endpoints"][0];
    for every in [&example["scrape_interval"], &compose["scrape_interval"], &monitor["interval"]] {
        assert_eq!(every, "15s");
    }
}

/// The words of a text that look like metrics, without what a histogram adds to its name.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("allod_"));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn alerts_are_over_metrics_that_exist_and_the_page_says_what_to_do() {
    let figures = ["capacity", "node", "process"].map(|file| read(&format!("src/actors/figures/{file}.rs"))).concat();
    let sources = read("src/metrics.rs") + &figures;
    let page = read("deploy/README.md");
    for (alert, expression) in alerts() {
        for metric in metrics_in(&expression) {
            assert!(sources.contains(&format!("\"{metric}\"")), "{alert}: there is no {metric}");
        }
        assert!(page.contains(&format!("`{alert}`")), "deploy/README.md says nothing of {alert}");
    }
}

/// A Redis that keeps no file comes up empty, and empties its replicas.
#[test]
fn who_is_told_to_restart_redis_is_told_first_where_that_loses_the_register() {
    let page = read("deploy/README.md");
    let rows = page.lines().filter(|line| line.starts_with("| `Allod"));
    let mut told = 0;
    for (before, after) in rows.filter_map(|row| row.split_once("`systemctl restart redis-server`")) {
        told += 1;
        assert!(before.contains("keeps a file (`appendonly yes`"), "{before}");
        assert!(after.contains("**never restart it**") && after.contains("(#redis-failed-over), step 2"), "{after}");
    }
    assert_eq!(told, 1);
}

/// A metric, and each of its labels that is compared, with the values.
type Asked<'a> = (&'a str, Vec<(&'a str, Vec<&'a str>)>);

/// The series whose rise an expression asks for.
fn rising(expression: &str) -> Vec<Asked<'_>> {
    let asked = ["rate(", "increase("].into_iter().flat_map(|function| expression.split(function).skip(1));
    asked.map(|rest| series(rest.split('[').next().unwrap())).collect()
}

/// Reads `METRIC` or `METRIC{LABEL="VALUE",LABEL=~"VALUE|VALUE"}`.
fn series(text: &str) -> Asked<'_> {
    let (metric, labels) = text.split_once('{').unwrap_or((text, ""));
    let compared = labels.split("\",").filter_map(|label| label.split_once("=~\"").or(label.split_once("=\"")));
    (metric, compared.map(|(label, of)| (label, of.trim_end_matches(['"', '}']).split('|').collect())).collect())
}

/// A row that appears only with its first count shows no rise: nobody would hear of one failure, or of a first burst of them.
#[test]
fn what_is_asked_for_its_rise_is_told_before_it_rises() {
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::with_store(&directory.path().join("data"), "embedded").ready();
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let told = http_get(server.http, "/metrics");
    let expressions = alerts().into_iter().chain(queries());
    let mut count = 0;
    for (of, expression) in expressions {
        for (metric, labels) in rising(&expression) {
            count += 1;
            let rows: Vec<&str> = told.lines().filter(|row| row.split(['{', ' ']).next() == Some(metric)).collect();
            assert!(!rows.is_empty(), "{of}: there is no row of {metric}");
            for (label, values) in labels {
                // Left out: patterns that match every value, and counts of what one network lacks, because such a request is
                // repeated.
                let is_some = |value: &&str| !value.ends_with(".*") && !["lan", "no_pool_fits"].contains(value);
                for value in values.into_iter().filter(is_some) {
                    let is_told = rows.iter().any(|row| row.contains(&format!("{label}=\"{value}\"")));
                    assert!(is_told, "{of}: of {metric} there is no row with {label} {value}: {rows:#?}");
                }
            }
        }
    }
    assert!(count > 20, "{count}");
}
