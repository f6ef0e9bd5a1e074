//! The layout of the code: packages depend only on lower packages, and no modules of a crate import each
//! other in a cycle.
//!
//! `LARDER_LAYOUT_ROOT` names another checkout to check.

// The whole target is a test, including its helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

#[path = "layout/graph.rs"]
pub(crate) mod graph;
#[path = "layout/paths.rs"]
pub(crate) mod paths;
#[path = "layout/tree.rs"]
pub(crate) mod tree;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tree::Tree;

/// The packages by their folders, the lowest first. A package may depend on the packages before it in this
/// list.
const PACKAGES: [(&str, &str); 9] = [
    ("kernel", "larder-kernel"),
    ("agents", "larder-agents"),
    ("capabilities", "larder-capabilities"),
    (".", "larder"),
    ("conformance", "larder-conformance"),
    ("conformance/examples/third-party", "third-party"),
    ("cli", "larder-cli"),
    ("conformance/examples/redb", "larder-redb"),
    ("bench", "larder-bench"),
];

fn root() -> PathBuf {
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::var_os("LARDER_LAYOUT_ROOT").map_or_else(here, PathBuf::from)
}

/// Returns what `cargo metadata` says about the packages of a workspace. It lists each dependency under the
/// package's own name, also if it is renamed, depends on the target, or is for development or builds.
fn metadata(root: &Path) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let read = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

/// Returns each dependency on a package that is not below, and each package without a level.
fn upwards(metadata: &Value) -> Vec<String> {
    let level = |name: &str| PACKAGES.iter().position(|(_, package)| *package == name);
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(own) = level(name) else {
            wrong.push(format!("{name} has no level"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            // A package may name itself, to turn on its features for its tests.
            if level(other).is_some_and(|above| above >= own) && other != name {
                wrong.push(format!("{name} depends on {other}"));
            } else if dependency["path"].is_string() && level(other).is_none() {
                wrong.push(format!("{name} depends on {other}, which has no level"));
            }
        }
    }
    wrong
}

/// Proves: RAVI-1
#[test]
fn packages_depend_downwards_only() {
    let metadata = metadata(&root());
    let packages = metadata["packages"].as_array().unwrap();
    for (_, package) in PACKAGES {
        assert!(packages.iter().any(|found| found["name"] == package), "{package} is not a member");
    }
    assert_eq!(upwards(&metadata), [] as [String; 0]);
}

#[test]
fn a_dependency_upwards_is_found_in_every_table_and_under_every_name() {
    let kernel = |tables: &str| {
        let folder = tempfile::tempdir().unwrap();
        let package = |path: &str, name: &str, tables: &str| {
            let package = folder.path().join(path);
            fs::create_dir_all(package.join("src")).unwrap();
            fs::write(package.join("src/lib.rs"), "").unwrap();
            let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{tables}");
            fs::write(package.join("Cargo.toml"), manifest).unwrap();
        };
        fs::write(
            folder.path().join("Cargo.toml"),
            "[workspace]\nresolver = \"3\"\nmembers = [\"kernel\", \"agents\"]\n",
        )
        .unwrap();
        package("kernel", "larder-kernel", tables);
        package("agents", "larder-agents", "");
        upwards(&metadata(folder.path()))
    };
    assert_eq!(kernel(""), [] as [String; 0]);
    for table in
        ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(windows)'.dependencies"]
    {
        for dependency in [
            "larder-agents = { path = \"../agents\" }",
            "other = { path = \"../agents\", package = \"larder-agents\" }",
        ] {
            let found = kernel(&format!("[{table}]\n{dependency}\n"));
            assert_eq!(found, ["larder-kernel depends on larder-agents"], "{table}: {dependency}");
        }
    }
}

/// Returns the root files of a package's crates.
fn crates(package: &Path) -> Vec<PathBuf> {
    let source = package.join("src");
    let mut roots = vec![source.join("lib.rs"), source.join("main.rs")];
    for entry in fs::read_dir(source.join("bin")).into_iter().flatten().flatten() {
        let path = entry.path();
        roots.push(if path.is_dir() { path.join("main.rs") } else { path });
    }
    roots.retain(|root| root.is_file());
    roots
}

/// Returns the cycles of a crate: their modules, and an example of each import.
fn circles(tree: &Tree) -> Vec<String> {
    let edges = tree.edges();
    let shown = |id: usize| tree.modules[id].path.as_str();
    let circles = graph::circles(tree.modules.len(), &edges).into_iter();
    circles
        .map(|circle| {
            let names: Vec<&str> = circle.iter().map(|id| shown(*id)).collect();
            let mut text = format!("circle of {}: {}\n", names.len(), names.join(", "));
            for ((from, to), example) in &edges {
                if circle.contains(from) && circle.contains(to) {
                    writeln!(text, "  {} -> {}, as `{example}`", shown(*from), shown(*to)).unwrap();
                }
            }
            text
        })
        .collect()
}

#[test]
fn no_modules_of_a_crate_import_each_other_in_a_cycle() {
    let mut found = String::new();
    assert!(!crates(&root().join("kernel")).is_empty(), "{} is no checkout", root().display());
    for (folder, _) in PACKAGES {
        for root in crates(&root().join(folder)) {
            for circle in circles(&Tree::read(&root)) {
                write!(found, "{}: {circle}", root.display()).unwrap();
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn an_import_cycle_is_found() {
    let tree = Tree::of_source(
        "mod a { use crate::b::Two; pub struct One; }
         mod b { pub struct Two; fn f() { vec![super::c::three()]; } }
         mod c { use super::a; pub fn three(_: a::One) {} }
         mod d { use crate::a::One; }",
    );
    let found = circles(&tree);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("circle of 3: crate::a, crate::b, crate::c\n"), "{}", found[0]);
    assert!(found[0].contains("crate::b -> crate::c, as `super::c::three`"), "{}", found[0]);
}

#[test]
fn a_reexport_leads_to_the_module_that_defines_the_item() {
    let facade =
        "mod facade { pub use crate::low::Item; pub use self::deep::*; pub mod deep { pub struct Deep; } }";
    let low = "mod low { pub struct Item; }";
    let high = "mod high { use crate::facade::{Deep, Item}; }";
    let none = Tree::of_source(&format!("{facade} {low} {high}"));
    assert!(circles(&none).is_empty());
    let edges = none.edges();
    let named =
        |(from, to): &(usize, usize)| (none.modules[*from].path.as_str(), none.modules[*to].path.as_str());
    let from_high: Vec<_> = edges.keys().map(named).filter(|(from, _)| *from == "crate::high").collect();
    assert_eq!(from_high, [("crate::high", "crate::facade::deep"), ("crate::high", "crate::low")]);
    // Through the re-export, `low` would need the module above it.
    let low = "mod low { use crate::top::Top; pub struct Item; }";
    let top = "mod top { use crate::facade::Item; pub struct Top; }";
    let circle = circles(&Tree::of_source(&format!("{facade} {low} {top}")));
    assert!(circle[0].starts_with("circle of 2: crate::low, crate::top"), "{circle:?}");
}

#[test]
fn a_module_and_its_descendants_are_not_a_cycle() {
    let tree = Tree::of_source(
        "mod a { mod b { use super::One; pub struct Two; mod c { use crate::a::One; } } use b::Two; pub \
         struct One; }",
    );
    assert!(circles(&tree).is_empty());
}

#[test]
fn code_for_tests_is_left_out() {
    let tree = Tree::of_source(
        "mod a { pub struct One; #[cfg(test)] mod tests { use crate::b::Two; }
                 #[cfg(all(test, unix))] fn f(_: crate::b::Two) {} }
         mod b { use crate::a::One; pub struct Two; }",
    );
    assert!(circles(&tree).is_empty());
}
