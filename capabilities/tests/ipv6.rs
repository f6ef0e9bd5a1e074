//! IPv6 literals in the URLs of servers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test fails by panicking")]

use std::time::Duration;

use larder_capabilities::driver::BackendUrl;
use tokio::net::TcpListener;

/// Opens a URL, and drops the attempt when the server has seen it.
async fn reaches(listener: &TcpListener, url: &str) -> bool {
    let parsed = BackendUrl::parse(url).unwrap();
    let drivers = larder_capabilities::drivers();
    let Some(driver) = drivers.iter().find(|driver| driver.schemes().contains(&parsed.scheme())) else {
        panic!("{} is not compiled", parsed.scheme())
    };
    let location = driver.read(&parsed).unwrap();
    tokio::select! {
        _ = location.open() => false,
        accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept()) => accepted.is_ok(),
    }
}

/// Once, the driver of Postgres looked up a host with the name `[::1]`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ipv6_literal_reaches_its_server() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        eprintln!("this machine has no address ::1, so nothing was tested");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let mut urls: Vec<String> = Vec::new();
    if cfg!(feature = "postgres") {
        urls.push(format!("postgres://u@[::1]:{port}/x"));
        urls.push(format!("postgres://u@/x?host=[::1]&port={port}"));
        urls.push(format!("postgres://u@/x?hostaddr=::1&port={port}"));
    }
    if cfg!(feature = "age") {
        urls.push(format!("age://u@[::1]:{port}/x"));
    }
    if cfg!(feature = "redis") {
        urls.push(format!("redis://[::1]:{port}/0"));
        urls.push(format!("redis+cluster://[::1]:{port}"));
    }
    if cfg!(feature = "s3") {
        urls.push(format!("s3://key:secret@bucket?endpoint=http://[::1]:{port}"));
    }
    for url in urls {
        assert!(reaches(&listener, &url).await, "{url}");
    }
}
