//! The level `durable`: processes and servers that are killed while they write.
//!
//! - An embedded backend is written by a separate process (`larder writer`), which reports the start and the
//!   acknowledgment of each write. SIGKILL ends the process at a random moment.
//! - A server is started by the scripts of `conformance/services` and killed while clients write.
//!
//! A kill counts only if it hits writes in progress. For a process, at least one write had started and was
//! not acknowledged. For a server, at least one call was sent and not answered.
//!
//! After the restart, every acknowledged write must exist once and in order. Every other write must be
//! complete or absent, and the store must accept writes again.
//!
//! The level does not simulate power loss: the operating system keeps the data that a killed process has
//! written. A store that declares durability `power` is therefore proven only up to `process`.
//!
//! To verify that these kills can detect a loss, Redis is also killed without its append-only file. If that
//! run loses nothing, the level has proven nothing.

mod during;
mod journal;
mod process;
mod server;
mod servers;

use std::sync::Arc;

use larder::Registry;
use larder::driver::{Driver, Sharing};

pub use during::{Count, Found, Watched, during};
pub use journal::write;
pub use process::{NAMESPACE, kill_writers};

use crate::layered::Around;
use crate::service::{SERVICES, scripts};
use larder_conformance::case::Level;
use larder_conformance::harness::Harness;
use larder_conformance::level::{Effort, LevelReport};
use larder_conformance::runner::Probed;

/// Kills the process or server that keeps the backend's data. Three kinds of backends have no report: memory,
/// which ends with its process; servers that declare no durability or are not persistent by design; and
/// servers without a script.
pub async fn run(
    registry: &Registry,
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
) -> Vec<LevelReport> {
    let url = harness.url();
    // A writer behind a layer is killed like a writer without one.
    let behind = Around::split(&url).map_or(url.as_str(), |(_, behind)| behind);
    let scheme = behind.split(':').next().unwrap_or_default();
    match registry.driver(behind).map(Driver::sharing) {
        Ok(Sharing::Opening) => Vec::new(),
        Ok(Sharing::Process | Sharing::Machine) => {
            let program = match std::env::current_exe() {
                Ok(program) => program,
                Err(error) => {
                    let mut report = LevelReport::new(harness.name(), Level::Durable, None, "kills", 1);
                    report.trouble = Some(format!("cannot find this program: {error}"));
                    return vec![report];
                }
            };
            vec![kill_writers(registry, &program, harness.name(), &url, effort).await]
        }
        _ => {
            if !servers::is_durable(probed) {
                return Vec::new();
            }
            let script = scripts();
            let service = SERVICES.iter().find(|it| it.name == harness.name() && it.scheme == scheme);
            match service.filter(|service| script.join(service.script).is_file()) {
                // A test server, which keeps its files in memory but declares the durability of S3.
                Some(service) if service.script == "moto" => Vec::new(),
                Some(service) => servers::kill_servers(service, effort).await,
                None => Vec::new(),
            }
        }
    }
}
