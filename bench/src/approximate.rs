//! Approximate search in memory, compared with the graph indexes of faiss and usearch at the same recall.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use larder_kernel::{SearchRequest, VectorStore};

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::vectors::{LIMIT, Vectors, middle, write_numbers};
use super::{Outcome, Plan};

const DIMENSIONS: usize = 384;
const QUERIES: u64 = 200;
/// The recall that both sides must reach.
const RECALL: f64 = 0.97;

/// Single searches, one thread.
pub(super) async fn beside_hnsw(plan: &Plan) -> Outcome<Vec<Figure>> {
    let count = plan.size(100_000, 20_000);
    let vectors = Vectors::new(DIMENSIONS, u64::from(count) / 1_000);
    let (exact, collection) = vectors.store(count).await?;
    let approximate = exact.clone().with_approximate_search();
    if !approximate.build_index(&collection).await? {
        return Err("the vectors are in groups, but the collection has no index".into());
    }
    let queries: Vec<SearchRequest> = (0..QUERIES).map(|seed| vectors.query(seed)).collect::<Outcome<_>>()?;
    let mut hits = 0_u32;
    for query in &queries {
        let expected: BTreeSet<_> =
            exact.search(&collection, query).await?.into_iter().map(|hit| hit.id).collect();
        for hit in approximate.search(&collection, query).await? {
            hits += u32::from(expected.contains(&hit.id));
        }
    }
    let all = u32::try_from(queries.len() * LIMIT)?;

    let what = format!("the best 10 of {count} clustered vectors of {DIMENSIONS} numbers, most of them");
    let subject = |name, what, peer, unit, target| Subject {
        name,
        what,
        peer,
        settings: "in memory, one thread, one query per call; the same vectors and queries".to_owned(),
        unit,
        target,
    };
    let files = Files::write(plan, &vectors, count, &queries)?;
    let mut figures = Vec::new();
    for (name, library, target) in PEERS {
        let mut peer = Hnsw::start(library, &files)?;
        let rounds = in_turns(
            plan,
            async |_| {
                let mut taken = Vec::with_capacity(queries.len());
                for query in &queries {
                    let begun = Instant::now();
                    let found = approximate.search(&collection, query).await?;
                    taken.push(begun.elapsed().as_secs_f64() * 1e6);
                    if found.len() != LIMIT {
                        return Err("an approximate search came short".into());
                    }
                }
                Ok(middle(taken))
            },
            async |_| peer.round(),
        )
        .await?;
        figures.push(subject(name, what.clone(), peer.name(), Unit::Micros, target).figure(&rounds));
    }
    let of_hits = subject(
        "vector-approximate-recall",
        format!("hits found: {what}"),
        "the hits of the exact search".to_owned(),
        Unit::Hits,
        Some(Target::AtLeast(RECALL)),
    );
    figures.push(of_hits.figure(&[(f64::from(hits), f64::from(all))]));
    Ok(figures)
}

/// The libraries, and the names of their figures.
const PEERS: [(&str, &str, Option<Target>); 2] = [
    ("vector-approximate", "faiss", Some(Target::AtMost(1.0))),
    ("vector-approximate-usearch", "usearch", None),
];

/// The files of the vectors and the queries.
struct Files([PathBuf; 2]);

impl Files {
    fn write(plan: &Plan, vectors: &Vectors, count: u32, queries: &[SearchRequest]) -> Outcome<Self> {
        let files = [plan.scratch.join("rows.f32"), plan.scratch.join("wanted.f32")];
        write_numbers(&files[0], (0..u64::from(count)).map(|seed| vectors.at(seed)))?;
        write_numbers(&files[1], queries.iter().map(|query| query.embedding.as_slice().to_vec()))?;
        Ok(Self(files))
    }
}

/// A process with a library's index, which searches on request.
struct Hnsw {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    library: &'static str,
    /// The library's version, its search width, and the recall at that width.
    index: String,
}

impl Hnsw {
    fn start(library: &'static str, files: &Files) -> Outcome<Self> {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run"));
        command.args([library, "hnsw_search.py", library]).args(&files.0);
        command.args([DIMENSIONS.to_string(), RECALL.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("hnsw_search.py has no pipes".into());
        };
        let answers = BufReader::new(answers);
        let mut hnsw = Self { process, orders, answers, library, index: String::new() };
        hnsw.index = hnsw.line()?;
        Ok(hnsw)
    }

    fn name(&self) -> String {
        let mut parts = self.index.split(' ');
        let mut part = || parts.next().unwrap_or("unknown");
        format!(
            "{} {}, HNSW of 32 neighbors, search width {}, the smallest tested width with a recall of \
             {RECALL} ({})",
            self.library,
            part(),
            part(),
            part()
        )
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("hnsw_search.py ended: {}", self.process.wait()?).into());
        }
        Ok(line.trim().to_owned())
    }

    /// Returns the median time of a search in microseconds.
    fn round(&mut self) -> Outcome<f64> {
        self.orders.write_all(b"search\n")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Hnsw {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
