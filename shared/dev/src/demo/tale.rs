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
            println!("  ok {line}");
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
