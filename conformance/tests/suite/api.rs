//! The documented items of this crate match `tests/api.txt`, so a change of the public API is never
//! accidental.
//!
//! `LARDER_WRITE_API=1 cargo test -p larder-conformance --test suite api` writes the file again.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !["bin", "mutants", "suites"].iter().any(|name| path.ends_with(name)) {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Returns `true` if the item at a line is hidden from the documentation.
fn hidden(lines: &[&str], at: usize) -> bool {
    let attributes = lines[..at].iter().rev().take_while(|line| {
        let line = line.trim_start();
        line.starts_with("#[") || line.starts_with("///")
    });
    attributes.into_iter().any(|line| line.contains("#[doc(hidden)]") || line.contains("#[cfg(test)]"))
}

/// Returns the text from a line to the end of its item's head, on one line.
fn head(lines: &[&str], at: usize) -> String {
    let mut text = String::new();
    for line in &lines[at..] {
        if !text.is_empty() && !text.ends_with('(') {
            text.push(' ');
        }
        text.push_str(line.trim());
        if line.ends_with('{')
            || line.ends_with([';', ',']) && text.matches('(').count() == text.matches(')').count()
        {
            break;
        }
    }
    text.trim_end_matches(['{', ';', ',']).trim_end().replace(", )", ")").replace(",)", ")")
}

/// Returns the exports of the crate's root, and their names.
fn exported() -> (Vec<String>, BTreeSet<String>) {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let items = (0..lines.len()).filter(|at| lines[*at].starts_with("pub ") && !hidden(&lines, *at));
    let items: Vec<String> = items.map(|at| head(&lines, at)).collect();
    let words = items.iter().flat_map(|item| item.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let names = words.map(str::to_owned).collect();
    (items, names)
}

/// Returns the name that a top-level item defines or implements, if the listing includes its members.
fn subject(line: &str) -> Option<&str> {
    let kinds = ["pub struct ", "pub enum ", "pub trait ", "impl "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let rest = rest.split(" for ").last()?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

fn shown(path: &Path, names: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let mut within: Option<(&str, bool)> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("#[macro_export]") {
            found.insert(head(&lines, at + 1));
        }
        if *line == "}" {
            within = None;
        } else if let Some(name) = subject(line).filter(|name| names.contains(*name) && !hidden(&lines, at)) {
            found.insert(head(&lines, at));
            // The members of a trait or an enum are public; those of a trait's implementation belong to the
            // trait.
            within = Some((name, line.contains("trait ") || line.contains("enum ")));
        } else if let Some((name, all)) = within {
            let inner =
                line.strip_prefix("    ").filter(|inner| inner.starts_with(|c: char| c.is_alphabetic()));
            let public = inner.filter(|inner| inner.starts_with("pub ") || all && !inner.starts_with("Ok("));
            if public.is_some() && !hidden(&lines, at) {
                found.insert(format!("{name}: {}", head(&lines, at)));
            }
        } else if line.starts_with("pub fn ") || line.starts_with("pub const ") {
            let name = line.split(' ').nth(2).unwrap_or_default();
            let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            if names.contains(name) && !hidden(&lines, at) {
                // The value of the suite's version changes often, so the listing has only its type.
                found.insert(head(&lines, at).split(" = ").next().unwrap_or_default().to_owned());
            }
        }
    }
}

#[test]
fn the_public_api_equals_the_recorded_one() {
    let (items, names) = exported();
    let (mut paths, mut found) = (Vec::new(), BTreeSet::new());
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut paths);
    for path in paths {
        shown(&path, &names, &mut found);
    }
    let mut text = items.join("\n") + "\n\n";
    for item in found {
        text.push_str(&item);
        text.push('\n');
    }
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api.txt");
    if std::env::var_os("LARDER_WRITE_API").is_some() {
        fs::write(&written, &text).unwrap();
    }
    let before = fs::read_to_string(&written).unwrap_or_default();
    let only = |of: &str, other: &str| -> Vec<String> {
        of.lines().filter(|line| !other.lines().any(|it| it == *line)).map(str::to_owned).collect()
    };
    let (gone, new) = (only(&before, &text), only(&text, &before));
    assert!(gone.is_empty() && new.is_empty(), "gone: {gone:#?}\nnew: {new:#?}");
}
