//! `larder new-backend`: writes a crate for a new backend, with a stub for every method of one contract.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use larder_conformance::clauses;
use larder_kernel::{Contract, RequestOption};

use crate::moving::parse_contract;
use crate::output;

/// Arguments of `larder new-backend`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Contract to implement: history, vectors, graph, blobs, tasks or key-value.
    #[arg(value_parser = parse_contract)]
    contract: Contract,
    /// Folder of the new crate, which must not exist. The folder's name becomes the crate's name.
    folder: PathBuf,
    /// Clone of Larder to depend on, instead of the released version.
    #[arg(long, value_name = "FOLDER")]
    clone: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    match write(args) {
        Ok(()) => output::finish(
            format_args!(
                "{} contains the methods of {} as stubs; `cargo test` there shows which clauses hold",
                args.folder.display(),
                args.contract
            ),
            ExitCode::SUCCESS,
        ),
        Err(reason) => output::trouble(reason),
    }
}

fn write(args: &Args) -> Result<(), String> {
    let name = crate_name(&args.folder)?;
    let failed = |path: &Path, error: &std::io::Error| format!("cannot write {}: {error}", path.display());
    let files = [
        ("Cargo.toml", manifest(name, args.clone.as_deref())?),
        ("src/lib.rs", library(args.contract)),
        ("tests/conformance.rs", test(name)),
    ];
    std::fs::create_dir(&args.folder).map_err(|error| failed(&args.folder, &error))?;
    for (file, text) in files {
        let path = args.folder.join(file);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        written.and_then(|()| std::fs::write(&path, text)).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn crate_name(folder: &Path) -> Result<&str, String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let letter = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.chars().all(letter) {
        return Ok(name);
    }
    Err("the folder's name is not a crate name; use letters, digits, `-` and `_`, and begin with a letter"
        .to_owned())
}

fn manifest(name: &str, clone: Option<&Path>) -> Result<String, String> {
    let source = match clone {
        None => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
        Some(clone) => {
            let path = clone.join("conformance");
            let path =
                path.canonicalize().map_err(|error| format!("no clone: {}: {error}", path.display()))?;
            format!("path = {:?}", path.display().to_string())
        }
    };
    Ok(format!(
        r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"

[dependencies]
larder-conformance = {{ {source} }}

[dev-dependencies]
larder-conformance = {{ {source}, features = ["mimic"] }}

[[test]]
name = "conformance"
harness = false
"#
    ))
}

fn test(name: &str) -> String {
    format!(
        r"//! One test for each case of the suite.

use std::process::ExitCode;

use larder_conformance::Suite;

fn main() -> ExitCode {{
    Suite::new({}::MyHarness::default()).main()
}}
",
        name.replace('-', "_")
    )
}

/// Returns the field of the harness's `StoreSet`, and the trait.
fn names(contract: Contract) -> (&'static str, &'static str) {
    match contract {
        Contract::History => ("history", "HistoryProvider"),
        Contract::Vectors => ("vectors", "VectorStore"),
        Contract::Graph => ("graph", "GraphStore"),
        Contract::Blobs => ("blobs", "BlobStore"),
        Contract::Tasks => ("tasks", "TaskStore"),
        Contract::KeyValue => ("key_value", "KeyValueStore"),
    }
}

fn library(contract: Contract) -> String {
    let (field, name) = names(contract);
    let methods = methods(contract);
    let options = RequestOption::ALL.iter().filter(|option| option.contract() == contract);
    let options = options.map(|option| format!("RequestOption::{option:?}")).collect::<Vec<_>>().join(", ");
    let mut imports = String::new();
    for (word, import) in
        [("Duration", "use std::time::Duration;\n"), ("Bytes", "use larder_conformance::bytes::Bytes;\n")]
    {
        if methods.contains(&format!(" {word}")) {
            imports.push_str(import);
        }
    }
    format!(
        r#"//! A backend for Larder.

use std::sync::Arc;
{imports}
use larder_conformance::kernel::*;
use larder_conformance::{{Harness, OpenOptions, StoreSet, async_trait}};

/// A store in one namespace. Its `Debug` output must never show stored content.
#[derive(Debug, Clone)]
pub struct MyStore {{
    namespace: Namespace,
}}

#[async_trait]
impl Store for MyStore {{
    fn namespace(&self) -> &Namespace {{
        &self.namespace
    }}

    fn capabilities(&self) -> Capabilities {{
        Capabilities::new(Durability::None)
    }}

    fn options(&self) -> OptionSet {{
        // The optional fields of requests that the store honors. Remove the others.
        OptionSet::of(&[{options}])
    }}

    async fn erase(&self) -> Result<()> {{
        // Nothing is stored yet.
        Ok(())
    }}
}}

// Remove this line when every method uses its arguments.
#[allow(unused_variables)]
#[async_trait]
impl {name} for MyStore {{
{methods}}}

/// Opens the backend for the suite. Every opening reaches the same data.
#[derive(Debug, Default)]
pub struct MyHarness {{}}

#[async_trait]
impl Harness for MyHarness {{
    fn name(&self) -> &str {{
        "mine"
    }}

    fn url(&self) -> String {{
        "mine:".to_owned()
    }}

    async fn open(&self, namespace: &Namespace, _options: &OpenOptions) -> Result<StoreSet> {{
        let store = MyStore {{ namespace: namespace.clone() }};
        Ok(StoreSet::default().with_{field}(Arc::new(store)))
    }}
}}
"#
    )
}

/// Returns the required methods of a contract from its source, each with the ids of its clauses.
fn methods(contract: Contract) -> String {
    let clauses = clauses();
    let (_, name) = names(contract);
    let lines = contract.source().lines();
    let of_trait = lines.skip_while(|line| !line.starts_with(&format!("pub trait {name}:")));
    let (mut methods, mut method) = (Vec::new(), String::new());
    for line in of_trait.take_while(|line| *line != "}") {
        if line.starts_with("    async fn ") || !method.is_empty() {
            method.push_str(line);
            method.push('\n');
        }
        if line == "    }" && !method.is_empty() {
            methods.push(std::mem::take(&mut method));
        }
    }
    let mut text = String::new();
    for method in methods.iter().filter(|method| method.contains("Err(Error::not_implemented(")) {
        let called = method.trim_start().trim_start_matches("async fn ").split(['(', '<']).next();
        let ids: Vec<&str> = clauses
            .iter()
            .filter(|clause| clause.contract == Some(contract) && Some(clause.method.as_str()) == called)
            .map(|clause| clause.id.as_str())
            .collect();
        if !text.is_empty() {
            text.push('\n');
        }
        for ids in ids.chunks(10) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    // {}", ids.join(" "));
        }
        text.push_str(method);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_method_of_every_contract_has_a_stub() {
        for &contract in Contract::ALL {
            let source = contract.source();
            let missing = source.matches("Err(Error::not_implemented(").count();
            let stubs = library(contract).matches("Err(Error::not_implemented(").count();
            assert!(stubs > 0, "{contract}");
            assert_eq!(stubs, missing, "{contract}");
        }
        assert!(
            library(Contract::KeyValue).contains("    // KV-001 KV-002"),
            "{}",
            library(Contract::KeyValue)
        );
    }

    #[test]
    fn an_existing_folder_and_an_invalid_crate_name_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let args =
            |name: &str| Args { contract: Contract::Blobs, folder: scratch.path().join(name), clone: None };
        write(&args("my-backend")).unwrap();
        let manifest = scratch.path().join("my-backend/Cargo.toml");
        std::fs::write(&manifest, "changed").unwrap();
        assert!(write(&args("my-backend")).unwrap_err().contains("exists"));
        assert_eq!(std::fs::read_to_string(manifest).unwrap(), "changed");
        assert!(write(&args("1st")).unwrap_err().contains("not a crate name"));
        assert!(!scratch.path().join("1st").exists());
    }
}
