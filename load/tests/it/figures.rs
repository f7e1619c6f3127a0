//! Figures that add up whatever the server does: with full pools, silence, or arrivals that it cannot handle.

use serde_json::{Value, json};

use crate::liar::Liar;
use crate::program::{Server, load, report, said};

const SMALL: &[&str] = &["--connections", "2", "--depth", "4"];

/// A run against this server, on few lanes.
#[track_caller]
fn small(words: &str, server: &Server) -> (i32, Value) {
    let address = server.address.to_string();
    let words: Vec<&str> = words.split(' ').collect();
    report(&[&words, SMALL, &["--server", &address]].concat())
}

fn sum(report: &Value, member: &str) -> u64 {
    report["windows"].as_array().unwrap().iter().map(|window| window[member].as_u64().unwrap()).sum()
}

fn refused(report: &Value) -> u64 {
    report["refused"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn the_fill_level_is_that_of_the_measured_time() {
    // An eighth as many lanes as addresses: the lanes' own addresses are part of the fill level.
    for (level, least, most) in [("0.3", 0.25, 0.35), ("0.9", 0.85, 0.95)] {
        let server = Server::start();
        let (code, report) =
            small(&format!("run churn --cidr 10.0.0.0/25 --fill-level {level} --requests 20000"), &server);
        assert_eq!(code, 0, "{report}");
        let found = report["fill_level"].as_f64().unwrap();
        assert!((least..most).contains(&found), "{level}: {found}");
        assert_eq!(report["fill_level_asked"].as_f64().unwrap().to_string(), level);
    }
    // With more lanes than free addresses the pool is almost full, and the report says so.
    let server = Server::start();
    let address = server.address.to_string();
    let words = "run churn --cidr 10.0.0.0/26 --fill-level 0.2 --requests 20000 --connections 8 --depth 16 --server";
    let (code, report) = report(&[&words.split(' ').collect::<Vec<_>>()[..], &[&address]].concat());
    assert_eq!(code, 0, "{report}");
    assert!(report["fill_level"].as_f64().unwrap() > 0.4 && refused(&report) > 0, "{report}");
}

#[test]
fn refusals_and_windows_are_counted_like_answers() {
    let server = Server::start();
    // About 100 requests find no room before measuring; then all 200 are refused except those that a release makes room for.
    let (_, report) = small("run contended --cidr 10.0.0.0/25 --seconds 0.5 --warmup 0.3", &server);
    let answers = report["answers"].as_u64().unwrap();
    assert!(refused(&report) > 0 && refused(&report) < answers, "{report}");
    assert_eq!((sum(&report, "answers"), sum(&report, "refused")), (answers, refused(&report)), "{report}");
    assert!(report["refused_before"]["not_enough_capacity"].as_u64().unwrap() > 0, "{report}");
    let last = report["windows"].as_array().unwrap().last().unwrap();
    assert_eq!(last["held"], report["held"], "{report}");
    // Every owner asks again, and only that is measured.
    let server = Server::start();
    let (_, report) = small("run restart-storm --owners 500", &server);
    assert_eq!((&report["existed"], sum(&report, "answers")), (&json!(500), 500), "{report}");
}

#[test]
fn all_owners_of_a_storm_ask_again_however_they_arrive() {
    for spread in ["poisson", "even"] {
        let server = Server::start();
        let (code, report) = small(&format!("run restart-storm --owners 701 --rate 4000 --arrivals {spread}"), &server);
        assert_eq!((code, &report["answers"], &report["existed"]), (0, &json!(701), &json!(701)), "{report}");
        assert_eq!(report["never_sent"], 0, "{report}");
    }
}

#[test]
fn a_page_says_what_was_never_sent() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (directory.path().join("run.json"), directory.path().join("page.html"));
    let server = Server::start();
    let (_, mut report) = small("run fill --requests 50", &server);
    report["never_sent"] = 70_644.into();
    std::fs::write(&file, report.to_string()).unwrap();
    let output = load().arg("report").arg(&file).arg("-o").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("70644 requests that arrived were never sent"), "{text}");
}

/// Refuses allocations during the measured time with this kind, except one in `one_of`.
fn refuses(kind: &'static str, one_of: usize) -> Liar {
    let mut asked = 0;
    Liar::who(move |request, mut answer| {
        if request["method"] == "ip.allocate" {
            asked += 1;
            if asked % one_of != 0 {
                let error =
                    json!({"code": -32020, "message": "come later", "data": {"kind": kind, "applied": "unknown"}});
                answer = json!({"jsonrpc": "2.0", "id": answer["id"], "error": error});
            }
        }
        vec![answer]
    })
}

#[test]
fn who_refuses_nearly_everything_was_not_measured() {
    let fill = ["run", "fill", "--requests", "200", "--listing", "never"];
    for (liar, code) in [
        (refuses("unavailable", usize::MAX), 2),
        (refuses("not_enough_capacity", usize::MAX), 2),
        (refuses("unavailable", 2), 2),
        // Lack of room is an answer like any other, as long as someone is granted something.
        (refuses("not_enough_capacity", 5), 0),
    ] {
        let (found, report) = liar.reported_by(&fill);
        assert_eq!((found, &report["faults"]), (code, &json!({})), "{report}");
        assert_eq!(report["not_made"].is_null(), code == 0, "{report}");
        let examples = report["refusal_examples"].as_object().unwrap();
        assert!(examples.values().all(|said| said == "come later") && examples.len() == 1, "{report}");
    }
    let server = Server::start();
    let (code, report) = small("run contended --cidr 10.0.0.0/25 --requests 500", &server);
    assert!(code == 0 && refused(&report) > 0, "{report}");
}

#[test]
fn who_waits_when_the_time_is_over_is_not_in_the_rate_and_makes_no_right_server_wrong() {
    let server = Server::start();
    // One address passes from lane to lane, and at the end it stays where it is: the other lanes wait in vain, longer than
    // the patience.
    let (code, report) = small("run contended --cidr 10.0.0.0/28 --seconds 0.5 --wait 3 --patience 1", &server);
    assert_eq!((code, &report["lost"], &report["elapsed_seconds"]), (0, &json!(0), &json!(0.5)), "{report}");
    let (answers, late) = (report["answers"].as_u64().unwrap(), report["late"].as_u64().unwrap());
    assert!(late > 0 && late < answers, "{report}");
    let rate = report["per_second"].as_f64().unwrap();
    assert!((rate - (answers - late) as f64 / 0.5).abs() < 1e-6, "{report}");
}

#[test]
fn servers_that_do_not_share_a_register_are_refused() {
    let (one, other) = (Server::start(), Server::start());
    let servers = format!("{},{}", one.address, other.address);
    let output = load().args(["fill", "--requests", "10", "--server", &servers]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(&other.address.to_string()), "{}", said(&output));
    assert!(said(&output).contains("share one register"), "{}", said(&output));
}

#[test]
fn a_server_that_falls_silent_has_a_report_and_its_silence_is_in_the_figures() {
    let mut answered = 0;
    let liar = Liar::who(move |request, answer| {
        answered += usize::from(request["method"] == "ip.allocate");
        if answered > 500 { vec![] } else { vec![answer] }
    });
    let (code, report) = liar.reported_by(&["run", "fill", "--seconds", "1.5"]);
    assert_eq!((code, &report["faults"]), (1, &json!({"answers_once": 4})), "{report}");
    assert_eq!((&report["answers"], &report["lost"]), (&json!(500), &json!(4)), "{report}");
    assert!(report["elapsed_seconds"].as_f64().unwrap() >= 1.5, "{report}");
    assert!(report["max_ms"].as_f64().unwrap() >= 2_000.0, "{report}");
    assert!(
        report["held_by_server"].is_null() && report["not_made"].as_str().unwrap().contains("no answer"),
        "{report}"
    );
    let empty = report["windows"].as_array().unwrap().iter().find(|window| window["answers"] == 0).unwrap();
    assert!(empty["p99_ms"].is_null(), "{report}");
}

#[test]
fn as_many_are_measured_as_were_asked_for_after_a_warm_up() {
    let server = Server::start();
    let (code, report) = small("run fill --rate 2000 --requests 500 --warmup 0.3", &server);
    assert_eq!((code, &report["answers"], &report["never_sent"]), (0, &json!(500), &json!(0)), "{report}");
}

#[test]
fn a_measurement_that_ends_where_it_begins_has_a_rate() {
    // The last answer that the warm-up waits for is the only one that is measured.
    let server = Server::start();
    let address = server.address.to_string();
    let words = "run fill --requests 1 --warmup 0.2 --connections 1 --depth 1 --server";
    let (code, report) = report(&[&words.split(' ').collect::<Vec<_>>()[..], &[&address]].concat());
    assert_eq!((code, &report["answers"]), (0, &json!(1)), "{report}");
    assert!(report["per_second"].as_f64().unwrap() > 0.0, "{report}");
}
