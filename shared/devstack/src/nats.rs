//! NATS with JetStream on disk, synced at every write.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::find::Found;
use crate::server::Server;
use crate::tied::Launch;

/// Starts a server with its store below `run`.
pub(crate) fn start(found: &Found, name: &str, run: &Path) -> Result<Server> {
    let folder = run.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Server::start_on_free_port(name, run, is_ready, |port| {
        let settings = format!(
            "host: 127.0.0.1\nport: {port}\nserver_name: \"{}\"\nmax_payload: 8MB\nmax_connections: 4096\n\
             jetstream {{\n  store_dir: \"store\"\n  sync_interval: always\n  max_memory_store: 64MB\n  \
             max_file_store: 16GB\n}}\n",
            server_name(port)
        );
        fs::write(folder.join("nats.conf"), settings).context("writing the settings of NATS")?;
        Ok(Launch {
            program: found.path.clone(),
            arguments: vec!["--config".to_owned(), "nats.conf".to_owned()],
            environment: Vec::new(),
            folder: folder.clone(),
            user: None,
            log: run.join(format!("{name}.log")),
            stop: Signal::TERM,
        })
    })
}

fn server_name(port: u16) -> String {
    format!("likewise-{}-{port}", std::process::id())
}

/// The server greets with its name and abilities; somebody else on the port would greet otherwise.
fn is_ready(server: &Server, _process: u32) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&server.address(), Duration::from_secs(1)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut greeting = String::new();
    let read = BufReader::new(stream).read_line(&mut greeting);
    read.is_ok() && greeting.contains(&server_name(server.port())) && greeting.contains("\"jetstream\":true")
}
