//! `cargo dev token`: tokens for what `cargo dev up` runs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use likewise_devstack::{DevKeys, Place};
use serde::{Deserialize, Serialize};

/// Whose token to print; a user's when nothing is said.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// An end user
    #[arg(long, default_value = "lin", conflicts_with_all = ["operator", "service"])]
    user: String,
    /// An operator
    #[arg(long, value_name = "NAME", conflicts_with = "service")]
    operator: Option<String>,
    /// The operator's roles
    #[arg(long, value_delimiter = ',', default_value = "viewer", value_parser = ["viewer", "operator", "approver"], requires = "operator")]
    role: Vec<String>,
    /// A service of the mesh
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
}

/// What `cargo dev up` runs, for other terminals.
#[derive(Debug, Serialize, Deserialize)]
pub struct Running {
    /// Folder of its keys.
    pub keys: PathBuf,
    /// Where gRPC answers.
    pub grpc: String,
}

impl Running {
    fn path() -> Result<PathBuf> {
        Ok(Place::find()?.folder("up.json"))
    }

    /// Tells other terminals.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> Result<()> {
        let path = Self::path()?;
        fs::write(&path, serde_json::to_string(self)?).with_context(|| format!("writing {}", path.display()))
    }

    /// Nothing runs any more; a later `cargo dev up` is left alone.
    pub fn remove(&self) {
        let mine = Self::read().is_ok_and(|running| running.keys == self.keys);
        if let (true, Ok(path)) = (mine, Self::path()) {
            let _ = fs::remove_file(path);
        }
    }

    /// Reads what runs now.
    ///
    /// # Errors
    /// When nothing does.
    pub fn read() -> Result<Self> {
        let running = fs::read_to_string(Self::path()?).ok().and_then(|text| serde_json::from_str::<Self>(&text).ok());
        // What was killed leaves its files behind.
        let answers = |running: &Self| std::net::TcpStream::connect(&running.grpc).is_ok();
        match running.filter(|running| running.keys.is_dir() && answers(running)) {
            Some(running) => Ok(running),
            None => bail!("nothing runs here. Type this in another terminal first:\n  cargo dev up"),
        }
    }
}

/// Prints the token, and nothing else, to stdout.
///
/// # Errors
/// When `cargo dev up` does not run.
pub fn run(arguments: &Arguments) -> Result<()> {
    let valid = |name: &str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
    };
    for name in [Some(&arguments.user), arguments.operator.as_ref(), arguments.service.as_ref()].into_iter().flatten() {
        if !valid(name) {
            bail!("{name:?} is no name: 1..64 of the characters A-Z a-z 0-9 _ . : -");
        }
    }
    let keys = DevKeys::open(&Running::read()?.keys)?;
    let token = match (&arguments.operator, &arguments.service) {
        (Some(name), _) => keys.mint_operator(name, &arguments.role.iter().map(String::as_str).collect::<Vec<_>>()),
        (None, Some(name)) => keys.mint_service(name),
        (None, None) => keys.mint_user(&arguments.user),
    };
    println!("{token}");
    Ok(())
}
