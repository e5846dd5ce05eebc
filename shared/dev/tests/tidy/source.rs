//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// One text file, with its path from the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Folders that hold nothing of ours.
const FOREIGN: [&str; 4] = ["target", ".dev", ".git", "node_modules"];

pub(crate) fn root() -> PathBuf {
    likewise_devstack::workspace()
}

/// All files with one of the endings, sorted by path.
pub(crate) fn files(endings: &[&str]) -> Vec<File> {
    let root = root();
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    paths.sort();
    let wanted = paths.into_iter().filter(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)));
    let read = wanted.filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some(File { path: path.strip_prefix(&root).ok()?.to_string_lossy().into_owned(), text })
    });
    read.collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let is_foreign = path.file_name().is_some_and(|name| FOREIGN.iter().any(|foreign| name == *foreign));
        if path.is_dir() && !path.is_symlink() {
            if !is_foreign {
                walk(&path, paths);
            }
        } else {
            paths.push(path);
        }
    }
}

/// Fails with all findings at once.
pub(crate) fn none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// The part of a source file before its unit tests.
pub(crate) fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}
