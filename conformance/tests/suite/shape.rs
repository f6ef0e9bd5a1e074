//! The shape of the public types: they can grow without breaking a program that uses them.
//!
//! The tests read the sources. Clippy's lints for this (`exhaustive_structs`, `exhaustive_enums`) would also
//! reject the types listed here.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use syn::{Attribute, Fields, Item, Visibility};

/// The folders of the published packages.
const PACKAGES: [&str; 6] = ["kernel", "agents", "capabilities", ".", "conformance", "cli"];

/// The public types that stay exhaustive, each with the reason.
const EXHAUSTIVE: &[(&str, &str)] = &[
    ("BoardId", "an address: a backend that ignored a further part would mix up two boards"),
    ("ByteRange", "the three forms of a range in HTTP"),
    ("Contract", "code that copies, erases or encrypts every contract must not compile without a new one"),
    ("DamagedBlob", "the source of an error, in a hidden module: one key"),
    ("Direction", "a directed edge has two directions, and both"),
    ("Outcome", "a failed write certainly did not happen, or it may have happened"),
    ("RetryOutcome", "a task has a retry left, or none"),
    ("Thread", "an address: a backend that ignored a further part would mix up two threads"),
];

/// The request types without optional fields, each with the fields that every store reads.
const WITHOUT_OPTIONS: &[(&str, &[&str])] = &[
    ("LanguageModelRequest", &["messages", "output_tokens_max"]),
    ("PageRequest", &["after", "limit"]),
    ("Ttl", &["after", "refresh_on_use"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the files below a folder whose names end in one of `ends`, except build output and tests.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !["target", "tests", "mutants"].iter().any(|name| path.ends_with(name)) {
                files(&path, ends, found);
            }
        } else if path.extension().is_some_and(|end| ends.iter().any(|one| end == *one))
            && !path.ends_with("tests.rs")
        {
            found.push(path);
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns `true` if an attribute has this path and contains the word.
fn has(attributes: &[Attribute], path: &str, word: &str) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        attribute.path().is_ident(path) && tokens.contains(word)
    })
}

/// A public type whose literals or matches another crate can write.
struct Shape {
    name: String,
    may_grow: bool,
    fields: Vec<String>,
    is_struct: bool,
}

fn open(name: &syn::Ident, attributes: &[Attribute], fields: Option<&Fields>, found: &mut Vec<Shape>) {
    if has(attributes, "doc", "hidden") || has(attributes, "cfg", "test") {
        return;
    }
    let all: Vec<&syn::Field> = fields.map(|fields| fields.iter().collect()).unwrap_or_default();
    if fields.is_some() && (all.is_empty() || !all.iter().all(|field| is_public(&field.vis))) {
        return;
    }
    let named = all.iter().filter_map(|field| field.ident.as_ref());
    found.push(Shape {
        name: name.to_string(),
        may_grow: has(attributes, "non_exhaustive", ""),
        fields: named.map(ToString::to_string).collect(),
        is_struct: fields.is_some(),
    });
}

fn shapes(items: &[Item], found: &mut Vec<Shape>) {
    for item in items {
        match item {
            Item::Struct(item) if is_public(&item.vis) => {
                open(&item.ident, &item.attrs, Some(&item.fields), found);
            }
            Item::Enum(item) if is_public(&item.vis) => open(&item.ident, &item.attrs, None, found),
            Item::Mod(module) if !has(&module.attrs, "cfg", "test") => {
                shapes(module.content.as_ref().map(|(_, items)| &items[..]).unwrap_or_default(), found);
            }
            _ => {}
        }
    }
}

/// Returns the names that a crate's root exports in its documentation, or `None` if it has no hidden modules.
fn exported(package: &str) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(root().join(package).join("src/lib.rs")).unwrap();
    let file = syn::parse_file(&text).unwrap();
    let hides = |item: &Item| matches!(item, Item::Mod(module) if has(&module.attrs, "doc", "hidden"));
    if !["conformance", "cli"].contains(&package) {
        assert!(
            !file.items.iter().any(|item| hides(item) && package == "."),
            "the facade has no hidden module"
        );
        return None;
    }
    let mut names = BTreeSet::new();
    for item in &file.items {
        if let Item::Use(item) = item
            && is_public(&item.vis)
            && !has(&item.attrs, "doc", "hidden")
        {
            leaves(&item.tree, &mut names);
        }
    }
    Some(names)
}

fn leaves(tree: &syn::UseTree, names: &mut BTreeSet<String>) {
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree, names),
        syn::UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, names)),
        _ => {}
    }
}

/// Returns the open public types of a package.
fn open_types(package: &str) -> Vec<Shape> {
    let (mut paths, mut found) = (Vec::new(), Vec::new());
    files(&root().join(package).join("src"), &["rs"], &mut paths);
    assert!(!paths.is_empty(), "{package} has no sources");
    for path in paths {
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        shapes(&file.items, &mut found);
    }
    if let Some(names) = exported(package) {
        found.retain(|shape| names.contains(&shape.name));
    }
    found
}

/// The open public types of all packages, each with its package.
static OPEN: LazyLock<Vec<(&str, Shape)>> = LazyLock::new(|| {
    let of = |package| open_types(package).into_iter().map(move |shape| (package, shape));
    PACKAGES.into_iter().flat_map(of).collect()
});

#[test]
fn public_types_may_grow_or_are_listed_with_a_reason() {
    let mut wrong = Vec::new();
    let mut closed = BTreeSet::new();
    for (package, shape) in OPEN.iter().filter(|(_, shape)| !shape.may_grow) {
        if !EXHAUSTIVE.iter().any(|(name, _)| *name == shape.name) {
            wrong.push(format!("{package}: {}", shape.name));
        }
        closed.insert(shape.name.as_str());
    }
    assert!(wrong.is_empty(), "neither `#[non_exhaustive]` nor listed with a reason: {wrong:#?}");
    for (name, reason) in EXHAUSTIVE {
        assert!(closed.contains(name) && !reason.is_empty(), "{name} is listed, but no exhaustive type");
    }
}

#[test]
fn a_type_without_the_attribute_is_found() {
    let source = "pub struct Open { pub one: u8 }
        pub struct Closed { pub one: u8, two: u8 }
        #[non_exhaustive] pub enum Grows { One }
        pub enum Fixed { One }
        #[doc(hidden)] pub enum Hidden { One }
        struct Private { one: u8 }
        pub struct Number(pub u8);
        #[cfg(test)] mod tests { pub struct Test { pub one: u8 } }
        mod inner { pub struct Inner { pub one: u8 } }";
    let mut found = Vec::new();
    shapes(&syn::parse_file(source).unwrap().items, &mut found);
    let names: Vec<_> = found.iter().map(|shape| (shape.name.as_str(), shape.may_grow)).collect();
    let expected = [("Open", false), ("Grows", true), ("Fixed", false), ("Number", false), ("Inner", false)];
    assert_eq!(names, expected);
}

/// Returns the lines that write a literal of one of the types.
fn literals(text: &str, names: &BTreeSet<String>) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices(" {") {
            let before = &line[..at];
            let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
            let lead = before[..start].trim_end();
            let declares = ["struct", "enum", "impl", "for", "->", "let", "trait", "mod"];
            let pattern = line[at..]
                .split_once('}')
                .is_some_and(|(_, rest)| rest.trim_start_matches(')').trim_start().starts_with(['=', '|']));
            let of_another = lead.ends_with("::") || declares.iter().any(|word| lead.ends_with(word));
            if names.contains(&before[start..]) && !of_another && !pattern {
                found.push(number + 1);
            }
        }
    }
    found
}

#[test]
fn the_guide_and_the_examples_show_no_literal_of_our_structs() {
    let structs = OPEN.iter().filter(|(_, shape)| shape.is_struct && !shape.fields.is_empty());
    let names: BTreeSet<String> = structs.map(|(_, shape)| shape.name.clone()).collect();
    assert!(names.contains("ChatMessage") && names.len() > 50, "{names:?}");
    let mut paths = vec![root().join("README.md")];
    for folder in ["guide/src", "examples", "conformance/examples"] {
        files(&root().join(folder), &["md", "rs"], &mut paths);
    }
    paths.extend(PACKAGES.iter().map(|package| root().join(package).join("README.md")));
    let mut wrong = Vec::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        for line in literals(&fs::read_to_string(path).unwrap(), &names) {
            wrong.push(format!("{}:{line}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "struct literals: {wrong:#?}");
    assert_eq!(
        literals(
            "let a = Ttl { after };\nfn f() -> Ttl {\nlet Ttl { after, .. } = a;",
            &BTreeSet::from(["Ttl".to_owned()])
        ),
        [1]
    );
}

/// A request that gets an optional field must report it, so that no store ignores it.
#[test]
fn every_request_with_optional_fields_reports_them() {
    let mut paths = Vec::new();
    files(&root().join("kernel/src"), &["rs"], &mut paths);
    let (mut requests, mut reporting) = (BTreeMap::new(), BTreeSet::new());
    for path in paths {
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut found = Vec::new();
        shapes(&file.items, &mut found);
        let ends = ["Options", "Query", "Request", "NewTask", "NewBoard", "Transition", "Replacement", "Ttl"];
        let asked = found.into_iter().filter(|shape| ends.iter().any(|end| shape.name.ends_with(end)));
        requests.extend(asked.map(|shape| (shape.name, shape.fields)));
        for item in &file.items {
            let Item::Impl(item) = item else { continue };
            let syn::Type::Path(of) = &*item.self_ty else { continue };
            let reports = |member: &syn::ImplItem| match member {
                syn::ImplItem::Fn(method) => method.sig.ident == "options",
                _ => false,
            };
            if item.trait_.is_none() && item.items.iter().any(reports) {
                reporting.insert(of.path.segments.last().unwrap().ident.to_string());
            }
        }
    }
    assert!(reporting.contains("MessageFilter") && requests.len() > 12, "{requests:?}");
    for (name, fields) in requests {
        let base = WITHOUT_OPTIONS.iter().find(|(other, _)| *other == name).map(|(_, fields)| *fields);
        match base {
            Some(base) => assert_eq!(fields, base, "{name} has another field: report it as an option"),
            None => assert!(reporting.contains(&name), "{name} does not report its options"),
        }
    }
}
