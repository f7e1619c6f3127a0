//! What a run found, as lines for people or one JSON object.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::driver::{Measured, Shape};
use crate::fill::Fill;

/// The figures of one run. Member names are stable: scripts read `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    pub scenario: String,
    pub connections: usize,
    pub depth: usize,
    pub networks: usize,
    pub elapsed_seconds: f64,
    /// Answers of the measured time, refusals included.
    pub answers: u64,
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub bytes_per_request: f64,
    pub bytes_per_answer: f64,
    /// Answers that said the owner had its address before.
    pub existed: u64,
    pub refused: BTreeMap<String, u64>,
    /// Answers that do not fit their request, or fit none, and requests without one.
    pub wrong: u64,
    pub lost: u64,
    /// Addresses that the client holds at the end, and those of the server's own count where it was asked.
    pub held: u64,
    pub held_by_server: Option<u64>,
    pub duplicates: u64,
    pub duplicate_examples: Vec<String>,
}

impl Report {
    /// The figures of a run.
    pub fn new(scenario: &str, shape: &Shape, networks: usize, measured: &Measured, fill: &Fill) -> Self {
        let milliseconds = |nanos: u64| nanos as f64 / 1e6;
        let quantile = |quantile| milliseconds(measured.latency_nanos.value_at_quantile(quantile));
        let seconds = measured.elapsed.as_secs_f64();
        let each = |bytes: u64| bytes as f64 / measured.answers.max(1) as f64;
        Self {
            scenario: scenario.to_owned(),
            connections: shape.connections,
            depth: shape.depth,
            networks,
            elapsed_seconds: seconds,
            answers: measured.answers,
            per_second: if seconds > 0.0 { measured.answers as f64 / seconds } else { 0.0 },
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: milliseconds(measured.latency_nanos.max()),
            bytes_per_request: each(measured.bytes_sent),
            bytes_per_answer: each(measured.bytes_received),
            existed: fill.existed,
            refused: fill.refused.clone(),
            wrong: fill.wrong + measured.unexpected,
            lost: measured.lost,
            held: fill.audit.held(),
            held_by_server: None,
            duplicates: fill.audit.duplicates(),
            duplicate_examples: fill.audit.examples().to_vec(),
        }
    }

    /// Did the run show that the server is wrong? Refusals are no fault: a full pool is full.
    pub fn is_faulty(&self) -> bool {
        let miscounted = self.held_by_server.is_some_and(|held| held != self.held);
        self.duplicates > 0 || self.wrong > 0 || self.lost > 0 || miscounted
    }

    /// Prints it.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        let Self { scenario, connections, depth, networks, .. } = self;
        writeln!(out, "{scenario}: {connections} connections x {depth}, {networks} networks")?;
        writeln!(out, "  {:>12.0} answers/s ({} in {:.2} s)", self.per_second, self.answers, self.elapsed_seconds)?;
        writeln!(
            out,
            "  p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {:.3} ms",
            self.p50_ms, self.p99_ms, self.p999_ms, self.max_ms
        )?;
        let refused: u64 = self.refused.values().sum();
        writeln!(out, "  held {}, existed before {}, refused {refused}", self.held, self.existed)?;
        for (kind, count) in &self.refused {
            writeln!(out, "    {kind} {count}")?;
        }
        if let Some(held) = self.held_by_server.filter(|&held| held != self.held) {
            writeln!(out, "  WRONG: the server counts {held} held addresses")?;
        }
        if self.wrong > 0 || self.lost > 0 {
            writeln!(out, "  WRONG: {} answers do not fit, {} requests were not answered", self.wrong, self.lost)?;
        }
        if self.duplicates == 0 {
            return writeln!(out, "  no address was handed out twice");
        }
        writeln!(out, "  WRONG: {} addresses were handed out twice", self.duplicates)?;
        for example in &self.duplicate_examples {
            writeln!(out, "    {example}")?;
        }
        Ok(())
    }
}
