//! Redis without persistence: whatever it holds can be made again.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::find::Found;
use crate::server::{Server, free_port};
use crate::tied::Launch;

/// Starts a server; as a member of a cluster it still has to be told of the others.
pub(crate) fn start(found: &Found, name: &str, run: &Path, is_member: bool) -> Result<Server> {
    let folder = run.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Server::start_on_free_port(name, run, is_ready, |port| {
        let mut arguments: Vec<String> =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", "."]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(["--port".to_owned(), port.to_string()]);
        if is_member {
            let bus = free_port()?.to_string();
            arguments.extend(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"].map(str::to_owned));
            arguments.extend(["--cluster-config-file", "nodes.conf", "--cluster-port", &bus].map(str::to_owned));
        }
        Ok(Launch {
            program: found.path.clone(),
            arguments,
            environment: Vec::new(),
            folder: folder.clone(),
            user: None,
            log: run.join(format!("{name}.log")),
            stop: Signal::TERM,
        })
    })
}

/// Sends one command in a line of its own and answers the raw reply.
///
/// # Errors
/// When the server cannot be reached or answers an error.
pub(crate) fn ask(address: SocketAddr, line: &str) -> Result<String> {
    let bound = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&address, bound).context("connecting to Redis")?;
    stream.set_read_timeout(Some(bound))?;
    stream.set_write_timeout(Some(bound))?;
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).with_context(|| format!("waiting for the answer to {line}"))?;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    if reply.starts_with('-') {
        bail!("Redis refuses `{line}`: {}", reply.lines().next().unwrap_or_default());
    }
    Ok(reply)
}

fn is_ready(server: &Server, process: u32) -> bool {
    ask(server.address(), "INFO server").is_ok_and(|reply| reply.contains(&format!("process_id:{process}\r\n")))
}
