//! Seeds of scripts that found a defect earlier.

use larder_kernel::Contract;

const FILE: &str = include_str!("../../regressions/model.txt");

/// Returns the saved seeds of a contract, in the order of the file.
pub(super) fn seeds(contract: Contract) -> Vec<u64> {
    read(FILE).filter(|(name, _)| *name == contract.as_str()).map(|(_, seed)| seed).collect()
}

/// Parses the file. A line is a contract's name, a seed, and any further text; `#` begins a comment.
fn read(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_file_names_a_contract_and_a_seed() {
        let lines = FILE.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        assert_eq!(read(FILE).count(), lines.count());
        for (name, _) in read(FILE) {
            assert!(Contract::ALL.iter().any(|contract| contract.as_str() == name), "{name}");
        }
    }

    #[test]
    fn a_line_is_a_contract_a_seed_and_a_finding() {
        let text = "# a comment\nhistory 12 a fork lost a message\n\nkey_value 18446744073709551615\n";
        assert_eq!(read(text).collect::<Vec<_>>(), [("history", 12), ("key_value", u64::MAX)]);
    }
}
