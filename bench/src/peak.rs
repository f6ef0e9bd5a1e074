//! The peak memory of writing or reading a large blob, measured in a separate process.

use std::process::{Command, ExitCode};

use bytes::Bytes;
use clap::ValueEnum;
use futures_util::{StreamExt, stream};

use super::blobs::{Blobs, MIB};
use super::figure::{Figure, Subject, Target, Unit};
use super::pgbench::run;
use super::s3::{IN_FLIGHT, PART_BYTES, VARIABLE};
use super::{Outcome, Plan, machine, payload};
use larder_cli::output;

/// The variable with the service's URL. Arguments would be visible in process lists.
const URL: &str = "LARDER_BENCH_PEAK_URL";
const NAMESPACE: &str = "LARDER_BENCH_PEAK_NAMESPACE";
const MEBIBYTES: &str = "LARDER_BENCH_PEAK_MEBIBYTES";

/// The measured step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    Put,
    Get,
}

impl Step {
    fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
        }
    }
}

/// Measures the memory that a put and a get of a large blob add to the parts in flight.
pub(super) async fn s3_memory(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let namespace = format!("bench-memory-{}", std::process::id());
    let larder = Blobs::open(&url, &namespace).await?;
    let figures = measure(plan, &url, &namespace);
    // Removes the data after a failure, too.
    larder.erase().await?;
    figures
}

fn measure(plan: &Plan, url: &str, namespace: &str) -> Outcome<Vec<Figure>> {
    let mebibytes = plan.size(256, 128);
    let in_flight = (IN_FLIGHT * PART_BYTES) as f64 / MIB as f64;
    let mut figures = Vec::new();
    for (name, step) in [("s3-put-memory", Step::Put), ("s3-get-memory", Step::Get)] {
        let mut rounds = Vec::new();
        // The allocations of a process hardly vary.
        for _ in 0..plan.rounds.min(3) {
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["bench", "--peak-of", step.word()]);
            child.env(URL, url).env(NAMESPACE, namespace).env(MEBIBYTES, mebibytes.to_string());
            rounds.push((run(&mut child)?.trim().parse::<f64>()?, in_flight));
        }
        let subject = Subject {
            name,
            what: format!("maximum resident memory added by a {} of {mebibytes} MiB", step.word()),
            peer: "8 parts of 8 MiB in flight".to_owned(),
            settings: "a separate process, with its peak reset after a first small blob".to_owned(),
            unit: Unit::MebiBytes,
            target: Some(Target::AtMost(1.5)),
        };
        figures.push(subject.figure(&rounds));
    }
    Ok(figures)
}

/// Runs the step in this process and prints the mebibytes that it added.
pub(super) fn child(step: Step) -> ExitCode {
    let added = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(added(step)));
    match added {
        Ok(mebibytes) => output::finish(mebibytes, ExitCode::SUCCESS),
        Err(error) => output::trouble(error),
    }
}

async fn added(step: Step) -> Outcome<f64> {
    let larder = Blobs::open(&std::env::var(URL)?, &std::env::var(NAMESPACE)?).await?;
    let mebibytes: u32 = std::env::var(MEBIBYTES)?.parse()?;
    // Connections, credentials and the allocator's first pages do not count as the blob's.
    let small = payload::blob(1);
    if step == Step::Put {
        larder.put(&small).await?;
    }
    // Resets the peak to the resident memory of now.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = resident("VmRSS")?;
    match step {
        Step::Put => larder.put_stream(made_on_the_way(&small, mebibytes)).await?,
        Step::Get => {
            larder.get(usize::try_from(mebibytes)? * MIB).await?;
        }
    }
    Ok((resident("VmHWM")? - before) / 1024.0)
}

/// Chunks that are allocated on request, so the blob is never whole in memory.
fn made_on_the_way(
    piece: &Bytes,
    mebibytes: u32,
) -> impl futures_util::Stream<Item = larder_kernel::Result<Bytes>> + Send + use<> {
    let piece = piece.clone();
    stream::iter(0..mebibytes).map(move |_| Ok(Bytes::copy_from_slice(&piece)))
}

/// Returns a line of this process's status, in KiB.
fn resident(name: &str) -> Outcome<f64> {
    let line = machine::field("/proc/self/status", name)
        .ok_or("this system does not report the memory of a process")?;
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}
