//! One running server: started, killed, stopped and started again on the same port and folder.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::leftovers;
use crate::tied::{self, Launch, pause, signal, spawn, tail, wait};

/// How long a server may take to answer after its start; a killed PostgreSQL replays its log first.
const START_BOUND: Duration = Duration::from_secs(60);
/// How long a server may take to end after a signal, before it is killed.
const STOP_BOUND: Duration = Duration::from_secs(20);
/// How long a start is tried again while the port or the memory of its predecessor is still taken.
const RETRY_BOUND: Duration = Duration::from_secs(15);
/// What servers print when that is so.
const STILL_TAKEN: [&str; 4] = ["ddress already in use", "shared memory block", "lock file", "could not bind"];

/// Asks a started server, known by port and process id, whether it serves.
pub(crate) type Ready = fn(&Server, u32) -> bool;

/// A PostgreSQL, NATS or Redis server on a loopback port.
#[derive(Debug)]
pub struct Server {
    name: String,
    port: u16,
    launch: Launch,
    record: PathBuf,
    ready: Ready,
    child: Mutex<Option<Child>>,
}

/// Where ports are taken from: below those that systems give to outgoing connections. A client that keeps dialling a
/// server that is down would otherwise, sooner or later, get that very port for itself, and the server could not return.
const PORTS: Range<u16> = 15_000..32_000;
/// Ports tried in that range; so many taken ones in a row mean that the range is not ours to use.
const PORTS_TRIED_MAX: usize = 100;

/// A port of 127.0.0.1 that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut drawn = std::iter::repeat_with(|| rand::random_range(PORTS)).take(PORTS_TRIED_MAX);
    if let Some(port) = drawn.find(is_free) {
        return Ok(port);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

impl Server {
    /// Starts what `launch` makes for a free port, and takes another port if somebody else was faster.
    pub(crate) fn start_on_free_port(
        name: &str,
        run: &Path,
        ready: Ready,
        launch: impl Fn(u16) -> Result<Launch>,
    ) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let port = free_port()?;
            let record = run.join(format!("{name}.process"));
            let server =
                Self { name: name.to_owned(), port, launch: launch(port)?, record, ready, child: Mutex::new(None) };
            match server.start_once() {
                Ok(()) => return Ok(server),
                Err(_) if attempt < 5 && server.port_was_taken() => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Its name in messages and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data and settings.
    pub(crate) fn folder(&self) -> &Path {
        &self.launch.folder
    }

    /// The last lines it printed.
    pub fn log_tail(&self) -> String {
        tail(&self.launch.log, 30)
    }

    /// Whether its process is there.
    pub fn is_running(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Ends it with SIGKILL and waits for the end. Nothing happens when it is down already.
    pub fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Ends it cleanly; after a bound with SIGKILL.
    pub fn stop(&self) {
        self.end(self.launch.stop);
    }

    /// Freezes it: it keeps its connections and answers nothing, until [`Server::thaw`].
    pub fn freeze(&self) {
        if let Some(child) = self.child().as_ref() {
            signal(child.id(), Signal::STOP);
        }
    }

    /// Lets it go on after [`Server::freeze`].
    pub fn thaw(&self) {
        if let Some(child) = self.child().as_ref() {
            signal(child.id(), Signal::CONT);
        }
    }

    /// Starts it again on the same port and data, and waits until it serves.
    ///
    /// # Errors
    /// When it does not serve within a minute; with the end of its log.
    pub fn start(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let begin = Instant::now();
        loop {
            match self.start_once() {
                Ok(()) => return Ok(()),
                Err(_) if begin.elapsed() < RETRY_BOUND && self.is_still_taken() => pause(Duration::from_millis(100)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Stops and starts it.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn restart(&self) -> Result<()> {
        self.stop();
        self.start()
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, with: Signal) {
        let mut slot = self.child();
        let Some(mut child) = slot.take() else { return };
        signal(child.id(), with);
        // A frozen process handles no signal but SIGKILL.
        signal(child.id(), Signal::CONT);
        if wait(&mut child, STOP_BOUND).is_none() {
            tied::say(&format!("{} did not end within {STOP_BOUND:?}: killing it", self.name));
            signal(child.id(), Signal::KILL);
            let _ = child.wait();
        }
        leftovers::forget(&self.record);
    }

    fn start_once(&self) -> Result<()> {
        let mut child = spawn(&self.launch).with_context(|| format!("starting {}", self.name))?;
        leftovers::record(&self.record, child.id())?;
        let begin = Instant::now();
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                leftovers::forget(&self.record);
                bail!("{} ended at its start with {status}; its log says:\n{}", self.name, self.log_tail());
            }
            if (self.ready)(self, child.id()) {
                *self.child() = Some(child);
                return Ok(());
            }
            if begin.elapsed() > START_BOUND {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{} does not answer after {START_BOUND:?}; its log says:\n{}", self.name, self.log_tail());
            }
            pause(Duration::from_millis(20));
        }
    }

    fn port_was_taken(&self) -> bool {
        let log = tail(&self.launch.log, 5);
        STILL_TAKEN.iter().any(|words| log.contains(words)) || TcpListener::bind(self.address()).is_err()
    }

    fn is_still_taken(&self) -> bool {
        let log = tail(&self.launch.log, 8);
        STILL_TAKEN.iter().any(|words| log.contains(words))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_not_those_of_outgoing_connections() {
        for _ in 0..20 {
            let port = free_port().unwrap();
            assert!(PORTS.contains(&port), "{port}");
        }
    }
}
