//! allod compared with alternatives: each subject hands out addresses, and its ratio is printed.

use serde_json::Value;

use crate::program::{is_there, load, said};
use crate::skips::skip;

const SMALL: &[&str] =
    &["--seconds", "0.4", "--rounds", "1", "--connections", "2", "--depth", "4", "--pool", "18", "--json"];

/// The rows of a comparison with this alternative, without the first, which is allod. None if it is not installed; then the
/// test reports that it was skipped.
fn rows(rival: &str, more: &[&str]) -> Option<Vec<Value>> {
    let output = load().args(["compare", "--with", rival]).args(SMALL).args(more).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let mut comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    if comparison["not_measured"] != serde_json::json!([]) {
        skip(&comparison["not_measured"].to_string());
        return None;
    }
    let rows: Vec<Value> = serde_json::from_value(comparison["rows"].take()).unwrap();
    assert_eq!((&rows[0]["subject"], &rows[0]["allod_is_times"]), (&"allod, embedded".into(), &1.0.into()));
    for row in &rows {
        let (rate, ratio) = (row["per_second"].as_f64().unwrap(), row["allod_is_times"].as_f64().unwrap());
        assert!(rate > 0.0 && (rows[0]["per_second"].as_f64().unwrap() / rate - ratio).abs() < 1e-6 * ratio, "{row}");
        assert_eq!(row["duplicates"], 0, "{row}");
    }
    Some(rows[1..].to_vec())
}

#[test]
fn redis_scripts_hand_out_addresses_and_none_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (directory.path().join("compared.json"), directory.path().join("compared.html"));
    let more = ["--appendfsync", "off", "--save", file.to_str().unwrap(), "--page", page.to_str().unwrap()];
    let Some(rows) = rows("redis", &more) else { return };
    let subjects: Vec<String> = rows.iter().map(|row| row["subject"].to_string()).collect();
    for subject in ["allod, redis", "bitmap", "sorted set", "free list"] {
        assert!(subjects.iter().any(|name| name.contains(subject)), "{subject}: {subjects:?}");
    }
    // The printed ratios to the scripts on the same Redis follow from the rates.
    let over_redis = rows[0]["per_second"].as_f64().unwrap();
    for row in &rows {
        let (rate, ratio) = (row["per_second"].as_f64().unwrap(), row["allod_redis_is_times"].as_f64().unwrap());
        assert!((over_redis / rate - ratio).abs() < 1e-6 * ratio, "{row}");
    }
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(saved["runs"].as_array().unwrap().len(), 5);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(subjects.iter().all(|subject| page.contains(subject.trim_matches('"'))), "{subjects:?}");
}

#[test]
fn postgresql_hands_out_addresses_by_skipping_what_is_locked() {
    let Some(rows) = rows("postgres", &[]) else { return };
    assert_eq!(rows.len(), 1);
    let (p50, p99) = (rows[0]["p50_ms"].as_f64().unwrap(), rows[0]["p99_ms"].as_f64().unwrap());
    assert!(p50 > 0.0 && p50 <= p99, "{rows:?}");
}

#[test]
fn kea_hands_out_addresses_by_dhcp() {
    let Some(rows) = rows("kea", &[]) else { return };
    assert_eq!((rows.len(), &rows[0]["subject"]), (1, &"kea dhcp4, memfile".into()));
    assert!(rows[0]["allod_redis_is_times"].is_null(), "nobody measured allod over Redis: {rows:?}");
}

#[test]
fn the_table_of_a_comparison_has_a_ratio_for_each_store_of_allod() {
    if !is_there("redis-server") {
        return skip("there is no redis-server");
    }
    let small = SMALL.iter().filter(|word| **word != "--json");
    let output = load().args(["compare", "--with", "redis"]).args(small).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let table: Vec<Vec<String>> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    let column =
        |name: &str| table[0].iter().position(|cell| cell == name).unwrap_or_else(|| panic!("{name}: {table:?}"));
    for (store, subject) in [("embedded", "allod, embedded"), ("redis", "allod, redis (everysec)")] {
        let at = column(&format!("allod, {store}, is"));
        let own = table.iter().find(|row| row[0] == subject).unwrap();
        assert_eq!(own[at], "1.00×", "{table:?}");
        assert!(table[2..].iter().all(|row| row[at].ends_with('×')), "{table:?}");
    }
}

#[test]
fn what_is_not_installed_is_named_and_not_measured() {
    // Without a path only `allod` is found, in the program's own directory.
    let output = load().args(["compare", "--with", "redis,kea"]).args(SMALL).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = comparison["not_measured"].to_string();
    assert!(named.contains("there is no redis-server") && named.contains("kea"), "{named}");
    assert_eq!(comparison["rows"].as_array().unwrap().len(), 1);
}
