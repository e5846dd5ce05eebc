//! `cargo dev settings`: docs/settings.md, from the defaults that are compiled into the services.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use likewise_devstack::workspace;

/// Where the document goes.
const DOCUMENT: &str = "docs/settings.md";

/// What to do with it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only look whether the document is up to date
    #[arg(long)]
    check: bool,
}

/// Writes the document, or compares it.
///
/// # Errors
/// When a default has no explanation, or with `--check` when the document differs.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = workspace();
    let (path, wanted) = (root.join(DOCUMENT), render(&root)?);
    if !arguments.check {
        return fs::write(&path, wanted).with_context(|| format!("writing {DOCUMENT}"));
    }
    if fs::read_to_string(&path).unwrap_or_default() != wanted {
        bail!("{DOCUMENT} differs from the defaults. Type\n  cargo dev settings");
    }
    Ok(())
}

/// One key, or the head of a table.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    key: String,
    default: String,
    meaning: String,
}

/// The document.
///
/// # Errors
/// When a file cannot be read or a key has no explanation.
pub fn render(root: &Path) -> Result<String> {
    let mut text = String::from(
        "# Settings\n\n\
         Written by `cargo dev settings` from the defaults that are compiled in; do not edit.\n\n\
         A file given with `--config` overrides the defaults, the environment overrides the file:\n\
         `LIKEWISE__SECTION__KEY=value`. `--print-config` prints what is in force, without secrets; every fault is\n\
         reported at once. A service reads the common sections and its own; `standalone` reads all.\n",
    );
    for file in files(root)? {
        let source = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let section = section(&file);
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let settings = parse(&source).with_context(|| format!("in {shown}"))?;
        text.push_str(&format!(
            "\n## [{section}]\n\nDefaults: `{shown}`\n\n| key | default | meaning |\n|---|---|---|\n"
        ));
        for Setting { key, default, meaning } in settings {
            let cell = |text: &str| text.replace('|', "\\|");
            let key = if key.is_empty() { key } else { format!("`{key}`") };
            text.push_str(&format!("| {key} | {} | {} |\n", cell(&default), cell(&meaning)));
        }
    }
    Ok(text)
}

/// The files with defaults: common sections first, then one per service.
///
/// # Errors
/// When a folder cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let list = |folder: PathBuf| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        Ok(paths)
    };
    let common = list(root.join("shared/kit/defaults"))?;
    let own = list(root.join("services"))?.into_iter().map(|service| service.join("defaults.toml"));
    let is_toml = |path: &PathBuf| path.is_file() && path.extension().is_some_and(|extension| extension == "toml");
    Ok(common.into_iter().chain(own).filter(is_toml).collect())
}

fn section(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let named = if stem == "defaults" {
        file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
    } else {
        stem
    };
    named.replace('-', "_")
}

/// Reads comments and what they explain: a comment beside a key that key, a comment above keys all that follow up to the
/// next blank line or comment, and a comment above the head of a table the table.
fn parse(source: &str) -> Result<Vec<Setting>> {
    let mut all: Vec<Setting> = Vec::new();
    let (mut meaning, mut table, mut is_fresh) = (String::new(), String::new(), false);
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_end();
        if let Some(comment) = line.strip_prefix('#') {
            if !is_fresh {
                meaning.clear();
            }
            is_fresh = true;
            meaning = format!("{meaning} {}", comment.trim()).trim().to_owned();
        } else if line.is_empty() {
            meaning.clear();
            is_fresh = false;
        } else if let Some(head) = line.strip_prefix('[') {
            let name = head.trim_matches(['[', ']']);
            require(&meaning, name)?;
            all.push(Setting { key: format!("[{name}]"), default: "table".to_owned(), meaning: meaning.clone() });
            table = format!("{name}.");
            meaning.clear();
            is_fresh = false;
        } else {
            let (key, value) = line.split_once('=').with_context(|| format!("neither comment nor key: {line}"))?;
            let key = format!("{table}{}", key.trim());
            let (value, own) = split_comment(value.trim());
            if !own.is_empty() && is_fresh {
                all.push(Setting { key: String::new(), default: String::new(), meaning: meaning.clone() });
            }
            let meaning = if own.is_empty() { meaning.as_str() } else { own };
            require(meaning, &key)?;
            let default = whole(value, &mut lines);
            all.push(Setting { key, default: format!("`{default}`"), meaning: meaning.to_owned() });
            is_fresh = false;
        }
    }
    Ok(all)
}

/// A value and the comment beside it.
fn split_comment(text: &str) -> (&str, &str) {
    let mut is_quoted = false;
    let hash = text.char_indices().find(|(_, letter)| {
        is_quoted ^= *letter == '"';
        *letter == '#' && !is_quoted
    });
    hash.map_or((text, ""), |(at, _)| (text[..at].trim(), text[at + 1..].trim()))
}

/// A value that goes on over further lines, on one.
fn whole<'a>(first: &str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    let mut value = first.to_owned();
    let is_open = |text: &str| text.matches(['[', '{']).count() > text.matches([']', '}']).count();
    while is_open(&value) {
        let Some(line) = lines.next() else { break };
        value = format!("{value} {}", line.trim());
    }
    value
}

fn require(meaning: &str, key: &str) -> Result<()> {
    if meaning.is_empty() {
        bail!("{key} has no comment that says what it means");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> Vec<String> {
        let all = parse(source).unwrap();
        all.into_iter().map(|one| format!("{} {} {}", one.key, one.default, one.meaning)).collect()
    }

    #[test]
    fn comments_explain_the_keys_below_them() {
        let source = "# How\n# long.\na_ms = 5\nb_ms = 6\n# Which.\nc = [\n  1,\n]\n\n# Servers.\n[servers]\n# Main.\nmain = \"\"\n";
        let expected = [
            "a_ms `5` How long.",
            "b_ms `6` How long.",
            "c `[ 1, ]` Which.",
            "[servers] table Servers.",
            "servers.main `\"\"` Main.",
        ];
        assert_eq!(shown(source), expected);
        let beside = "# Group.\na = \"x#y\"  # Own.\nb = 2  # Other.\nc = 3\n";
        assert_eq!(shown(beside), ["  Group.", "a `\"x#y\"` Own.", "b `2` Other.", "c `3` Group."]);
        assert!(parse("a = 1\n").is_err(), "a key without a meaning");
        assert!(parse("# A.\na = 1\n\nb = 2\n").is_err(), "a blank line ends what a comment explains");
    }

    #[test]
    fn sections_are_named_by_file_or_service() {
        assert_eq!(section(Path::new("shared/kit/defaults/lanes.toml")), "lanes");
        assert_eq!(section(Path::new("services/reverse-index/defaults.toml")), "reverse_index");
    }
}
