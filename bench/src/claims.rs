//! Claims of tasks by several workers, compared with `pgbench` clients that take rows with `SKIP LOCKED`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder::Stores;
use larder_kernel::{BoardId, Namespace, NewBoard, NewTask, TaskId, TaskStore, WorkerId};
use sqlx::PgConnection;

use super::curve::Plot;
use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::pgbench::Pgbench;
use super::postgres::{VARIABLE, connect, settings};
use super::window::micros_each;
use super::{Outcome, Plan};

/// Workers of Larder, and clients of the peer.
const WORKERS: u32 = 8;
/// Tasks per write during the filling.
const BATCH: u32 = 1_000;
/// Longer than the run, so that no lease expires during it.
const LEASE: Duration = Duration::from_secs(3_600);

/// Eight workers on a board in SQLite.
pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("claims.db").display());
    beside(plan, "sqlite-claims", "SQLite", &url, "sqlite: journal_mode=wal synchronous=full; ").await
}

/// Eight workers on a board in Postgres.
pub(super) async fn postgres(plan: &Plan) -> Outcome<Vec<Figure>> {
    beside(plan, "postgres-claims", "Postgres", &plan.url(VARIABLE)?, "").await
}

/// A board of tasks that only this run uses.
struct Backlog {
    stores: Stores,
    tasks: Arc<dyn TaskStore>,
    board: BoardId,
    /// The number of tasks.
    added: u32,
    claimed: HashSet<TaskId>,
}

impl Backlog {
    async fn open(url: &str) -> Outcome<Self> {
        let namespace = Namespace::new(format!("bench-{}", std::process::id()))?;
        let stores = Stores::builder().namespace(namespace).url(url).open().await?;
        let (tasks, board) = (stores.set().tasks()?, BoardId::new("bench", "claims")?);
        tasks.create_task_list(&board, NewBoard::default()).await?;
        Ok(Self { tasks, stores, board, added: 0, claimed: HashSet::new() })
    }

    /// Adds tasks up to this number.
    async fn fill(&mut self, count: u32) -> Outcome<()> {
        while self.added < count {
            let next = count.min(self.added + BATCH);
            let task = |number: u32| Ok(NewTask::new(TaskId::new(format!("task-{number:07}"))?, "a task"));
            let batch = (self.added..next).map(task).collect::<larder_kernel::Result<Vec<_>>>()?;
            self.tasks.add_tasks(&self.board, batch).await?;
            self.added = next;
        }
        Ok(())
    }

    /// Fills the board, and measures one worker's claims at each power of ten.
    async fn grow(&mut self, count: u32, calls: u32) -> Outcome<Vec<(f64, f64)>> {
        let worker = WorkerId::new("worker-0")?;
        let (mut points, mut next) = (Vec::new(), 1_000);
        while next <= count {
            self.fill(next).await?;
            let begun = Instant::now();
            for _ in 0..calls {
                let claim = self.tasks.claim(&self.board, &worker, LEASE).await?.ok_or("no task was left")?;
                self.claimed.insert(claim.task.id);
            }
            points.push((f64::from(next), micros_each(begun, calls)));
            next = if next < count { count.min(next * 10) } else { next + 1 };
        }
        Ok(points)
    }

    /// Has each worker claim this number of tasks, and returns the claims per second.
    async fn claim(&mut self, each: u32) -> Outcome<f64> {
        let begun = Instant::now();
        let mut working = Vec::new();
        for worker in 0..WORKERS {
            let (tasks, board) = (Arc::clone(&self.tasks), self.board.clone());
            let worker = WorkerId::new(format!("worker-{worker}"))?;
            working.push(tokio::spawn(async move {
                let mut claimed = Vec::new();
                for _ in 0..each {
                    claimed.extend(tasks.claim(&board, &worker, LEASE).await?.map(|claim| claim.task.id));
                }
                Ok::<_, larder_kernel::Error>(claimed)
            }));
        }
        let mut found = Vec::new();
        for worker in working {
            found.extend(worker.await??);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let before = self.claimed.len();
        self.claimed.extend(found);
        if self.claimed.len() - before != usize::try_from(WORKERS * each)? {
            return Err("a task was claimed twice, or none was left".into());
        }
        Ok(f64::from(WORKERS * each) / seconds)
    }
}

/// Creates the peer's table with the same number of tasks.
struct Queue {
    name: String,
    claim: PathBuf,
}

impl Queue {
    async fn create(connection: &mut PgConnection, plan: &Plan, count: u32) -> Outcome<Self> {
        let name = format!("larder_bench_queue_{}", std::process::id());
        let statements = format!(
            "CREATE TABLE {name} (id bigint PRIMARY KEY, title text NOT NULL, worker text, lease_until \
             timestamptz);
             CREATE INDEX ON {name} (id) WHERE worker IS NULL;
             INSERT INTO {name} SELECT n, 'a task' FROM generate_series(1, {count}) n"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut *connection).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("VACUUM (ANALYZE) {name}"))).execute(connection).await?;
        let claim = plan.scratch.join("claim.sql");
        let script = format!(
            "UPDATE {name} SET worker = 'worker-' || :client_id, lease_until = now() + interval '1 hour' \
             WHERE id = (SELECT id FROM {name} WHERE worker IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP \
             LOCKED) \
             RETURNING id, title, worker, lease_until;\n"
        );
        std::fs::write(&claim, script)?;
        Ok(Self { name, claim })
    }
}

async fn beside(
    plan: &Plan,
    name: &'static str,
    backend: &str,
    url: &str,
    own_settings: &str,
) -> Outcome<Vec<Figure>> {
    let server = plan.url(VARIABLE)?;
    let pgbench = Pgbench::new(&server)?;
    let mut connection = connect(&server).await?;
    let (count, each) = (plan.size(200_000, 5_000), plan.size(200, 40));
    let mut backlog = Backlog::open(url).await?;
    let curve = backlog.grow(count, plan.size(100, 20)).await?;
    plan.draw(Plot::ClaimCost, backend, curve);
    let queue = Queue::create(&mut connection, plan, count).await?;
    if url == server {
        // Autovacuum does the same within about a minute, and the peer's table had it.
        sqlx::raw_sql("VACUUM (ANALYZE) larder.tasks").execute(&mut connection).await?;
    }
    let rounds = in_turns(
        plan,
        async |_| backlog.claim(each).await,
        async |_| pgbench.per_second(&queue.claim, WORKERS, each, &[]),
    )
    .await;
    let settings = format!("{own_settings}{}", settings(&mut connection).await?);
    // Removes the data after a failure, too.
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP TABLE {}", queue.name))).execute(&mut connection).await?;
    backlog.stores.erase().await?;
    let subject = Subject {
        name,
        what: format!("claims by {WORKERS} workers at one board of {count} tasks, none claimed twice"),
        peer: format!("{}, {WORKERS} clients, UPDATE of a row found with SKIP LOCKED", pgbench.name),
        settings,
        unit: Unit::ClaimsPerSecond,
        target: Some(Target::AtLeast(0.8)),
    };
    Ok(vec![subject.figure(&rounds?)])
}
