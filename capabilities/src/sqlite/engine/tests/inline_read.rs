//! Inline reads, and reads in slices.

use super::*;

/// Returns the thread on which an inline read of this many bytes runs.
async fn reads_on(engine: &Engine, bytes: i64) -> std::thread::ThreadId {
    let job = move |_: &Connection, budget: &mut ReadBudget| {
        budget.take(bytes)?;
        Ok(std::thread::current().id())
    };
    engine.read_inline("test.inline", job).await.unwrap()
}

#[tokio::test]
async fn a_small_read_runs_on_the_callers_thread_and_a_large_one_on_a_reader_thread() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let here = std::thread::current().id();
    // On a busy machine any single read may be slow.
    let mut inline = 0;
    for _ in 0..20 {
        inline += i32::from(reads_on(&engine, 1_000).await == here);
        assert_ne!(reads_on(&engine, 1_000_000_000).await, here);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(inline > 0, "no read ran inline");
}

/// Reads this many slices, each with this part of its budget, and returns the threads of the reads.
async fn reads_in_slices(engine: &Engine, slices: usize, bytes: i64) -> Vec<std::thread::ThreadId> {
    let begin = move || {
        let mut threads = Vec::new();
        move |connection: &Connection, budget: &mut ReadBudget| {
            assert!(!connection.is_autocommit(), "a slice outside of the snapshot");
            budget.take(bytes)?;
            threads.push(std::thread::current().id());
            let done = threads.len() == slices;
            Ok(if done {
                ControlFlow::Break(std::mem::take(&mut threads))
            } else {
                ControlFlow::Continue(())
            })
        }
    };
    engine.read_in_slices("test.slices", begin).await.unwrap()
}

#[tokio::test]
async fn a_read_of_some_slices_runs_on_the_callers_thread_and_one_of_many_on_a_reader_thread() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let here = std::thread::current().id();
    // On a busy machine any single slice may be slow.
    let mut inline = 0;
    for _ in 0..20 {
        let threads = reads_in_slices(&engine, 12, 1_000).await;
        assert_eq!(threads.len(), 12);
        inline += i32::from(threads.iter().all(|thread| *thread == here));
        for (slices, bytes) in [(100, 1_000), (2, 1_000_000_000)] {
            let threads = reads_in_slices(&engine, slices, bytes).await;
            assert!(threads.len() == slices && threads.iter().all(|thread| *thread != here), "{threads:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(inline > 0, "no read in slices ran inline");
}

#[tokio::test]
async fn slices_see_one_snapshot_and_yield_to_other_tasks() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let begin = || {
        let mut counts = Vec::new();
        move |sql: &Connection, _: &mut ReadBudget| {
            counts.push(sql.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0))?);
            let done = counts.len() == 16;
            Ok(if done { ControlFlow::Break(counts.clone()) } else { ControlFlow::Continue(()) })
        }
    };
    let writer = async {
        for number in 0..20 {
            add(engine.clone(), number).await.unwrap();
        }
    };
    let (counts, ()) = tokio::join!(engine.read_in_slices("test.slices", begin), writer);
    let counts = counts.unwrap();
    assert!(counts.len() == 16 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");

    // A read that is dropped between two slices returns its connection without an open transaction.
    for _ in 0..20 {
        let endless = || {
            let mut slices = 0;
            move |_: &Connection, _: &mut ReadBudget| {
                slices += 1;
                // A reader thread that took over the read must come to an end.
                Ok(if slices == 1_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            }
        };
        let mut read = std::pin::pin!(engine.read_in_slices("test.slices", endless));
        assert!(futures_util::poll!(read.as_mut()).is_pending());
    }
    // A read that is dropped by a panic elsewhere in its task also returns its connection.
    for _ in 0..20 {
        let engine = engine.clone();
        let panics = async move {
            let begin = || |_: &Connection, _: &mut ReadBudget| Ok(ControlFlow::<()>::Continue(()));
            let mut read = std::pin::pin!(engine.inner.inline_reads.read_in_slices(begin()));
            let _ = futures_util::poll!(read.as_mut());
            panic!("elsewhere");
        };
        assert!(tokio::spawn(panics).await.is_err());
    }
    let mut inline = 0;
    for _ in 0..20 {
        inline += i32::from(reads_on(&engine, 1).await == std::thread::current().id());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(inline > 0, "the connections for inline reads are gone");
    add(engine.clone(), 20).await.unwrap();
    let count = |sql: &Connection, _: &mut ReadBudget| {
        Ok(sql.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0))?)
    };
    assert_eq!(engine.read_inline("test.count", count).await.unwrap(), 21);
}

#[tokio::test]
async fn after_a_slow_inline_read_the_next_reads_run_on_reader_threads() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let slow = |_: &Connection, _: &mut ReadBudget| {
        std::thread::sleep(Duration::from_millis(5));
        Ok(())
    };
    // Each connection pauses independently; a single caller always leases the first.
    engine.read_inline("test.slow", slow).await.unwrap();
    assert_ne!(reads_on(&engine, 1).await, std::thread::current().id());
}

#[tokio::test]
async fn an_inline_read_sees_what_its_caller_wrote_and_fails_as_a_reader_does() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let count = |sql: &Connection, _: &mut ReadBudget| {
        Ok(sql.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0))?)
    };
    for number in 0..50 {
        add(engine.clone(), number).await.unwrap();
        assert_eq!(engine.read_inline("test.count", count).await.unwrap(), number + 1);
    }
    let wrong = |sql: &Connection, _: &mut ReadBudget| Ok(sql.execute_batch("SELECT * FROM nowhere")?);
    let error = engine.read_inline("test.wrong", wrong).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unexpected, "test.wrong"));
    let write =
        |sql: &Connection, _: &mut ReadBudget| Ok(sql.execute_batch("INSERT INTO numbers VALUES (99)")?);
    assert!(engine.read_inline("test.write", write).await.is_err());
    assert_eq!(numbers(&engine).await.len(), 50);
}

#[tokio::test(flavor = "current_thread")]
async fn a_caller_that_only_makes_inline_reads_lets_other_tasks_run() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let beats = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&beats);
    let heart = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..2_000 {
        reads_on(&engine, 1).await;
    }
    heart.abort();
    assert!(beats.load(std::sync::atomic::Ordering::Relaxed) >= 5, "the other task starved");
}

/// Regression test: a traversal whose caller awaited another future kept the WAL from being truncated.
#[tokio::test]
async fn an_idle_sliced_read_releases_the_wal() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    add(engine.clone(), 1).await.unwrap();
    let counts = || {
        let mut slices = 0;
        move |sql: &Connection, _: &mut ReadBudget| {
            slices += 1;
            let count = sql.query_row("SELECT count(*) FROM numbers", [], |row| row.get::<_, i64>(0))?;
            Ok(if slices == 3 { ControlFlow::Break(count) } else { ControlFlow::Continue(()) })
        }
    };
    let mut rests = std::pin::pin!(engine.read_in_slices("test.slices", counts));
    let _ = futures_util::poll!(rests.as_mut());
    let fill = |sql: &Connection| {
        Ok(sql.execute_batch(
            "CREATE TABLE IF NOT EXISTS filled (bytes BLOB);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6)
             INSERT INTO filled SELECT randomblob(1000000) FROM n;",
        )?)
    };
    let log = || std::fs::metadata(folder.path().join("larder.db-wal")).unwrap().len();
    let mut longest = 0;
    for _ in 0..20 {
        engine.write("test.fill", fill).await.unwrap();
        longest = log().max(longest);
    }
    add(engine.clone(), 2).await.unwrap();
    // 120 MB were written. The log is cut after 64 MB, or earlier if it was checkpointed in time.
    assert!(longest < 80_000_000, "the log was not cut: {longest}");
    // Its caller continues, and gets the current state.
    assert_eq!(rests.await.unwrap(), 2);
}
