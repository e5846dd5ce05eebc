//! Where things are: the workspace, its tools folder, and whether another user can reach them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The root of the workspace this crate was compiled in.
#[must_use]
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf()
}

/// Where provisioned servers are installed: `.dev/tools` of the workspace, or a folder below `/var/tmp` when we are root
/// and the workspace is closed to the user PostgreSQL runs as (PostgreSQL refuses to run as root).
#[must_use]
pub fn tools_folder() -> PathBuf {
    open_base(&workspace_root().join(".dev")).join("tools")
}

/// `wanted`, or a stand-in for it below `/var/tmp` when the servers' user could not get there.
pub(crate) fn open_base(wanted: &Path) -> PathBuf {
    if !is_root() || reachable_by_others(wanted) {
        return wanted.to_path_buf();
    }
    let digest = Sha256::digest(wanted.as_os_str().as_encoded_bytes());
    let short: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    PathBuf::from(format!("/var/tmp/likewise-dev-{short}"))
}

/// Every existing folder on the way lets anybody pass. What does not exist yet is created by us, open.
fn reachable_by_others(path: &Path) -> bool {
    path.ancestors().all(|folder| fs::metadata(folder).map_or(true, |found| found.mode() & 0o001 != 0))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user and group PostgreSQL runs as: `None` for ourselves, otherwise (we are root) `postgres` or `nobody`.
pub(crate) fn server_user() -> Result<Option<(u32, u32)>> {
    if !is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("reading /etc/passwd to find a user for PostgreSQL")?;
    let find = |name: &str| {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            match fields.as_slice() {
                [user, _, uid, gid, ..] if *user == name => Some((uid.parse().ok()?, gid.parse().ok()?)),
                _ => None,
            }
        })
    };
    let user = find("postgres").or_else(|| find("nobody"));
    user.map(Some).context("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")
}

/// The build folder of the running program: `<target>/<profile>`.
pub(crate) fn profile_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding the running program")?;
    let folder = program.parent().context("the running program has no folder")?;
    let inner = folder.file_name().is_some_and(|name| name == "deps" || name == "examples");
    let folder = if inner { folder.parent().unwrap_or(folder) } else { folder };
    Ok(folder.to_path_buf())
}

/// Whether a process with this id exists.
pub(crate) fn process_exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
