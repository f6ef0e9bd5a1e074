//! The level `durable` catches writers that acknowledge writes which a kill removes, and passes a correct
//! writer.
//!
//! This program is also the writer: the level starts it as `backends writer URL --era … --seed …`. The name
//! of the executable selects the defect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use larder::Registry;
use larder_cli::{durable, url};
use larder_conformance::{Effort, OpenOptions, StoreSet, Verdict};
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, HistoryProvider, MessagePage, MessageUpdate, Namespace, Removal,
    RemovalTarget, Removed, Result, Seq, Thread, Updated, forward,
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::sync::mpsc;

/// Runs the writer if the level started this program as one.
pub(crate) fn wrote() -> bool {
    let words: Vec<String> = std::env::args().collect();
    let asked = words.get(1).is_some_and(|word| word == "writer");
    if asked {
        runtime().block_on(write(&words[2], &words[4], words[6].parse().unwrap()));
    }
    asked
}

pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials = [
        trial("a_writer_that_waits_for_the_disk_is_proven", "", None),
        trial("a_write_acknowledged_before_it_happens_is_caught", "behind", Some("STORE-005")),
        trial("a_batch_written_in_pieces_is_caught", "pieces", Some("HIST-003")),
    ];
    crate::groups::run("durable", arguments, trials.into())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Kills writers with a defect or without one, and checks the report.
fn trial(name: &str, defect: &'static str, clause: Option<&'static str>) -> Trial {
    Trial::test(name, move || {
        let program = std::env::current_exe()?;
        // The program's name selects the defect, because the level passes no other setting.
        let folder = tempfile::tempdir()?;
        let named = folder.path().join(format!("writer-{defect}"));
        std::os::unix::fs::symlink(&program, &named)?;
        let effort = Effort { per_mille: 300, ..Effort::default() };
        let report = runtime().block_on(durable::kill_writers(
            &Registry::default(),
            &named,
            "sqlite",
            "sqlite:",
            &effort,
        ));
        let said = format!("{report:#?}");
        match clause {
            None if report.verdict() == Verdict::NotProven && report.executed == 15 => Ok(()),
            Some(clause) if report.counterexamples.iter().any(|found| found.clause == clause) => Ok(()),
            _ => Err(Failed::from(said)),
        }
    })
}

async fn write(place: &str, era: &str, seed: u64) {
    let harness = url::named(&Registry::default(), "writer", place, Path::new(".")).await.unwrap();
    let namespace = Namespace::new(durable::NAMESPACE).unwrap();
    let mut stores = harness.open(&namespace, &OpenOptions::default()).await.unwrap();
    let name = std::env::args().next().unwrap();
    let defect = name.rsplit_once("writer-").map_or("", |(_, defect)| defect);
    if !defect.is_empty() {
        let inner = stores.history().unwrap();
        let history = Arc::new(Lossy::new(inner, defect == "behind"));
        stores = StoreSet::default().with_history(history);
    }
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
    };
    durable::write(&stores, era, seed, &say).await;
}

enum Write {
    Append(Thread, Vec<ChatMessage>, AppendOptions),
    Remove(Thread, Removal),
    Update(Thread, Box<MessageUpdate>),
}

/// Writes after it acknowledges, or one message at a time.
#[derive(Debug)]
struct Lossy {
    inner: Arc<dyn HistoryProvider>,
    behind: Option<mpsc::UnboundedSender<Write>>,
    /// The number of acknowledged writes that have not happened yet.
    waiting: Arc<AtomicU64>,
    last: std::sync::Mutex<i64>,
}

impl Lossy {
    fn new(inner: Arc<dyn HistoryProvider>, behind: bool) -> Self {
        let (sender, mut writes) = mpsc::unbounded_channel::<Write>();
        let waiting = Arc::<AtomicU64>::default();
        let (to, left) = (Arc::clone(&inner), Arc::clone(&waiting));
        tokio::spawn(async move {
            while let Some(write) = writes.recv().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
                match write {
                    Write::Append(thread, messages, options) => {
                        to.append_many(&thread, messages, options).await.map(drop).unwrap();
                    }
                    Write::Remove(thread, removal) => to.remove(&thread, removal).await.map(drop).unwrap(),
                    Write::Update(thread, update) => to.update(&thread, *update).await.map(drop).unwrap(),
                }
                left.fetch_sub(1, Ordering::SeqCst);
            }
        });
        Self { inner, behind: behind.then_some(sender), waiting, last: std::sync::Mutex::new(0) }
    }

    /// Acknowledges a write that takes this many numbers, and returns the last of them.
    fn promise(&self, behind: &mpsc::UnboundedSender<Write>, write: Write, numbers: i64) -> i64 {
        let mut last = self.last.lock().unwrap();
        *last += numbers;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        behind.send(write).unwrap();
        *last
    }
}

forward!(Store for Lossy);

/// The methods that the writer calls.
#[async_trait]
impl HistoryProvider for Lossy {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        if let Some(behind) = &self.behind {
            let count = i64::try_from(messages.len()).unwrap();
            let last = self.promise(behind, Write::Append(thread.clone(), messages, options), count);
            return Ok(Appended::new(Seq::new(last - count + 1), Seq::new(last)));
        }
        let mut numbers = Vec::new();
        for message in messages {
            let appended = self.inner.append_many(thread, vec![message], AppendOptions::default()).await?;
            numbers.push(appended.first);
        }
        Ok(Appended::new(numbers[0], numbers[numbers.len() - 1]))
    }

    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        let (Some(behind), RemovalTarget::Numbers(numbers)) = (&self.behind, &removal.target) else {
            return self.inner.remove(thread, removal).await;
        };
        let count = u64::try_from(numbers.len()).unwrap();
        let last = self.promise(behind, Write::Remove(thread.clone(), removal.clone()), 1);
        Ok(Removed::new(count, Seq::new(last)))
    }

    async fn update(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        match &self.behind {
            Some(behind) => Ok(Updated::new(Seq::new(self.promise(
                behind,
                Write::Update(thread.clone(), Box::new(update)),
                1,
            )))),
            None => self.inner.update(thread, update).await,
        }
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<MessagePage> {
        // A read right after an acknowledgement has to wait for the write.
        while self.waiting.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.inner.page_after(thread, after, limit).await
    }
}
