//! Where tools and running servers are kept, and which user runs PostgreSQL.
//!
//! PostgreSQL refuses to run as root. When we are root it runs as `postgres` or `nobody`, who must then be able to reach
//! its binaries and data: if the workspace lies where they cannot go (below `/root`, say), everything is kept below
//! `/var/tmp` instead.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tied::say;

/// An ordinary user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The folders of this workspace and user.
#[derive(Clone, Debug)]
pub struct Place {
    base: PathBuf,
    user: Option<User>,
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    built_in.to_path_buf()
}

impl Place {
    /// Decides for this machine and user. `LIKEWISE_DEV_DIR` names another folder than `.dev` in the workspace.
    ///
    /// # Errors
    /// When no folder can be written, or root finds no ordinary user to run PostgreSQL.
    pub fn find() -> Result<Self> {
        let user = ordinary_user()?;
        if let Some(named) = std::env::var_os("LIKEWISE_DEV_DIR") {
            let base = PathBuf::from(named);
            prepare(&base)?;
            if let Some(user) = user.as_ref().filter(|user| !reachable(&base, user)) {
                bail!("LIKEWISE_DEV_DIR must be a folder that {} can reach: PostgreSQL runs as that user", user.name);
            }
            return Ok(Self { base: base.canonicalize()?, user });
        }
        let inside = workspace().join(".dev");
        if prepare(&inside).is_ok() && user.as_ref().is_none_or(|user| reachable(&inside, user)) {
            return Ok(Self { base: inside, user });
        }
        let uid = rustix::process::getuid().as_raw();
        let temporary = Some(PathBuf::from("/var/tmp")).filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
        let outside = temporary.join(format!("likewise-dev-{uid}"));
        prepare(&outside)?;
        let metadata = fs::symlink_metadata(&outside)?;
        if !metadata.is_dir() || metadata.uid() != uid {
            bail!("{} belongs to someone else; remove it or set LIKEWISE_DEV_DIR", outside.display());
        }
        if user.as_ref().is_some_and(|user| !reachable(&outside, user)) {
            bail!("no folder that an ordinary user can reach; set LIKEWISE_DEV_DIR to one");
        }
        Ok(Self { base: outside, user })
    }

    /// Provisioned tools, kept from run to run.
    pub fn tools(&self) -> PathBuf {
        self.base.join("tools")
    }

    /// Folders of running stacks, one each.
    pub fn runs(&self) -> PathBuf {
        self.base.join("run")
    }

    /// A folder for something else that may be removed at any time.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Waits until no other process of this user provisions or starts a stack, and keeps them out while the file lives.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let path = self.base.join(format!("{name}.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        if file.try_lock().is_err() {
            say(&format!("waiting for another process that holds {}", path.display()));
            file.lock().with_context(|| format!("locking {}", path.display()))?;
        }
        Ok(file)
    }
}

/// Creates the folder, readable by everybody, and proves that it can be written.
fn prepare(base: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    for folder in [base.to_path_buf(), base.join("tools"), base.join("run")] {
        builder.create(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let probe = base.join(format!(".probe-{}", std::process::id()));
    File::create(&probe).with_context(|| format!("writing below {}", base.display()))?;
    let _ = fs::remove_file(&probe);
    Ok(())
}

/// Whether `user` may walk down to `path` and look into it.
fn reachable(path: &Path, user: &User) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    path.ancestors().all(|folder| {
        let Ok(metadata) = fs::metadata(folder) else { return false };
        let mode = metadata.permissions().mode();
        let bit = match metadata.uid() == user.uid {
            true => 0o100,
            false if metadata.gid() == user.gid => 0o010,
            false => 0o001,
        };
        mode & bit != 0
    })
}

/// Who runs PostgreSQL: nobody else unless we are root.
fn ordinary_user() -> Result<Option<User>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let text = fs::read_to_string("/etc/passwd").context("reading /etc/passwd to find an ordinary user")?;
    let found = ["postgres", "nobody"].iter().find_map(|name| parse_user(&text, name));
    match found {
        Some(user) => Ok(Some(user)),
        None => {
            bail!("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` here: useradd postgres")
        }
    }
}

fn parse_user(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let known = fields.next()? == name;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (known && uid != 0).then(|| User { name: name.to_owned(), uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_root_is_never_one() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\npostgres:x:101:104:PostgreSQL:/var/lib:/bin/bash\nnobody:x:0:1::/:/x\n";
        let postgres = User { name: "postgres".to_owned(), uid: 101, gid: 104 };
        assert_eq!(parse_user(text, "postgres"), Some(postgres));
        assert_eq!(parse_user(text, "nobody"), None);
        assert_eq!(parse_user(text, "post"), None);
    }

    #[test]
    fn a_folder_below_a_closed_one_is_not_reachable() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let stranger = User { name: "stranger".to_owned(), uid: 54321, gid: 54321 };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(reachable(&inner, &stranger));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!reachable(&inner, &stranger));
    }
}
