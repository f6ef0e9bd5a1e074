//! The journal of a writer, and the state of its writes that follows from it.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use larder_conformance::harness::StoreSet;
use larder_conformance::oracle::{Answer, Ended, OracleClient, clients};

/// Writes through the stores until a call fails, with one client per contract.
///
/// The journal gets one line before each write (`> contract`), one after each acknowledged write (`<
/// contract` and the returned numbers), and one when a client stops (`! contract` and the reason). `era`
/// names the written data, and `seed` is its random seed.
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
        // A store that never waits must not block the other clients.
        tokio::task::yield_now().await;
    }
}

/// The state of a writer's writes.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The number of acknowledged writes.
    pub(super) acknowledged: u64,
    /// The number of writes that started and were not acknowledged.
    pub(super) in_flight: u64,
    /// The reason why a client stopped before the kill.
    pub(super) trouble: Option<String>,
}

/// Replays the writer's decisions with equal clients, so that the clients have its writes as expected state.
pub(super) fn replay(lines: &[String], clients: &mut [Box<dyn OracleClient>]) -> Told {
    let mut told = Told::default();
    let mut begun = BTreeMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let (sign, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some(client) = clients.iter_mut().find(|client| client.contract().as_str() == name) else {
            told.trouble = Some(format!("the writer printed `{line}`"));
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
            _ => told.trouble = Some(format!("the writer printed `{line}`")),
        }
    }
    told.in_flight = u64::try_from(begun.len()).unwrap_or(0);
    told
}
