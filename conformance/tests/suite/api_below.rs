//! The public API of `larder` and of the crates below it, compared with files like this crate's `api.txt`.
//! `LARDER_WRITE_API=1` writes them again; the difference is part of the change that makes it.
//!
//! No published version exists yet that `cargo semver-checks` could compare with, and readers of rustdoc's
//! JSON need a nightly compiler. The lint `unreachable_pub`, an error in CI, makes every `pub` item of these
//! crates reachable by users. The test can therefore read the public items from the sources.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates by the name of their file, each with its folder.
const CRATES: [(&str, &str); 4] =
    [("kernel", "kernel"), ("agents", "agents"), ("capabilities", "capabilities"), ("larder", ".")];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Returns the attributes above the item at a line, each on one line.
fn attributes<'a>(lines: &'a [&str], at: usize) -> impl Iterator<Item = &'a str> {
    let above = lines[..at].iter().rev().map(|line| line.trim());
    above.take_while(|line| line.starts_with("#[") || line.starts_with("//") || line.starts_with(")]"))
}

fn hidden(lines: &[&str], at: usize) -> bool {
    attributes(lines, at).any(|line| line.contains("doc(hidden)") || line.contains("cfg(test)"))
}

/// Returns the attributes that are part of the item's API.
fn promised(lines: &[&str], at: usize) -> String {
    let kept = ["#[derive(", "#[non_exhaustive]", "#[default]"];
    let mut found: Vec<&str> =
        attributes(lines, at).filter(|line| kept.iter().any(|start| line.starts_with(start))).collect();
    found.sort_unstable();
    found.iter().map(|line| format!("{line} ")).collect()
}

/// Returns the text from a line to the end of its item's head, on one line.
fn head(lines: &[&str], at: usize) -> String {
    let mut text = String::new();
    for line in &lines[at..] {
        if !text.is_empty() && !text.ends_with('(') {
            text.push(' ');
        }
        text.push_str(line.split(" //").next().unwrap_or_default().trim());
        let open = |sign| text.matches(sign).count();
        let in_tree = text.starts_with("pub use ") && open('{') != open('}');
        let ends = line.ends_with('{') && !text.starts_with("pub use ")
            || line.ends_with([';', ',', '}']) && open('(') == open(')') && open('<') <= open('>');
        if ends && !in_tree {
            break;
        }
    }
    let text = if text.contains("const ") { text.split(" = ").next().unwrap_or_default() } else { &text };
    text.trim_end_matches(['{', ';', ',']).trim_end().replace(", )", ")").replace(",)", ")")
}

/// Returns the name of a type or trait that a top-level item defines, and `true` if all its members are as
/// public as the item.
fn defined(line: &str) -> Option<(&str, bool)> {
    let kinds = [("pub struct ", false), ("pub enum ", true), ("pub trait ", true), ("pub union ", false)];
    let (rest, all) = kinds.iter().find_map(|(kind, all)| Some((line.strip_prefix(kind)?, *all)))?;
    Some((rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?, all))
}

/// Returns the type of an `impl`, without its module and its parameters.
fn implementer(head: &str) -> Option<&str> {
    let rest = head.strip_prefix("impl")?;
    let rest = rest.split(" for ").last()?.split(" where ").next()?.trim();
    let rest = rest.strip_prefix('<').map_or(rest, |rest| rest.split_once("> ").map_or(rest, |it| it.1));
    let name = rest.split(['<', ' ']).next()?;
    name.rsplit("::").next()
}

/// Returns the names of the public types. Items define them, and macros do by a name alone on its line.
fn types(files: &[String], makers: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in files {
        let mut in_use = false;
        for line in text.lines() {
            in_use =
                matches!(maker(line, makers), Some((_, true))) || in_use && !matches!(line, "}" | ")" | ");");
            let alone = line.trim().trim_end_matches(',');
            let named = alone.starts_with(char::is_uppercase) && alone.chars().all(char::is_alphanumeric);
            found.extend((in_use && named).then(|| alone.to_owned()));
            found.extend(defined(line).map(|(name, _)| name.to_owned()));
        }
    }
    found
}

/// The macros that generate public items.
fn makers(files: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in files {
        let mut name = None;
        for line in text.lines() {
            match line.strip_prefix("macro_rules! ") {
                Some(rest) => name = rest.strip_suffix(" {"),
                None if line.trim_start().starts_with("pub ") => found.extend(name.map(str::to_owned)),
                None if line == "}" => name = None,
                None => {}
            }
        }
    }
    found
}

/// Returns the macro whose definition or use begins at a line, if it generates public items.
fn maker<'a>(line: &'a str, makers: &BTreeSet<String>) -> Option<(&'a str, bool)> {
    let (name, is_use) = match line.strip_prefix("macro_rules! ") {
        Some(rest) => (rest.strip_suffix(" {")?, false),
        None => (line.strip_suffix("!(").or_else(|| line.strip_suffix("! {"))?, true),
    };
    makers.contains(name).then_some((name, is_use))
}

/// Returns the public part of a line inside a macro that generates public items: the items of its definition,
/// or the arguments of its use.
fn made((name, is_use): (&str, bool), line: &str) -> Option<String> {
    let line = line.trim().trim_end_matches(['{', ',', ';']).trim_end();
    let said = if is_use { line.starts_with(char::is_alphabetic) } else { line.starts_with("pub ") };
    said.then(|| format!("{name}!: {line}"))
}

/// Returns the type for which the macro `store` of `larder-capabilities` generates implementations at a line.
fn store<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    (lines[at] == "store! {").then(|| lines.get(at + 1)?.trim().strip_suffix(" as store,"))?
}

fn shown(text: &str, types: &BTreeSet<String>, makers: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    let lines: Vec<_> = text.lines().collect();
    let mut within: Option<(String, bool)> = None;
    let mut in_macro: Option<(&str, bool)> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("mod tests {") {
            return;
        }
        if matches!(*line, "}" | ")" | ");") {
            (within, in_macro) = (None, None);
        } else if let Some(it) = in_macro {
            found.extend(made(it, line));
        } else if let Some(it) = maker(line, makers) {
            in_macro = Some(it);
        } else if let Some(name) = store(&lines, at) {
            found.extend([format!("impl Store for {name}"), format!("impl fmt::Debug for {name}")]);
        } else if hidden(&lines, at) {
        } else if line.starts_with("#[macro_export]") {
            found.insert(head(&lines, at + 1));
        } else if let Some((name, all)) = defined(line) {
            found.insert(format!("{}{}", promised(&lines, at), head(&lines, at)));
            let whole = line.ends_with([';', '}']);
            within = (!whole).then(|| (name.to_owned(), all));
        } else if line.starts_with("impl") {
            let head = head(&lines, at);
            let name = implementer(&head).filter(|name| types.contains(*name));
            if let (Some(name), false) = (name, line.ends_with('}') && !head.contains(" for ")) {
                // The members of a trait's implementation belong to the trait.
                if head.contains(" for ") {
                    found.insert(head.trim_end_matches(" {}").to_owned());
                }
                within = Some((name.to_owned(), false));
            }
        } else if let Some((name, all)) = &within {
            let inner = line.strip_prefix("    ").filter(|it| it.starts_with(|c: char| c.is_alphabetic()));
            if inner.is_some_and(|it| it.starts_with("pub ") || *all) {
                found.insert(format!("{name}: {}{}", promised(&lines, at), head(&lines, at)));
            }
        } else if line.starts_with("pub ") {
            found.insert(head(&lines, at));
        }
    }
}

fn api(folder: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let files: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let makers = makers(&files);
    let (types, mut found) = (types(&files, &makers), BTreeSet::new());
    for text in &files {
        shown(text, &types, &makers, &mut found);
    }
    found.iter().map(|item| format!("{item}\n")).collect()
}

#[test]
fn the_public_api_equals_the_recorded_one() {
    for (name, folder) in CRATES {
        let text = api(folder);
        let written = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/api/{name}.txt"));
        if std::env::var_os("LARDER_WRITE_API").is_some() {
            fs::create_dir_all(written.parent().unwrap()).unwrap();
            fs::write(&written, &text).unwrap();
        }
        let before = fs::read_to_string(&written).unwrap_or_default();
        let (then, now): (BTreeSet<&str>, BTreeSet<&str>) =
            (before.lines().collect(), text.lines().collect());
        let (gone, new): (Vec<_>, Vec<_>) =
            (then.difference(&now).collect(), now.difference(&then).collect());
        assert!(gone.is_empty() && new.is_empty(), "{name}: gone: {gone:#?}\nnew: {new:#?}");
    }
}
