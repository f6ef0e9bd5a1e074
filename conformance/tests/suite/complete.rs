//! Every store and wrapper of this repository implements every method of its contract. The default bodies,
//! which return `Unsupported`, are for incomplete stores.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{ImplItem, Item, TraitItem};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Stores of unit tests may be incomplete.
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn items(path: &Path) -> Vec<Item> {
    syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items
}

/// The methods of each contract that do I/O, by the trait's name.
fn contracts() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(&root().join("kernel/src/storage"), &mut files);
    let mut found = BTreeMap::new();
    for item in files.iter().flat_map(|path| items(path)) {
        let Item::Trait(it) = item else { continue };
        let methods = it.items.iter().filter_map(|item| match item {
            TraitItem::Fn(method) if method.sig.asyncness.is_some() => Some(method.sig.ident.to_string()),
            _ => None,
        });
        let name = it.ident.to_string();
        if !name.ends_with("Ext") && name != "CypherCapable" {
            found.insert(name, methods.collect());
        }
    }
    found
}

#[test]
fn every_store_implements_every_method() {
    let contracts = contracts();
    assert_eq!(contracts.len(), 6, "{contracts:?}");
    let mut files = Vec::new();
    for folder in ["agents/src", "capabilities/src", "conformance/src", "cli/src", "bench/src"] {
        sources(&root().join(folder), &mut files);
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in &files {
        for item in items(path) {
            let Item::Impl(it) = item else { continue };
            let Some(name) = it.trait_.as_ref().and_then(|(path, _)| path.segments.last()) else { continue };
            let Some(methods) = contracts.get(&name.ident.to_string()) else { continue };
            let own: BTreeSet<String> = it
                .items
                .iter()
                .filter_map(|item| match item {
                    ImplItem::Fn(method) => Some(method.sig.ident.to_string()),
                    _ => None,
                })
                .collect();
            seen += 1;
            wrong.extend(
                methods
                    .difference(&own)
                    .map(|method| format!("{}: {}::{method}", path.display(), name.ident)),
            );
        }
    }
    assert!(seen > 30, "only {seen} implementations were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
