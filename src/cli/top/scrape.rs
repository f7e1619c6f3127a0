//! Fetches and parses a node's `/metrics`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cli::fetch;

/// Labels of a sample, by name.
pub type Labels = BTreeMap<String, String>;

/// One answer, and its time of arrival.
#[derive(Debug, Clone)]
pub struct Scrape {
    /// The time of arrival.
    pub at: Instant,
    /// By name of the metric, with labels.
    pub samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Scrape {
    /// Parses the text format of Prometheus; a line that does not belong to it is an error.
    ///
    /// # Errors
    /// A sentence that quotes the line.
    pub fn read(text: &str, at: Instant) -> Result<Self, String> {
        let mut samples: BTreeMap<String, Vec<(Labels, f64)>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, labels, value) = sample(line).ok_or_else(|| format!("`{line}` is not a sample of a metric"))?;
            samples.entry(name.to_owned()).or_default().push((labels, value));
        }
        Ok(Self { at, samples })
    }

    /// All samples of a metric.
    pub fn all(&self, name: &str) -> impl Iterator<Item = (&Labels, f64)> {
        self.samples.get(name).into_iter().flatten().map(|(labels, value)| (labels, *value))
    }

    /// The value of a metric without labels.
    pub fn one(&self, name: &str) -> Option<f64> {
        self.all(name).next().map(|(_, value)| value)
    }
}

/// `name{label="value",…} number`
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"")?;
            let (value, behind) = quoted(behind)?;
            labels.insert(label.to_owned(), value);
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?;
    Some((name, labels, value.parse().ok()?))
}

/// The text up to the closing quote, and the rest after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (true, 'n') => value.push('\n'),
            (true, other) => value.push(other),
            (false, '\\') => {}
            (false, '"') => return Some((value, &text[at + 1..])),
            (false, other) => value.push(other),
        }
        escaped = !escaped && c == '\\';
    }
    None
}

/// Asks `address` (a host and a port) for its metrics.
///
/// # Errors
/// A sentence: it cannot be reached, does not answer in time, or answers something else.
pub async fn ask(address: &str, timeout: Duration) -> Result<Scrape, String> {
    let answer = fetch::get(address, "/metrics", timeout).await?;
    match answer.code() {
        "200" => Scrape::read(&answer.body, Instant::now()),
        _ => Err(format!("it answers `{}`", answer.status)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_port_that_answers_something_else_is_not_waited_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = tokio::spawn(async move { ask(&address, Duration::from_secs(600)).await });
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"{\"jsonrpc\":\"2.0\"}\n").await.unwrap();
        // The connection is still open.
        let problem = asked.await.unwrap().unwrap_err();
        assert_eq!(problem, "it answers something else than HTTP: `{\"jsonrpc\":\"2.0\"}`");
    }

    #[test]
    fn samples_are_read_with_labels_that_need_quotes() {
        let text =
            "# HELP a b\n# TYPE a counter\na{x=\"1\",y=\"a\\\"b\\\\c\\nd,e} f\"} 3\nb 1e-3\nb_bucket{le=\"+Inf\"} 7\n";
        let scrape = Scrape::read(text, Instant::now()).unwrap();
        let (labels, value) = scrape.all("a").next().unwrap();
        assert_eq!((labels["x"].as_str(), labels["y"].as_str(), value), ("1", "a\"b\\c\nd,e} f", 3.0));
        assert_eq!(scrape.one("b"), Some(0.001));
        assert_eq!(scrape.one("b_bucket"), Some(7.0));
        assert_eq!(scrape.one("c"), None);
    }

    #[test]
    fn what_is_no_metric_is_refused_with_its_line() {
        for text in ["<html>", "a{x=\"1\" 3", "a x"] {
            assert!(Scrape::read(text, Instant::now()).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn what_our_metrics_say_is_read() {
        let metrics = crate::metrics::Metrics::new();
        metrics.requests.with_label_values(&["ip.allocate", "ok"]).inc_by(5);
        metrics.request_seconds.with_label_values(&["ip.allocate"]).observe(0.002);
        let scrape = Scrape::read(&metrics.text().unwrap(), Instant::now()).unwrap();
        let (labels, value) = scrape.all("allod_requests_total").next().unwrap();
        assert_eq!((labels["method"].as_str(), labels["outcome"].as_str(), value), ("ip.allocate", "ok", 5.0));
        let buckets = scrape.all("allod_request_duration_seconds_bucket");
        assert_eq!(buckets.filter(|(labels, _)| labels["le"] == "+Inf").map(|(_, count)| count).sum::<f64>(), 1.0);
    }
}
