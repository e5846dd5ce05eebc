//! A whole stack: servers, keys and one folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::keys::DevKeys;
use crate::place::Place;
use crate::provision::{Tools, tools};
use crate::server::Server;
use crate::tied::say;
use crate::{cluster, leftovers, nats, postgres, redis};

/// Members of a Redis Cluster; fewer cannot elect.
const CLUSTER_MEMBERS: usize = 3;

/// What to start.
#[derive(Clone, Debug)]
pub struct StackSpec {
    /// PostgreSQL servers, at least one.
    pub postgres_servers: usize,
    /// A Redis Cluster of three instead of one server.
    pub redis_cluster: bool,
    /// Folder of the stack. Empty takes a new one, which is removed at the end. In a named one, PostgreSQL and NATS find
    /// the data of the run before.
    pub folder: PathBuf,
}

impl Default for StackSpec {
    fn default() -> Self {
        Self { postgres_servers: 1, redis_cluster: false, folder: PathBuf::new() }
    }
}

/// Where a running stack answers; enough for another process to use it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackAddress {
    /// Superuser addresses of the PostgreSQL servers, database `postgres`.
    pub postgres: Vec<String>,
    /// `nats://` address.
    pub nats: String,
    /// `redis://` or `redis-cluster://` address.
    pub redis: String,
    /// Folder of the stack.
    pub folder: PathBuf,
}

impl StackAddress {
    /// Folder of the keys.
    pub fn keys(&self) -> PathBuf {
        self.folder.join("keys")
    }

    /// Reads what [`Stack::describe`] wrote.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} describes no stack", path.display()))
    }
}

/// Running servers, stopped with this value.
#[derive(Debug)]
pub struct Stack {
    postgres: Vec<Server>,
    nats: Server,
    redis: Vec<Server>,
    keys: DevKeys,
    address: StackAddress,
    versions: String,
    is_temporary: bool,
}

impl Stack {
    /// Finds or provisions the servers, ends leftovers of killed runs, and starts everything.
    ///
    /// # Errors
    /// When a server can be neither found nor provisioned, or does not start; the message says what to type.
    pub fn start(spec: StackSpec) -> Result<Self> {
        let place = Place::find()?;
        let tools = tools(&place)?;
        let StackSpec { postgres_servers, redis_cluster, folder } = spec;
        let (folder, is_temporary) = claim(&place, folder)?;
        let versions = format!(
            "PostgreSQL {}{}, NATS {}, Redis {}{}",
            tools.postgres.version,
            if postgres_servers > 1 { format!(" ({postgres_servers} servers)") } else { String::new() },
            tools.nats.version,
            tools.redis.version,
            if redis_cluster { " (cluster of 3)" } else { "" }
        );
        say(&format!("starting {versions} below {}", folder.display()));
        let started = start_servers((postgres_servers, redis_cluster), &place, &tools, &folder);
        if started.is_err() && is_temporary {
            leftovers::end_recorded(&folder);
            let _ = fs::remove_dir_all(&folder);
        }
        let (postgres, nats, redis, keys, password) = started?;
        let dsn = |server: &Server| format!("postgres://{}:{password}@{}/postgres", postgres::USER, server.address());
        let address = StackAddress {
            postgres: postgres.iter().map(dsn).collect(),
            nats: format!("nats://{}", nats.address()),
            redis: redis_address(&redis),
            folder,
        };
        Ok(Self { postgres, nats, redis, keys, address, versions, is_temporary })
    }

    /// What runs, for reports.
    pub fn versions(&self) -> &str {
        &self.versions
    }

    /// Where everything answers.
    pub fn address(&self) -> &StackAddress {
        &self.address
    }

    /// The development keys.
    pub fn keys(&self) -> &DevKeys {
        &self.keys
    }

    /// The PostgreSQL servers.
    pub fn postgres(&self) -> &[Server] {
        &self.postgres
    }

    /// The NATS server.
    pub fn nats(&self) -> &Server {
        &self.nats
    }

    /// The Redis server, or the members of the cluster.
    pub fn redis(&self) -> &[Server] {
        &self.redis
    }

    /// Writes the address into `path`, for other processes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn describe(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_string_pretty(&self.address)?)
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Stops everything and removes a folder that was made for this run. Dropping does the same.
    pub fn stop(self) {
        drop(self);
    }

    fn servers(&self) -> impl Iterator<Item = &Server> {
        self.postgres.iter().chain(std::iter::once(&self.nats)).chain(&self.redis)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for server in self.servers() {
                scope.spawn(|| server.stop());
            }
        });
        if self.is_temporary {
            let _ = fs::remove_dir_all(&self.address.folder);
        }
    }
}

/// Ends leftovers and makes the folder ours, while no other process does the same.
fn claim(place: &Place, named: PathBuf) -> Result<(PathBuf, bool)> {
    let _one_at_a_time = place.lock("claim")?;
    leftovers::sweep(&place.runs());
    let is_temporary = named.as_os_str().is_empty();
    let folder = if is_temporary {
        place.runs().join(format!("{}-{:08x}", std::process::id(), rand::random::<u32>()))
    } else {
        named
    };
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    // PostgreSQL's user passes through; nobody else looks in.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
    leftovers::end_recorded(&folder);
    leftovers::own(&folder)?;
    Ok((folder.canonicalize()?, is_temporary))
}

type Started = (Vec<Server>, Server, Vec<Server>, DevKeys, String);

fn start_servers(
    (postgres_servers, redis_cluster): (usize, bool),
    place: &Place,
    tools: &Tools,
    folder: &Path,
) -> Result<Started> {
    let password = password(folder)?;
    let keys_folder = folder.join("keys");
    let keys = if keys_folder.join("jwks.json").is_file() {
        DevKeys::open(&keys_folder)?
    } else {
        fs::create_dir_all(&keys_folder)?;
        fs::set_permissions(&keys_folder, fs::Permissions::from_mode(0o700))?;
        DevKeys::generate(&keys_folder)?
    };
    let (postgres, nats, redis) = std::thread::scope(|scope| {
        let postgres: Vec<_> = (0..postgres_servers.max(1))
            .map(|number| {
                let (name, password) = (numbered("postgres", number), &password);
                scope.spawn(move || postgres::start(&tools.postgres, &name, folder, password, place.user()))
            })
            .collect();
        let nats = scope.spawn(|| nats::start(&tools.nats, "nats", folder));
        let redis = start_redis(redis_cluster, tools, folder);
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<Server>>| {
            handle.join().map_err(|_| anyhow!("a starting thread panicked"))?
        };
        (postgres.into_iter().map(join).collect::<Result<Vec<_>>>(), join(nats), redis)
    });
    Ok((postgres?, nats?, redis?, keys, password))
}

fn start_redis(is_cluster: bool, tools: &Tools, folder: &Path) -> Result<Vec<Server>> {
    let members = if is_cluster { CLUSTER_MEMBERS } else { 1 };
    let servers = (0..members)
        .map(|number| redis::start(&tools.redis, &numbered("redis", number), folder, is_cluster))
        .collect::<Result<Vec<_>>>()?;
    if is_cluster {
        cluster::form(&servers)?;
    }
    Ok(servers)
}

fn numbered(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}-{}", number + 1) }
}

/// The superuser's password: kept with the data it belongs to.
pub(crate) fn password(folder: &Path) -> Result<String> {
    let path = folder.join("postgres.password");
    if let Ok(kept) = fs::read_to_string(&path) {
        return Ok(kept);
    }
    let password = format!("{:032x}", rand::random::<u128>());
    fs::write(&path, &password)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(password)
}

fn redis_address(members: &[Server]) -> String {
    let Some(first) = members.first() else { return String::new() };
    if members.len() == 1 {
        return format!("redis://{}", first.address());
    }
    let others: Vec<String> = members.iter().skip(1).map(|member| format!("node={}", member.address())).collect();
    format!("redis-cluster://{}?{}", first.address(), others.join("&"))
}
