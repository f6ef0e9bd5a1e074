//! `larder services` over containers. The engine is a script that only records its arguments. The tests check
//! the chosen runner, its arguments, and the exit code.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use larder_cli::service::SERVICES;
use rustix::process::{Pid, Signal, kill_process};

/// A machine with an engine and without services.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The services' account needs access to it.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["running", "services"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn larder(&self) -> Command {
        let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/services");
        let programs = format!("{}:{}", engine.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command
            .env("PATH", programs)
            .env("LARDER_TEST_CONTAINERS", self.path("running"))
            .env("LARDER_SERVICES_DIR", self.path("services"))
            .env_remove("LARDER_SERVICES_SET");
        // Nothing listens there, while other tests use the usual ports.
        command.envs(
            ["PG", "AGE", "REDIS", "REDIS_CLUSTER", "GARAGE", "MOTO"]
                .map(|name| (format!("LARDER_{name}_PORT"), "1")),
        );
        command
    }

    fn exits(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.larder().arg("services").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn containers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("running")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Simulates the service without an image: a process in its folder, and a port that replies.
    fn s3s(&self) -> (Child, TcpListener) {
        let home = self.path("services/s3s");
        fs::create_dir_all(home.join("data")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let process = Command::new("sleep")
            .arg("600")
            .current_dir(home.join("data"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        fs::write(home.join("pid"), process.id().to_string()).unwrap();
        fs::write(home.join("port"), listener.local_addr().unwrap().port().to_string()).unwrap();
        fs::write(home.join("key-id"), "id").unwrap();
        fs::write(home.join("key-secret"), "secret").unwrap();
        (process, listener)
    }
}

#[test]
fn services_in_containers_are_listed_killed_and_stopped() {
    let machine = Machine::new();
    machine.exits(3, &["status", "postgres", "garage"]);
    machine.exits(0, &["up", "postgres", "redis-cluster", "garage"]);
    assert_eq!(
        machine.containers(),
        ["garage", "postgres", "redis-cluster", "redis-cluster-2", "redis-cluster-3"]
    );
    // Running services stay unchanged.
    machine.exits(0, &["up", "postgres"]);
    machine.exits(0, &["status", "postgres", "redis-cluster", "garage"]);
    let urls = machine.exits(0, &["env", "postgres", "redis-cluster", "garage"]);
    let schemes = ["postgres://larder:", "redis+cluster://default:", "s3://GK"];
    assert_eq!(urls.lines().count(), schemes.len(), "{urls}");
    for (line, scheme) in urls.lines().zip(schemes) {
        assert!(line.starts_with("LARDER_") && line.contains(scheme), "{line}");
    }
    machine.exits(0, &["kill", "garage"]);
    machine.exits(4, &["status", "postgres", "garage"]);
    machine.exits(0, &["down", "postgres", "redis-cluster", "garage"]);
    assert!(machine.containers().is_empty());
    machine.exits(3, &["env", "postgres", "garage"]);
}

/// Regression test: `env` printed random passwords, which containers of `docker compose up` do not have.
#[test]
fn containers_that_were_started_by_hand_keep_their_passwords() {
    let machine = Machine::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/services/docker");
    let mut by_hand = Command::new(engine);
    by_hand.args(["compose", "--project-directory"]).arg(&root);
    by_hand.arg("--file").arg(root.join("docker-compose.yml"));
    by_hand.args(["up", "--detach", "--wait", "--wait-timeout", "300", "postgres", "redis"]);
    assert!(by_hand.env("LARDER_TEST_CONTAINERS", machine.path("running")).status().unwrap().success());
    let urls = machine.exits(0, &["env", "postgres", "redis"]);
    assert!(urls.contains("//larder:larder@") && urls.contains("//default:larder@"), "{urls}");
    // `up` keeps the password of the containers that exist, and gives a random one to the others.
    machine.exits(0, &["up", "postgres", "redis", "age"]);
    assert_eq!(machine.exits(0, &["env", "postgres", "redis"]), urls);
    assert!(!machine.exits(0, &["env", "age"]).contains(":larder@"));
    machine.exits(0, &["down", "postgres", "redis", "age"]);
    machine.exits(0, &["up", "postgres"]);
    assert!(!machine.exits(0, &["env", "postgres"]).contains(":larder@"));
}

/// An engine that does not respond is an error that names it. Neither another engine nor a native service
/// takes its place.
#[test]
fn the_test_of_the_containers_fails_without_the_engine_of_the_environment() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/containers");
    let output = Command::new(script).env("DOCKER_HOST", "unix:///nonexistent/engine").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unix:///nonexistent/engine") && !said.contains("services:"), "{said}");
}

#[test]
fn services_that_a_check_started_are_stopped_on_a_signal() {
    let machine = Machine::new();
    let mut command = machine.larder();
    command.args(["check", "--live"]).env("LARDER_TEST_UP_SECONDS", "2").stderr(Stdio::piped());
    // The variables declare all other services as available.
    for service in SERVICES {
        command.env(service.variable, "memory:");
    }
    command.env_remove("LARDER_S3_GARAGE_URL");
    let check = command.stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..600 {
        if machine.containers() == ["garage"] {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(machine.containers(), ["garage"]);
    kill_process(Pid::from_child(&check), Signal::TERM).unwrap();
    let output = check.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("larder: interrupted\n"), "{said}");
    assert!(machine.containers().is_empty());
}

/// This service once made `larder services` treat the containers as stopped, because nothing else ran without
/// a container.
#[test]
fn the_service_without_an_image_decides_nothing() {
    let machine = Machine::new();
    let (mut process, _listener) = machine.s3s();
    machine.exits(0, &["up", "postgres", "redis"]);
    assert_eq!(machine.containers(), ["postgres", "redis"]);
    let urls = machine.exits(0, &["env", "postgres", "redis", "s3s"]);
    assert_eq!(urls.lines().count(), 3, "{urls}");
    // Only some of all services run.
    machine.exits(4, &["status"]);
    machine.exits(0, &["down", "s3s", "postgres", "redis"]);
    assert!(machine.containers().is_empty());
    assert!(process.try_wait().unwrap().is_some(), "it was not stopped");
}

/// Regression test: only `RUSTFLAGS` was removed from the caller's settings.
#[test]
fn a_service_is_built_without_the_callers_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (cargo, seen) = (folder.path().join("cargo"), folder.path().join("seen"));
    fs::write(&cargo, format!("#!/bin/sh\nenv >'{}'\nexit 1\n", seen.display())).unwrap();
    fs::set_permissions(&cargo, Permissions::from_mode(0o755)).unwrap();
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/services/lib.sh");
    let script = r#"source "$1"; build_crate "$2/kept" any 1.0.0"#;
    let mut build = Command::new("bash");
    build.args(["-c", script, "bash"]).args([&library, &folder.path().to_owned()]).env("CARGO", &cargo);
    let unwanted = ["RUSTFLAGS", "CFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER", "LD_PRELOAD_TEST"];
    build.envs(unwanted.map(|name| (name, "caller")));
    assert!(!build.output().unwrap().status.success());
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("CARGO_TARGET_DIR=") && seen.contains("PATH="), "{seen}");
    assert!(!seen.contains("caller"), "{seen}");
}
