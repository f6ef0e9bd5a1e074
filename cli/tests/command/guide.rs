//! The guide in `guide/src`: its summary lists every page, its links resolve, and its programs are doctests.
//! `.ci/guide` runs the tutorial for authors of backends, and a test here reads the workflow that it shows.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use yaml_rust2::YamlLoader;

#[test]
fn the_workflow_of_the_guide_is_complete() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide/src/writing-a-backend.md");
    let page = fs::read_to_string(page).unwrap();
    let text = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let documents = YamlLoader::load_from_str(text).unwrap();
    let workflow = &documents[0];
    assert!(workflow["on"]["push"].is_null(), "it runs on every push");
    assert_eq!(workflow["permissions"]["contents"].as_str(), Some("read"));

    let steps = workflow["jobs"]["suite"]["steps"].as_vec().unwrap();
    let all = |name: &'static str| steps.iter().filter_map(move |step| step[name].as_str());
    assert_eq!(all("uses").count() + all("run").count(), steps.len(), "each step does one thing");
    for action in all("uses") {
        let (_, version) = action.split_once('@').unwrap();
        let major = version.strip_prefix('v').is_some_and(|number| number.parse::<u32>().is_ok());
        assert!(major || version == "stable", "{action} is not pinned to a major version");
    }
    for command in all("run") {
        let shown = command.replace(" --release", "");
        assert!(page.contains(&format!("$ {shown}\n")), "the page does not run {shown:?}");
    }
}

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide/src")
}

/// The page whose files and commands `.ci/guide` runs.
const TUTORIAL: &str = "writing-a-backend.md";

/// Returns the pages below a folder.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    entries
        .flat_map(|path| if path.is_dir() { pages(&path) } else { BTreeSet::from([path]) })
        .filter(page)
        .collect()
}

/// Returns the text of a page, or of the file that the page includes as a whole.
fn text(path: &Path) -> std::io::Result<String> {
    let text = fs::read_to_string(path)?;
    match text.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")) {
        Some(file) => fs::read_to_string(path.parent().unwrap().join(file)),
        None => Ok(text),
    }
}

/// Returns the targets of a page's links, except those on other sites.
fn links(page: &str) -> Vec<&str> {
    let ends = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace)).collect()
}

/// Returns the anchors of a page, which mdBook makes from its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(|c| !kept(c), "");
    headings.map(|line| anchor(line).replace(' ', "-")).collect()
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(|link| book().join(link)).collect();
    let mut there = pages(&book());
    there.remove(&book().join("SUMMARY.md"));
    assert_eq!(listed, there);
}

#[test]
fn every_link_of_the_book_has_a_target() {
    for path in pages(&book()) {
        let page = fs::read_to_string(&path).unwrap();
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let inside = target.canonicalize().is_ok_and(|it| it.starts_with(book().canonicalize().unwrap()));
            assert!(inside, "{}: {link} is not in the book", path.display());
            let known = anchor.is_empty() || anchors(&text(&target).unwrap()).contains(anchor);
            assert!(known, "{}: {link} does not exist", path.display());
        }
    }
}

#[test]
fn every_program_of_the_book_is_run() {
    let modules = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide.rs")).unwrap();
    for path in pages(&book()) {
        let page = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(book()).unwrap().display().to_string();
        let run = name == TUTORIAL || modules.contains(&format!("\"{name}\""));
        assert_eq!(page.contains("```rust"), run, "{name}");
        // Programs also run in a separate process.
        let programs = page.replace("```rust,standalone_crate\n", "```rust\n");
        assert!(!programs.contains("```rust,"), "{name} has a program that is not run");
    }
}

/// Returns the programs of a page that open a backend.
fn programs(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```rust").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("fn main") && opens(block))
}

fn opens(program: &str) -> bool {
    ["larder::open(", "Stores::builder()", "Backend::open("].iter().any(|call| program.contains(call))
}

#[test]
fn every_program_of_the_readme_the_guide_and_the_examples_ends_with_close() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    for page in pages(&book()).into_iter().chain([root.join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        for program in programs(&text) {
            assert!(program.contains("close().await"), "{}:\n{program}", page.display());
            seen += 1;
        }
    }
    let examples = fs::read_dir(root.join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let main = |path: PathBuf| if path.is_dir() { path.join("main.rs") } else { path };
    for example in examples.map(main) {
        let program = fs::read_to_string(&example).unwrap();
        if opens(&program) {
            assert!(program.contains("close().await"), "{}", example.display());
            seen += 1;
        }
    }
    assert!(seen > 25, "only {seen} programs");
}
