//! The clauses, read from the contracts' documentation.

use larder_kernel::Contract;
use serde::Serialize;

/// One sentence of a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Clause {
    /// The stable id, for example `HIST-004`.
    pub id: String,
    /// The contract of the clause; `None` for the clauses that bind all six contracts.
    pub contract: Option<Contract>,
    /// The method whose documentation contains the clause.
    pub method: String,
    /// The text of the clause.
    pub sentence: String,
}

impl Clause {
    /// Returns the contracts that the clause binds.
    #[must_use]
    pub fn contracts(&self) -> Vec<Contract> {
        self.contract.map_or_else(|| Contract::ALL.to_vec(), |contract| vec![contract])
    }
}

/// Returns all clauses: the shared ones first, then those of each contract, in the order of the source.
#[must_use]
pub fn clauses() -> Vec<Clause> {
    let shared = read(None, Contract::shared_source());
    let own = Contract::ALL.iter().copied().flat_map(|contract| read(Some(contract), contract.source()));
    shared.into_iter().chain(own).collect()
}

fn read(contract: Option<Contract>, source: &str) -> Vec<Clause> {
    let mut found: Vec<Clause> = Vec::new();
    let mut unbound = 0;
    let mut open = false;
    for line in source.lines().map(str::trim) {
        let text = line.strip_prefix("///");
        if let Some((id, sentence)) = text.and_then(bullet) {
            found.push(Clause {
                id: id.to_owned(),
                contract,
                method: String::new(),
                sentence: sentence.to_owned(),
            });
            open = true;
            continue;
        }
        match text.and_then(|text| text.strip_prefix("   ")) {
            Some(more) if open => {
                if let Some(last) = found.last_mut() {
                    last.sentence.push(' ');
                    last.sentence.push_str(more.trim());
                }
            }
            _ => open = false,
        }
        if let Some(method) = method_name(line) {
            for clause in found.iter_mut().skip(unbound) {
                method.clone_into(&mut clause.method);
            }
            unbound = found.len();
        }
    }
    found
}

fn bullet(text: &str) -> Option<(&str, &str)> {
    let (id, sentence) = text.trim_start().strip_prefix("- **")?.split_once("**")?;
    Some((id, sentence.trim()))
}

fn method_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_has_a_method_a_sentence_and_a_unique_id() {
        let all = clauses();
        assert!(all.len() >= 180, "only {} clauses", all.len());
        let mut ids: Vec<_> = all.iter().map(|clause| clause.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all.len(), "an id appears twice");
        for clause in &all {
            assert!(!clause.method.is_empty(), "{} belongs to no method", clause.id);
            assert!(clause.sentence.ends_with('.'), "{}: {:?}", clause.id, clause.sentence);
            assert_eq!(clause.sentence.matches(". ").count(), 0, "{} is more than a sentence", clause.id);
        }
    }
}
