//! There and back, between every two backends.

use larder::Stores;
use larder::transfer::{Copied, Existing, Source, Watch, copy};
use larder_kernel::Contract;
use libtest_mimic::Trial;

use super::fill::fill;
use super::place::{AGE, Backend, GARAGE, POSTGRES, Place, REDIS};
use super::read::{assert_same, everything};
use super::{live, trial};

const EMBEDDED: [Backend; 2] = [Backend::Memory, Backend::Sqlite];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let backends = [EMBEDDED[0], EMBEDDED[1], POSTGRES, REDIS];
    let mut pairs: Vec<(Backend, Backend)> =
        backends.iter().flat_map(|from| backends.iter().map(|to| (*from, *to))).collect();
    for one_contract in [GARAGE, AGE] {
        pairs.extend([(Backend::Sqlite, one_contract), (one_contract, Backend::Memory)]);
    }
    for (from, to) in pairs {
        let name = format!("from_{}_to_{}_and_back", from.name(), to.name());
        let variables: Vec<_> = [from.variable(), to.variable()].into_iter().flatten().collect();
        let seeds = if variables.is_empty() { 1..4 } else { 1..2 };
        let test = move || there_and_back(from, to, seeds);
        trials.push(if variables.is_empty() { trial(name, test) } else { live(name, &variables, test) });
    }
    trials
}

pub(crate) fn shared(one: &Stores, other: &Stores) -> Vec<Contract> {
    let there = other.contracts();
    one.contracts().into_iter().filter(|contract| there.contains(contract)).collect()
}

/// Copies everything into an empty backend, and returns the totals.
pub(crate) async fn copied(from: &Stores, to: &Stores, contracts: &[Contract]) -> Vec<Copied> {
    let source = Source::from(from.set().clone());
    let copied =
        copy(&source, &to.set().clone(), contracts, Existing::Refuse, &Watch::nobody()).await.unwrap();
    for part in &copied {
        assert!(part.is_equal(), "{part:?}");
    }
    copied
}

async fn there_and_back(from: Backend, to: Backend, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (origin, there, back) = (Place::new(from).await, Place::new(to).await, Place::new(from).await);
        fill(&origin.stores, seed).await;
        let contracts = shared(&origin.stores, &there.stores);
        assert!(!contracts.is_empty());
        let first = copied(&origin.stores, &there.stores, &contracts).await;
        let second = copied(&there.stores, &back.stores, &contracts).await;
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(
                (first.written, &first.source),
                (second.written, &second.source),
                "{}",
                first.contract
            );
            assert!(first.source.records > 0, "{} holds nothing", first.contract);
        }
        let original = everything(&origin.stores, &contracts).await;
        assert_same(original, everything(&there.stores, &contracts).await);
        let original = everything(&origin.stores, &contracts).await;
        assert_same(original, everything(&back.stores, &contracts).await);
        // A second run finds everything copied.
        for part in copied(&origin.stores, &there.stores, &contracts).await {
            assert_eq!(part.written, 0, "{}", part.contract);
        }
        for place in [origin, there, back] {
            place.remove().await;
        }
    }
}
