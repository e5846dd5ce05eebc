//! `cargo dev bench`: figures of this machine, each beside a ceiling or baseline of the same run.
//!
//! An area is one file below this module and one line in [`AREAS`]. It starts nothing itself: it gets a running site, and
//! records samples under the keys of its figures, alternating a figure with its ceiling, at least three rounds.

mod command;
mod counter;
mod cpu;
mod door;
mod fold;
mod gateway;
mod hot_row;
mod lanes;
mod load;
mod mix;
mod raw_lanes;
mod report;
mod sql;

use std::future::Future;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;

use anyhow::{Context, Result, bail};
use likewise_devstack::{StackSpec, build_binary};

pub use report::{Figures, Target};

use crate::site::{Site, step};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Areas; all when none is named
    areas: Vec<String>,
    /// Write the figures as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds instead of minutes; good for seeing that it works, not for claims
    #[arg(long)]
    quick: bool,
    /// List the areas
    #[arg(long)]
    list: bool,
}

/// What an area measures on.
#[derive(Debug)]
pub struct Bench {
    /// The product, built for release.
    pub site: Site,
    /// Whether seconds must do.
    pub is_quick: bool,
}

impl Bench {
    /// Rounds of each measurement: medians need three.
    pub fn rounds(&self) -> usize {
        if self.is_quick { 3 } else { 5 }
    }
}

/// The future of a run.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One area.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its name on the command line, and the first word of its keys.
    pub name: &'static str,
    /// What it measures, with data, mix and the definition of an error.
    pub about: &'static str,
    /// Measures.
    pub run: for<'a> fn(&'a mut Bench, &'a mut Figures) -> Run<'a>,
    /// What its figures are held against.
    pub targets: &'static [Target],
}

/// All areas, in the order they run.
pub const AREAS: &[Area] = &[command::AREA, counter::AREA, lanes::AREA];

/// Measures, prints, and writes the file.
///
/// # Errors
/// When an area is unknown, or something does not run. A missed target is reported and is no error: machines differ.
pub async fn run(arguments: Arguments) -> Result<()> {
    if arguments.list {
        AREAS.iter().for_each(|area| println!("{:<12} {}", area.name, area.about));
        return Ok(());
    }
    let areas = chosen(&arguments.areas)?;
    if cfg!(debug_assertions) {
        return for_release();
    }
    let mut report = report::Report::new(arguments.quick);
    for area in areas {
        step(&format!("measuring {}: {}", area.name, area.about));
        // A stack of its own, so that one area's data is not another's ballast.
        let site = Site::start(StackSpec::default(), true, Vec::new()).await?;
        report.versions(site.stack.versions());
        let mut bench = Bench { site, is_quick: arguments.quick };
        let mut figures = Figures::default();
        let result = (area.run)(&mut bench, &mut figures).await;
        let stopped = bench.site.stop().await;
        result.with_context(|| format!("measuring {}", area.name))?;
        stopped?;
        report.add(area.name, figures, area.targets);
    }
    println!("{}", report.table());
    if let Some(path) = &arguments.json {
        report.write(path)?;
        step(&format!("figures are in {}", path.display()));
    }
    Ok(())
}

/// Becomes the same program built for release: a slow load generator would measure itself.
fn for_release() -> Result<()> {
    step("building the load generator for release");
    let program = build_binary("likewise-dev", true)?;
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}

fn chosen(names: &[String]) -> Result<Vec<Area>> {
    if names.is_empty() {
        return Ok(AREAS.to_vec());
    }
    let known = || AREAS.iter().map(|area| area.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| match AREAS.iter().find(|area| area.name == name) {
        Some(area) => Ok(*area),
        None => bail!("no area {name}; there are: {}", known()),
    };
    names.iter().map(find).collect()
}
