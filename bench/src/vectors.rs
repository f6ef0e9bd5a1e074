//! Vector search in memory, compared with the memory's bandwidth, the processor's arithmetic, and faiss.
//!
//! The limits are measured between the searches, by the same number of threads, in this process.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use larder::memory::InMemoryVectorStore;
use larder_kernel::random::Random;
use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Filter, Metadata, PutMode, SearchHit, SearchRequest,
    VectorStore,
};

use super::curve::Plot;
use super::figure::{Figure, Subject, Target, Unit};
use super::limits;
use super::pgbench::run;
use super::{Outcome, Plan};

/// Hits that a search requests.
pub(super) const LIMIT: usize = 10;
/// Values of the field in the filtered search: one document in this number matches.
pub(super) const TENANTS: u64 = 100;
/// Numbers that are read to measure the bandwidth: 256 MiB, far more than any cache holds.
const READ_NUMBERS: usize = 64 * 1024 * 1024;

/// Returns the seconds that `work` takes.
fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed().as_secs_f64()
}

pub(super) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs `work` on this number of threads.
fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
        work(0);
    });
}

/// Contiguous numbers in memory, to measure the speed of reads.
struct Memory(Vec<f32>);

impl Memory {
    fn new() -> Self {
        // Written once, so that every page is allocated.
        Self(vec![1.0; READ_NUMBERS])
    }

    /// Returns the microseconds to read this number of numbers.
    fn micros(&self, numbers: f64, threads: usize) -> f64 {
        let part = self.0.len() / threads;
        let taken = seconds(|| {
            on_threads(threads, |thread| {
                black_box(limits::read_all(&self.0[thread * part..][..part]));
            });
        });
        taken * 1e6 * numbers / f64::from(u32::try_from(part * threads).unwrap_or(u32::MAX))
    }
}

/// Returns the limit of the registers in billions of floating-point operations per second.
fn flops(threads: usize) -> f64 {
    const ROUNDS: u32 = 4_000_000;
    let taken = seconds(|| {
        on_threads(threads, |_| {
            black_box(limits::multiply_and_add(ROUNDS));
        });
    });
    // The operations of one thread, times the threads; each is a multiplication and an addition.
    let operations = f64::from(ROUNDS) * 192.0 * 2.0 * f64::from(u32::try_from(threads).unwrap_or(u32::MAX));
    operations * 1e-9 / taken
}

/// Returns random vectors, or vectors around this number of points.
pub(super) struct Vectors {
    dimensions: usize,
    centers: Vec<Vec<f32>>,
}

/// Returns numbers with a bell-shaped distribution around zero.
fn bell(seed: u64, count: usize) -> Vec<f32> {
    let mut numbers = Random::new(seed);
    // The first numbers of neighboring seeds are similar.
    (0..8).for_each(|_| {
        numbers.draw();
    });
    let mut part = move || {
        let bits = u16::try_from(numbers.draw() >> 48).unwrap_or_default();
        f32::from(bits) / 65_536.0 - 0.5
    };
    (0..count).map(|_| part() + part() + part() + part()).collect()
}

impl Vectors {
    pub(super) fn new(dimensions: usize, centers: u64) -> Self {
        let centers = (0..centers).map(|center| bell(1_000_000_000 + center, dimensions)).collect();
        Self { dimensions, centers }
    }

    pub(super) fn at(&self, seed: u64) -> Vec<f32> {
        let own = bell(seed, self.dimensions);
        let Ok(count) = u64::try_from(self.centers.len()) else { return own };
        let center = usize::try_from(seed.checked_rem(count).unwrap_or_default()).unwrap_or_default();
        match self.centers.get(center) {
            Some(center) => own.iter().zip(center).map(|(own, center)| center + 0.3 * own).collect(),
            None => own,
        }
    }

    pub(super) fn query(&self, seed: u64) -> Outcome<SearchRequest> {
        Ok(SearchRequest::new(Embedding::new(self.at(2_000_000_000 + seed))?).with_limit(LIMIT))
    }

    /// Returns some vectors as documents.
    pub(super) fn documents(&self, seeds: std::ops::Range<u64>) -> Outcome<Vec<Document>> {
        let document = |seed: u64| -> Outcome<Document> {
            let metadata = Metadata::new()
                .with("tenant", format!("tenant-{:03}", seed % TENANTS))
                .with("share", (seed + 1).trailing_zeros());
            Ok(Document::new(DocumentId::new(format!("{seed:08}"))?, "text")
                .with_embedding(Embedding::new(self.at(seed))?)
                .with_metadata(metadata))
        };
        seeds.map(document).collect()
    }

    /// Returns a store with this number of vectors.
    pub(super) async fn store(&self, count: u32) -> Outcome<(InMemoryVectorStore, CollectionName)> {
        let store = InMemoryVectorStore::new();
        let collection = CollectionName::new("bench")?;
        for first in (0..u64::from(count)).step_by(1_000) {
            let documents = self.documents(first..u64::from(count).min(first + 1_000))?;
            store.put(&collection, documents, PutMode::Upsert).await?;
        }
        Ok((store, collection))
    }
}

fn with_threads(store: &InMemoryVectorStore, threads: usize) -> InMemoryVectorStore {
    store.clone().with_search_threads(NonZero::new(threads).unwrap_or(NonZero::<usize>::MIN))
}

async fn timed(
    store: &InMemoryVectorStore,
    collection: &CollectionName,
    request: &SearchRequest,
) -> Outcome<(f64, Vec<SearchHit>)> {
    let begun = Instant::now();
    let hits = store.search(collection, request).await?;
    Ok((begun.elapsed().as_secs_f64() * 1e6, hits))
}

/// The names of a scan's figures: without and with bounds, on one thread and on two.
type ScanNames = [(usize, Option<&'static str>, &'static str); 2];

const RANDOM: ScanNames = [
    (1, Some("vector-scan-1-thread"), "vector-bounds-random-1-thread"),
    (2, Some("vector-scan-2-threads"), "vector-bounds-random-2-threads"),
];
const CLUSTERED: ScanNames =
    [(1, None, "vector-bounds-clustered-1-thread"), (2, None, "vector-bounds-clustered-2-threads")];

/// One query over many vectors, which reads all numbers or uses bounds.
pub(super) async fn scan(plan: &Plan) -> Outcome<Vec<Figure>> {
    let count = plan.size(350_000, 20_000);
    let memory = Memory::new();
    let mut figures = Vec::new();
    for (what, centers, names) in [("random", 0, RANDOM), ("clustered", count / 1_000, CLUSTERED)] {
        let vectors = Vectors::new(768, centers.into());
        let (store, collection) = vectors.store(count).await?;
        for (threads, full, bounded) in names {
            let sides =
                ScanSides { store: &store, collection: &collection, vectors: &vectors, memory: &memory };
            let (scans, bounds) = sides.rounds(plan, count, threads).await?;
            let subject = |name, how: &str, target| Subject {
                name,
                what: format!(
                    "the best 10 of {count} {what} vectors of 768 numbers, {how}, {threads} thread(s)"
                ),
                peer: "reading all of their bytes at memory bandwidth with as many threads".to_owned(),
                settings: "in memory; both ways return bit-identical results".to_owned(),
                unit: Unit::Micros,
                target: Some(Target::AtMost(target)),
            };
            if let Some(full) = full {
                figures.push(subject(full, "every number read", 1.10).figure(&scans));
            }
            figures.push(subject(bounded, "bounds from 8-bit codes first", 0.35).figure(&bounds));
        }
    }
    Ok(figures)
}

struct ScanSides<'a> {
    store: &'a InMemoryVectorStore,
    collection: &'a CollectionName,
    vectors: &'a Vectors,
    memory: &'a Memory,
}

impl ScanSides<'_> {
    async fn rounds(
        &self,
        plan: &Plan,
        count: u32,
        threads: usize,
    ) -> Outcome<(Vec<(f64, f64)>, Vec<(f64, f64)>)> {
        let bounded = with_threads(self.store, threads);
        let full = bounded.clone().with_first_pass(false);
        let numbers = f64::from(count) * 768.0;
        let (mut scans, mut bounds) = (Vec::new(), Vec::new());
        for round in 0..=plan.rounds {
            let request = self.vectors.query(u64::try_from(round)?)?;
            let before = self.memory.micros(numbers, threads);
            let (scan, expected) = timed(&full, self.collection, &request).await?;
            let between = self.memory.micros(numbers, threads);
            let (bound, found) = timed(&bounded, self.collection, &request).await?;
            let after = self.memory.micros(numbers, threads);
            if found != expected || found.len() != LIMIT {
                return Err("the search by bounds gave another answer".into());
            }
            if round > 0 {
                scans.push((scan, f64::midpoint(before, between)));
                bounds.push((bound, f64::midpoint(between, after)));
            }
        }
        Ok((scans, bounds))
    }
}

/// Sixty-four queries in one batch, compared with faiss and with the minimum time of 32-bit FMA.
pub(super) async fn batch(plan: &Plan) -> Outcome<Vec<Figure>> {
    let (count, queries) = (plan.size(100_000, 10_000), 64_u32);
    let vectors = Vectors::new(768, 0);
    let (store, collection) = vectors.store(count).await?;
    let requests: Vec<SearchRequest> =
        (0..u64::from(queries)).map(|seed| vectors.query(seed)).collect::<Outcome<_>>()?;
    let files = [plan.scratch.join("vectors.f32"), plan.scratch.join("queries.f32")];
    write_numbers(&files[0], (0..u64::from(count)).map(|seed| vectors.at(seed)))?;
    write_numbers(&files[1], requests.iter().map(|request| request.embedding.as_slice().to_vec()))?;
    let operations = 2.0 * f64::from(queries) * f64::from(count) * 768.0 * 1e-9;

    let (mut versions, mut beside) = (Default::default(), [Vec::new(), Vec::new()]);
    let mut peaks = [(1, Vec::new()), (2, Vec::new())];
    for round in 0..=plan.rounds {
        for (threads, rounds) in &mut peaks {
            let store = with_threads(&store, *threads);
            let before = flops(*threads);
            let begun = Instant::now();
            let answers = store.search_batch(&collection, &requests).await?;
            let taken = begun.elapsed().as_secs_f64();
            let peak = f64::midpoint(before, flops(*threads));
            if round > 0 {
                rounds.push((operations / taken, peak));
            }
            // Faiss takes seconds, so it runs in some of the rounds only.
            if *threads == 1 && round % 3 == 1 {
                let (found, rows) = flat_search(&files)?;
                same_rows(&answers, &rows)?;
                for (beside, micros) in beside.iter_mut().zip(found.micros) {
                    beside.push((taken * 1e6, micros));
                }
                versions = found.versions;
            }
        }
    }
    let what =
        format!("search_batch of {queries} queries, the best 10 of {count} vectors of 768 numbers each");
    let subject = |name, what: String, peer: String, unit, target| Subject {
        name,
        what,
        peer,
        settings: "in memory; the same vectors, queries and results".to_owned(),
        unit,
        target,
    };
    let [faiss, numpy] = versions;
    let peers = [
        (
            "vector-batch-faiss",
            format!("faiss-cpu {faiss}, IndexFlatIP, one thread"),
            Some(Target::AtMost(0.15)),
        ),
        ("vector-batch-numpy", format!("numpy {numpy}, a matrix product and argpartition, one thread"), None),
    ];
    let mut figures = Vec::new();
    for ((name, peer, target), rounds) in peers.into_iter().zip(&beside) {
        figures.push(subject(name, format!("{what}, one thread"), peer, Unit::Micros, target).figure(rounds));
    }
    let names = [("vector-batch-peak-1-thread", 0.7), ("vector-batch-peak-2-threads", 0.6)];
    for ((threads, rounds), (name, target)) in peaks.iter().zip(names) {
        let what = format!("{what}, {threads} thread(s), counted as 32-bit multiply-adds");
        let peer = "fused multiply-adds in registers, with as many threads".to_owned();
        let target = Some(Target::AtLeast(target));
        figures.push(subject(name, what, peer, Unit::GigaFlops, target).figure(rounds));
    }
    Ok(figures)
}

pub(super) fn write_numbers(path: &Path, rows: impl Iterator<Item = Vec<f32>>) -> Outcome<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for row in rows {
        for number in row {
            file.write_all(&number.to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

/// The versions of faiss and numpy, and the microseconds of a call of each.
struct Flat {
    versions: [String; 2],
    micros: [f64; 2],
}

/// Runs both searches, and returns their times and the rows that faiss found for each query.
fn flat_search(files: &[PathBuf; 2]) -> Outcome<(Flat, Vec<BTreeSet<u64>>)> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run");
    let mut command = Command::new(peers);
    command.args(["faiss", "flat_search.py"]).args(files).args(["768", "2"]).env("OPENBLAS_NUM_THREADS", "1");
    // These variables select kernels of other processors for an old library; numpy's default is the fastest.
    command.env_remove("OPENBLAS_CORETYPE").env_remove("OPENBLAS_L2_SIZE");
    let said = run(&mut command)?;
    let mut lines = said.trim().lines();
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [faiss, faiss_micros, numpy, numpy_micros] = first[..] else {
        return Err("flat_search.py printed no figures".into());
    };
    let flat = Flat {
        versions: [faiss.to_owned(), numpy.to_owned()],
        micros: [faiss_micros.parse()?, numpy_micros.parse()?],
    };
    let rows = lines.map(|line| line.split(' ').map(str::parse).collect::<Result<_, _>>());
    Ok((flat, rows.collect::<Result<_, _>>()?))
}

/// Returns `true` if both found the same rows. Two scores with equal 32-bit values may swap at the tenth
/// rank.
fn same_rows(answers: &[Vec<SearchHit>], rows: &[BTreeSet<u64>]) -> Outcome<()> {
    let mut missed = 0;
    for (hits, rows) in answers.iter().zip(rows) {
        for hit in hits {
            missed += usize::from(!rows.contains(&hit.id.as_str().parse()?));
        }
    }
    if answers.len() == rows.len() && missed * 1_000 <= answers.len() * LIMIT {
        return Ok(());
    }
    Err(format!("faiss found {missed} other rows").into())
}

/// Measures a search as more of the vectors match: half of them have the share 0, a quarter 1, and so on.
async fn by_matches(
    plan: &Plan,
    store: &InMemoryVectorStore,
    collection: &CollectionName,
    vectors: &Vectors,
    count: u32,
) -> Outcome<()> {
    let mut points = Vec::new();
    for share in 0..count.ilog2() {
        let mut taken = Vec::new();
        for seed in 0..15 {
            let request = vectors.query(seed)?.with_filter(Filter::eq("share", share));
            taken.push(timed(store, collection, &request).await?.0);
        }
        points.push((f64::from(count >> (share + 1)), middle(taken)));
    }
    points.retain(|(matches, _)| *matches >= 1.0);
    points.reverse();
    plan.draw(Plot::FilteredSearch, format!("in memory, {count} vectors of 384 numbers"), points);
    Ok(())
}

/// A search among one document in a hundred.
pub(super) async fn filtered(plan: &Plan) -> Outcome<Vec<Figure>> {
    let count = plan.size(100_000, 20_000);
    let vectors = Vectors::new(384, 0);
    let (store, collection) = vectors.store(count).await?;
    let store = with_threads(&store, 1);
    let memory = Memory::new();
    let matching = usize::try_from(u64::from(count) / TENANTS)? * 384;
    let mut rounds = Vec::new();
    for round in 0..=plan.rounds {
        let (mut searches, mut reads) = (Vec::new(), Vec::new());
        for tenant in 0..TENANTS {
            let request = vectors.query(tenant)?;
            // Each tenant in turn, so that none of its vectors is in a cache.
            let filter = Filter::eq("tenant", format!("tenant-{tenant:03}"));
            let (micros, hits) = timed(&store, &collection, &request.with_filter(filter)).await?;
            if hits.len() != LIMIT {
                return Err("a filtered search came short".into());
            }
            searches.push(micros);
            let at = usize::try_from(tenant)? * matching % (READ_NUMBERS - matching);
            reads.push(seconds(|| limits::read_all(&memory.0[at..][..matching])) * 1e6);
        }
        if round > 0 {
            rounds.push((middle(searches), middle(reads)));
        }
    }
    by_matches(plan, &store, &collection, &vectors, count).await?;
    let subject = Subject {
        name: "vector-filter",
        what: format!("the best 10 of {count} vectors of 384 numbers, among the 1 % that match a filter"),
        peer: "reading the bytes of as many contiguous vectors at memory bandwidth".to_owned(),
        settings: "in memory, one thread; the median of 100 searches and of 100 reads per round".to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(2.0)),
    };
    Ok(vec![subject.figure(&rounds)])
}
