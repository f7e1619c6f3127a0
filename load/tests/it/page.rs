//! The page of a report, as a browser shows it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{is_there, load, said};
use crate::skips::skip;

/// The longest wait for a browser.
const BROWSER_MAX: Duration = Duration::from_secs(120);

/// Measures what is drawn, and leaves the result in an element that `--dump-dom` prints.
const MEASURE: &str = r#"<script>
addEventListener("load", () => {
  const sticksOut = [];
  for (const svg of document.querySelectorAll("section > svg")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text, polyline, circle")) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        sticksOut.push(text.outerHTML);
    }
  }
  const lines = [...document.querySelectorAll("section > svg polyline")];
  const drawn = lines.filter((line) => line.getBoundingClientRect().width > 0);
  const found = {
    sticksOut, plots: [...document.querySelectorAll("section h2")].map((title) => title.textContent),
    lines: lines.length, drawn: drawn.length, colours: [...new Set(lines.map((line) => getComputedStyle(line).stroke))].length,
    background: getComputedStyle(document.body).backgroundColor, rows: document.querySelectorAll("table tr").length,
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
    verdict: document.querySelector(".verdict").textContent,
  };
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = "FOUND" + btoa(JSON.stringify(found)) + "END";
  document.body.append(out);
});
</script>"#;

/// Opens a file in a headless browser; returns its standard output.
fn browse(browser: &str, directory: &Path, page: &Path, words: &[&str]) -> String {
    let out = directory.join("browser-out");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .args(words)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > BROWSER_MAX {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{browser} did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::read_to_string(out).unwrap()
}

/// The layout of the page in a window of this size.
fn look(browser: &str, directory: &Path, page: &Path, words: &[&str]) -> Value {
    let measured = directory.join("measured.html");
    let text = fs::read_to_string(page).unwrap();
    fs::write(&measured, text.replace("</body>", &format!("{MEASURE}</body>"))).unwrap();
    let dom = browse(browser, directory, &measured, &[words, &["--dump-dom"]].concat());
    let found =
        dom.rsplit_once("FOUND").and_then(|(_, rest)| rest.split_once("END")).unwrap_or_else(|| panic!("{dom}")).0;
    let json =
        Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().and_then(|mut child| {
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), found.as_bytes())?;
            child.wait_with_output()
        });
    serde_json::from_slice(&json.unwrap().stdout).unwrap()
}

#[test]
fn a_browser_shows_the_page_of_several_runs_in_light_and_dark_and_loads_nothing() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| is_there(name))
    else {
        return skip("there is no chromium");
    };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (levels, fill, page) = (at("levels.json"), at("fill.json"), at("page.html"));
    let small =
        ["--start", "memory", "--connections", "2", "--depth", "8", "--cidr", "10.0.0.0/22", "--quiet", "--save"];
    let churn = ["run", "churn", "--fill-level", "0.2,0.9", "--requests", "20000"];
    // A label with characters that are special in HTML.
    let filled = ["run", "fill", "--requests", "1100", "--rate", "3000", "--label", "to the <brim> & over"];
    for (run, file) in [(&churn[..], &levels), (&filled[..], &fill)] {
        let output = load().args(run).args(small).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let output = load().arg("report").args([&levels, &fill]).arg("-o").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let light = look(browser, directory.path(), &page, &["--window-size=1280,1600"]);
    let dark = ["--window-size=420,900", "--blink-settings=preferredColorScheme=0"];
    let dark = look(browser, directory.path(), &page, &dark);
    for found in [&light, &dark] {
        assert_eq!(found["sticksOut"].as_array().unwrap().len(), 0, "{found}");
        assert_eq!(found["loaded"].as_array().unwrap().len(), 0, "{found}");
        assert_eq!((&found["wider"], &found["lines"]), (&0.into(), &found["drawn"]), "{found}");
        let plots: Vec<&str> = found["plots"].as_array().unwrap().iter().map(|title| title.as_str().unwrap()).collect();
        for plot in ["Throughput over time", "Latency over time", "Latency distribution", "Cost against fill level"] {
            assert!(plots.iter().any(|title| title.starts_with(plot)), "{plot}: {found}");
        }
        assert_eq!(found["colours"], 3, "a colour for each run: {found}");
        assert!(found["verdict"].as_str().unwrap().starts_with("No rule was broken"), "{found}");
    }
    assert_ne!(light["background"], dark["background"]);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("to the &lt;brim&gt; &amp; over") && !text.contains("<brim>"));
    assert!(!text.contains("<script") && !text.contains("http:") && !text.contains("https:"), "a page of its own");

    let picture = at("page.png");
    browse(
        browser,
        directory.path(),
        &page,
        &["--window-size=1280,1600", &format!("--screenshot={}", picture.display())],
    );
    assert_eq!(&fs::read(&picture).unwrap()[1..4], b"PNG");
}

#[test]
fn each_run_of_a_page_stands_beside_the_first_and_a_clock_beside_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (directory.path().join("runs.json"), directory.path().join("page.html"));
    let words =
        ["run", "fill", "--start", "memory", "--requests", "50", "--connections", "1", "--depth", "1", "--quiet"];
    let output = load().args(words).arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let run = |label: &str, per_second: f64, arrivals: Option<f64>| {
        let mut run = report.clone();
        (run["label"], run["per_second"], run["arrivals_per_second"]) =
            (label.into(), per_second.into(), arrivals.into());
        run
    };
    let runs = [
        run("the first", 2_000.0, None),
        run("half", 1_000.0, None),
        run("half as much again", 3_000.0, None),
        run("by a clock", 500.0, Some(500.0)),
    ];
    fs::write(&file, serde_json::to_string(&runs).unwrap()).unwrap();
    let output = load().arg("report").arg(&file).arg("-o").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = fs::read_to_string(&page).unwrap();
    let cells = |row: &str| -> Vec<String> {
        let cells = row.split("<t").skip(2).filter_map(|cell| cell.split_once('>'));
        cells.map(|(_, cell)| cell.split("</t").next().unwrap().to_owned()).collect()
    };
    let table: Vec<Vec<String>> = text.lines().filter(|line| line.starts_with("<tr>")).map(cells).collect();
    let at = table[0].iter().position(|cell| cell == "to the first").unwrap_or_else(|| panic!("{table:?}"));
    for (label, ratio) in
        [("the first", "1.00×"), ("half", "0.50×"), ("half as much again", "1.50×"), ("by a clock", "–")]
    {
        let row = table.iter().find(|row| row[0] == label).unwrap_or_else(|| panic!("{label}: {table:?}"));
        assert_eq!(row[at], ratio, "{label}: {table:?}");
    }
    // A single run has no ratio.
    fs::write(&file, serde_json::to_string(&runs[..1]).unwrap()).unwrap();
    load().arg("report").arg(&file).arg("-o").arg(&page).output().unwrap();
    assert!(!fs::read_to_string(&page).unwrap().contains("to the first"));
}

#[test]
fn a_page_of_a_server_that_lied_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (directory.path().join("run.json"), directory.path().join("page.html"));
    let words =
        ["run", "fill", "--start", "memory", "--requests", "50", "--connections", "1", "--depth", "1", "--quiet"];
    let output = load().args(words).arg("--json").output().unwrap();
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["faults"] = serde_json::json!({"no_address_twice": 3});
    report["duplicates"] = 3.into();
    report["fault_examples"] = serde_json::json!([{"rule": "no_address_twice", "what": "10.0.0.9 of <somebody>"}]);
    report["not_audited"] = serde_json::json!(["generations_rise"]);
    fs::write(&file, report.to_string()).unwrap();
    let output = load().arg("report").arg(&file).arg("-o").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "what `--json` printed is read too: {}", said(&output));
    let text = fs::read_to_string(&page).unwrap();
    for shown in [
        "The server broke its rules",
        "no_address_twice",
        "3 times",
        "10.0.0.9 of &lt;somebody&gt;",
        "generations_rise was not audited",
    ] {
        assert!(text.contains(shown), "{shown}");
    }
}

#[test]
fn a_file_that_is_no_report_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.json");
    for text in [
        "{",
        "{}",
        "[1]",
        r#"{"format": 1, "goals": []}"#,
        r#"{"format": 99, "runs": [], "made_by": "", "made_at": "", "machine": {"processor": "", "processors": 1, "memory_bytes": 1, "kernel": ""}}"#,
    ] {
        fs::write(&file, text).unwrap();
        let output = load().arg("report").arg(&file).args(["-o", "/dev/null"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {}", said(&output));
        assert!(said(&output).contains("other.json"), "{}", said(&output));
    }
}

#[test]
fn a_file_of_goals_is_named_as_that() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("goals.json");
    fs::write(&file, r#"{"format": 1, "goals": []}"#).unwrap();
    let output = load().arg("report").arg(&file).args(["-o", "/dev/null"]).output().unwrap();
    assert!(said(&output).contains("it has goals"), "{}", said(&output));
}

#[test]
fn a_run_without_an_answer_is_not_told_as_one_at_its_best_rate_and_runs_of_one_colour_differ() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (directory.path().join("run.json"), directory.path().join("page.html"));
    let output =
        load().args(["run", "fill", "--start", "memory", "--requests", "300", "--connections", "1", "--json"]).output();
    let mut run: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let window = |answers: u64, at: f64| {
        let ms = if answers > 0 { serde_json::json!(1.0) } else { Value::Null };
        serde_json::json!({"at_seconds": at, "seconds": 1.0, "answers": answers, "refused": 0, "p50_ms": ms, "p99_ms": ms,
            "max_ms": ms, "held": 0, "fill": 0.0})
    };
    run["windows"] = serde_json::json!([window(3, 1.0), window(4, 2.0)]);
    let mut runs = vec![run.clone(); 9];
    run["windows"] = serde_json::json!([window(0, 1.0)]);
    run["answers"] = serde_json::json!(0);
    runs.push(run);
    fs::write(&file, serde_json::to_string(&runs).unwrap()).unwrap();
    let output = load().arg("report").arg(&file).arg("-o").arg(&page).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = fs::read_to_string(&page).unwrap();
    assert!(!text.contains("at its best rate"), "it had no answer");
    let swatches: Vec<&str> =
        text.split("<line class=\"line ").skip(1).map(|line| line.split("x1").next().unwrap()).collect();
    let first = swatches.iter().filter(|line| **line == swatches[0]).count();
    // One line in each plot that has a legend; the ninth run has the colour of the first, with dots.
    let ninth = swatches.iter().filter(|line| line.starts_with("c0") && line.contains("stroke-dasharray")).count();
    assert!(ninth > 0 && ninth == first, "{swatches:?}");
}
