//! Exact token counts, compared with tiktoken in Python on the same texts and with the same vocabulary.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use larder::tokens::{Encoding, TiktokenCounter, TokenCounter};

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::pgbench::run;
use super::{Outcome, Plan};

/// The maximum bytes of a text: as long as a long message.
const TEXT_BYTES_MAX: usize = 4_000;
/// Counts in a round. The fastest counts, on both sides.
const COUNTS: u32 = 2;
/// Ordinary tokens of `o200k_base`, without the special ones.
const ORDINARY_TOKENS: u32 = 199_998;

/// Counts in `o200k_base`, one thread.
pub(super) async fn beside_tiktoken(plan: &Plan) -> Outcome<Vec<Figure>> {
    let texts = texts(usize::try_from(plan.size(2_000_000, 200_000))?)?;
    let bytes: usize = texts.iter().map(String::len).sum();
    let (vocabulary, file) = (plan.scratch.join("o200k_base.tiktoken"), plan.scratch.join("texts.json"));
    write_vocabulary(&vocabulary)?;
    std::fs::write(&file, serde_json::to_vec(&texts)?)?;
    let counter = TiktokenCounter::new(Encoding::O200k);
    let expected: u64 = texts.iter().map(|text| counter.count(text)).sum();
    let rate = |seconds: f64| bytes as f64 * 1e-6 / seconds;
    let mut version = String::new();
    let rounds = in_turns(
        plan,
        async |_| {
            let mut quickest = f64::INFINITY;
            for _ in 0..COUNTS {
                let begun = Instant::now();
                std::hint::black_box(texts.iter().map(|text| counter.count(text)).sum::<u64>());
                quickest = quickest.min(begun.elapsed().as_secs_f64());
            }
            Ok(rate(quickest))
        },
        async |_| {
            let (found, tokens, seconds) = tiktoken(&vocabulary, &file)?;
            if tokens != expected {
                return Err(format!("tiktoken counts {tokens} tokens instead of {expected}").into());
            }
            version = found;
            Ok(rate(seconds))
        },
    )
    .await?;
    let subject = Subject {
        name: "tokens-exact",
        what: format!(
            "exact count of tokens of {} texts, {bytes} bytes of sources and documents",
            texts.len()
        ),
        peer: format!("tiktoken {version} in Python, encode_ordinary, one thread"),
        settings: "o200k_base on both sides, the same counts".to_owned(),
        unit: Unit::MegaBytesPerSecond,
        target: Some(Target::AtLeast(1.5)),
    };
    Ok(vec![subject.figure(&rounds)])
}

/// The version of tiktoken, its token count, and its seconds.
fn tiktoken(vocabulary: &Path, texts: &Path) -> Outcome<(String, u64, f64)> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/run");
    let mut command = Command::new(peers);
    command.args(["tiktoken", "count_tokens.py"]).args([vocabulary, texts]).arg(COUNTS.to_string());
    let said = run(&mut command)?;
    let mut words = said.split_whitespace();
    let mut word = || words.next().ok_or("count_tokens.py printed no figure");
    Ok((word()?.to_owned(), word()?.parse()?, word()?.parse()?))
}

/// Reads the published vocabulary: each token's bytes in base64, and its number.
fn write_vocabulary(path: &Path) -> Outcome<()> {
    let encoding = &bpe_openai::o200k_base().bpe;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for number in 0..ORDINARY_TOKENS {
        writeln!(file, "{} {number}", BASE64_STANDARD.encode(encoding.token_bytes(number)))?;
    }
    Ok(file.flush()?)
}

/// Returns this number of bytes of the workspace's sources and documents, split at line ends into texts of
/// the length of messages.
fn texts(bytes: usize) -> Outcome<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["kernel", "agents/src", "capabilities", "conformance/src", "docs"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let (mut texts, mut total) = (Vec::new(), 0);
    for file in files {
        let content = std::fs::read_to_string(file)?;
        let mut text = String::new();
        for line in content.split_inclusive('\n') {
            if !text.is_empty() && text.len() + line.len() > TEXT_BYTES_MAX {
                texts.push(std::mem::take(&mut text));
            }
            text.push_str(line);
        }
        texts.push(text);
        total += content.len();
        if total >= bytes {
            break;
        }
    }
    Ok(texts)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "md" || extension == "sql")
        {
            found.push(path);
        }
    }
    Ok(())
}
