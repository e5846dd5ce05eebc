//! What the demo tells, and whether it was right.

use std::fmt::Debug;

use anyhow::{Result, bail};

/// The telling. It goes on after a wrong figure, so that a person sees the whole picture.
#[derive(Debug, Default)]
pub(crate) struct Tale {
    chapters: usize,
    right: usize,
    wrong: Vec<String>,
}

impl Tale {
    /// Begins a chapter.
    pub(crate) fn chapter(&mut self, title: &str) {
        self.chapters += 1;
        println!("\n{}. {title}", self.chapters);
    }

    /// Tells one thing.
    pub(crate) fn say(&self, line: &str) {
        println!("     {line}");
    }

    /// Tells one thing that must be as expected.
    pub(crate) fn must<T: PartialEq + Debug>(&mut self, line: &str, seen: &T, expected: &T) {
        if seen == expected {
            self.right += 1;
            match figure(&format!("{seen:?}")) {
                Some(figure) => println!("  ok {line}: {figure}"),
                None => println!("  ok {line}"),
            }
        } else {
            println!("WRONG {line}\n      seen     {seen:?}\n      expected {expected:?}");
            self.wrong.push(format!("{line}: seen {seen:?}, expected {expected:?}"));
        }
    }

    /// The verdict.
    pub(crate) fn end(self) -> Result<()> {
        if self.wrong.is_empty() {
            println!("\nAll {} figures are right.", self.right);
            return Ok(());
        }
        bail!("{} figures are wrong:\n  {}", self.wrong.len(), self.wrong.join("\n  "))
    }
}

/// A value as people write it: `("LIKED", Some(1))` is `LIKED, 1`. None for a bare yes or no, which the line says already.
fn figure(debug: &str) -> Option<String> {
    if matches!(debug, "true" | "false") {
        return None;
    }
    let bare = debug.replace("Some(", "(").replace('"', "");
    Some(bare.chars().filter(|letter| !matches!(letter, '(' | ')')).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_like_prose() {
        let check = |debug: String, expected: Option<&str>| assert_eq!(figure(&debug).as_deref(), expected);
        check(format!("{:?}", ("LIKED", Some(1))), Some("LIKED, 1"));
        check(format!("{:?}", "APPLIED LIKED v1; now LIKED v1"), Some("APPLIED LIKED v1; now LIKED v1"));
        check(format!("{:?}", vec![2]), Some("[2]"));
        check(format!("{:?}", true), None);
    }
}
