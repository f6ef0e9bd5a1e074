//! Conversations in Redis, compared with `redis-benchmark` on the same server.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use larder_kernel::{ChatMessage, Thread};

use super::figure::{Figure, MORE, Subject, Target, Unit, in_rounds};
use super::history::{Beside, Conversations, Names};
use super::pgbench::{Parts, run, services_folder, unescaped};
use super::window::micros_each;
use super::{Outcome, Plan, payload};

/// The variable that names the service.
pub(super) const VARIABLE: &str = "LARDER_REDIS_URL";

/// The settings that decide the cost and the durability of a write.
const SETTINGS: &[&str] = &["appendonly", "appendfsync", "save", "maxmemory-policy"];

/// Returns the program of that name from the server that `larder services` unpacked, or else the machine's.
fn program(name: &str) -> PathBuf {
    let unpacked = services_folder().join("redis-packages/bin").join(name);
    if unpacked.is_file() { unpacked } else { PathBuf::from(name) }
}

/// The programs that come with Redis, and their server.
struct Tools {
    url: String,
    tls: bool,
    host: String,
    port: String,
    database: String,
    user: String,
    password: String,
    /// Name and version of the peer.
    name: String,
}

impl Tools {
    fn new(url: String) -> Outcome<Self> {
        let parts =
            Parts::of(&url).ok_or("the URL of Redis is not `redis://user:password@host:port/database`")?;
        let said = run(Command::new(program("redis-benchmark")).arg("--version"))?;
        let version = said.split(' ').nth(1).unwrap_or("of unknown version").trim().to_owned();
        Ok(Self {
            tls: parts.scheme == "rediss",
            host: parts.host.to_owned(),
            port: parts.port.unwrap_or("6379").to_owned(),
            database: if parts.path.is_empty() { "0".to_owned() } else { parts.path.to_owned() },
            user: unescaped(parts.user)?,
            password: unescaped(parts.password)?,
            name: format!("redis-benchmark {version}"),
            url,
        })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command.args(["-h", &self.host, "-p", &self.port]);
        if !self.user.is_empty() {
            command.args(["--user", &self.user]);
        }
        if self.tls {
            command.arg("--tls");
        }
        command
    }

    /// Runs one command with `redis-cli`.
    fn ask(&self, words: &[&str]) -> Outcome<String> {
        let mut command = self.command("redis-cli");
        if !self.password.is_empty() {
            command.env("REDISCLI_AUTH", &self.password);
        }
        run(command.args(["-n", &self.database, "--raw"]).args(words))
    }

    /// Has `redis-benchmark` send the command this number of times on one connection, and returns the mean
    /// microseconds of one.
    fn micros(&self, calls: u32, words: &[&str]) -> Outcome<f64> {
        let mut command = self.command("redis-benchmark");
        if !self.password.is_empty() {
            // It accepts the password in no other way.
            command.args(["-a", &self.password]);
        }
        command.args(["--dbnum", &self.database, "-c", "1", "-n", &calls.to_string(), "--csv"]);
        let said = run(command.args(words))?;
        // The header, then one line: "the command","requests a second",...
        let line = said.lines().rfind(|line| line.starts_with('"')).unwrap_or_default();
        let mut fields = line.rsplit("\",\"");
        // Requests per second, and six latencies after it.
        let per_second: f64 =
            fields.nth(6).ok_or("redis-benchmark printed no rate")?.trim_matches('"').parse()?;
        Ok(1e6 / per_second)
    }

    fn settings(&self) -> Outcome<String> {
        let info = self.ask(&["INFO", "server"])?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown");
        let mut settings = vec![format!("redis_version={}", version.trim())];
        for name in SETTINGS {
            let said = self.ask(&["CONFIG", "GET", name])?;
            let value = said.lines().nth(1).unwrap_or_default();
            settings.push(format!("{name}={}", if value.is_empty() { "\"\"" } else { value }));
        }
        Ok(settings.join(" "))
    }

    /// Returns the length of the append-only file, if it exists.
    fn written(&self) -> Outcome<Option<u64>> {
        let info = self.ask(&["INFO", "persistence"])?;
        let size = info.lines().find_map(|line| line.strip_prefix("aof_current_size:"));
        Ok(size.map(|size| size.trim().parse()).transpose()?)
    }
}

/// The script of a handwritten append: it gives the message the next number of its thread, stores it by that
/// number, and counts it.
const APPEND_BY_HAND: &str = "\
    local number = redis.call('HINCRBY', KEYS[1], 'last', 1)
    redis.call('ZADD', KEYS[2], number, number .. ' ' .. ARGV[1])
    redis.call('HINCRBY', KEYS[1], 'bytes', #ARGV[1])
    return number";

/// Append of one message, and the last 50.
pub(super) async fn history(plan: &Plan) -> Outcome<Vec<Figure>> {
    let tools = Tools::new(plan.url(VARIABLE)?)?;
    let settings = tools.settings()?;
    let mut conversations = Conversations::open(&tools.url).await?;
    let calls = plan.size(2_000, 200);
    let key = format!("larder-bench-{}", std::process::id());
    let body = serde_json::to_string(&ChatMessage::user(payload::text(0)))?;
    let subject = |name, what: &str, peer: &str| Subject {
        name,
        what: format!("{what}, one caller"),
        peer: format!("{}, one client, {peer}", tools.name),
        settings: settings.clone(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.2)),
    };
    let script = tools.ask(&["SCRIPT", "LOAD", APPEND_BY_HAND])?;
    let (head, messages) = (format!("{key}:{{1}}:head"), format!("{key}:{{1}}:messages"));
    let by_hand = ["EVALSHA", script.trim(), "2", &head, &messages, &body];
    let thread = Thread::new("bench", "by-hand")?;
    let rounds = in_rounds(
        plan.rounds * MORE,
        async |_| conversations.append(&thread, calls).await,
        async |_| tools.micros(calls, &by_hand),
    )
    .await;
    let scripted = subject("redis-append-script", "append of a 1 KB message", "a script of three commands");
    let figures = super::history::beside(
        plan.rounds * MORE,
        &mut conversations,
        calls,
        Beside {
            subject: subject(
                "redis-append",
                "append of a 1 KB message",
                "RPUSH of one value of the same size",
            ),
            round: async |_| tools.micros(calls, &["RPUSH", &key, &body]),
        },
        async || Ok(()),
        Beside {
            subject: subject(
                "redis-last-50",
                "last 50 messages of 1 KB",
                "LRANGE of 50 values of the same size",
            ),
            round: async |_| tools.micros(calls, &["LRANGE", &key, "-50", "-1"]),
        },
    )
    .await;
    let driven = beside_driver(plan, &tools, &conversations, calls, &messages).await;
    // Removes the data after a failure, too.
    tools.ask(&["DEL", &key, &head, &messages])?;
    conversations.erase().await?;
    let mut figures = figures?;
    figures.insert(0, scripted.figure(&rounds?));
    let peer = "redis-rs 1 in the same process, ZRANGE of 50 values of the same size, without parsing them";
    let last_50 = subject("redis-last-50-driver", "last 50 messages of 1 KB", "");
    figures.push(Subject { peer: peer.to_owned(), ..last_50 }.figure(&driven?));
    Ok(figures)
}

/// The last 50, compared with the driver of these reads on the same values.
async fn beside_driver(
    plan: &Plan,
    tools: &Tools,
    conversations: &Conversations,
    calls: u32,
    messages: &str,
) -> Outcome<Vec<(f64, f64)>> {
    let thread = Thread::new("bench", "session")?;
    let client = redis::Client::open(tools.url.as_str())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    in_rounds(
        plan.rounds * MORE,
        async |_| conversations.last_50(&thread, calls).await,
        async |_| {
            let begun = Instant::now();
            for _ in 0..calls {
                let mut command = redis::cmd("ZRANGE");
                command.arg(messages).arg(-50).arg(-1);
                let found: Vec<redis::Value> = command.query_async(&mut connection).await?;
                if found.len() != 50 {
                    return Err(format!("a read of the last 50 values returned {}", found.len()).into());
                }
            }
            Ok(micros_each(begun, calls))
        },
    )
    .await
}

/// The same in a thread of a hundred messages and in one of a million.
pub(super) async fn long_thread(plan: &Plan) -> Outcome<Vec<Figure>> {
    let tools = Tools::new(plan.url(VARIABLE)?)?;
    let settings = tools.settings()?;
    let mut conversations = Conversations::open(&tools.url).await?;
    let names = Names {
        backend: "Redis",
        time: "redis-append-long",
        bytes: "redis-append-long-log",
        read: "redis-last-50-long",
        window: "redis-window-long",
        log: "append-only file",
    };
    let written = async || tools.written();
    let figures =
        super::history::long_thread(plan, &mut conversations, names, &settings, async || Ok(()), written)
            .await;
    conversations.erase().await?;
    figures
}
