//! A TCP relay between a client and a server that can inject one fault into a connection.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use super::plan::{Direction, Kind, Plan};

/// The maximum number of bytes of one read.
const PIECE_BYTES: usize = 16 * 1024;
/// The time that forwarded bytes get to arrive before a connection is reset.
const BEFORE_RESET: Duration = Duration::from_millis(2);
/// The number of ports that are tried to find one with the required number of digits.
const PORTS_TRIED_MAX: usize = 100;

/// A relay on one port of this machine, or on several ports for the servers of a cluster.
///
/// It forwards all data until a fault is armed. The fault hits one connection once: the first on which bytes
/// arrive that match the plan. The relay records the number of calls in flight at that moment, which it reads
/// from the given counter.
#[derive(Debug)]
pub struct Relay {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    accepting: Vec<JoinHandle<()>>,
}

/// A fault that occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// The planned fault.
    pub plan: Plan,
    /// The number of calls in flight on the client's side.
    pub in_flight: usize,
    /// The number of open connections.
    pub connections: usize,
}

#[derive(Debug)]
struct Shared {
    /// The ports of a cluster's servers and of their relays, as texts of equal length.
    ports: Vec<(Vec<u8>, Vec<u8>)>,
    in_flight: Arc<AtomicUsize>,
    struck: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<Plan>,
    /// The connection that the plan hits, once it is chosen.
    chosen: Option<u64>,
    pieces: u64,
    bytes: u64,
    /// True if every connection that sends data falls silent.
    dark: bool,
    silent: BTreeSet<u64>,
    open: BTreeSet<u64>,
    strike: Option<Strike>,
}

/// The action for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Forward,
    Swallow,
    Delay(Duration),
    /// Forwards this number of bytes and ends the connection.
    End(usize, Ending),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Reset,
}

impl Relay {
    /// Listens on free ports of this machine for connections to each of the `servers`, given as `host:port`.
    /// `in_flight` counts the calls in flight on the client's side.
    ///
    /// The servers of a cluster send their clients the addresses of the other servers. With several servers,
    /// the relay replaces each server port that follows a colon by the port of its relay. Both ports have the
    /// same number of digits, so no length changes. User text of the same form would be changed, too.
    ///
    /// # Errors
    /// An I/O error if no port is available.
    pub async fn start(servers: Vec<String>, in_flight: Arc<AtomicUsize>) -> io::Result<Self> {
        let several = servers.len() > 1;
        let (mut listeners, mut addresses, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for server in servers {
            let port = server.rsplit_once(':').map_or("", |(_, port)| port).to_owned();
            let listener = listen(several.then_some(port.len())).await?;
            let address = listener.local_addr()?;
            if several {
                ports.push((format!(":{port}").into_bytes(), format!(":{}", address.port()).into_bytes()));
            }
            addresses.push(address);
            listeners.push((server, listener));
        }
        let shared = Arc::new(Shared { ports, in_flight, struck: Notify::new(), state: Mutex::default() });
        let connections = Arc::new(AtomicU64::new(0));
        let accept = |(server, listener)| {
            tokio::spawn(accept(listener, server, Arc::clone(&connections), Arc::clone(&shared)))
        };
        let accepting = listeners.into_iter().map(accept).collect();
        Ok(Self { addresses, shared, accepting })
    }

    /// Returns the addresses of the relays, one for each of the servers.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Arms a fault for the next matching data.
    pub fn arm(&self, plan: Plan) {
        let mut state = self.shared.state();
        let (open, silent) = (std::mem::take(&mut state.open), std::mem::take(&mut state.silent));
        *state = State { plan: Some(plan), open, silent, ..State::default() };
    }

    /// Waits for the fault and returns it.
    pub async fn struck(&self) -> Strike {
        loop {
            let told = self.shared.struck.notified();
            if let Some(strike) = self.strike() {
                return strike;
            }
            told.await;
        }
    }

    /// Returns the fault, if it has occurred.
    #[must_use]
    pub fn strike(&self) -> Option<Strike> {
        self.shared.state().strike
    }

    /// Ends the fault: all new data is forwarded again. A connection that fell silent stays silent.
    pub fn heal(&self) -> Option<Strike> {
        let mut state = self.shared.state();
        state.plan = None;
        state.dark = false;
        state.strike
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, direction: Direction, connection: u64, length: usize) -> Act {
        let mut state = self.state();
        if state.silent.contains(&connection) {
            return Act::Swallow;
        }
        if state.dark && direction == Direction::Up {
            state.silent.insert(connection);
            return Act::Swallow;
        }
        let Some(plan) = state.plan else { return Act::Forward };
        if plan.kind == Kind::CutBeforeReply && direction == Direction::Up {
            // The fault must cut the reply to a request that is sent after this point.
            state.chosen.get_or_insert(connection);
            return Act::Forward;
        }
        let unasked = plan.kind == Kind::CutBeforeReply && state.chosen.is_none();
        if direction != plan.direction || unasked || *state.chosen.get_or_insert(connection) != connection {
            return Act::Forward;
        }
        let act = act(&plan, &mut state, length);
        if act != Act::Forward {
            if plan.kind == Kind::BlackHole {
                state.dark = true;
                state.silent.insert(connection);
            }
            state.plan = None;
            let in_flight = self.in_flight.load(Ordering::SeqCst);
            state.strike = Some(Strike { plan, in_flight, connections: state.open.len() });
            self.struck.notify_waiters();
        }
        act
    }

    /// Replaces the servers' ports in a reply by the relays' ports. A port that is split across two pieces is
    /// not replaced; the client then bypasses the relay until it asks again.
    fn readdressed<'a>(&self, direction: Direction, piece: &'a mut [u8]) -> &'a [u8] {
        if direction == Direction::Down {
            for (server, relay) in &self.ports {
                let mut from = 0;
                while let Some(at) = piece[from..].windows(server.len()).position(|text| text == server) {
                    piece[from + at..from + at + server.len()].copy_from_slice(relay);
                    from += at + server.len();
                }
            }
        }
        piece
    }

    fn opened(&self, connection: u64) {
        self.state().open.insert(connection);
    }

    fn closed(&self, connection: u64) {
        let mut state = self.state();
        state.open.remove(&connection);
        state.silent.remove(&connection);
        if state.chosen == Some(connection) && state.strike.is_none() {
            (state.chosen, state.bytes) = (None, 0);
        }
    }
}

/// Returns the action of the plan for a piece on the chosen connection.
fn act(plan: &Plan, state: &mut State, length: usize) -> Act {
    if plan.kind == Kind::CutAtByte {
        let before = state.bytes;
        state.bytes += u64::try_from(length).unwrap_or(u64::MAX);
        return match usize::try_from(plan.byte.saturating_sub(before)) {
            Ok(rest) if rest < length => Act::End(rest, Ending::Closed),
            _ => Act::Forward,
        };
    }
    state.pieces += 1;
    if state.pieces <= plan.skip {
        // The next piece may belong to another connection.
        state.chosen = None;
        return Act::Forward;
    }
    match plan.kind {
        Kind::Delay => Act::Delay(plan.delay),
        Kind::BlackHole => Act::Swallow,
        Kind::Reset => Act::End(if plan.forward { length } else { 0 }, Ending::Reset),
        _ => Act::End(0, Ending::Closed),
    }
}

/// Opens a listener on a free port, with the given number of digits if there is a requirement.
async fn listen(digits: Option<usize>) -> io::Result<TcpListener> {
    // Kept open until one fits, so that each attempt gets another port.
    let mut tried = Vec::new();
    for _ in 0..PORTS_TRIED_MAX {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port().to_string();
        if digits.is_none_or(|digits| digits == port.len()) {
            return Ok(listener);
        }
        tried.push(listener);
    }
    Err(io::Error::other("no free port has as many digits as the server's"))
}

async fn accept(listener: TcpListener, server: String, connections: Arc<AtomicU64>, shared: Arc<Shared>) {
    let mut relaying = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        while relaying.try_join_next().is_some() {}
        let connection = connections.fetch_add(1, Ordering::Relaxed);
        let (shared, server) = (Arc::clone(&shared), server.clone());
        relaying.spawn(async move {
            shared.opened(connection);
            let _ = relay(client, &server, connection, &shared).await;
            shared.closed(connection);
        });
    }
}

async fn relay(mut client: TcpStream, server: &str, connection: u64, shared: &Shared) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ending = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        tokio::select! {
            ending = pump(Direction::Up, connection, shared, &mut from_client, &mut to_server) => ending?,
            ending = pump(Direction::Down, connection, shared, &mut from_server, &mut to_client) => ending?,
        }
    };
    if ending == Ending::Reset {
        tokio::time::sleep(BEFORE_RESET).await;
        client.set_zero_linger()?;
    }
    Ok(())
}

async fn pump<R, W>(
    direction: Direction,
    connection: u64,
    shared: &Shared,
    from: &mut R,
    to: &mut W,
) -> io::Result<Ending>
where
    R: AsyncReadExt + Unpin,
    W: AsyncWriteExt + Unpin,
{
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(Ending::Closed);
        }
        let piece = shared.readdressed(direction, &mut buffer[..length]);
        match shared.decide(direction, connection, length) {
            Act::Forward => to.write_all(piece).await?,
            Act::Swallow => {}
            Act::Delay(delay) => {
                tokio::time::sleep(delay).await;
                to.write_all(piece).await?;
            }
            Act::End(forward, ending) => {
                to.write_all(&piece[..forward]).await?;
                to.flush().await?;
                return Ok(ending);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a server that sends the same text to every client.
    async fn say(listener: TcpListener, text: String) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    }

    async fn hear(address: SocketAddr) -> String {
        let mut text = String::new();
        TcpStream::connect(address).await.unwrap().read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn servers_report_the_relays_of_their_peers() {
        let (one, other) = (listen(Some(5)).await.unwrap(), listen(Some(5)).await.unwrap());
        let ports = [&one, &other].map(|it| it.local_addr().unwrap().port());
        let text = format!("MOVED 7 127.0.0.1:{} or :{}\r\n", ports[1], ports[0]);
        tokio::spawn(say(one, text.clone()));
        tokio::spawn(say(other, text.clone()));
        let servers = ports.map(|port| format!("127.0.0.1:{port}")).to_vec();
        let relay = Relay::start(servers, Arc::default()).await.unwrap();
        let [first, second] = relay.addresses() else { panic!("{:?}", relay.addresses()) };
        let expected = format!("MOVED 7 {second} or :{}\r\n", first.port());
        assert_eq!((hear(*first).await, hear(*second).await), (expected.clone(), expected));
        // A single server is relayed byte for byte.
        let alone = Relay::start(vec![format!("127.0.0.1:{}", ports[0])], Arc::default()).await.unwrap();
        assert_eq!(hear(alone.addresses()[0]).await, text);
    }
}
