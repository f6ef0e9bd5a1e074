//! Slots that move through a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder::Registry;
use larder_cli::durable::during;
use larder_cli::url;
use larder_conformance::StoreSet;
use larder_kernel::{BoardId, NewBoard, NewTask, PageRequest, TaskId, TaskStatus, WorkerId};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::server::Server;
use super::{assert_holds, open, pause};

/// The number of slots that move key by key, on a fast machine.
const MOVES: usize = 80;
/// The time limit of the moves.
const MOVING_MAX: Duration = Duration::from_secs(25);
/// The number of moved slots below which the test proves nothing.
const MOVES_MIN: usize = 10;
/// The delay of a key while the other keys of its slot move.
const BETWEEN_KEYS_MS: u64 = 4;
/// The number of slots that the cluster's tool moves at the end.
const BY_TOOL: &str = "400";
/// More than a call takes that looks up the server of its slot and then meets a silent one.
const CALL_TIME_MAX: Duration = Duration::from_secs(15);
const BOARDS: usize = 4;

pub(crate) async fn slots_move_while_clients_write() {
    let server = Server::start("redis-cluster", "scale", "LARDER_REDIS_CLUSTER_PORT", 3);
    let address = server.url();
    let scratch = tempfile::tempdir().unwrap();
    let harness = url::named(&Registry::default(), "redis-cluster", &address, scratch.path()).await.unwrap();
    let (stores, other) = (open(&*harness, 0).await, open(&*harness, 1).await);
    let mut nodes = Nodes::connect(&address).await;
    make_boards(&stores).await;

    let (by_hand, found) = during(&stores, &other, (8, 1, CALL_TIME_MAX), async |watched| {
        let over = AtomicBool::new(false);
        let moves = async {
            let moved = nodes.move_slots().await;
            over.store(true, Ordering::SeqCst);
            moved
        };
        let (by_hand, listings) = tokio::join!(moves, list_boards(&other, &over));
        assert!(listings > 10, "only {listings} listings");
        watched.remark("BY TOOL");
        server.tell(&["move", "1", "2", BY_TOOL]);
        by_hand
    })
    .await
    .unwrap();
    assert_holds(&found);
    assert!(by_hand >= MOVES_MIN, "only {by_hand} slots with keys were moved");
    assert!(found.count.answered > 200, "{:?}", found.count);
    settle_boards(&stores).await;

    // Clients used slots that had moved, slots in the middle of a move, and keys that had moved before their
    // slot.
    let met = nodes.errors().await;
    for word in ["MOVED", "ASK", "TRYAGAIN"] {
        assert!(met.get(word).is_some_and(|count| *count > 0), "no client was told {word}: {met:?}");
    }
    println!("{by_hand} slots moved by hand; {:?}; servers said {met:?}", found.count);
}

fn board(number: usize) -> BoardId {
    BoardId::new(format!("moving-{number}"), "a").unwrap()
}

/// Boards that must not change while their slots move: one task is running, one is planned.
async fn make_boards(stores: &StoreSet) {
    let tasks = stores.tasks().unwrap();
    for number in 0..BOARDS {
        let new = |id: &str| NewTask::new(TaskId::new(id).unwrap(), "work");
        let new = NewBoard::new(vec![new("one"), new("two")]).with_label("label");
        tasks.create_task_list(&board(number), new).await.unwrap();
        let worker = WorkerId::new("w").unwrap();
        tasks.claim(&board(number), &worker, Duration::from_secs(600)).await.unwrap().unwrap();
    }
}

/// Lists the boards repeatedly until the moves end, and returns the number of listings.
async fn list_boards(stores: &StoreSet, over: &AtomicBool) -> u32 {
    let tasks = stores.tasks().unwrap();
    let mut listings = 0;
    while !over.load(Ordering::SeqCst) {
        for number in 0..BOARDS {
            let id = board(number);
            // A listing that is impossible during the move returns an error.
            let page = PageRequest::default();
            let Ok(boards) = tasks.list_boards(Some(&id.conversation), page).await else { continue };
            let found = &boards.items[..];
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].label.as_deref(), Some("label"), "{found:?}");
            assert_eq!((found[0].tasks.planned, found[0].tasks.in_progress), (1, 1), "{found:?}");
            listings += 1;
        }
        pause(1).await;
    }
    listings
}

async fn settle_boards(stores: &StoreSet) {
    let tasks = stores.tasks().unwrap();
    for number in 0..BOARDS {
        let id = board(number);
        assert_eq!(tasks.settle_conversation(&id.conversation).await.unwrap(), 1);
        let task = tasks.get_task(&id, &TaskId::new("one").unwrap()).await.unwrap().unwrap();
        assert_eq!(task.status, TaskStatus::Succeeded);
    }
}

/// The servers of the cluster, as an operator sees them.
struct Nodes {
    password: String,
    nodes: Vec<Node>,
}

struct Node {
    port: u16,
    id: String,
    connection: MultiplexedConnection,
}

impl Nodes {
    async fn connect(url: &str) -> Self {
        let (login, hosts) = url.split_once("://").unwrap().1.rsplit_once('@').unwrap();
        let password = login.split_once(':').unwrap().1.to_owned();
        let mut nodes = Vec::new();
        for host in hosts.split(',') {
            let client = redis::Client::open(format!("redis://{login}@{host}")).unwrap();
            // The servers are busy while slots move.
            let settings = AsyncConnectionConfig::new().set_response_timeout(Some(CALL_TIME_MAX));
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await.unwrap();
            let id = redis::cmd("CLUSTER").arg("MYID").query_async(&mut connection).await.unwrap();
            let port = host.rsplit_once(':').unwrap().1.parse().unwrap();
            nodes.push(Node { port, id, connection });
        }
        Self { password, nodes }
    }

    /// Moves slots with keys between nodes, key by key and with delays; returns their number.
    async fn move_slots(&mut self) -> usize {
        let (begun, mut moved) = (Instant::now(), 0);
        for from in (0..self.nodes.len()).cycle() {
            let to = (from + 1) % self.nodes.len();
            for slot in self.filled_slots(from).await {
                if moved == MOVES || begun.elapsed() > MOVING_MAX {
                    return moved;
                }
                self.move_slot(slot, from, to).await;
                moved += 1;
            }
        }
        moved
    }

    /// Returns some of a node's slots that contain keys.
    async fn filled_slots(&mut self, node: usize) -> BTreeSet<u16> {
        let connection = &mut self.nodes[node].connection;
        let mut command = redis::cmd("SCAN");
        command.arg(0).arg("COUNT").arg(100_000);
        let (_, keys): (u64, Vec<String>) = command.query_async(connection).await.unwrap();
        let mut slots = redis::pipe();
        for key in &keys {
            slots.cmd("CLUSTER").arg("KEYSLOT").arg(key);
        }
        let slots: BTreeSet<u16> = slots.query_async(connection).await.unwrap();
        slots.into_iter().take(16).collect()
    }

    async fn move_slot(&mut self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.nodes[from].id.clone(), self.nodes[to].id.clone());
        self.set(to, slot, "IMPORTING", &source).await;
        self.set(from, slot, "MIGRATING", &target).await;
        let port = self.nodes[to].port;
        loop {
            let mut command = redis::cmd("CLUSTER");
            command.arg("GETKEYSINSLOT").arg(slot).arg(1);
            let keys: Vec<String> = command.query_async(&mut self.nodes[from].connection).await.unwrap();
            let Some(key) = keys.first() else { break };
            let mut command = redis::cmd("MIGRATE");
            command.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5_000).arg("AUTH").arg(&self.password);
            command.arg("KEYS").arg(key);
            // A key that expired during the move no longer exists, and the reply says so.
            let _: String = command.query_async(&mut self.nodes[from].connection).await.unwrap();
            pause(BETWEEN_KEYS_MS).await;
        }
        for node in [to, from, 3 - from - to] {
            self.set(node, slot, "NODE", &target).await;
        }
    }

    async fn set(&mut self, node: usize, slot: u16, word: &str, other: &str) {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SETSLOT").arg(slot).arg(word).arg(other);
        let _: String = command.query_async(&mut self.nodes[node].connection).await.unwrap();
    }

    /// Counts the servers' error replies by kind.
    async fn errors(&mut self) -> BTreeMap<String, u64> {
        let mut errors = BTreeMap::new();
        for node in &mut self.nodes {
            let mut command = redis::cmd("INFO");
            command.arg("errorstats");
            let text: String = command.query_async(&mut node.connection).await.unwrap();
            for line in text.lines().filter_map(|line| line.strip_prefix("errorstat_")) {
                let (name, count) = line.split_once(":count=").unwrap();
                *errors.entry(name.to_owned()).or_default() += count.trim().parse::<u64>().unwrap();
            }
        }
        errors
    }
}
