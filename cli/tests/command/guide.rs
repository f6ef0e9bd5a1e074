//! The workflow that the guide for authors of backends shows is one that GitHub can read; the rest of that page is run by
//! `.ci/guide`. The book in `guide` is whole: its programs are run as tests of documentation, its pages and links are
//! looked at here.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use yaml_rust2::YamlLoader;

#[test]
fn the_workflow_of_the_guide_is_whole() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/writing-a-backend.md");
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

/// The pages below a folder, by their path in it.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { pages(&path) } else { BTreeSet::from([path]) }).collect()
}

/// What the links of a page lead to, but for those to other sites.
fn links(page: &str) -> Vec<&str> {
    let ends = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace)).collect()
}

/// The anchors of a page, as they are made from its headings.
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
fn every_link_of_the_book_leads_somewhere() {
    for path in pages(&book()) {
        let page = fs::read_to_string(&path).unwrap();
        for link in links(&page) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let text = fs::read_to_string(&target);
            assert!(text.is_ok() || target.is_dir(), "{}: {link}", path.display());
            let known = anchor.is_empty() || anchors(&text.unwrap()).contains(anchor);
            assert!(known, "{}: there is no {link}", path.display());
        }
    }
}

#[test]
fn every_program_of_the_book_is_run() {
    let modules = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide.rs")).unwrap();
    for path in pages(&book()) {
        let page = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(book()).unwrap().display().to_string();
        let run = modules.contains(&format!("\"{name}\""));
        assert_eq!(page.contains("```rust"), run, "{name}");
        assert!(!page.contains("```rust,"), "{name} has a program that is not run");
    }
}
