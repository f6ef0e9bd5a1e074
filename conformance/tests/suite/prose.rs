//! The rules of style that a machine can check: in Markdown, in the documentation of Rust items, and in the
//! comments and texts of code and scripts. The texts include errors, advice and help.
//!
//! The file needs only std, so `.ci/run` compiles it alone, in a second, before anything else. To check the
//! Rust sources of one folder:
//!
//! ```console
//! $ export CARGO_MANIFEST_DIR=$PWD/conformance LARDER_PROSE_IN=kernel/src
//! $ rustc --edition 2024 --test -o target/prose conformance/tests/suite/prose.rs && target/prose
//! ```

// The whole target is a test, including its helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

// The path works for this file as a crate and as a module.
#[path = "prose/scan.rs"]
mod scan;

/// Phrases that no text contains, in lower case.
const PHRASES: &[&str] = &[
    "a world of its own",
    "anew",
    "as it were",
    "are told",
    "as it stands",
    "aught",
    "bear with",
    "bears with",
    "borne with",
    "by itself",
    "by themselves",
    "for itself",
    "for themselves",
    "goes with",
    "go with it",
    "held against",
    "holds against",
    "is not there",
    "are not there",
    "is there",
    "is told",
    "makes for",
    "meanwhile",
    "nobody here",
    "of its own",
    "of one's own",
    "of their own",
    "presses each",
    "that is all",
    "there is no ",
    "thereby",
    "those that",
    "those who",
    "to tell",
    "told of",
    "what is there",
    "what it holds",
    "what lies",
    "what stands",
    "what there is",
    "what they hold",
    "whatever becomes",
    "who wants",
    "whoever",
    "worth nothing",
];

/// Single words that no text contains, with the phrases in which they are literal.
const WORDS: &[(&str, &[&str])] = &[
    ("answers", &["same answers"]),
    ("aside", &[]),
    ("at once", &[]),
    ("beside", &[]),
    ("knows", &[]),
    ("lies", &[]),
    ("stands", &["stands for"]),
    ("tells", &[]),
];

/// Words that begin no sentence.
const STARTS: &[&str] =
    &["How", "What", "Whatever", "Where", "Whether", "Which", "Who", "Whoever", "Whose", "Why"];

/// The maximum columns of a line of Markdown outside of tables.
const COLUMNS_MAX: usize = 122;
/// The same for the README, which people read in narrow windows.
const README_COLUMNS_MAX: usize = 100;
const README_LINES_MAX: usize = 160;
/// The maximum columns of a line of Rust, as in rustfmt.toml.
const RUST_COLUMNS_MAX: usize = 110;

/// Pages that a program writes.
const WRITTEN: [&str; 2] = ["BENCHMARKS.md", "CONTRACT.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Returns the files with this extension below a folder, by their path from the root, without build folders
/// and hidden folders.
fn files(extension: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir()
                && name != "target"
                && name != "node_modules"
                && (!name.starts_with('.') || name == ".github")
            {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, extension, &mut found);
    found.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string().replace('\\', "/");
        (name, fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(named).collect()
}

/// Returns the Markdown files that people write.
fn pages() -> Vec<(String, String)> {
    files("md").into_iter().filter(|(name, _)| !WRITTEN.contains(&name.as_str())).collect()
}

/// Returns `true` if the text contains the words, and not only as a part of longer ones.
fn has(text: &str, words: &str) -> bool {
    let bounds = |at: usize| {
        let before = text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '-');
        let after = text[at + words.len()..].chars().next().is_none_or(|c| !c.is_alphanumeric() && c != '-');
        before && (after || words.ends_with(' '))
    };
    text.match_indices(words).any(|(at, _)| bounds(at))
}

/// Returns the banned phrases and words in a text.
fn banned(text: &str) -> Vec<String> {
    let lower = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let mut found = Vec::new();
    found.extend(
        PHRASES.iter().filter(|phrase| has(&lower, phrase)).map(|phrase| format!("“{}”", phrase.trim())),
    );
    for (word, literal) in WORDS {
        let rest = literal.iter().fold(lower.clone(), |text, literal| text.replace(literal, ""));
        if has(&rest, word) {
            found.push(format!("“{word}”"));
        }
    }
    found
}

/// Returns the rules that a block of prose breaks.
fn faults(block: &str) -> Vec<String> {
    let mut found = banned(block);
    let sentences = block.split(". ").flat_map(|part| part.split(": ").take(1));
    for sentence in sentences {
        let word = sentence.trim_start_matches(['"', '“', '(', '*', '_', ' ']);
        let word = word.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        if STARTS.contains(&word) {
            found.push(format!("a sentence begins with “{word}”"));
        }
    }
    if block.trim_end().ends_with('?') {
        found.push("a question".to_owned());
    }
    found
}

#[test]
fn every_rule_finds_its_example() {
    for text in [
        "Who wants Postgres builds that one alone.",
        "A service that is not there has a column.",
        "The page says more. What is newest comes oldest first.",
        "Whether it holds.",
        "The bytes lie beside the row.",
        "The store knows its rights.",
        "It bears with these until a day.",
        "A process of its own writes.",
        "All of it is read anew.",
        "Why is it so?",
    ] {
        assert!(!faults(text).is_empty(), "{text}");
    }
    for text in [
        "Returns the newest messages, oldest first.",
        "`larder` stands for the command.",
        "The renewed lease expires.",
        "The name of the function `what_is_there` is code.",
    ] {
        let block = scan::without_code(text);
        assert_eq!(faults(&block), Vec::<String>::new(), "{text}");
    }
    let code = r##"let a = "It is \
        read anew."; // What is it
        // for?
        let c = '"'; let r = r#"He "knows" it"#;"##;
    let found: Vec<_> = scan::rust(code).into_iter().map(|it| (it.line, it.text)).collect();
    let expected = [(1, "It is read anew."), (2, "What is it\nfor?"), (4, "He \"knows\" it")]
        .map(|(at, text)| (at, text.to_owned()));
    assert_eq!(found, expected);
    let found: Vec<_> =
        scan::script("a=1 # One\n# two\ndie \"three\"\n").into_iter().map(|it| it.text).collect();
    assert_eq!(found, ["One\ntwo", "three\""]);
    let text = "# Title\n\n- One item\n  goes on.\n- Two\n\n```rust\n// What\n```\n\n| a | b |\n";
    let found: Vec<String> = scan::blocks(text).into_iter().map(|(_, block)| block).collect();
    assert_eq!(found, ["Title", "One item goes on.", "Two", "a", "b"]);
}

#[test]
fn markdown_has_no_banned_phrase_and_no_question() {
    let mut wrong = String::new();
    for (name, text) in pages() {
        for (line, block) in scan::blocks(&text) {
            for fault in faults(&block) {
                writeln!(wrong, "{name}:{line}: {fault}: {block:.90}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn lines_of_markdown_are_not_too_wide() {
    let mut wrong = String::new();
    for (name, text) in pages() {
        let most = if name == "README.md" { README_COLUMNS_MAX } else { COLUMNS_MAX };
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('|')) {
            let columns = line.chars().count();
            if columns > most {
                writeln!(wrong, "{name}:{}: {columns} columns; the limit is {most}", at + 1).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines; the limit is {README_LINES_MAX}");
}

#[test]
fn links_of_markdown_lead_to_files() {
    let mut wrong = String::new();
    for (name, text) in pages().into_iter().filter(|(name, _)| !name.starts_with("guide/src/")) {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let images =
            text.split("src=\"").chain(text.split("srcset=\"")).filter_map(|rest| rest.split('"').next());
        for link in links.chain(images.filter(|link| link.ends_with(".svg"))) {
            let outside = link.contains("://")
                || link.starts_with("../../actions/")
                || link.contains(char::is_whitespace);
            if !outside && !root().join(&name).parent().unwrap().join(link).exists() {
                writeln!(wrong, "{name}: {link}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn pages_for_users_import_the_facade_alone() {
    let of_users = |name: &str| {
        name == "README.md"
            || name.starts_with("guide/src/")
            || name.starts_with("conformance/examples/template/")
    };
    for (name, text) in pages().into_iter().chain(files("rs")).filter(|(name, _)| of_users(name)) {
        for lower in ["larder_kernel", "larder_agents", "larder_capabilities"] {
            assert!(!text.contains(lower), "{name} names {lower}");
        }
    }
}

/// Returns the Rust sources, or those below the folder that `LARDER_PROSE_IN` names.
fn sources() -> Vec<(String, String)> {
    let folder = std::env::var("LARDER_PROSE_IN").unwrap_or_default();
    files("rs").into_iter().filter(|(name, _)| name.starts_with(&folder)).collect()
}

#[test]
fn lines_of_rust_are_not_too_wide() {
    let mut wrong = String::new();
    for (name, text) in sources() {
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > RUST_COLUMNS_MAX {
                writeln!(wrong, "{name}:{}: {columns} columns; the limit is {RUST_COLUMNS_MAX}", at + 1)
                    .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn documentation_of_rust_has_no_banned_phrase_and_no_question() {
    let (mut wrong, mut count) = (String::new(), 0);
    for (name, text) in sources() {
        for (line, block) in scan::blocks(&scan::documentation(&text)) {
            for fault in faults(&block) {
                count += 1;
                writeln!(wrong, "{name}:{line}: {fault}: {block:.90}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}{count} faults");
}

/// Returns the programs and settings besides Rust: scripts, manifests, workflows.
fn scripts() -> Vec<(String, String)> {
    let mut found: Vec<_> = ["sh", "toml", "yml", "mjs", "js", "lua", "sql"]
        .iter()
        .flat_map(|extension| files(extension))
        .collect();
    for folder in [".ci", "conformance/services", "conformance/browser"] {
        let mut paths: Vec<_> =
            fs::read_dir(root().join(folder)).unwrap().flatten().map(|it| it.path()).collect();
        paths.retain(|path| path.is_file() && path.extension().is_none());
        found.extend(paths.into_iter().map(|path| {
            let name = format!("{folder}/{}", path.file_name().unwrap().to_string_lossy());
            (name, fs::read_to_string(path).unwrap())
        }));
    }
    found
}

/// Returns the names of tests and other functions that are sentences, as text with their line numbers.
fn names(source: &str) -> Vec<(usize, String)> {
    let name = |line: &str| {
        line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next().map(str::to_owned))
    };
    let names = source.lines().enumerate().filter_map(|(at, line)| Some((at + 1, name(line)?)));
    names
        .filter(|(_, name)| name.matches('_').count() >= 3)
        .map(|(at, name)| (at, name.replace('_', " ")))
        .collect()
}

#[test]
fn names_of_tests_have_no_banned_phrase() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        for (line, name) in names(&text) {
            for fault in banned(&name) {
                writeln!(wrong, "{file}:{line}: {fault}: {name}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn comments_and_texts_of_programs_have_no_banned_phrase() {
    // A text without a space is data, not prose.
    let is_prose = |prose: &scan::Prose| prose.is_comment || prose.text.trim().contains(' ');
    // This file lists the banned phrases.
    let own = |name: &str| name == "conformance/tests/suite/prose.rs";
    let rust =
        sources().into_iter().filter(|(name, _)| !own(name)).map(|(name, text)| (name, scan::rust(&text)));
    let scripts = scripts().into_iter().map(|(name, text)| (name, scan::script(&text)));
    let (mut wrong, mut count) = (String::new(), 0);
    for (name, prose) in rust.chain(scripts) {
        for prose in prose.iter().filter(|prose| is_prose(prose)) {
            count += 1;
            let text = scan::without_code(&prose.text);
            let found = if prose.is_comment { faults(&text) } else { banned(&text) };
            for fault in found {
                writeln!(wrong, "{name}:{}: {fault}: {:.90}", prose.line, prose.text.replace('\n', " "))
                    .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(count > 5_000 || std::env::var_os("LARDER_PROSE_IN").is_some(), "only {count} texts were found");
}
