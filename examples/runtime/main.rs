//! A small agent runtime on any store:
//! `cargo run --example runtime --features http,test-server -- --store sqlite:./trip.db`.
//!
//! A planner and a scout share one session, and each has a task board. A task is a loop: the model reads a
//! window of the session, calls tools, reads their results, and finally replies. The agents write facts to a
//! knowledge graph and notes to a collection for similarity search. A summary replaces old messages.
//!
//! The runtime keeps all of its state in the stores, so you can kill it at any moment and restart it.
//! `--stop-after N` simulates a crash at step N. `--snapshot FILE` writes the final content of the stores,
//! which is the same after any number of interruptions. Before each model call, the runtime prints the
//! messages that the model receives, with the reasons.
//!
//! Without `--model-url`, the example runs offline with a scripted model server on the loopback interface.
//! With it, the example reads the model's key from `LARDER_MODEL_KEY`.
#![allow(clippy::print_stdout, reason = "an example prints")]

mod parts;

use std::sync::Arc;

use larder::Stores;
use larder::{Error, Result, SessionId};

use parts::{Models, Runtime, Steps};

const USAGE: &str = "runtime [--store URL]... [--session ID] [--stop-after N] [--snapshot FILE] \
                     [--model-url URL --model NAME --embedding-model NAME --dimensions N]";

/// The arguments of the command line.
struct Arguments {
    stores: Vec<String>,
    session: String,
    stop_after: Option<u64>,
    snapshot: Option<String>,
    model_url: Option<String>,
    model: String,
    embedding_model: String,
    dimensions: usize,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut read = Self {
            stores: Vec::new(),
            session: "weekend".to_owned(),
            stop_after: None,
            snapshot: None,
            model_url: None,
            model: "small".to_owned(),
            embedding_model: "small-embeddings".to_owned(),
            dimensions: parts::DIMENSIONS,
        };
        while let Some(flag) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| refused("arguments", format!("`{flag}` needs a value; {USAGE}")))?;
            match flag.as_str() {
                "--store" => read.stores.push(value),
                "--session" => read.session = value,
                "--stop-after" => read.stop_after = Some(number("stop-after", &value)?),
                "--snapshot" => read.snapshot = Some(value),
                "--model-url" => read.model_url = Some(value),
                "--model" => read.model = value,
                "--embedding-model" => read.embedding_model = value,
                "--dimensions" => read.dimensions = number("dimensions", &value)?,
                _ => return Err(refused("arguments", format!("`{flag}` is unknown; {USAGE}"))),
            }
        }
        if read.stores.is_empty() {
            read.stores.push("memory:".to_owned());
        }
        Ok(read)
    }
}

fn refused(field: &'static str, message: String) -> Error {
    Error::invalid("runtime", field, message)
}

fn number<N: std::str::FromStr>(field: &'static str, text: &str) -> Result<N> {
    text.parse().map_err(|_| refused(field, format!("not a number; {USAGE}")))
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let urls = arguments.stores.iter().fold(Stores::builder(), |builder, url| builder.url(url));
    let stores = urls.open().await?;
    let models = match &arguments.model_url {
        None => Models::offline().await?,
        Some(url) => {
            let names = (arguments.model.as_str(), arguments.embedding_model.as_str());
            Models::served(
                url,
                std::env::var("LARDER_MODEL_KEY").ok().as_deref(),
                names,
                arguments.dimensions,
            )?
        }
    };
    let session = SessionId::new(&arguments.session)?;
    let runtime =
        Runtime::new(stores.clone(), models, session, &(Arc::new(|text: &str| println!("{text}")) as _))?;
    let steps = arguments.stop_after.map_or_else(Steps::all, Steps::until);
    if runtime.run(&steps).await?.is_none() {
        println!("stopped at step {}; start again to go on", steps.made());
        // Simulates a crash: no claim is released and no store is closed.
        std::process::exit(0);
    }
    println!("{} tasks are done", runtime.done().await?);
    for (title, answer) in runtime.answers().await? {
        println!("\n{title}\n  {answer}");
    }
    if let Some(file) = arguments.snapshot {
        let text = runtime.snapshot().await?.to_string();
        std::fs::write(file, text).map_err(|error| refused("snapshot", error.to_string()))?;
    }
    stores.close().await;
    Ok(())
}
