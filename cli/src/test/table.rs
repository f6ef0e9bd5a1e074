//! The table of promises in `guide/promises.md`.

#![allow(dead_code, unreachable_pub, reason = "a test binary includes this file and uses another part")]

/// The marker before the table.
const MARKER: &str = "<!-- promises -->";

/// One promise and its proofs.
#[derive(Debug)]
pub struct Row {
    pub id: String,
    pub promise: String,
    pub proofs: Vec<String>,
}

/// The test that a proof names.
#[derive(Debug, PartialEq, Eq)]
pub enum Proof<'a> {
    /// A case of the suite, on each backend that can run it, or on the backend given.
    Case { backend: Option<&'a str>, case: &'a str },
    /// A test of a binary, by the last part of its name.
    Test { binary: String, name: &'a str },
}

/// Returns the rows of the table, or the first line that is not one.
pub fn rows(text: &str) -> Result<Vec<Row>, String> {
    let (_, table) = text.split_once(MARKER).ok_or_else(|| format!("`{MARKER}` is missing"))?;
    let lines = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [id, promise, proofs] = cells[..] else { return Err(format!("not three cells: {line}")) };
            let proofs = proofs.split(", ").map(|proof| proof.trim_matches('`').to_owned()).collect();
            Ok(Row { id: id.to_owned(), promise: promise.to_owned(), proofs })
        })
        .collect()
}

/// Reads a proof: `file::test`, `contract.case` or `backend::contract.case`.
pub fn proof(written: &str) -> Proof<'_> {
    match written.split_once("::") {
        Some((file, name)) if file.contains('/') => Proof::Test { binary: binary(file), name },
        Some((backend, case)) => Proof::Case { backend: Some(backend), case },
        None => Proof::Case { backend: None, case: written },
    }
}

/// Returns the name of the test binary that contains a file.
fn binary(file: &str) -> String {
    match (file.split_once("/src/"), file.split_once("tests/")) {
        (Some((package, _)), _) => format!("larder_{package}"),
        (None, Some((_, rest))) => rest.split(['/', '.']).next().unwrap_or_default().to_owned(),
        (None, None) => "larder".to_owned(),
    }
}
