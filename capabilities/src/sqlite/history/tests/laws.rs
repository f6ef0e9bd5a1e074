//! The cost of calls as a thread grows, counted in SQLite's instructions.

use super::super::thread::Address;
use super::super::{read, removal, update, write};
use super::*;
use crate::sqlite::engine::ReadBudget;
use crate::sqlite::tests::Counting;

/// The lengths of the threads.
const LENGTHS: [u32; 3] = [100, 10_000, 1_000_000];
/// The size of the window that is read.
const WINDOW: usize = 50;

/// The instructions of one call in a thread of each length.
#[derive(Default)]
struct Costs {
    append: Vec<u64>,
    pop: Vec<u64>,
    update: Vec<u64>,
    tail: Vec<u64>,
    page: Vec<u64>,
    info: Vec<u64>,
    /// The same window, found by skipping all messages before it.
    passing_by: Vec<u64>,
}

async fn costs() -> Costs {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let counting = Counting::open(&folder.path().join("larder.db"));
    let mut costs = Costs::default();
    for length in LENGTHS {
        let thread = Thread::new("agent", format!("of {length}")).unwrap();
        for first in (0..length).step_by(1_000) {
            let batch = (first..length.min(first + 1_000)).map(|number| text(&format!("message {number}")));
            store.append_many(&thread, batch.collect(), AppendOptions::default()).await.unwrap();
        }
        let address = Address { namespace: Namespace::new("test").unwrap(), thread };
        let window = |range| {
            counting.of(|sql| read::messages(sql, &address, range, WINDOW, &mut ReadBudget::unlimited()))
        };
        costs.tail.push(window(Range::Before(None)));
        costs.page.push(window(Range::After(Seq::new(i64::from(length / 2)))));
        costs.passing_by.push(window(Range::Offset(u64::from(length) - 50)));
        costs.info.push(counting.of(|sql| ThreadRow::find(sql, &address)));
        let message = Encoded::all("test.append", &[text("one more")]).unwrap();
        let options = write::Append::default();
        costs.append.push(counting.of(|sql| write::append(sql, &address, &message, &options)));
        let wanted = update::Update {
            address: Address { namespace: address.namespace.clone(), thread: address.thread.clone() },
            update: MessageUpdate::appended(Seq::new(i64::from(length / 2)), text("another")),
            message: Encoded::new("test.update", &text("another")).unwrap(),
            digest: None,
        };
        costs.update.push(counting.of(|sql| update::update(sql, &wanted)));
        let pop = Removal::newest(1);
        costs.pop.push(counting.of(|sql| removal::remove(sql, &address, &pop)));
    }
    costs
}

/// Returns true if the greatest cost is at most 1.15 times the least.
fn is_flat(costs: &[u64]) -> bool {
    let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
    *least > 0 && most * 100 <= least * 115
}

#[tokio::test]
async fn the_cost_of_appends_pops_and_windows_is_independent_of_thread_length() {
    let costs = costs().await;
    assert!(is_flat(&costs.append), "append: {:?}", costs.append);
    assert!(is_flat(&costs.pop), "pop: {:?}", costs.pop);
    assert!(is_flat(&costs.update), "update: {:?}", costs.update);
    assert!(is_flat(&costs.tail), "tail: {:?}", costs.tail);
    assert!(is_flat(&costs.page), "page: {:?}", costs.page);
    assert!(is_flat(&costs.info), "info: {:?}", costs.info);
    assert!(!is_flat(&costs.passing_by), "a read of the whole thread was not seen: {:?}", costs.passing_by);
}

/// 300 messages of 9 KB, which repeat themselves, take at most 300 kB with all indexes.
#[tokio::test]
async fn large_histories_are_stored_compressed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let sqlite = Sqlite::open(SqliteConfig::new(&path)).await.unwrap();
    let store = sqlite.history(Namespace::new("test").unwrap());
    let line = |number: usize| format!("{number}: {}", "The weather is the same again. ".repeat(290));
    for number in 0..300 {
        store.append(&thread(), text(&line(number))).await.unwrap();
    }
    assert!(store.thread_info(&thread()).await.unwrap().bytes > 300 * 8_990);
    assert_eq!(texts(&store, &thread()).await[299], (300, line(299)));
    drop(store);
    sqlite.close().await;
    // Closing leaves nothing in the write-ahead log.
    let stored = std::fs::metadata(&path).unwrap().len();
    assert!(stored <= 300_000, "{stored} bytes");
}
