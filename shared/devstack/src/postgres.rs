//! PostgreSQL: a fresh cluster on 127.0.0.1, durable, as small as a laptop needs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::find::Found;
use crate::place::User;
use crate::server::Server;
use crate::tied::{Launch, command};

/// The superuser of the clusters we make.
pub(crate) const USER: &str = "likewise";

/// Durability stays as in production: what a test proves about kill -9 must not depend on the page cache.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = '256MB'
fsync = on
synchronous_commit = on
full_page_writes = on
wal_compression = on
max_wal_size = '2GB'
min_wal_size = '256MB'
max_locks_per_transaction = 256
random_page_cost = 1.1
jit = off
log_checkpoints = off
log_timezone = 'UTC'
timezone = 'UTC'
";

/// Starts a server with its data below `run`; data that is there already is used again.
pub(crate) fn start(found: &Found, name: &str, run: &Path, password: &str, user: Option<&User>) -> Result<Server> {
    let folder = own_folder(name, run, user)?;
    let data = folder.join("data");
    if !data.join("PG_VERSION").is_file() {
        initialise(found, &folder, password, user)?;
    }
    Server::start_on_free_port(name, run, is_ready, |port| {
        Ok(Launch {
            program: found.path.clone(),
            arguments: vec!["-D".to_owned(), "data".to_owned(), "-p".to_owned(), port.to_string()],
            environment: Vec::new(),
            folder: folder.clone(),
            user: user.cloned(),
            log: run.join(format!("{name}.log")),
            stop: Signal::INT,
        })
    })
}

/// Makes the folder of a server, which belongs to the user that runs it.
pub(crate) fn own_folder(name: &str, run: &Path, user: Option<&User>) -> Result<PathBuf> {
    let folder = run.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    if let Some(user) = user {
        chown(&folder, Some(user.uid), Some(user.gid)).with_context(|| format!("giving {name} its folder"))?;
    }
    Ok(folder)
}

fn initialise(found: &Found, folder: &Path, password: &str, user: Option<&User>) -> Result<()> {
    let word = folder.join("password");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&word)?;
    file.write_all(password.as_bytes())?;
    if let Some(user) = user {
        chown(&word, Some(user.uid), Some(user.gid))?;
    }
    let mut initdb = command(&found.path.with_file_name("initdb"), user, folder);
    initdb.args(["--pgdata=data", "--auth=scram-sha-256", "--pwfile=password", "--encoding=UTF8", "--locale=C"]);
    initdb.args(["--no-instructions", "--no-sync"]).arg(format!("--username={USER}"));
    let output = initdb.output().context("starting initdb")?;
    if !output.status.success() {
        let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("initdb failed with {}:\n{said}{failed}", output.status);
    }
    fs::remove_file(&word)?;
    let mut settings = OpenOptions::new().append(true).open(folder.join("data/postgresql.conf"))?;
    settings.write_all(SETTINGS.as_bytes()).context("writing the settings of PostgreSQL")
}

/// The server writes `ready` into its own pid file, or `standby` if it follows another one; the file of a killed predecessor
/// names another process.
fn is_ready(server: &Server, process: u32) -> bool {
    let text = fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first() == Some(&process.to_string().as_str())
        && matches!(lines.get(7), Some(&"ready" | &"standby"))
        && TcpStream::connect_timeout(&server.address(), Duration::from_secs(1)).is_ok()
}
