//! The backends that a check opens, and the missing ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::service::{SERVICES, Service};
use larder::Registry;
use larder_conformance::runner::{self, Probed};
use larder_conformance::{AbsentBackend, Harness, Report};
use larder_kernel::{Error, ErrorKind};

use crate::output;
use crate::services::Running;
use crate::url;

/// The suffix of a service's name if a URL of the user has the same name.
const LIVE: &str = " live";
/// The separator of a service's name and the content of its image, if the published one is replaced.
const LABEL: &str = ": ";
const OPERATION: &str = "check.open";

/// The backends of a run.
pub(crate) struct Backends {
    /// The backends that can be checked.
    pub(crate) opened: Vec<(Arc<dyn Harness>, Probed)>,
    /// The backends that cannot be checked.
    pub(crate) absent: Vec<AbsentBackend>,
}

impl Backends {
    /// Opens the URLs, or the embedded backends, and the running live services.
    ///
    /// # Errors
    /// A message about the first URL that cannot be opened. A service that cannot be opened is absent.
    pub(crate) async fn open(
        registry: &Registry,
        urls: &[String],
        scratch: &Path,
        running: Option<&Running>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let opening = runner::within(timeout, OPERATION, url::harnesses(registry, urls, scratch));
        let harnesses = opening.await.map_err(|error| sentence(&error))?;
        let mut backends = Self { opened: Vec::new(), absent: Vec::new() };
        for harness in harnesses {
            let cannot = |error: Error| format!("cannot open {}: {}", harness.url(), sentence(&error));
            let probed = runner::probe(&*harness, timeout).await.map_err(cannot)?;
            backends.opened.push((harness, probed));
        }
        if let Some(running) = running {
            for service in &SERVICES {
                backends.add(registry, service, running, scratch, timeout).await;
            }
        }
        Ok(backends)
    }

    async fn add(
        &mut self,
        registry: &Registry,
        service: &Service,
        running: &Running,
        scratch: &Path,
        timeout: Duration,
    ) {
        let taken = self.opened.iter().any(|(harness, _)| harness.name() == service.name);
        let mut name = if taken { format!("{}{LIVE}", service.name) } else { service.name.to_owned() };
        if let Some(label) = running.label(service) {
            name.push_str(LABEL);
            name.push_str(&label);
        }
        let reason = match running.url(service) {
            None => format!("{} is not set, and the service cannot be started", service.variable),
            Some(url) => match probed(registry, &name, &url, scratch, timeout).await {
                Ok(opened) => {
                    self.opened.push(opened);
                    return;
                }
                Err(error) => sentence(&error),
            },
        };
        self.absent.push(AbsentBackend::new(name, reason, false));
    }

    /// Marks the required backends, by name or by scheme.
    ///
    /// # Errors
    /// A message if a word matches no backend.
    pub(crate) fn require(&mut self, words: &[String]) -> Result<(), String> {
        for word in words {
            let service = SERVICES.iter().find(|service| is_meant(word, service.name, service.scheme));
            let opened =
                self.opened.iter().any(|(harness, _)| is_meant(word, harness.name(), &scheme(harness)));
            let mut known = opened;
            for absent in &mut self.absent {
                let name = plain(&absent.name);
                let of = SERVICES.iter().find(|service| service.name == name);
                if is_meant(word, name, of.map_or("", |service| service.scheme)) {
                    (absent.required, known) = (true, true);
                }
            }
            match service {
                _ if known => {}
                Some(_) => {
                    let reason = "it is not a backend of this run; add it with --live";
                    self.absent.push(AbsentBackend::new(word, reason, true));
                }
                None => return Err(format!("--require {word} matches no backend of this run")),
            }
        }
        Ok(())
    }
}

/// Reports required backends on which no case passed as absent.
pub(crate) fn note_idle(report: &mut Report, words: &[String]) {
    for backend in &report.backends {
        let scheme = backend.url.split(':').next().unwrap_or_default();
        let required = words.iter().any(|word| is_meant(word, &backend.name, scheme));
        let passed = |case: &larder_conformance::CaseReport| {
            case.backend == backend.name && case.outcome == larder_conformance::CaseOutcome::Passed
        };
        if required && !report.cases.iter().any(passed) {
            report.absent.push(AbsentBackend::new(&backend.name, "no case passed on it", required));
        }
    }
}

async fn probed(
    registry: &Registry,
    name: &str,
    url: &str,
    scratch: &Path,
    timeout: Duration,
) -> larder_kernel::Result<(Arc<dyn Harness>, Probed)> {
    let harness = runner::within(timeout, OPERATION, url::named(registry, name, url, scratch)).await?;
    let probed = runner::probe(&*harness, timeout).await?;
    Ok((harness, probed))
}

fn is_meant(word: &str, name: &str, scheme: &str) -> bool {
    word == plain(name) || word == scheme
}

/// Returns the service's name in the name of a column.
fn plain(name: &str) -> &str {
    let name = name.split_once(LABEL).map_or(name, |(name, _)| name);
    name.strip_suffix(LIVE).unwrap_or(name)
}

fn scheme(harness: &Arc<dyn Harness>) -> String {
    harness.url().split(':').next().unwrap_or_default().to_owned()
}

/// Formats the error as one line, with a hint if this build lacks the backend.
pub(crate) fn sentence(error: &Error) -> String {
    if output::is_larder() && !cfg!(feature = "full") && error.kind() == ErrorKind::Unsupported {
        return format!("{error}; `cargo larder-full` has every backend");
    }
    error.to_string()
}
