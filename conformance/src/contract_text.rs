//! `CONTRACT.md`: the clauses as one page, generated from the sources.

use std::fmt::Write as _;

use larder_kernel::Contract;

use crate::clause::{Clause, clauses};
use crate::refusals;
use crate::report::SUITE_VERSION;

/// Returns the page.
#[must_use]
pub fn contract_text() -> String {
    let all = clauses();
    let mut text = format!(
        "# The contract, version {SUITE_VERSION}\n\n\
         The contract has {} clauses. `cargo larder contract` writes this page from the documentation of the \
         traits \
         in `kernel/src/storage`. The suite proves each clause with at least one case, and \
         `cargo larder check --list` lists the cases.\n",
        all.len()
    );
    // Writing to a String cannot fail.
    let refused = |contract: &Contract| format!("{} of {contract}", refusals::count(*contract));
    let refused: Vec<_> = Contract::ALL.iter().map(refused).collect();
    let _ = write!(
        text,
        "\nThe cases of STORE-010 make this many invalid calls, or calls with invalid values, on every \
         store: {}.\n",
        refused.join(", ")
    );
    section(&mut text, "Every contract", all.iter().filter(|clause| clause.contract.is_none()));
    for &contract in Contract::ALL {
        let own = all.iter().filter(|clause| clause.contract == Some(contract));
        section(&mut text, contract.as_str(), own);
    }
    text
}

fn section<'a>(text: &mut String, title: &str, clauses: impl Iterator<Item = &'a Clause>) {
    let _ = write!(text, "\n## {title}\n\n| clause | method | requirement |\n|---|---|---|\n");
    for Clause { id, method, sentence, .. } in clauses {
        let _ = writeln!(text, "| {id} | `{method}` | {} |", sentence.replace('|', "\\|"));
    }
}
