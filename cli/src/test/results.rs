//! The results of a test run, read from the output of `cargo test`.

use std::collections::BTreeMap;
use std::path::Path;

use super::table::{Proof, Row, proof};

/// The result of each test, by its binary and its name.
#[derive(Debug, Default)]
pub(crate) struct Results {
    binary: String,
    /// The name of a test whose result is on a later line.
    open: Option<String>,
    passed: BTreeMap<(String, String), bool>,
    /// The next lines say why tests failed.
    explains: bool,
    failures: Vec<String>,
}

impl Results {
    /// Reads a line of the output.
    pub(crate) fn read(&mut self, line: &str) {
        let line = line.trim_end();
        self.read_failure(line);
        if let Some((_, path)) = line.trim_start().strip_prefix("Running ").and_then(|l| l.split_once('(')) {
            self.binary = stem(path.trim_end_matches(')'));
        } else if line.trim_start().starts_with("Doc-tests ") {
            self.binary = "documentation".to_owned();
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|line| line.split_once(" ... "))
        {
            // Tests that a filter selects by kind are shown with it: `[everywhere] memory::...`.
            let name = name.split_once("] ").map_or(name, |(_, name)| name).trim().to_owned();
            match result.split_whitespace().next() {
                Some("ok") => self.add(name, true),
                Some("FAILED" | "ignored,") | Some("ignored") => self.add(name, false),
                // Another test has printed a line in between.
                _ => self.open = Some(name),
            }
        } else if let ("ok" | "FAILED" | "ignored", Some(name)) = (line, self.open.take_if(|_| ended(line))) {
            self.add(name, line == "ok");
        }
    }

    /// Keeps the lines that say why tests failed, or how a test binary ended.
    fn read_failure(&mut self, line: &str) {
        match line {
            "failures:" if !self.explains => {
                self.explains = true;
                self.failures.push(format!("{}:", self.binary));
            }
            _ if line.starts_with("test result: ") => self.explains = false,
            _ if self.explains || line.contains("process didn't exit successfully") => {
                self.failures.push(line.to_owned());
            }
            _ => {}
        }
    }

    /// Returns the lines that say why tests failed, after the name of their binary.
    pub(crate) fn failures(&self) -> String {
        self.failures.join("\n")
    }

    fn add(&mut self, name: String, passed: bool) {
        self.passed.insert((self.binary.clone(), name), passed);
    }

    /// Returns each proof that did not run, or that did not pass everywhere.
    pub(crate) fn unproven(&self, rows: &[Row]) -> Vec<String> {
        let mut found = Vec::new();
        for Row { id, proofs, .. } in rows {
            for written in proofs {
                let (mut passed, mut others) = (0, Vec::new());
                for ((_, name), ok) in self.passed.iter().filter(|(test, _)| proves(&proof(written), test)) {
                    match ok {
                        true => passed += 1,
                        false => others.push(name.as_str()),
                    }
                }
                // A backend without the capability ignores a case of the suite.
                let is_case = matches!(proof(written), Proof::Case { .. });
                if passed == 0 {
                    found.push(format!("{id}: `{written}` did not run and pass"));
                } else if !others.is_empty() && !is_case {
                    found.push(format!("{id}: `{written}` did not pass as {}", others.join(", ")));
                }
            }
        }
        found
    }
}

fn ended(line: &str) -> bool {
    matches!(line, "ok" | "FAILED" | "ignored")
}

/// Returns the name of a binary without its folder and the hash at its end.
fn stem(path: &str) -> String {
    let name = Path::new(path).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned()
}

fn proves(proof: &Proof<'_>, (binary, name): &(String, String)) -> bool {
    match proof {
        Proof::Test { binary: of, name: last } => {
            of == binary && name.rsplit("::").next().is_some_and(|name| name == *last)
        }
        Proof::Case { backend, case } => match (backend, name.split_once("::")) {
            (Some(backend), Some((on, of))) => on == *backend && of == *case,
            (None, Some((_, of))) => of == *case,
            (_, None) => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::table::rows;

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/larder_agents-0123456789abcdef)
test scope::tests::a_scope_nests ... ok
test session::tests::a_plain_test ... ok
     Running tests/scenarios/main.rs (target/debug/deps/scenarios-0123456789abcdef)
test [everywhere] memory::sessions::window::a_window ... ok
test [everywhere] sqlite::sessions::window::a_window    ... memory: 10 combinations
ok
test [everywhere] redis::sessions::window::half ... ok
test [everywhere] postgres::sessions::window::half ... ignored
     Running tests/backends/main.rs (target/debug/deps/backends-0123456789abcdef)
test [embedded] memory::history.counts ... ok
test [live] redis::history.counts ... ignored, not declared
test [live] redis::history.never ... FAILED

failures:

---- redis::history.never ----
expected 1, found 2


failures:
    redis::history.never

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: 1 target failed:
";

    #[test]
    fn the_reasons_of_failures_are_kept() {
        let mut results = Results::default();
        OUTPUT.lines().for_each(|line| results.read(line));
        results.read(
            "  process didn't exit successfully: `scenarios` (signal: 6, SIGABRT: process abort signal)",
        );
        let failures = results.failures();
        let lines: Vec<&str> = failures.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                "backends:",
                "---- redis::history.never ----",
                "expected 1, found 2",
                "failures:",
                "    redis::history.never",
                "  process didn't exit successfully: `scenarios` (signal: 6, SIGABRT: process abort signal)",
            ]
        );
    }

    fn unproven(proofs: &str) -> Vec<String> {
        let mut results = Results::default();
        OUTPUT.lines().for_each(|line| results.read(line));
        results
            .unproven(&rows(&format!("<!-- promises -->\n| id | a | b |\n| A-1 | b | {proofs} |\n")).unwrap())
    }

    #[test]
    fn a_proof_counts_only_if_it_passed_everywhere() {
        let proofs = "`agents/src/scope.rs::a_scope_nests`, `agents/src/session/tests.rs::a_plain_test`, \
            `tests/scenarios/everywhere/sessions/window.rs::a_window`, `history.counts`, \
            `memory::history.counts`";
        assert_eq!(unproven(proofs), [] as [String; 0]);
    }

    #[test]
    fn a_test_that_was_ignored_failed_or_never_ran_proves_nothing() {
        for proof in [
            "tests/scenarios/everywhere/sessions/window.rs::half",
            "kernel/src/scope.rs::a_scope_nests",
            "agents/src/scope.rs::nests",
            "redis::history.counts",
            "history.never",
            "history.count",
        ] {
            let found = unproven(&format!("`{proof}`"));
            assert!(found.len() == 1 && found[0].contains(proof), "{proof}: {found:?}");
        }
    }
}
