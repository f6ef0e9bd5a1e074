//! The program of each handle (`examples/handles.rs`), unchanged, on every backend that has its contract.

use libtest_mimic::{Arguments, Trial};

use crate::adapters::output;

/// The handles, with a line that each program prints, and the backends that have its contract.
const PROGRAMS: [(&str, &str, &[&str]); 6] = [
    ("history", "Hello", &["memory", "sqlite", "postgres", "redis"]),
    ("vectors", "Green tea, no sugar", &["memory", "sqlite", "postgres"]),
    ("graph", "ada at 0\nlarder at 1", &["memory", "sqlite", "postgres", "age"]),
    ("blobs", "tickets/basel.txt: b\"Seat 61\"", &["memory", "file", "postgres", "s3"]),
    ("tasks", "Book the train", &["memory", "sqlite", "postgres", "redis"]),
    ("key_value", "b\"booked\"", &["memory", "sqlite", "postgres", "redis"]),
];

/// Returns the variable that names the server of a backend; `None` if the backend has no server.
fn variable(backend: &str) -> Option<&'static str> {
    Some(match backend {
        "postgres" => "LARDER_POSTGRES_URL",
        "redis" => "LARDER_REDIS_URL",
        "s3" => "LARDER_S3_MOTO_URL",
        "age" => "LARDER_AGE_URL",
        _ => return None,
    })
}

/// Runs the program twice on a new backend in memory or in a folder, and once on a server, which may have
/// the data of an earlier run.
fn run(handle: &str, line: &str, backend: &str) {
    if let Some(variable) = variable(backend) {
        let url = std::env::var(variable).unwrap();
        let printed = output("handles", &[handle, &url]);
        let again = handle == "tasks" && printed.is_empty();
        assert!(again || printed.contains(line), "{printed}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let url = match backend {
        "memory" => "memory:".to_owned(),
        backend => format!("{backend}:{}", folder.path().join("data").display()),
    };
    let printed = output("handles", &[handle, &url]);
    assert!(printed.contains(line), "{printed}");
    // The second run finds the board and the task of the first, and everything else again.
    let printed = output("handles", &[handle, &url]);
    let done = handle == "tasks" && backend != "memory";
    assert!(if done { printed.is_empty() } else { printed.contains(line) }, "{printed}");
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let mut trials = Vec::new();
    for (handle, line, backends) in PROGRAMS {
        for backend in backends {
            let ignored = variable(backend).is_some_and(|name| std::env::var(name).is_err()) && !required;
            let trial = Trial::test(format!("{handle}_on_{backend}"), move || {
                run(handle, line, backend);
                Ok(())
            });
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    crate::groups::run("handles", arguments, trials)
}
