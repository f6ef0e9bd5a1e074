//! Connections that serve one call at a time.
//!
//! The call writes its commands and reads the replies in its task, so no other task has to wake up in either
//! direction. A call that is dropped early closes its connection, so no call ever reads another call's reply.

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

use super::resp::RespReader;
use super::server_info::SendCommand;
use crate::redis::config::{Address, RedisConfig};
use crate::redis::failure::{Failure, Fallible};

/// The maximum number of dedicated connections to one server. Further concurrent calls use the shared
/// connection.
const CONNECTIONS_MAX: usize = 4;
/// The time for which no connection is opened after a failure to open one.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest command buffer that is kept between calls.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A connection for one call at a time.
pub(crate) struct DedicatedConnection {
    stream: TcpStream,
    reader: RespReader,
    commands: Vec<u8>,
    /// The runtime whose driver polls the connection.
    runtime: Id,
}

impl DedicatedConnection {
    /// Connects and logs in. The caller sets the time limit.
    pub(crate) async fn connect(address: &Address, config: &RedisConfig) -> Fallible<Self> {
        let (host, port) = address;
        let connecting = TcpStream::connect((host.as_str(), *port));
        let stream = connecting.await.map_err(|error| Failure::Connect(error.into()))?;
        stream.set_nodelay(true).map_err(|error| Failure::Connect(error.into()))?;
        let mut connection = Self {
            stream,
            reader: RespReader::default(),
            commands: Vec::new(),
            runtime: Handle::current().id(),
        };
        let mut hello = redis::cmd("HELLO");
        hello.arg(3);
        if let Some(password) = &config.password {
            hello.arg("AUTH").arg(config.user.as_deref().unwrap_or("default")).arg(password);
        }
        let database = config.servers.database();
        let mut select = redis::cmd("SELECT");
        select.arg(database);
        connection.send_command(&hello).await.map_err(Failure::Connect)?;
        if database != 0 {
            connection.send_command(&select).await.map_err(Failure::Connect)?;
        }
        Ok(connection)
    }

    /// Writes all commands and reads their replies, including error replies.
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
            if let Some(answer) = self.reader.next()? {
                return Ok(answer);
            }
            if self.stream.read_buf(self.reader.read_buffer()).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// Returns true if the server has neither closed the connection nor sent unsolicited data.
    fn is_usable(&mut self) -> bool {
        if !self.reader.is_empty() {
            return false;
        }
        let mut context = Context::from_waker(Waker::noop());
        let read = pin!(self.stream.read_buf(self.reader.read_buffer()));
        matches!(Future::poll(read, &mut context), Poll::Pending)
    }
}

impl SendCommand for DedicatedConnection {
    async fn send_command(&mut self, command: &Cmd) -> RedisResult<Value> {
        let [answer] = self.send([command]).await?;
        answer.extract_error()
    }
}

/// The dedicated connections to one server, and the generation of all connections to it.
pub(crate) struct DedicatedPool {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<DedicatedConnection>,
    /// The number of connections that are idle, in use or being opened.
    open: usize,
    /// True if a connection is being opened. Only one is opened at a time, since only its call waits for it.
    opening: bool,
    paused_until: Option<Instant>,
    generation: u64,
}

/// The result of a checkout.
pub(crate) enum Checkout<'a> {
    Connection(CheckedOut<'a>),
    /// The caller may open a connection.
    Slot(Slot<'a>),
    /// The call uses the shared connection.
    None,
}

/// The right to one connection, until this value is dropped.
pub(crate) struct Slot<'a> {
    pool: &'a DedicatedPool,
    generation: u64,
    opening: bool,
}

/// A connection in use. It is closed when this value is dropped.
pub(crate) struct CheckedOut<'a> {
    connection: DedicatedConnection,
    slot: Slot<'a>,
}

impl DedicatedPool {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default() }
    }

    /// Returns how many times the connections to the server were discarded.
    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Returns true if a connection is open, idle or in use.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().open > 0
    }

    /// Returns the most recently used idle connection, or the right to open one.
    pub(crate) fn checkout(&self) -> Checkout<'_> {
        let Ok(runtime) = Handle::try_current().map(|handle| handle.id()) else { return Checkout::None };
        loop {
            // Under one lock: a connection checked in between two locks would look like another runtime's.
            let mut state = self.lock();
            let Some(connection) = state.take(runtime) else { return self.reserve(state) };
            let generation = state.generation;
            drop(state);
            let slot = Slot { pool: self, generation, opening: false };
            let mut checked_out = CheckedOut { connection, slot };
            if checked_out.connection.is_usable() {
                return Checkout::Connection(checked_out);
            }
        }
    }

    /// Returns the right to open a connection; the runtime of the call has no idle one.
    fn reserve(&self, mut state: MutexGuard<'_, State>) -> Checkout<'_> {
        let paused = state.paused_until.is_some_and(|until| Instant::now() < until);
        if paused || state.opening || (state.open >= CONNECTIONS_MAX && state.idle.is_empty()) {
            return Checkout::None;
        }
        // All idle connections belong to other runtimes, which may have ended.
        let other = (state.open >= CONNECTIONS_MAX).then(|| state.idle.remove(0));
        state.open += usize::from(other.is_none());
        state.opening = true;
        let generation = state.generation;
        drop(state);
        Checkout::Slot(Slot { pool: self, generation, opening: true })
    }

    /// Discards all connections of that generation.
    pub(crate) fn discard(&self, generation: u64) {
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
    fn take(&mut self, runtime: Id) -> Option<DedicatedConnection> {
        let at = self.idle.iter().rposition(|connection| connection.runtime == runtime)?;
        Some(self.idle.remove(at))
    }
}

impl<'a> Slot<'a> {
    /// Fills the slot with an opened connection.
    pub(crate) fn fill(mut self, connection: DedicatedConnection) -> CheckedOut<'a> {
        self.pool.lock().opening = false;
        self.opening = false;
        CheckedOut { connection, slot: self }
    }

    /// Prevents calls from opening a connection for a while.
    pub(crate) fn pause(self) {
        self.pool.lock().paused_until = Some(Instant::now() + PAUSE);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.open -= 1;
        if self.opening {
            state.opening = false;
        }
    }
}

impl CheckedOut<'_> {
    pub(crate) fn generation(&self) -> u64 {
        self.slot.generation
    }

    /// Sends the commands, and checks the connection in once all replies have arrived.
    pub(crate) async fn send<const N: usize>(
        mut self,
        commands: [&Cmd; N],
        within: Duration,
    ) -> RedisResult<[Value; N]> {
        let sending = tokio::time::timeout(within, self.connection.send(commands)).await;
        let answers = sending.map_err(|_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut)))??;
        self.check_in();
        Ok(answers)
    }

    fn check_in(self) {
        let Self { connection, slot } = self;
        let mut state = slot.pool.lock();
        if state.generation == slot.generation {
            state.idle.push(connection);
            drop(state);
            // The idle connection keeps its slot.
            std::mem::forget(slot);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;

    async fn connection(listener: &TcpListener) -> DedicatedConnection {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let runtime = Handle::current().id();
        DedicatedConnection { stream, reader: RespReader::default(), commands: Vec::new(), runtime }
    }

    /// Regression test: a connection that was checked in between two locks was closed and opened again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn no_connection_is_opened_while_one_is_idle() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = Arc::new(DedicatedPool::new());
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let Checkout::Slot(slot) = pool.checkout() else { panic!("the server has a free connection") };
            all.push(slot.fill(connection(&listener).await));
        }
        all.into_iter().for_each(CheckedOut::check_in);
        let callers = (0..2 * CONNECTIONS_MAX).map(|_| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                for _ in 0..20_000 {
                    match pool.checkout() {
                        Checkout::Connection(checked_out) => checked_out.check_in(),
                        Checkout::None => std::hint::spin_loop(),
                        Checkout::Slot(_) => return false,
                    }
                }
                true
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            assert!(caller.await.unwrap(), "an idle connection was replaced; try again");
        }
    }
}
