//! The scripts that the level `model` prints for a faulty store are Rust code. They compile, fail on that
//! store, and pass on a correct one.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_conformance::mutants::{self, Mutant};
use larder_conformance::{Effort, model, runner};
use larder_kernel::Contract;

/// The test takes one in this number of a contract's faulty stores.
const EACH: usize = 5;
/// The minimum number of scripts per contract.
const SCRIPTS_MIN: usize = 3;
/// Defects that only other calls show, in other namespaces or at other times: a single script does not fail
/// on them.
const OF_OTHERS: [&str; 3] =
    ["namespaces_are_ignored", "capabilities_change", "a_dropped_write_is_partly_stored"];

/// The code before the scripts: the imports, and the backend that a variable names. The crates are the
/// suite's re-exports, because cargo may have built others of these names for build scripts only.
const OPEN: &str = "
#![allow(unused_imports)]
use std::sync::{Arc, OnceLock};
use larder_conformance::{Harness, OpenOptions, StoreSet, mutants};
use larder_conformance::{bytes, futures_util, kernel as larder_kernel, serde, serde_json, tokio};

async fn open(handle: usize) -> StoreSet {
    static BACKEND: OnceLock<Arc<dyn Harness>> = OnceLock::new();
    let named = std::env::var(\"BACKEND\").unwrap();
    let backend = || mutants::all().into_iter().find(|mutant| mutant.name == named).unwrap().harness();
    let namespace = larder_kernel::Namespace::new(\"script\").unwrap();
    let options = OpenOptions::default().with_handle(handle);
    BACKEND.get_or_init(backend).open(&namespace, &options).await.unwrap()
}
";

struct Printed {
    backend: String,
    control: String,
    name: String,
    text: String,
}

fn printed(mutant: &Mutant, control: &str) -> Option<Printed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let effort = Effort { per_mille: 20, ..Effort::default() };
    let report = runtime.block_on(async {
        let harness = mutant.harness();
        let probed = runner::probe(&*harness, effort.timeout).await.ok()?;
        model::run_contract(&harness, &probed, mutant.contract, &effort).await
    })?;
    let found = report.counterexamples.into_iter().next()?;
    let (backend, control) = (mutant.name.clone(), control.to_owned());
    let name = backend.replace('.', "_");
    // Scripts of one seed have the same name.
    let begin = found.script.find("async fn ")? + "async fn ".len();
    let end = begin + found.script[begin..].find('(')?;
    let text = format!("{}{name}{}", &found.script[..begin], &found.script[end..]);
    Some(Printed { backend, control, name, text })
}

/// Prints all scripts, on one thread per core.
fn printed_of(wrong: &[(Mutant, String)]) -> Vec<Option<Printed>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let places: Vec<OnceLock<Option<Printed>>> = wrong.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((mutant, control)) = wrong.get(at) else { return };
            assert!(places[at].set(printed(mutant, control)).is_ok());
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    places.into_iter().map(|place| place.into_inner().unwrap()).collect()
}

fn cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).arg("--offline");
    command
}

/// Returns the path of the suite with which this test was built.
fn suite() -> PathBuf {
    let features = [
        ("mimic", cfg!(feature = "mimic")),
        ("mutants", cfg!(feature = "mutants")),
        ("report", cfg!(feature = "report")),
    ];
    let features: Vec<&str> = features.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    let mut command = cargo();
    // The same arguments as for this test, so that nothing is built again.
    command.args(["test", "--no-run", "--quiet", "--message-format", "json", "--test", "suite"]);
    if features.len() == 3 {
        // The features of the whole workspace, as in its test run: those of one crate would rebuild most of
        // it.
        command.args(["--workspace", "--all-features"]);
    } else {
        command.args(["--features", &features.join(",")]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let named = |line: &&str| line.contains("larder_conformance") && line.contains(".rlib");
    let text = String::from_utf8(output.stdout).unwrap();
    let message: serde_json::Value = serde_json::from_str(text.lines().find(named).unwrap()).unwrap();
    let mut files = message["filenames"].as_array().unwrap().iter().map(|file| file.as_str().unwrap());
    files.find(|file| file.ends_with(".rlib")).unwrap().into()
}

fn compile(scripts: &[Printed], folder: &Path) -> PathBuf {
    let mut source = OPEN.to_owned();
    for script in scripts {
        write!(source, "\n{}", script.text).unwrap();
    }
    let (path, program) = (folder.join("scripts.rs"), folder.join("scripts"));
    std::fs::write(&path, source).unwrap();
    let suite = suite();
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition", "2024", "--test", "-C", "debuginfo=0", "-o"]).arg(&program).arg(&path);
    command.arg("--extern").arg(format!("larder_conformance={}", suite.display()));
    command.arg("-L").arg(format!("dependency={}", suite.parent().unwrap().display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, script: &str, backend: &str) -> Output {
    Command::new(program).args(["--exact", script]).env("BACKEND", backend).output().unwrap()
}

#[test]
fn a_printed_script_fails_on_the_wrong_store_and_passes_on_the_right_one() {
    let mut chosen = Vec::new();
    for &contract in Contract::ALL {
        let of: Vec<Mutant> =
            mutants::all().into_iter().filter(|mutant| mutant.contract == contract).collect();
        let control = of.iter().find(|mutant| mutant.is_control()).unwrap().name.clone();
        // The declarations decide the calls to a store, so the correct store would get other calls.
        let alone = |mutant: &Mutant| {
            OF_OTHERS.iter().all(|name| !mutant.name.ends_with(name)) && !mutant.name.contains("declared")
        };
        let of = of.into_iter().filter(|mutant| !mutant.is_control()).filter(alone).step_by(EACH);
        chosen.extend(of.map(|mutant| (mutant, control.clone())));
    }
    let printed = printed_of(&chosen);
    for &contract in Contract::ALL {
        let of = chosen.iter().zip(&printed).filter(|((mutant, _), _)| mutant.contract == contract);
        let scripts = of.filter(|(_, printed)| printed.is_some()).count();
        assert!(scripts >= SCRIPTS_MIN, "{contract}: {scripts}");
    }
    let scripts: Vec<Printed> = printed.into_iter().flatten().collect();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(&scripts, folder.path());
    let mut wrong = Vec::new();
    for script in &scripts {
        // No fixed statement can check a value that the store chooses, such as a token or an instant. Such a
        // script only shows the calls, and ends in a panic that names the defect.
        let only_shows = script.text.contains("\n    panic!(") || script.text.contains(", \"null\");");
        for (backend, passes) in [(&script.backend, false), (&script.control, true)] {
            if passes && only_shows {
                continue;
            }
            let output = run(&program, &script.name, backend);
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(told.contains("running 1 test"), "{} is no test: {told}", script.name);
            if output.status.success() != passes {
                wrong.push(format!("on {backend}:\n{}\n{told}", script.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
