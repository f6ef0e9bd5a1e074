//! Messages as lines: a line that is not a message gets an error here, and rmcp gets the others.

use std::sync::Arc;

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::sync::Mutex;

use super::message::{self, MESSAGE_BYTES_MAX, Verdict};

/// The output. The service and the errors share it, line by line.
pub(super) type Output<W> = Arc<Mutex<W>>;

/// Passes the lines of the client to the service. Each line that is not a message gets an error. Ends with
/// the input.
pub(super) async fn pass_input<R, W>(input: R, mut to: DuplexStream, output: Output<W>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while let Some(fits) = next_line(&mut input, &mut line).await {
        let verdict = if fits { message::check(&line) } else { Verdict::Refuse(message::too_long()) };
        let passed = match verdict {
            Verdict::Drop => Ok(()),
            Verdict::Pass => to.write_all(&line).await,
            Verdict::Refuse(answer) => write_line(&output, format!("{answer}\n").as_bytes()).await,
        };
        if passed.is_err() {
            return;
        }
    }
}

/// Passes the output of the service to the client. Ends when the service has ended, or the client reads no
/// more.
pub(super) async fn pass_output<W: AsyncWrite + Unpin>(from: DuplexStream, output: Output<W>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = from.read_until(b'\n', &mut line).await {
        if write_line(&output, &line).await.is_err() {
            return;
        }
        line.clear();
    }
}

async fn write_line<W: AsyncWrite + Unpin>(output: &Output<W>, line: &[u8]) -> std::io::Result<()> {
    let mut output = output.lock().await;
    output.write_all(line).await?;
    output.flush().await
}

/// Reads the next line, with its line break, also if the last line has none. Returns `false` for a line over
/// the limit, which is skipped, and `None` at the end.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Option<bool> {
    line.clear();
    let mut fits = true;
    loop {
        let available = input.fill_buf().await.ok()?;
        let newline = available.iter().position(|byte| *byte == b'\n');
        let take = newline.map_or(available.len(), |newline| newline + 1);
        let ended = available.is_empty();
        fits &= line.len() + take <= MESSAGE_BYTES_MAX;
        if fits {
            line.extend_from_slice(&available[..take]);
        } else {
            line.clear();
        }
        input.consume(take);
        if ended {
            if !line.is_empty() {
                line.push(b'\n');
            }
            return (!line.is_empty() || !fits).then_some(fits);
        }
        if newline.is_some() {
            return Some(fits);
        }
    }
}
