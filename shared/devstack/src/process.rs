//! A built binary of the product, run against the stack.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::Deserialize;

use crate::config::TestConfig;
use crate::leftovers;
use crate::place::workspace;
use crate::tied::{Launch, run_shown, signal, spawn, tail};

/// How long a process may take to serve: migrations on a loaded machine.
const READY_BOUND: Duration = Duration::from_secs(90);
/// The binary with all services.
const STANDALONE: &str = "likewise-standalone";

/// The file that a service writes once it serves.
#[derive(Debug, Deserialize)]
struct Bound {
    grpc: String,
    admin: String,
}

/// A running service, killed with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    bound: Bound,
    log: PathBuf,
    record: PathBuf,
}

impl Process {
    /// Starts `standalone` with `config` and further environment variables, and waits until it serves. The binary lies
    /// in `LIKEWISE_BIN_DIR`, or is built now, once per process.
    ///
    /// # Errors
    /// When it cannot be built, ends, or does not serve in time; with the end of its log.
    pub async fn standalone(config: &TestConfig, environment: &[(&str, &str)]) -> Result<Self> {
        Self::start(STANDALONE, config, environment).await
    }

    /// The same with any one binary of the workspace, by name.
    ///
    /// # Errors
    /// As [`Process::standalone`].
    pub async fn start(binary: &str, config: &TestConfig, environment: &[(&str, &str)]) -> Result<Self> {
        Self::run(&built(binary).await?, config, environment).await
    }

    /// The same with a binary that is there already.
    ///
    /// # Errors
    /// When it ends or does not serve in time; with the end of its log.
    pub async fn run(program: &Path, config: &TestConfig, environment: &[(&str, &str)]) -> Result<Self> {
        let port_file = config.folder().join(format!("{}.ports", unique(program)?));
        let arguments = vec!["--config".to_owned(), config.path().to_string_lossy().into_owned()];
        let port_file_text = port_file.to_string_lossy().into_owned();
        let environment = [environment, &[("LIKEWISE__SERVER__PORT_FILE", &port_file_text)]].concat();
        let mut process = Self::spawn(program, arguments, config, &environment)?;
        process.bound = process.wait_until_it_serves(&program.to_string_lossy(), &port_file).await?;
        Ok(process)
    }

    /// Starts an example of a package, which serves nothing, with environment variables of its own. It lies among the
    /// binaries in `LIKEWISE_BIN_DIR`, or is built now.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub async fn example(
        (package, features, name): (&str, &str, &str),
        config: &TestConfig,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let program = match std::env::var_os("LIKEWISE_BIN_DIR") {
            Some(folder) => PathBuf::from(folder).join("examples").join(name),
            None => {
                let wanted = ["--package", package, "--features", features, "--example", name].map(str::to_owned);
                tokio::task::spawn_blocking(move || build(&wanted, is_release())).await??.join("examples").join(name)
            }
        };
        Self::spawn(&program, Vec::new(), config, environment)
    }

    fn spawn(
        program: &Path,
        arguments: Vec<String>,
        config: &TestConfig,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let name = unique(program)?;
        let folder = config.folder();
        let launch = Launch {
            program: program.to_path_buf(),
            arguments,
            environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            folder: folder.to_path_buf(),
            user: None,
            log: folder.join(format!("{name}.log")),
            stop: Signal::KILL,
        };
        let child = spawn(&launch)?;
        let record = config.address.folder.join(format!("{name}.process"));
        let bound = Bound { grpc: String::new(), admin: String::new() };
        let process = Self { child, bound, log: launch.log, record };
        leftovers::record(&process.record, process.child.id())?;
        Ok(process)
    }

    async fn wait_until_it_serves(&mut self, binary: &str, port_file: &Path) -> Result<Bound> {
        let begin = Instant::now();
        loop {
            let text = fs::read_to_string(port_file).unwrap_or_default();
            // Half a file is no JSON yet.
            if let Ok(bound) = serde_json::from_str(&text) {
                return Ok(bound);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{binary} ended before it served, with {status}; its log says:\n{}", self.log_tail());
            }
            if begin.elapsed() > READY_BOUND {
                bail!("{binary} does not serve after {READY_BOUND:?}; its log says:\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Where gRPC answers, as `127.0.0.1:PORT`.
    pub fn grpc(&self) -> &str {
        &self.bound.grpc
    }

    /// Where metrics and probes answer, as `127.0.0.1:PORT`.
    pub fn admin(&self) -> &str {
        &self.bound.admin
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        tail(&self.log, 40)
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it with SIGKILL, if it is still there, and waits for the end.
    pub async fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.wait(Duration::from_secs(30)).await;
    }

    /// Asks it to end with SIGTERM and waits.
    ///
    /// # Errors
    /// When it is still there after `bound`; it is then killed.
    pub async fn terminate(&mut self, bound: Duration) -> Result<ExitStatus> {
        signal(self.child.id(), Signal::TERM);
        if let Some(status) = self.wait(bound).await {
            return Ok(status);
        }
        let log = self.log_tail();
        self.kill().await;
        bail!("the process did not end within {bound:?} after SIGTERM; its log says:\n{log}")
    }

    /// Whether it ends by itself within `bound`.
    pub async fn ended_within(&mut self, bound: Duration) -> bool {
        self.wait(bound).await.is_some()
    }

    /// Waits at most `bound` for its end.
    pub async fn wait(&mut self, bound: Duration) -> Option<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                leftovers::forget(&self.record);
                return Some(status);
            }
            if begin.elapsed() > bound {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        leftovers::forget(&self.record);
    }
}

/// A name for what one run of a program writes.
fn unique(program: &Path) -> Result<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let name = program.file_name().context("a program has a name")?.to_string_lossy();
    Ok(format!("{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)))
}

/// The path of a binary: in `LIKEWISE_BIN_DIR`, or built now, once per process.
async fn built(binary: &str) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("LIKEWISE_BIN_DIR") {
        let path = PathBuf::from(folder).join(binary);
        if !path.is_file() {
            bail!("LIKEWISE_BIN_DIR holds no {binary}: type `cargo build -p {binary}`");
        }
        return Ok(path);
    }
    let binary = binary.to_owned();
    tokio::task::spawn_blocking(move || {
        static BUILT: std::sync::Mutex<Vec<(String, PathBuf)>> = std::sync::Mutex::new(Vec::new());
        let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, path)) = built.iter().find(|(name, _)| *name == binary) {
            return Ok(path.clone());
        }
        let path = build_binary(&binary, is_release())?;
        built.push((binary, path.clone()));
        Ok(path)
    })
    .await?
}

/// Whether this very program was built for release; the binaries beside it then are, too.
fn is_release() -> bool {
    std::env::current_exe().is_ok_and(|path| path.components().any(|part| part.as_os_str() == "release"))
}

/// Builds a binary of the workspace and answers its path.
///
/// # Errors
/// When it does not compile.
pub fn build_binary(binary: &str, release: bool) -> Result<PathBuf> {
    let folder = build(&["--package", binary, "--bin", binary].map(str::to_owned), release)?;
    let path = folder.join(binary);
    if !path.is_file() {
        bail!("{} was not built; is the target folder elsewhere? Set LIKEWISE_BIN_DIR", path.display());
    }
    path.canonicalize().context("the built binary")
}

/// Builds what is wanted, and answers the folder of its profile.
fn build(wanted: &[String], release: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(workspace()).args(["build", "--quiet"]).args(wanted);
    if release {
        build.arg("--release");
    }
    run_shown(&mut build)?;
    Ok(target_folder().join(if release { "release" } else { "debug" }))
}

/// Where cargo puts what it builds: the folder this program lies in, by its tag.
fn target_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("CARGO_TARGET_DIR") {
        return workspace().join(folder);
    }
    let own = std::env::current_exe().unwrap_or_default();
    let tagged = own.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_path_buf);
    tagged.unwrap_or_else(|| workspace().join("target"))
}
