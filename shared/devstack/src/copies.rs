//! Copies of PostgreSQL servers: one taken from the data of a stopped server and put back later, one that follows by
//! asynchronous replication until it is promoted. What was committed after a copy is then lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use crate::place::Place;
use crate::postgres::{self, USER};
use crate::provision::tools;
use crate::server::Server;
use crate::stack::{Stack, password};
use crate::tied::command;

/// Data of a PostgreSQL server as it was at one moment.
#[derive(Debug)]
pub struct Backup {
    number: usize,
    copy: PathBuf,
}

/// A server that follows another one.
#[derive(Debug)]
pub struct Standby {
    /// The server.
    pub server: Server,
    /// Superuser address, database `postgres`.
    pub dsn: String,
}

impl Stack {
    /// Stops a PostgreSQL server, copies its data, and starts it again.
    ///
    /// # Errors
    /// When there is no such server, the copy fails, or it does not start.
    pub fn back_up_postgres(&self, number: usize) -> Result<Backup> {
        let server = self.server(number)?;
        server.stop();
        let copy = server.folder().join(format!("backup-{:08x}", rand::random::<u32>()));
        let copied = copy_folder(&server.folder().join("data"), &copy);
        server.start()?;
        copied?;
        Ok(Backup { number, copy })
    }

    /// Kills the server, puts the data of the backup in the place of its own, and starts it. May be done again.
    ///
    /// # Errors
    /// As [`Stack::back_up_postgres`].
    pub fn put_back_postgres(&self, backup: &Backup) -> Result<()> {
        let server = self.server(backup.number)?;
        server.kill();
        let data = server.folder().join("data");
        fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        copy_folder(&backup.copy, &data)?;
        server.start()
    }

    /// Starts a server that follows the given one and is behind it by what is on its way. It takes reads; after
    /// `select pg_promote()` it takes writes on a timeline of its own.
    ///
    /// # Errors
    /// When there is no such server, or the copy cannot be made or started.
    pub fn standby_of(&self, number: usize) -> Result<Standby> {
        let (primary, place) = (self.server(number)?, Place::find()?);
        let (tools, run) = (tools(&place)?, &self.address().folder);
        let (password, name) = (password(run)?, format!("standby-{:08x}", rand::random::<u32>()));
        let folder = postgres::own_folder(&name, run, place.user())?;
        let mut base_backup = command(&tools.postgres.path.with_file_name("pg_basebackup"), place.user(), &folder);
        base_backup.args(["--pgdata=data", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf"]);
        base_backup.args(["--no-sync", "--host=127.0.0.1"]).arg(format!("--port={}", primary.port()));
        base_backup.arg(format!("--username={USER}")).env("PGPASSWORD", &password);
        run_quietly(&mut base_backup, "pg_basebackup")?;
        let server = postgres::start(&tools.postgres, &name, run, &password, place.user())?;
        let dsn = format!("postgres://{USER}:{password}@{}/postgres", server.address());
        Ok(Standby { server, dsn })
    }

    fn server(&self, number: usize) -> Result<&Server> {
        self.postgres().get(number).ok_or_else(|| anyhow!("the stack has no PostgreSQL server {number}"))
    }
}

/// With owners and modes, which PostgreSQL checks.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    run_quietly(Command::new("cp").arg("-a").arg(from).arg(to), "cp")
}

fn run_quietly(command: &mut Command, name: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        bail!("{name} failed with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
