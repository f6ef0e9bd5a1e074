//! The machine of a measurement.

use std::fmt;

use serde::Serialize;

/// The machine, and its load.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Machine {
    processor: String,
    cores: usize,
    memory_mib: u64,
    system: String,
    load_before: String,
    load_after: String,
}

impl Machine {
    /// Reads the machine's description; a missing value is `unknown`.
    pub(super) fn now() -> Self {
        let memory =
            field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_mib: memory.unwrap_or(0) / 1024,
            system: first_line("/proc/sys/kernel/osrelease")
                .map_or_else(|| std::env::consts::OS.to_owned(), |release| format!("Linux {release}")),
            load_before: load(),
            load_after: unknown(),
        }
    }

    /// Reads the machine's load at the end.
    pub(super) fn end(&mut self) {
        self.load_after = load();
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, {} MiB of memory, {}; load over one minute {} before and {} after",
            self.processor, self.cores, self.memory_mib, self.system, self.load_before, self.load_after
        )
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn first_line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// Returns the value of the first `name: value` line of a file.
pub(super) fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn load() -> String {
    let line = first_line("/proc/loadavg");
    line.and_then(|line| Some(line.split(' ').next()?.to_owned())).unwrap_or_else(unknown)
}
