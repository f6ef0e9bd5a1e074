use larder_kernel::{Embedding, ErrorKind, Metadata};

use super::*;

fn name(text: &str) -> CollectionName {
    CollectionName::new(text).unwrap()
}

fn id(text: &str) -> DocumentId {
    DocumentId::new(text).unwrap()
}

fn document(text: &str, numbers: &[f32]) -> Document {
    Document::new(id(text), text).with_embedding(Embedding::new(numbers).unwrap())
}

/// Returns numbers that look random and are the same in every run.
pub(super) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut random = larder_kernel::random::Random::new(seed);
    let mut next = || f32::from(u16::try_from(random.below(2_001)).unwrap()) / 1_000.0 - 1.0;
    (0..count).map(|_| next()).collect()
}

#[tokio::test]
async fn search_equals_the_definition_across_blocks_and_swapped_rows() {
    let store = InMemoryVectorStore::new();
    let notes = name("notes");
    for batch in 0..3 {
        let documents = (0..800)
            .map(|n| document(&format!("d{:05}", batch * 800 + n), &numbers(batch * 800 + n + 1, 33)))
            .collect();
        store.put(&notes, documents, PutMode::Upsert).await.unwrap();
    }
    let gone: Vec<DocumentId> = (0..2400).step_by(3).map(|n| id(&format!("d{n:05}"))).collect();
    assert_eq!(store.delete(&notes, &gone).await.unwrap(), 800);
    assert_eq!(store.count(&notes, None).await.unwrap(), 1_600);

    let query = Embedding::new(numbers(9_999, 33)).unwrap();
    let all = store.list(&notes, PageRequest::first(10_000)).await.unwrap().items;
    assert_eq!(all.len(), 1_600);
    let mut expected: Vec<(f64, DocumentId)> = Vec::new();
    for found in all {
        let number = found.id.as_str()[1..].parse::<u64>().unwrap();
        assert_eq!(found.embedding.as_ref().unwrap().as_slice(), numbers(number + 1, 33));
        expected.push((query.cosine(&found.embedding.unwrap()).unwrap(), found.id));
    }
    expected.sort_by(|left, right| right.0.total_cmp(&left.0));
    let hits = store.search(&notes, &SearchRequest::new(query).with_limit(50)).await.unwrap();
    assert_eq!(hits.len(), 50);
    for (hit, (score, _)) in hits.iter().zip(&expected) {
        assert!((f64::from(hit.score) - score).abs() < 1e-6);
    }
    let found: std::collections::BTreeSet<_> = hits.into_iter().map(|hit| hit.id).collect();
    assert_eq!(found, expected.into_iter().take(50).map(|(_, id)| id).collect());
}

#[tokio::test]
async fn equal_embeddings_tie_by_id_and_extreme_lengths_keep_their_cosine() {
    let store = InMemoryVectorStore::new();
    let notes = name("notes");
    let long: Vec<f32> = numbers(7, 16_000);
    let documents = ["c", "a", "b"].map(|text| document(text, &long)).to_vec();
    store.put(&notes, documents, PutMode::Upsert).await.unwrap();
    let query = SearchRequest::new(Embedding::new(numbers(8, 16_000)).unwrap());
    let hits = store.search(&notes, &query).await.unwrap();
    assert_eq!(hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(hits.iter().all(|hit| hit.score.to_bits() == hits[0].score.to_bits()));

    let small = name("small");
    // Products of two such numbers leave the normal range of f32; the cosine must be unaffected.
    let tiny = vec![1.2e-20_f32; 100];
    let huge = vec![1.8e18_f32; 100];
    let documents = vec![document("tiny", &tiny), document("huge", &huge)];
    store.put(&small, documents, PutMode::Upsert).await.unwrap();
    for numbers in [tiny, huge] {
        let hits = store.search(&small, &SearchRequest::new(Embedding::new(numbers).unwrap())).await.unwrap();
        assert!(hits.iter().all(|hit| (hit.score - 1.0).abs() < 1e-6 && hit.score <= 1.0));
    }
}

#[tokio::test]
async fn the_filter_applies_before_the_limit_and_batches_equal_single_searches() {
    let store = InMemoryVectorStore::new();
    let notes = name("notes");
    let documents = (0..100)
        .map(|n: u8| {
            document(&format!("d{n:02}"), &[1.0, f32::from(n)])
                .with_metadata(Metadata::new().with("odd", n % 2 == 1))
        })
        .collect();
    store.put(&notes, documents, PutMode::Upsert).await.unwrap();
    let odd = Filter::eq("odd", true);
    let request = |limit| SearchRequest::new(Embedding::new([1.0, 0.0]).unwrap()).with_limit(limit);
    let requests = [request(3).with_filter(odd.clone()), request(0), request(4).with_score_min(0.7)];
    let answers = store.search_batch(&notes, &requests).await.unwrap();
    let ids = |hits: &[SearchHit]| hits.iter().map(|hit| hit.id.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&answers[0]), ["d01", "d03", "d05"]);
    assert!(answers[1].is_empty());
    assert_eq!(ids(&answers[2]), ["d00", "d01"]);
    for (answer, request) in answers.iter().zip(&requests) {
        assert_eq!(answer, &store.search(&notes, request).await.unwrap());
    }
    assert_eq!(store.delete_matching(&notes, &odd).await.unwrap(), 50);
    assert_eq!(store.count(&notes, Some(&odd)).await.unwrap(), 0);
}

#[tokio::test]
async fn the_dimension_outlives_documents_and_every_byte_is_released() {
    let backend = MemoryBackend::with_bytes_max(4_000);
    let store = InMemoryVectorStore::open(&backend, Namespace::new("n").unwrap());
    let notes = name("notes");
    let error = store.put(&notes, vec![document("a", &[1.0; 1_000])], PutMode::Upsert).await.unwrap_err();
    assert_eq!((error.kind(), backend.bytes()), (ErrorKind::ResourceExhausted, 0));
    assert!(store.list_collections(PageRequest::default()).await.unwrap().items.is_empty());

    store.put(&notes, vec![document("a", &[1.0, 2.0])], PutMode::IfAbsent).await.unwrap();
    let report = store.put(&notes, vec![document("a", &[5.0, 2.0])], PutMode::IfAbsent).await.unwrap();
    assert_eq!(report, PutReport::new(vec![], vec![id("a")]));
    assert_eq!(store.delete(&notes, &[id("a"), id("a"), id("b")]).await.unwrap(), 1);
    let error = store.put(&notes, vec![document("a", &[1.0])], PutMode::Upsert).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("embedding")));
    assert!(store.drop_collection(&notes).await.unwrap());
    assert_eq!(backend.bytes(), 0);
    store.put(&notes, vec![document("a", &[1.0])], PutMode::Upsert).await.unwrap();
    store.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

/// Returns `true` if other tasks ran during two long searches.
async fn others_had_turns() -> bool {
    let store = InMemoryVectorStore::new();
    let notes = name("notes");
    for batch in 0..2 {
        let documents = (0..1_000)
            .map(|n| {
                let n = batch * 1_000 + n;
                document(&format!("d{n}"), &numbers(n + 1, 64)).with_metadata(Metadata::new().with("n", n))
            })
            .collect();
        store.put(&notes, documents, PutMode::Upsert).await.unwrap();
    }
    let beats = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let beat = beats.clone();
    // This task runs on the only thread, which also waits for the search.
    let heart = tokio::spawn(async move {
        loop {
            beat.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let request = |seed| SearchRequest::new(Embedding::new(numbers(seed, 64)).unwrap());
    let long: Vec<_> = (0..64).map(|seed| request(5_000 + seed)).collect();
    let before = beats.load(std::sync::atomic::Ordering::Relaxed);
    store.search_batch(&notes, &long).await.unwrap();
    let after_batch = beats.load(std::sync::atomic::Ordering::Relaxed);
    // Columns that must be built are long work too.
    let filtered: Vec<_> = (0..4).map(|n| request(1).with_filter(Filter::gt("n", n * 100))).collect();
    store.search_batch(&notes, &filtered).await.unwrap();
    let after_filters = beats.load(std::sync::atomic::Ordering::Relaxed);
    heart.abort();
    after_batch > before + 10 && after_filters > after_batch + 10
}

#[tokio::test]
async fn other_tasks_run_during_a_long_search() {
    // A busy machine may not schedule this thread while the search runs. A search that blocks the thread
    // never lets it run.
    for _ in 0..10 {
        if others_had_turns().await {
            return;
        }
    }
    panic!("a search kept the runtime's thread to itself in each of ten attempts");
}

#[tokio::test]
async fn filters_see_rows_that_were_written_moved_and_deleted_since_their_columns_were_made() {
    let store = InMemoryVectorStore::new();
    let notes = name("notes");
    let tagged = |n: u64, tag: u64| {
        document(&format!("d{n:03}"), &numbers(n + 1, 4)).with_metadata(Metadata::new().with("tag", tag))
    };
    store.put(&notes, (0..200).map(|n| tagged(n, n % 5)).collect(), PutMode::Upsert).await.unwrap();
    let mut tags: std::collections::BTreeMap<u64, u64> = (0..200).map(|n| (n, n % 5)).collect();
    let request = SearchRequest::new(Embedding::new([1.0, 0.5, 0.2, 0.1]).unwrap()).with_limit(1_000);
    // Few writes at first, then more than the columns tolerate.
    for step in 0..60_u64 {
        let (changed, gone) = (step * 13 % 200, step * 29 % 200);
        store.put(&notes, vec![tagged(changed, step % 7)], PutMode::Upsert).await.unwrap();
        tags.insert(changed, step % 7);
        store.delete(&notes, &[id(&format!("d{gone:03}"))]).await.unwrap();
        tags.remove(&gone);
        for (filter, wanted) in [
            (Filter::eq("tag", 3), Box::new(|tag: u64| tag == 3) as Box<dyn Fn(u64) -> bool>),
            (!Filter::gte("tag", 2), Box::new(|tag: u64| tag < 2)),
        ] {
            let hits = store.search(&notes, &request.clone().with_filter(filter.clone())).await.unwrap();
            let found: std::collections::BTreeSet<_> = hits.into_iter().map(|hit| hit.id).collect();
            let expected = tags.iter().filter(|(_, tag)| wanted(**tag)).map(|(n, _)| id(&format!("d{n:03}")));
            assert_eq!(found, expected.collect(), "step {step}");
            assert_eq!(
                store.count(&notes, Some(&filter)).await.unwrap(),
                u64::try_from(found.len()).unwrap()
            );
        }
    }
}

/// Runs a future to its end on a new thread.
fn on_thread(work: impl Future<Output = ()> + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work);
    })
}

#[test]
fn concurrent_writes_searches_and_drops_keep_the_account_exact() {
    let backend = MemoryBackend::new();
    let store = InMemoryVectorStore::open(&backend, Namespace::new("n").unwrap());
    let notes = name("notes");
    let threads: Vec<_> = (0..6_u64)
        .map(|thread| {
            let (store, notes) = (store.clone(), notes.clone());
            on_thread(async move {
                for round in 0..10 {
                    let documents = (0..300)
                        .map(|n| document(&format!("{thread}-{n}"), &numbers(n + round + 1, 300)))
                        .collect();
                    store.put(&notes, documents, PutMode::Upsert).await.unwrap();
                    let query = SearchRequest::new(Embedding::new(numbers(round + 1, 300)).unwrap());
                    let hits = store.search(&notes, &query).await.unwrap();
                    assert!(hits.is_sorted_by(|left, right| left.score >= right.score));
                    let ids: Vec<_> = (0..150).map(|n| id(&format!("{thread}-{n}"))).collect();
                    store.delete(&notes, &ids).await.unwrap();
                    if thread == 0 && round % 4 == 3 {
                        store.drop_collection(&notes).await.unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(backend.bytes() > 0);
    let erased = store.clone();
    on_thread(async move { erased.erase().await.unwrap() }).join().unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn a_wait_for_a_writer_blocks_no_other_task() {
    let (store, notes) = (InMemoryVectorStore::new(), name("notes"));
    store.put(&notes, vec![document("a", &[1.0, 0.0])], PutMode::Upsert).await.unwrap();
    let ((begun, begins), (told, tells)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let (state, collection) = (store.state.clone(), notes.clone());
    let holder = std::thread::spawn(move || {
        let hold = move |_: &mut Rows| {
            begun.send(()).unwrap();
            tells.recv_timeout(std::time::Duration::from_secs(20)).is_ok()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(state.change("test", &collection, 0, hold)).unwrap()
    });
    begins.recv().unwrap();
    let request = SearchRequest::new(Embedding::new([1.0, 0.0]).unwrap());
    let (a, others, filter) = ([id("a")], name("others"), Filter::eq("x", 1));
    let calls = async {
        tokio::join!(
            store.search(&notes, &request),
            store.get(&notes, &a),
            store.list(&notes, PageRequest::first(10)),
            store.list_collections(PageRequest::first(10)),
            store.count(&notes, None),
            store.delete_matching(&notes, &filter),
            store.put(&notes, vec![document("b", &[0.0, 1.0])], PutMode::Upsert),
            store.put(&others, vec![document("c", &[0.0, 1.0])], PutMode::Upsert),
            store.drop_collection(&others),
        )
    };
    let (calls, ()) = tokio::join!(calls, async { told.send(()).unwrap() });
    assert_eq!(holder.join().unwrap(), Some(true), "the other task did not run during the calls");
    assert!(calls.0.unwrap().iter().any(|hit| hit.id == id("a")));
    assert!(calls.1.is_ok() && calls.2.is_ok() && calls.3.is_ok() && calls.4.is_ok() && calls.5.is_ok());
    assert!(calls.6.is_ok() && calls.7.is_ok() && calls.8.is_ok());
}
