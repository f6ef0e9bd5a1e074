//! The table of guarantees in the guide matches the declarations of the opened backends.
//!
//! `guide/guarantees.json` lists the declarations of each backend, and `guide/src/choosing.md` contains the
//! table derived from them. Each test opens one backend and compares. `LARDER_WRITE_GUARANTEES=1 cargo larder
//! test --test backends guarantees` writes both files again; the entries of a missing service stay. The suite
//! proves the declarations on the same backends in the same run of `cargo larder test`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder::Registry;
use larder_cli::service::SERVICES;
use larder_cli::url;
use larder_conformance::runner::{Probed, probe};
use larder_conformance::{SUITE_VERSION, suites};
use larder_kernel::{Capabilities, Capability, Contract, Durability};
use libtest_mimic::{Arguments, Failed, Trial};

/// The declarations of a backend, by contract.
type Declared = BTreeMap<Contract, Capabilities>;

const EMBEDDED: [&str; 3] = ["memory", "sqlite", "fs"];
const TIMEOUT: Duration = Duration::from_secs(30);
const BEGIN: &str =
    "<!-- written by `LARDER_WRITE_GUARANTEES=1 cargo larder test --test backends guarantees` -->\n";
const END: &str = "<!-- until here -->\n";

fn guide(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide").join(file)
}

fn names() -> Vec<&'static str> {
    EMBEDDED.into_iter().chain(SERVICES.iter().map(|service| service.name)).collect()
}

/// Returns the URL of a backend, if it is available.
fn address(name: &str, scratch: &Path) -> Option<String> {
    let path = scratch.join(name).display().to_string();
    match name {
        "memory" => Some("memory:".to_owned()),
        "sqlite" => Some(format!("sqlite:{path}")),
        "fs" => Some(format!("file:{path}")),
        _ => std::env::var(SERVICES.iter().find(|service| service.name == name)?.variable).ok(),
    }
}

/// Opens a backend and returns its declarations.
fn ask(name: &str, address: &str, scratch: &Path) -> Probed {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let harness = url::named(&Registry::default(), name, address, scratch).await.unwrap();
        probe(&*harness, TIMEOUT).await.unwrap()
    })
}

fn written() -> BTreeMap<String, Declared> {
    let text = fs::read_to_string(guide("guarantees.json")).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&text).unwrap()
}

/// Returns `true` if a backend declares the recorded guarantees. A server with other settings may be more
/// durable.
fn keeps(declared: &Declared, written: &Declared) -> bool {
    let equal = |(contract, found): (&Contract, &Capabilities)| {
        written
            .get(contract)
            .is_some_and(|it| it.optional == found.optional && it.durability <= found.durability)
    };
    declared.len() == written.len() && declared.iter().all(equal)
}

pub(crate) fn group(arguments: &Arguments) -> bool {
    let scratch = tempfile::tempdir().unwrap();
    if std::env::var_os("LARDER_WRITE_GUARANTEES").is_some() {
        write(scratch.path());
    }
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let trial = |name: &'static str| {
        let (address, folder) = (address(name, scratch.path()), scratch.path().to_owned());
        let ignored = address.is_none() && !required;
        let test = move || {
            let address = address.ok_or_else(|| Failed::from("its variable is not set"))?;
            let declared = ask(name, &address, &folder).backend.capabilities;
            let written = written().remove(name).unwrap_or_default();
            assert!(
                keeps(&declared, &written),
                "{name} declares other capabilities than the guide: {declared:?}"
            );
            Ok(())
        };
        Trial::test(format!("{name}_declares_what_the_guide_says"), test).with_ignored_flag(ignored)
    };
    let mut trials: Vec<Trial> = names().into_iter().map(trial).collect();
    trials.push(Trial::test("the_table_is_that_of_this_suite", || {
        let page = fs::read_to_string(guide("src/choosing.md")).unwrap();
        let (_, rest) = page.split_once(BEGIN).unwrap();
        let (shown, _) = rest.split_once(END).unwrap();
        assert_eq!(shown, table(&written()));
        Ok(())
    }));
    crate::groups::run("guarantees", arguments, trials)
}

fn write(scratch: &Path) {
    let mut all = written();
    for name in names() {
        if let Some(address) = address(name, scratch) {
            all.insert(name.to_owned(), ask(name, &address, scratch).backend.capabilities);
        }
    }
    fs::write(guide("guarantees.json"), serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
    let page = fs::read_to_string(guide("src/choosing.md")).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    fs::write(guide("src/choosing.md"), format!("{before}{BEGIN}{}{END}{after}", table(&all))).unwrap();
}

fn table(all: &BTreeMap<String, Declared>) -> String {
    let columns: Vec<(&str, &Declared)> =
        names().into_iter().filter_map(|name| Some((name, all.get(name)?))).collect();
    let mut text = String::from("\n| |");
    columns.iter().for_each(|(name, _)| write!(text, " {name} |").unwrap());
    text += &format!("\n|{}\n", "---|".repeat(columns.len() + 1));
    let mut row = |head: String, cell: &dyn Fn(&Declared) -> String| {
        write!(text, "| {head} |").unwrap();
        columns.iter().for_each(|(_, declared)| write!(text, " {} |", cell(declared)).unwrap());
        text.push('\n');
    };
    for &contract in Contract::ALL {
        let all = clauses(contract, None).len();
        row(format!("**{contract}**, of {all} clauses"), &|declared| match declared.get(&contract) {
            Some(declared) => clauses(contract, Some(declared)).len().to_string(),
            None => "–".to_owned(),
        });
    }
    row("acknowledged writes survive".to_owned(), &|declared| {
        let least = declared.values().map(|declared| declared.durability).min();
        match least.unwrap_or_default() {
            Durability::None => "nothing",
            Durability::Process => "`kill -9`",
            Durability::Power => "power loss",
            other => other.as_str(),
        }
        .to_owned()
    });
    for &capability in Capability::ALL {
        row(format!("`{capability}`"), &|declared| may(capability, declared));
    }
    write!(text, "\nSuite {SUITE_VERSION}.\n\n").unwrap();
    text
}

/// Returns the clauses of a contract that apply to a store with these declarations, or all of its clauses.
fn clauses(contract: Contract, declared: Option<&Capabilities>) -> BTreeSet<&'static str> {
    let holds = |needs: &[Capability], durability: bool| {
        declared.is_none_or(|declared| {
            needs.iter().all(|needed| declared.has(*needed))
                && (!durability || declared.durability > Durability::None)
        })
    };
    let cases = suites::all().into_iter().filter(|case| case.contract == contract);
    cases.filter(|case| holds(&case.needs, case.needs_durability)).map(|case| case.clause).collect()
}

fn may(capability: Capability, declared: &Declared) -> String {
    let concerned = |contract: &Contract| match contract {
        Contract::Blobs => capability != Capability::Cypher,
        Contract::Graph => matches!(capability, Capability::Cypher | Capability::MultiProcess),
        _ => capability == Capability::MultiProcess,
    };
    let asked: Vec<bool> =
        declared.iter().filter(|it| concerned(it.0)).map(|(_, declared)| declared.has(capability)).collect();
    match asked.contains(&false) {
        _ if asked.is_empty() => "–",
        false => "yes",
        true => "no",
    }
    .to_owned()
}
