//! No source file over 400 lines, tests 800; no function over 70.

use crate::source::{files, none, without_tests};

const FILE_LINES_MAX: usize = 400;
const TEST_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

#[test]
fn files_are_short() {
    let mut findings = Vec::new();
    for file in files(&[".rs", ".py"]) {
        let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
        let (code, all) = (without_tests(&file.text).lines().count(), file.text.lines().count());
        if (!is_test && code > FILE_LINES_MAX) || all > TEST_LINES_MAX {
            findings.push(format!("{}: {code} lines, {all} with tests", file.path));
        }
    }
    none("a file over its limit wants to be two", &findings);
}

/// Functions as rustfmt writes them: the closing brace stands under the beginning of the signature.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let words = ["fn ", "pub fn ", "async fn ", "const fn ", "pub async fn ", "pub const fn "];
        let is_scoped = code.starts_with("pub(")
            && code.split_once(") ").is_some_and(|(_, rest)| words.iter().any(|word| rest.starts_with(word)));
        if !is_scoped && !words.iter().any(|word| code.starts_with(word)) {
            continue;
        }
        let indent = &line[..line.len() - code.len()];
        let end = (start..lines.len()).find(|at| {
            let line = lines[*at];
            line == format!("{indent}}}")
                || (*at == start && line.ends_with('}'))
                || is_declaration(&lines[start..=*at], indent)
        });
        found.push((start + 1, end.map_or(1, |end| end - start + 1)));
    }
    found
}

fn is_declaration(lines: &[&str], indent: &str) -> bool {
    let last = lines[lines.len() - 1];
    let is_outermost = lines.len() == 1 || last.starts_with(&format!("{indent})"));
    is_outermost && last.ends_with(';')
}

#[test]
fn functions_are_short() {
    let mut findings = Vec::new();
    for file in files(&[".rs"]) {
        let long = functions(&file.text).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        findings.extend(long.map(|(at, lines)| format!("{}:{at}: {lines} lines", file.path)));
    }
    none("a function over its limit wants to be two", &findings);
}

#[test]
fn functions_are_measured_from_signature_to_brace() {
    let text = "trait T {\n    fn a(&self);\n    fn b(\n        x: u8,\n    ) -> u8;\n}\npub(crate) async fn c() {\n    x;\n}\nfn d() {}\n";
    assert_eq!(functions(text), [(2, 1), (3, 3), (7, 3), (10, 1)]);
}
