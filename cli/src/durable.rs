//! The level `durable`: processes and servers that are killed while they write.
//!
//! What is embedded is written by a process of its own (`larder writer`), which says of each write when it begins and when
//! it was acknowledged, and is ended by SIGKILL at a random moment. What is a server is started for the purpose, by the
//! scripts of `conformance/services`, and killed while clients write. Only a kill that met writes under way counts: of a
//! process, at least one had begun and was not acknowledged; of a server, at least one call was sent and not answered.
//!
//! After the restart every acknowledged write must be there, in its order and once; every other one whole or absent; and
//! the store must take writes again.
//!
//! What this does not show is the loss of power: a process that is killed leaves what it gave to the operating system. A
//! store that declares durability `power` is proven as far as `process`.
//!
//! To see that these kills can show a loss at all, Redis is killed without its log as well: a run in which nothing was
//! lost then has proven nothing.

mod journal;
mod meanwhile;
mod process;
mod server;
mod servers;

use std::sync::Arc;

use larder::Registry;
use larder::driver::{Driver, Sharing};

pub use journal::write;
pub use meanwhile::{Count, Found, Watched, meanwhile};
pub use process::{NAMESPACE, kill_writers};

use crate::layered::Around;
use crate::service::{SERVICES, scripts};
use larder_conformance::case::Level;
use larder_conformance::harness::Harness;
use larder_conformance::level::{Effort, LevelReport};
use larder_conformance::runner::Probed;

/// Kills what keeps the backend's data. Backends that cannot be killed from here have no report: memory, which ends with
/// its process, servers that declare no durability or keep nothing by design, and those for which there is no script.
pub async fn run(
    registry: &Registry,
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
) -> Vec<LevelReport> {
    let url = harness.url();
    // A writer behind a layer is killed as one without.
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
                // It is a server of tests, which keeps its files in memory and declares what S3 does.
                Some(service) if service.script == "moto" => Vec::new(),
                Some(service) => servers::kill_servers(service, effort).await,
                None => Vec::new(),
            }
        }
    }
}
