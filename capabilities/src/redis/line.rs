//! A connection that one call at a time has for itself.
//!
//! The call writes its commands and reads the answers where it runs, so no other task has to be woken on the way there
//! and none on the way back. Nobody else's answer ever comes in on it: a call that ends early takes its line with it.

use std::io;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::answer::Answers;
use super::config::{Address, RedisConfig, Servers};
use super::durability::Fresh;
use super::failure::{Failure, Fallible};

/// Lines to one server. The calls of more callers share one connection, which writes and reads for many at once.
const LINES_MAX: usize = 4;
/// How long no line is made after one could not be.
const PAUSE: Duration = Duration::from_secs(1);
/// Room for commands that is kept from one call to the next, at most.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A connection for one call at a time.
pub(crate) struct Line {
    stream: TcpStream,
    answers: Answers,
    commands: Vec<u8>,
    /// The runtime that wakes whoever waits on the connection.
    runtime: Id,
}

impl Line {
    /// Connects and logs in. The caller sets the time that it may take.
    pub(crate) async fn connect(address: &Address, config: &RedisConfig) -> Fallible<Self> {
        let (host, port) = address;
        let connecting = TcpStream::connect((host.as_str(), *port));
        let stream = connecting.await.map_err(|error| Failure::Connect(error.into()))?;
        stream.set_nodelay(true).map_err(|error| Failure::Connect(error.into()))?;
        let mut line = Self {
            stream,
            answers: Answers::default(),
            commands: Vec::new(),
            runtime: Handle::current().id(),
        };
        let mut hello = redis::cmd("HELLO");
        hello.arg(3);
        if let Some(password) = &config.password {
            hello.arg("AUTH").arg(config.user.as_deref().unwrap_or("default")).arg(password);
        }
        let database = match &config.servers {
            Servers::Single(_, database) => *database,
            Servers::Cluster(_) => 0,
        };
        let mut select = redis::cmd("SELECT");
        select.arg(database);
        line.ask(&hello).await.map_err(Failure::Connect)?;
        if database != 0 {
            line.ask(&select).await.map_err(Failure::Connect)?;
        }
        Ok(line)
    }

    /// Writes commands at once and reads the answers, an error of the server among them.
    async fn send<const N: usize>(&mut self, commands: [&Cmd; N]) -> RedisResult<[Value; N]> {
        self.commands.clear();
        commands.iter().for_each(|command| command.write_packed_command(&mut self.commands));
        self.stream.write_all(&self.commands).await?;
        if self.commands.capacity() > KEPT_BYTES_MAX {
            self.commands = Vec::new();
        }
        let mut answers = [const { Value::Nil }; N];
        for answer in &mut answers {
            *answer = self.next().await?;
        }
        Ok(answers)
    }

    async fn next(&mut self) -> RedisResult<Value> {
        loop {
            if let Some(answer) = self.answers.next()? {
                return Ok(answer);
            }
            if self.stream.read_buf(self.answers.room()).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Whether the server neither closed it nor said what nobody asked for.
    fn is_quiet(&mut self) -> bool {
        if !self.answers.is_empty() {
            return false;
        }
        let mut context = Context::from_waker(Waker::noop());
        let read = pin!(self.stream.read_buf(self.answers.room()));
        matches!(Future::poll(read, &mut context), Poll::Pending)
    }
}

impl Fresh for Line {
    async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        let [answer] = self.send([command]).await?;
        answer.extract_error()
    }
}

/// The lines to one server, and which connections to it are still good.
pub(crate) struct Lines {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Line>,
    /// Those in use or being made, and the idle ones.
    open: usize,
    /// Whether one is being made: one at a time, as nobody waits for it but who makes it.
    making: bool,
    paused_until: Option<Instant>,
    generation: u64,
}

/// What there is for a call.
pub(crate) enum Offer<'a> {
    Line(Taken<'a>),
    /// A line may be made.
    Seat(Seat<'a>),
    None,
}

/// The right to have one line, which ends when this is dropped.
pub(crate) struct Seat<'a> {
    lines: &'a Lines,
    generation: u64,
    making: bool,
}

/// A line in use. It is closed when this is dropped.
pub(crate) struct Taken<'a> {
    line: Line,
    seat: Seat<'a>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default() }
    }

    /// Counts how often the connections to the server were given up.
    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Whether there are any, in use or not.
    pub(crate) fn are_open(&self) -> bool {
        self.lock().open > 0
    }

    /// The line that was used last and is free, or the right to make one.
    pub(crate) fn offer(&self) -> Offer<'_> {
        let Ok(runtime) = Handle::try_current().map(|handle| handle.id()) else { return Offer::None };
        loop {
            // One look at what there is: a line that comes back between two looks would be taken for another runtime's.
            let mut state = self.lock();
            let Some(line) = state.take(runtime) else { return self.seat(state) };
            let generation = state.generation;
            drop(state);
            let mut taken = Taken { line, seat: Seat { lines: self, generation, making: false } };
            if taken.line.is_quiet() {
                return Offer::Line(taken);
            }
        }
    }

    /// The right to make a line, where the runtime of the call has none that is free.
    fn seat(&self, mut state: MutexGuard<'_, State>) -> Offer<'_> {
        let paused = state.paused_until.is_some_and(|until| Instant::now() < until);
        if paused || state.making || (state.open >= LINES_MAX && state.idle.is_empty()) {
            return Offer::None;
        }
        // All that are idle belong to other runtimes, which may have ended.
        let other = (state.open >= LINES_MAX).then(|| state.idle.remove(0));
        state.open += usize::from(other.is_none());
        state.making = true;
        let generation = state.generation;
        drop(state);
        Offer::Seat(Seat { lines: self, generation, making: true })
    }

    /// Gives up all connections of that generation.
    pub(crate) fn retire(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation != generation {
            return;
        }
        state.generation += 1;
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, runtime: Id) -> Option<Line> {
        let at = self.idle.iter().rposition(|line| line.runtime == runtime)?;
        Some(self.idle.remove(at))
    }
}

impl<'a> Seat<'a> {
    /// Begins to use a line that was made.
    pub(crate) fn with(mut self, line: Line) -> Taken<'a> {
        self.lines.lock().making = false;
        self.making = false;
        Taken { line, seat: self }
    }

    /// Has calls do without a new line for a while.
    pub(crate) fn pause(self) {
        self.lines.lock().paused_until = Some(Instant::now() + PAUSE);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.lock();
        state.open -= 1;
        if self.making {
            state.making = false;
        }
    }
}

impl Taken<'_> {
    pub(crate) fn generation(&self) -> u64 {
        self.seat.generation
    }

    /// Sends the commands and leaves the line to the next call once all is answered.
    pub(crate) async fn send<const N: usize>(
        mut self,
        commands: [&Cmd; N],
        within: Duration,
    ) -> RedisResult<[Value; N]> {
        let sending = tokio::time::timeout(within, self.line.send(commands)).await;
        let answers = sending.map_err(|_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut)))??;
        self.leave();
        Ok(answers)
    }

    fn leave(self) {
        let Self { line, seat } = self;
        let mut state = seat.lines.lock();
        if state.generation == seat.generation {
            state.idle.push(line);
            drop(state);
            // The line keeps its seat.
            std::mem::forget(seat);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;

    async fn silent(listener: &TcpListener) -> Line {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        Line { stream, answers: Answers::default(), commands: Vec::new(), runtime: Handle::current().id() }
    }

    /// Once it happened that a line which came back between two looks was closed and made anew.
    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn no_line_is_made_where_one_has_come_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let lines = Arc::new(Lines::new());
        let mut all = Vec::new();
        for _ in 0..LINES_MAX {
            let Offer::Seat(seat) = lines.offer() else { panic!("there is room for another line") };
            all.push(seat.with(silent(&listener).await));
        }
        all.into_iter().for_each(Taken::leave);
        let callers = (0..2 * LINES_MAX).map(|_| {
            let lines = Arc::clone(&lines);
            tokio::spawn(async move {
                for _ in 0..20_000 {
                    match lines.offer() {
                        Offer::Line(taken) => taken.leave(),
                        Offer::None => std::hint::spin_loop(),
                        Offer::Seat(_) => return false,
                    }
                }
                true
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            assert!(caller.await.unwrap(), "a free line was given up for a new one");
        }
    }
}
