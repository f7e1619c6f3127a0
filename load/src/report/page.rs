//! A page of runs: one self-contained HTML file, with plots as inline SVG, for light and dark mode.
//!
//! It loads nothing and runs no scripts: it can be mailed, kept beside the figures, and opened in ten years.
//!
//! `plot` draws and `scale` has the axes; this module decides what is shown.

use std::fmt::Write as _;

use super::Report;
use super::document::Document;
use super::plot::{COLOURS, Plot, Series, escape};
use super::scale::{Scale, short};
use crate::meter::Window;

const STYLE: &str = include_str!("page.css");
/// A run whose fill level changes by more than this shows how the cost depends on it.
const FILL_MOVES: f64 = 0.25;

/// The page of all runs of these documents.
pub fn page(documents: &[Document]) -> String {
    let runs: Vec<&Report> = documents.iter().flat_map(|document| &document.runs).collect();
    let names = names(&runs);
    let plots: String = [
        throughput(&runs, &names),
        latency(&runs, &names),
        distribution(&runs, &names),
        cost(&runs, |run| 1e6 / run.per_second.max(f64::MIN_POSITIVE), "microseconds per answer"),
        cost(&runs, |run| run.p99_ms, "p99, ms"),
        fill_within(&runs, &names),
    ]
    .iter()
    .map(Plot::section)
    .collect();
    let title = match &names[..] {
        [] => "allod-load".to_owned(),
        [one] => format!("allod-load: {one}"),
        several => format!("allod-load: {} runs", several.len()),
    };
    let (title, facts, verdict) = (escape(&title), facts(documents), verdict(&runs, &names) + &caveats(&runs, &names));
    let (summary, kinds) = (summary(&runs, &names), kinds(&runs, &names));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{facts}{verdict}{summary}\
         <div class=\"plots\">\n{plots}</div>\n{kinds}{FOOTER}</body>\n</html>"
    )
}

const FOOTER: &str = "<footer><p>Closed loop: an answer makes its lane ask again, so a slow server is asked less often, and \
    latency contains the waiting behind the other lanes. Open loop: requests arrive by a clock, and latency counts from the \
    arrival.</p><p>A rate is a statement about a machine: compare runs of one machine, made in turns.</p></footer>\n";

/// Names that tell the runs apart: their labels, with the target if there are several, and the fill level if names are
/// equal.
fn names(runs: &[&Report]) -> Vec<String> {
    let label = |run: &Report| if run.label.is_empty() { run.scenario.clone() } else { run.label.clone() };
    let mut names: Vec<String> = runs.iter().map(|run| label(run)).collect();
    let is_ambiguous = |names: &[String]| names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
    if runs.iter().any(|run| run.target != runs[0].target) {
        names.iter_mut().zip(runs).for_each(|(name, run)| *name = format!("{name}, {}", run.target));
    }
    if is_ambiguous(&names) && runs.iter().any(|run| run.fill_level > 0.0) {
        names
            .iter_mut()
            .zip(runs)
            .for_each(|(name, run)| *name = format!("{name}, {:.0} % full", run.fill_level * 100.0));
    }
    if is_ambiguous(&names) {
        names.iter_mut().enumerate().for_each(|(at, name)| *name = format!("{name} #{}", at + 1));
    }
    names
}

/// Where and when the runs were made.
fn facts(documents: &[Document]) -> String {
    let mut lines = String::new();
    // Writing into a string does not fail.
    let mut targets: Vec<&str> = documents.iter().flat_map(|d| &d.runs).map(|run| run.target.as_str()).collect();
    targets.dedup();
    if let [target] = targets[..]
        && !target.is_empty()
    {
        let _ = writeln!(lines, "<p class=\"facts\">{}</p>", escape(target));
    }
    for document in documents {
        let machine = &document.machine;
        let mut facts = vec![document.made_at.clone(), document.made_by.clone()];
        if machine.processors > 0 {
            facts.push(format!("{} × {}", machine.processors, machine.processor));
            facts.push(format!("{:.0} GB", machine.memory_bytes as f64 / 1e9));
            facts.push(format!("Linux {}", machine.kernel));
        }
        facts.retain(|fact| !fact.is_empty());
        let _ = writeln!(lines, "<p class=\"facts\">{}</p>", escape(&facts.join(" · ")));
    }
    lines
}

/// The findings of the audit.
fn verdict(runs: &[&Report], names: &[String]) -> String {
    let faulty: Vec<(&&Report, &String)> = runs.iter().zip(names).filter(|(run, _)| run.is_faulty()).collect();
    if faulty.is_empty() {
        let checked: u64 = runs.iter().map(|run| run.checked).sum();
        let listed: u64 = runs.iter().filter_map(|run| run.listed).sum();
        if checked == 0 {
            return String::new();
        }
        let listed = match listed {
            0 => String::new(),
            listed => format!(", {listed} reservations against the server's listing"),
        };
        let said = format!("No rule was broken: {checked} grants were checked as they came{listed}.");
        return format!("<p class=\"verdict\">{said}</p>\n");
    }
    let mut items = String::new();
    for (run, name) in faulty {
        for (rule, count) in &run.faults {
            let _ =
                write!(items, "<li><span class=\"wrong\">{}</span> ({}), {count} times", escape(rule), escape(name));
            let examples = run.fault_examples.iter().filter(|example| example.rule == *rule).take(3);
            examples.for_each(|example| {
                let _ = write!(items, "<br>{}", escape(&example.what));
            });
            items.push_str("</li>\n");
        }
    }
    format!("<div class=\"verdict bad\"><p class=\"wrong\">The server broke its rules.</p><ul>\n{items}</ul></div>\n")
}

/// What a reader must know before trusting the figures.
fn caveats(runs: &[&Report], names: &[String]) -> String {
    let mut items = String::new();
    for (run, name) in runs.iter().zip(names) {
        let mut said: Vec<String> = run.not_made.iter().map(|why| format!("no measurement: {why}")).collect();
        if run.never_sent > 0 {
            let count = run.never_sent;
            said.push(format!("the server was behind, and {count} requests that arrived were never sent"));
        }
        if run.unknown > 0 {
            said.push(format!("nobody knows whether requests of {} owners took effect", run.unknown));
        }
        said.extend(run.not_audited.iter().map(|rule| format!("{rule} was not audited: too many lanes and networks")));
        for what in said {
            let _ = writeln!(items, "<li>{}: {}</li>", escape(name), escape(&what));
        }
    }
    if items.is_empty() { items } else { format!("<div class=\"verdict bad\"><ul>\n{items}</ul></div>\n") }
}

/// A row for each run, with its ratio to the first.
fn summary(runs: &[&Report], names: &[String]) -> String {
    let first = runs.first().map_or(1.0, |run| run.per_second.max(f64::MIN_POSITIVE));
    let most = runs.iter().map(|run| run.per_second).fold(f64::MIN_POSITIVE, f64::max);
    let several = runs.len() > 1;
    let noted = runs.iter().any(|run| !run.note.is_empty());
    let mut rows = String::new();
    for (at, (run, name)) in runs.iter().zip(names).enumerate() {
        // An open loop is as fast as its schedule, so a ratio to a closed one would say nothing.
        let is_open = |run: &Report| run.arrivals_per_second.is_some();
        let ratio = match several {
            false => String::new(),
            true if is_open(run) != is_open(runs[0]) => "<td>–</td>".to_owned(),
            true => format!("<td>{:.2}×</td>", run.per_second / first),
        };
        let share = run.per_second / most * 100.0;
        let faults: u64 = run.faults.values().sum();
        let refused: u64 = run.refused.values().sum();
        let note = if noted { format!("<td class=\"left words\">{}</td>", escape(&run.note)) } else { String::new() };
        let load = match run.arrivals_per_second {
            Some(rate) => format!("open, {}/s", short(rate)),
            // Kea is offered rates, and has no windows.
            None if run.windows.is_empty() => "at its best rate".to_owned(),
            None => format!("closed, {} × {}", run.connections, run.depth),
        };
        let wrong = if run.is_faulty() { " class=\"wrong\"" } else { "" };
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td class=\"left\">{load}</td>\
             <td class=\"left\"><span class=\"bar\"><i class=\"b{}\" style=\"width:{share:.1}%{}\"></i></span></td>\
             <td>{}</td>{ratio}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{refused}</td><td{wrong}>{faults}</td>{note}</tr>",
            escape(name),
            at % COLOURS,
            // Bars are paler where lines would have dots because colours repeat.
            if at < COLOURS { "" } else { ";opacity:.5" },
            short(run.per_second),
            ms(run.p50_ms),
            ms(run.p99_ms),
            ms(run.p999_ms),
            ms(run.max_ms),
        );
    }
    let ratio = if several { "<th>to the first</th>" } else { "" };
    let note = if noted { "<th class=\"left\">an answer is</th>" } else { "" };
    format!(
        "<div class=\"wide\"><table>\n<tr><th>run</th><th class=\"left\">load</th>\
         <th class=\"left\">throughput</th><th>answers/s</th>{ratio}<th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th>\
         <th>max ms</th><th>refused</th><th>faults</th>{note}</tr>\n{rows}</table></div>\n"
    )
}

/// Milliseconds with a sensible number of digits; a dash if there is no measurement.
fn ms(value: f64) -> String {
    match value {
        0.0 => "–".to_owned(),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// The kinds of requests of each run that has more than one.
fn kinds(runs: &[&Report], names: &[String]) -> String {
    let mut rows = String::new();
    for (run, name) in runs.iter().zip(names).filter(|(run, _)| run.kinds.len() > 1) {
        for kind in &run.kinds {
            let (name, what) = (escape(name), escape(&kind.kind));
            let (p50, p99, max) = (ms(kind.p50_ms), ms(kind.p99_ms), ms(kind.max_ms));
            let answers = kind.answers;
            let _ = writeln!(
                rows,
                "<tr><td>{name}</td><td class=\"left\">{what}</td><td>{answers}</td><td>{p50}</td><td>{p99}</td><td>{max}</td></tr>"
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<div class=\"wide\"><table>\n<tr><th>run</th><th class=\"left\">request</th><th>answers</th><th>p50 ms</th>\
         <th>p99 ms</th><th>max ms</th></tr>\n{rows}</table></div>\n"
    )
}

fn throughput(runs: &[&Report], names: &[String]) -> Plot {
    let rate = |run: &&Report| {
        // The last window may be very short, and then its rate says nothing.
        let usual = run.windows.first().map_or(0.0, |window| window.seconds);
        let long = run.windows.iter().filter(|window| window.seconds > 0.0 && window.seconds * 2.0 >= usual);
        long.map(|window| (window.at_seconds, window.answers as f64 / window.seconds)).collect()
    };
    let series = runs.iter().zip(names).enumerate().map(|(colour, (run, name))| Series {
        name: Some(name.clone()),
        colour,
        dashed: false,
        points: rate(run),
    });
    over_time(
        "Throughput over time",
        "Answers a second, window by window, refusals included.",
        "answers/s",
        series.collect(),
        Scale::linear,
    )
}

fn latency(runs: &[&Report], names: &[String]) -> Plot {
    let mut series = Vec::new();
    for (colour, (run, name)) in runs.iter().zip(names).enumerate() {
        // The line is broken in windows without answers, because their latency is unknown.
        let points = |value: fn(&Window) -> Option<f64>| -> Vec<(f64, f64)> {
            run.windows.iter().map(|w| (w.at_seconds, value(w).filter(|ms| *ms > 0.0).unwrap_or(f64::NAN))).collect()
        };
        series.push(Series { name: Some(name.clone()), colour, dashed: false, points: points(|w| w.p99_ms) });
        series.push(Series { name: None, colour, dashed: true, points: points(|w| w.p50_ms) });
    }
    let note = "Lines: of a hundred answers, one was slower (p99). Dashed: half of them were faster (p50).";
    over_time("Latency over time", note, "ms", series, Scale::logarithmic)
}

/// A plot over seconds.
fn over_time(
    title: &str,
    note: &str,
    y_name: &str,
    series: Vec<Series>,
    scale: fn(std::vec::IntoIter<f64>) -> Scale,
) -> Plot {
    let of = |value: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        series.iter().flat_map(|series| series.points.iter().map(value)).collect()
    };
    let last = of(|point| point.0).into_iter().fold(0.0, f64::max);
    Plot {
        title: title.to_owned(),
        note: note.to_owned(),
        x_name: "seconds".to_owned(),
        y_name: y_name.to_owned(),
        x: Scale::between(0.0, last),
        y: scale(of(|point| point.1).into_iter()),
        x_ticks: None,
        series,
    }
}

fn distribution(runs: &[&Report], names: &[String]) -> Plot {
    // Each step to the right leaves a tenth of the answers. The slowest answer of all would be infinitely far to the right,
    // and is left out.
    let place = |quantile: f64| if quantile < 1.0 { -(1.0 - quantile).log10() } else { f64::NAN };
    let mut series = Vec::new();
    let mut most = 1.0f64;
    for (colour, (run, name)) in runs.iter().zip(names).enumerate() {
        let points: Vec<(f64, f64)> = run.distribution.iter().map(|point| (place(point.quantile), point.ms)).collect();
        let points: Vec<(f64, f64)> = points.into_iter().filter(|(at, _)| at.is_finite()).collect();
        most = points.iter().map(|point| point.0).fold(most, f64::max);
        series.push(Series { name: Some(name.clone()), colour, dashed: false, points });
    }
    let ticks = [
        (0.0, "0 %"),
        (1.0, "90 %"),
        (2.0, "99 %"),
        (3.0, "99.9 %"),
        (4.0, "99.99 %"),
        (5.0, "99.999 %"),
        (6.0, "99.9999 %"),
    ];
    let values: Vec<f64> = series.iter().flat_map(|series| series.points.iter().map(|point| point.1)).collect();
    Plot {
        title: "Latency distribution".to_owned(),
        note: "So many answers were at least as fast. Each step to the right leaves a tenth.".to_owned(),
        x_name: "share of the answers".to_owned(),
        y_name: "ms".to_owned(),
        x: Scale::between(0.0, most),
        y: Scale::logarithmic(values.into_iter()),
        x_ticks: Some(
            ticks.into_iter().filter(|(at, _)| *at <= most).map(|(at, name)| (at, name.to_owned())).collect(),
        ),
        series,
    }
}

/// The runs of one target and scenario at several fill levels form a line.
fn cost(runs: &[&Report], value: fn(&Report) -> f64, y_name: &str) -> Plot {
    let mut groups: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for run in runs.iter().filter(|run| run.capacity > 0 && run.answers > 0) {
        let name = format!("{}, {}", run.label, run.target);
        let point = (run.fill_level * 100.0, value(run));
        match groups.iter_mut().find(|(group, _)| *group == name) {
            Some((_, points)) => points.push(point),
            None => groups.push((name, vec![point])),
        }
    }
    groups.retain(|(_, points)| points.iter().any(|point| (point.0 - points[0].0).abs() > FILL_MOVES * 100.0));
    let mut series = Vec::new();
    for (colour, (name, mut points)) in groups.into_iter().enumerate() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        series.push(Series { name: Some(name), colour, dashed: false, points });
    }
    over_fill(&format!("Cost against fill level: {y_name}"), "One point for each run.", y_name, series)
}

/// A run that fills its pools shows the cost by itself.
fn fill_within(runs: &[&Report], names: &[String]) -> Plot {
    let mut series = Vec::new();
    for (colour, (run, name)) in runs.iter().zip(names).enumerate() {
        let windows = run.windows.iter().filter(|w| w.answers > 0);
        let points: Vec<(f64, f64)> = windows.map(|w| (w.fill * 100.0, w.seconds * 1e6 / w.answers as f64)).collect();
        let moves = points.first().zip(points.last()).is_some_and(|(a, b)| (a.0 - b.0).abs() > FILL_MOVES * 100.0);
        if moves {
            series.push(Series { name: Some(name.clone()), colour, dashed: false, points });
        }
    }
    let note = "Windows of a run that filled its pools as it went.";
    over_fill("Cost while filling: microseconds per answer", note, "microseconds per answer", series)
}

/// A plot over the share of the pools that is held.
fn over_fill(title: &str, note: &str, y_name: &str, series: Vec<Series>) -> Plot {
    let values: Vec<f64> = series.iter().flat_map(|series| series.points.iter().map(|point| point.1)).collect();
    Plot {
        title: title.to_owned(),
        note: note.to_owned(),
        x_name: "share of the pools that is held, %".to_owned(),
        y_name: y_name.to_owned(),
        x: Scale::between(0.0, 100.0),
        y: Scale::linear(values.into_iter()),
        x_ticks: None,
        series,
    }
}
