//! Samples, medians, and what they are held against.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use likewise_devstack::workspace;
use serde_json::{Map, Value, json};

/// Samples by key, one per round.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    samples: BTreeMap<&'static str, Vec<f64>>,
    notes: Vec<String>,
}

impl Figures {
    /// Adds the sample of one round.
    pub fn sample(&mut self, key: &'static str, value: f64) {
        self.samples.entry(key).or_default().push(value);
    }

    /// Adds a remark for the reader: data, mix, the resource that was full.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

/// A figure that is held against another of the same run: `figure >= at_least * of`.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The measured key.
    pub figure: &'static str,
    /// The ceiling or baseline.
    pub of: &'static str,
    /// The ratio aimed for.
    pub at_least: f64,
}

/// Median, least and greatest of the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
    rounds: usize,
}

impl Spread {
    fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, greatest) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[upper - 1], sorted[upper])
        } else {
            sorted[upper]
        };
        Some(Self { median, least, greatest, rounds: sorted.len() })
    }
}

/// Everything a run found.
#[derive(Debug)]
pub(crate) struct Report {
    machine: Machine,
    commit: String,
    is_quick: bool,
    versions: String,
    areas: Vec<(&'static str, Figures, &'static [Target])>,
}

#[derive(Debug)]
struct Machine {
    processor: String,
    cores: usize,
    memory_mb: u64,
    system: String,
    /// Running and waiting tasks of the last minute, before anything was measured: what others do here.
    load: String,
}

impl Report {
    pub(crate) fn new(is_quick: bool) -> Self {
        Self { machine: Machine::read(), commit: commit(), is_quick, versions: String::new(), areas: Vec::new() }
    }

    pub(crate) fn versions(&mut self, versions: &str) {
        versions.clone_into(&mut self.versions);
    }

    pub(crate) fn add(&mut self, area: &'static str, figures: Figures, targets: &'static [Target]) {
        self.areas.push((area, figures, targets));
    }

    fn median(&self, key: &str) -> Option<f64> {
        let samples = self.areas.iter().find_map(|(_, figures, _)| figures.samples.get(key))?;
        Spread::of(samples).map(|spread| spread.median)
    }

    /// The report for people.
    pub(crate) fn table(&self) -> String {
        let Machine { processor, cores, memory_mb, system, load } = &self.machine;
        let mut text = format!("\n{processor}, {cores} cores, {memory_mb} MB, {system}, load average before {load}\n");
        let _ = writeln!(text, "{}; fsync on, NATS sync always", self.versions);
        let _ = writeln!(text, "load generator, servers and services share the machine; commit {}", self.commit);
        if self.is_quick {
            let _ = writeln!(text, "quick run: it shows that measuring works, not what the machine can do");
        }
        for (area, figures, targets) in &self.areas {
            let _ = writeln!(text, "\n{area:<44} {:>12} {:>12} {:>12} rounds", "median", "min", "max");
            for (key, samples) in &figures.samples {
                let Some(spread) = Spread::of(samples) else { continue };
                let (median, least, greatest) = (number(spread.median), number(spread.least), number(spread.greatest));
                let _ = writeln!(text, "  {key:<42} {median:>12} {least:>12} {greatest:>12} {:>6}", spread.rounds);
            }
            for target in *targets {
                let _ = writeln!(text, "  {}", self.verdict(target));
            }
            for note in &figures.notes {
                let _ = writeln!(text, "  {note}");
            }
        }
        text
    }

    fn verdict(&self, target: &Target) -> String {
        let Target { figure, of, at_least } = target;
        match (self.median(figure), self.median(of)) {
            (Some(measured), Some(base)) if base > 0.0 => {
                let ratio = measured / base;
                let word = if ratio >= *at_least { "met" } else { "MISSED" };
                format!("{figure} = {ratio:.2} of {of}; target {at_least:.2}: {word}")
            }
            _ => format!("{figure} against {of}: not measured"),
        }
    }

    /// Writes `{"machine", "commit", "figures"}`.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut figures = Map::new();
        let mut spreads = Map::new();
        for (key, samples) in self.areas.iter().flat_map(|(_, figures, _)| &figures.samples) {
            let Some(spread) = Spread::of(samples) else { continue };
            figures.insert((*key).to_owned(), json!(spread.median));
            let Spread { least, greatest, rounds, .. } = spread;
            spreads.insert((*key).to_owned(), json!({ "min": least, "max": greatest, "rounds": rounds }));
        }
        let Machine { processor, cores, memory_mb, system, load } = &self.machine;
        let whole: Value = json!({
            "machine": { "processor": processor, "cores": cores, "memory_mb": memory_mb, "system": system,
                         "load_before": load, "versions": self.versions },
            "commit": self.commit,
            "quick": self.is_quick,
            "figures": figures,
            "spread": spreads,
        });
        let text = serde_json::to_string_pretty(&whole)?;
        fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }
}

impl Machine {
    fn read() -> Self {
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
            line.map(|(_, value)| value.trim().to_owned())
        };
        let memory_kb = field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mb: memory_kb.unwrap_or_default() / 1024,
            system: std::env::consts::OS.to_owned(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

/// The commit, with `+` where files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(workspace()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let is_clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    if is_clean { commit } else { format!("{commit}+") }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_whatever_the_order() {
        let check = |samples: &[f64], expected: Option<f64>| {
            assert_eq!(Spread::of(samples).map(|spread| spread.median), expected, "{samples:?}");
        };
        check(&[], None);
        check(&[3.0, 1.0, 2.0], Some(2.0));
        check(&[4.0, 1.0, 2.0, 3.0], Some(2.5));
    }

    #[test]
    fn a_missed_target_says_so() {
        let targets = &[Target { figure: "a.b_per_s", of: "a.raw_per_s", at_least: 0.5 }];
        let mut figures = Figures::default();
        figures.sample("a.raw_per_s", 100.0);
        figures.sample("a.b_per_s", 49.0);
        let mut report = Report::new(true);
        report.add("a", figures, targets);
        assert!(report.table().contains("a.b_per_s = 0.49 of a.raw_per_s; target 0.50: MISSED"), "{}", report.table());
    }
}
