//! Ends what a killed run left behind, and nothing else.
//!
//! Every process is recorded with its id, the moment it started and its name. An id alone is not enough: ids are used
//! again. A run folder whose owner lives is left alone.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::tied::{pause, say, signal};

/// The file that names the process which owns a run folder.
const OWNER: &str = "owner.process";
/// How long a left server may take to end before it is killed.
const END_BOUND: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    id: u32,
    /// As the system counts it; only compared.
    started: String,
    name: String,
}

/// Writes down that process `id` is ours.
pub(crate) fn record(path: &Path, id: u32) -> Result<()> {
    // A process that is gone already needs no record.
    let Some(record) = observe(id) else { return Ok(()) };
    fs::write(path, serde_json::to_string(&record)?).with_context(|| format!("writing {}", path.display()))
}

/// The recorded process is gone.
pub(crate) fn forget(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Makes this process the owner of a run folder.
pub(crate) fn own(run: &Path) -> Result<()> {
    record(&run.join(OWNER), std::process::id())
}

/// Ends the servers of all runs below `runs` whose owner is gone, and removes their folders.
pub(crate) fn sweep(runs: &Path) {
    for entry in runs.read_dir().into_iter().flatten().flatten() {
        let run = entry.path();
        if run.is_dir() && !is_alive(&run.join(OWNER)) {
            end_recorded(&run);
            let _ = fs::remove_dir_all(&run);
        }
    }
}

/// Ends the processes recorded in one run folder, except its owner.
pub(crate) fn end_recorded(run: &Path) {
    for entry in run.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let is_record = path.extension().is_some_and(|extension| extension == "process");
        if !is_record || path.file_name().is_some_and(|name| name == OWNER) {
            continue;
        }
        if let Some(record) = read(&path).filter(|record| observe(record.id).as_ref() == Some(record)) {
            say(&format!("ending {} (process {}) of a killed run", record.name, record.id));
            // PostgreSQL and NATS end soon and cleanly at SIGINT; Redis too.
            signal(record.id, Signal::INT);
            let begin = Instant::now();
            while observe(record.id).as_ref() == Some(&record) {
                if begin.elapsed() > END_BOUND {
                    signal(record.id, Signal::KILL);
                    break;
                }
                pause(Duration::from_millis(20));
            }
        }
        forget(&path);
    }
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn is_alive(path: &Path) -> bool {
    read(path).is_some_and(|record| observe(record.id).as_ref() == Some(&record))
}

/// What the system knows of a process; `None` when there is none, or only its corpse.
fn observe(id: u32) -> Option<Record> {
    if cfg!(target_os = "linux") {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        return parse_stat(id, &text);
    }
    let arguments = ["-o", "stat=,lstart=,comm=", "-p", &id.to_string()];
    let output = Command::new("ps").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut words = text.split_whitespace();
    let state = words.next()?;
    let started: Vec<&str> = words.by_ref().take(5).collect();
    let name = words.collect::<Vec<_>>().join(" ");
    (!state.starts_with('Z')).then(|| Record { id, started: started.join(" "), name })
}

/// `/proc/ID/stat`: the name stands in brackets and may contain anything; field 22 is the start time in clock ticks.
fn parse_stat(id: u32, text: &str) -> Option<Record> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let rest: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    let (state, started) = (rest.first()?, rest.get(19)?);
    let name = text.get(open + 1..close)?.to_owned();
    (*state != "Z").then(|| Record { id, started: (*started).to_owned(), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_start_time() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let record = parse_stat(9, &format!("9 (a) b) {tail}")).unwrap();
        assert_eq!((record.name.as_str(), record.started.as_str()), ("a) b", "777"));
        assert_eq!(parse_stat(9, "9 (gone) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20"), None);
    }

    #[test]
    fn a_run_is_swept_only_when_its_owner_is_gone() {
        let runs = tempfile::tempdir().unwrap();
        let (mine, gone) = (runs.path().join("mine"), runs.path().join("gone"));
        fs::create_dir(&mine).unwrap();
        fs::create_dir(&gone).unwrap();
        own(&mine).unwrap();
        let stranger = Record { started: "long ago".to_owned(), ..observe(std::process::id()).unwrap() };
        fs::write(gone.join(OWNER), serde_json::to_string(&stranger).unwrap()).unwrap();
        sweep(runs.path());
        assert!(mine.is_dir());
        assert!(!gone.exists());
    }

    #[test]
    fn only_the_recorded_process_is_ended_not_one_that_got_its_id() {
        let run = tempfile::tempdir().unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let path = run.path().join("sleeper.process");
        record(&path, sleeper.id()).unwrap();
        let other = Record { started: "0".to_owned(), ..read(&path).unwrap() };
        fs::write(&path, serde_json::to_string(&other).unwrap()).unwrap();
        end_recorded(run.path());
        assert!(sleeper.try_wait().unwrap().is_none(), "a process with another start time was ended");

        record(&path, sleeper.id()).unwrap();
        end_recorded(run.path());
        assert!(!sleeper.wait().unwrap().success());
    }
}
