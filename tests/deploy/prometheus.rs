//! A Prometheus of a test's own: on a free loopback port, with its files in a directory of its own.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::redis::process::ports::free_port;
use crate::server::http_get;

/// The process. Dropping it ends it.
pub struct Prometheus {
    child: Child,
    /// The address of its HTTP API.
    pub address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Scrapes these targets as the job `allod` at this interval (`1s`), and evaluates these rules, if any, at the same
    /// interval.
    pub fn scraping(targets: &[SocketAddr], every: &str, rules: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let config = format!(
            "global: {{ scrape_interval: {every}, scrape_timeout: {every}, evaluation_interval: {every} }}\n\
             rule_files: [ rules.yml ]\n\
             scrape_configs: [ {{ job_name: allod, static_configs: [ {{ targets: {targets:?} }} ] }} ]\n"
        );
        let path = directory.path().join("prometheus.yml");
        std::fs::write(&path, config).unwrap();
        std::fs::write(directory.path().join("rules.yml"), rules).unwrap();
        let address = ([127, 0, 0, 1], free_port()).into();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, address, directory }
    }

    /// The series of a query, if it is answered.
    pub fn series(&self, expression: &str) -> Option<Vec<Value>> {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        if std::net::TcpStream::connect(self.address).is_err() {
            return None;
        }
        let answer = http_get(self.address, &format!("/api/v1/query?query={query}"));
        let body: Value = serde_json::from_str(&answer[answer.find('{')?..=answer.rfind('}')?]).ok()?;
        assert_eq!(body["status"], "success", "{expression}: {body}");
        body["data"]["result"].as_array().cloned()
    }

    /// Its log.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}
