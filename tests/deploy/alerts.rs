//! The alert rules: taken by promtool, each with a story that makes it fire, over metrics that exist, and told what to do.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

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

/// The windows of the rules are made for that: fewer scrapes are in them where somebody copies another interval.
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

/// Words of a text that begin as metrics do; what a histogram adds to its name is left out.
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
