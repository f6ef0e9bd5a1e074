//! What a writer says while it writes, and what that tells of its writes.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use larder_conformance::harness::StoreSet;
use larder_conformance::oracle::{Answer, Ended, OracleClient, clients};

/// Writes through the stores, one client for each contract, until something fails, and says one line before each write
/// (`> contract`), one after each that was acknowledged (`< contract` and the numbers that it got), and one where a client
/// ends (`! contract` and why). `era` names what is written, and `seed` draws it.
pub async fn write(stores: &StoreSet, era: &str, seed: u64, say: &(dyn Fn(String) + Send + Sync)) {
    let mut clients = clients(stores, era, seed);
    join_all(clients.iter_mut().map(|client| write_one(client.as_mut(), stores, say))).await;
}

async fn write_one(client: &mut dyn OracleClient, stores: &StoreSet, say: &(dyn Fn(String) + Send + Sync)) {
    let name = client.contract();
    loop {
        let op = client.next();
        if op.writes() {
            say(format!("> {name}"));
        }
        let answer = match client.perform(&op, stores).await {
            Ok(answer) => answer,
            Err(error) => return say(format!("! {name} {error}")),
        };
        if let (true, Answer::Numbers(numbers)) = (op.writes(), &answer) {
            let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
            say(format!("< {name}{numbers}"));
        }
        if let Some(defect) = client.settle(&op, Ended::Done(answer)) {
            return say(format!("! {name} {}: {}", defect.clause, defect.finding));
        }
        // A store that never waits must not keep the others from writing.
        tokio::task::yield_now().await;
    }
}

/// What a journal tells.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Writes that were acknowledged.
    pub(super) acknowledged: u64,
    /// Writes that had begun and were not.
    pub(super) in_flight: u64,
    /// Why a client ended before it was killed.
    pub(super) trouble: Option<String>,
}

/// Has clients, made as the writer made its own, decide again what the writer decided, so that they know what it wrote.
pub(super) fn replay(lines: &[String], clients: &mut [Box<dyn OracleClient>]) -> Told {
    let mut told = Told::default();
    let mut begun = BTreeMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let (sign, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some(client) = clients.iter_mut().find(|client| client.contract().as_str() == name) else {
            told.trouble = Some(format!("the writer said `{line}`"));
            continue;
        };
        match sign {
            ">" => {
                let op = loop {
                    let op = client.next();
                    if op.writes() {
                        break op;
                    }
                };
                begun.insert(name.to_owned(), op);
            }
            "<" => {
                let numbers = words.map_while(|word| word.parse().ok()).collect();
                if let Some(op) = begun.remove(name) {
                    told.acknowledged += 1;
                    client.settle(&op, Ended::Done(Answer::Numbers(numbers)));
                }
            }
            _ => told.trouble = Some(format!("the writer said `{line}`")),
        }
    }
    told.in_flight = u64::try_from(begun.len()).unwrap_or(0);
    told
}
