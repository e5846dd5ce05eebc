//! Child processes that end with this process where the system allows it.
//!
//! On Linux a child asks for a signal at the death of its parent, through `setpriv`. The kernel means the *thread* that
//! forked, so all children are forked by one thread that lives as long as the process. Elsewhere, and for what slips
//! through, [`crate::leftovers`] ends what a killed run left.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::place::User;

type Job = Box<dyn FnOnce() + Send>;

/// Blocks the calling thread. Everything here waits for other processes, without a runtime.
#[expect(clippy::disallowed_methods, reason = "devstack runs outside any runtime")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Says what is happening, past the output capture of the test harness.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "devstack: {line}");
}

/// What to run and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) folder: PathBuf,
    pub(crate) user: Option<User>,
    /// Gets what the process prints; appended to.
    pub(crate) log: PathBuf,
    /// The signal that makes it end cleanly and soon.
    pub(crate) stop: Signal,
}

fn spawner() -> &'static Sender<Job> {
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, jobs): (Sender<Job>, Receiver<Job>) = channel();
        let run = move || jobs.into_iter().for_each(|job| job());
        std::thread::Builder::new().name("devstack-spawner".to_owned()).spawn(run).expect("a thread starts");
        sender
    })
}

/// `setpriv` if it can tie a child to its parent.
fn setpriv() -> Option<&'static Path> {
    static SETPRIV: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = || {
        let path = crate::find::on_path("setpriv")?;
        let works = Command::new(&path)
            .args(["--pdeathsig", "TERM", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        works.is_ok_and(|status| status.success()).then_some(path)
    };
    SETPRIV.get_or_init(found).as_deref()
}

fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::INT => "INT",
        Signal::KILL => "KILL",
        _ => "TERM",
    }
}

/// Prepares `program` to be run as `user`, in `folder`, without the settings of other PostgreSQL installations.
pub(crate) fn command(program: &Path, user: Option<&User>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).env("LC_ALL", "C").env("TZ", "UTC");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid).env("HOME", folder).env("USER", &user.name);
    }
    command
}

/// Starts the process, tied to this one.
pub(crate) fn spawn(launch: &Launch) -> Result<Child> {
    let open = |path: &Path| -> Result<File> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.with_context(|| format!("opening the log {}", path.display()))
    };
    let (log, errors) = (open(&launch.log)?, open(&launch.log)?);
    let mut command = match setpriv() {
        Some(setpriv) => {
            let mut command = command(setpriv, launch.user.as_ref(), &launch.folder);
            command.args(["--pdeathsig", signal_name(launch.stop), "--"]).arg(&launch.program);
            command
        }
        None => command(&launch.program, launch.user.as_ref(), &launch.folder),
    };
    // A group of its own: ctrl-c in a terminal reaches us, and we end the children in order.
    command.args(&launch.arguments).stdout(log).stderr(errors).process_group(0);
    for (name, value) in &launch.environment {
        command.env(name, value);
    }
    let (answer, child) = channel();
    let job = move || {
        let _ = answer.send(command.spawn());
    };
    spawner().send(Box::new(job)).map_err(|_| anyhow!("the spawning thread is gone"))?;
    child.recv()?.with_context(|| format!("starting {}", launch.program.display()))
}

/// Sends a signal; a process that is gone already is no error.
pub(crate) fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Interrupts a process, known to lead a group, and everything it started in that group.
pub fn interrupt_group(leader: u32) {
    if let Some(pid) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::INT);
    }
}

/// Waits at most `bound` for the child to end.
pub(crate) fn wait(child: &mut Child, bound: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if start.elapsed() > bound {
            return None;
        }
        pause(Duration::from_millis(10));
    }
}

/// The last `lines` of a log file.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs a command to its end with its output shown on stderr, so that stdout stays the caller's.
///
/// # Errors
/// When it cannot be started or does not succeed; the message repeats the command.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.stdin(Stdio::null()).stdout(io::stderr()).status();
    let status = status.with_context(|| format!("starting `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed with {status}; its own words stand above");
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
