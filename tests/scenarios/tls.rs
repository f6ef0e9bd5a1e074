//! The backends over TLS: live servers behind a proxy that accepts only TLS. Without a server, its tests are
//! ignored; with `LARDER_SERVICES=required` they fail.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]

mod authority;
mod front;

use std::path::Path;
use std::process::Command;

use futures_util::StreamExt;
use larder::Stores;
use larder_kernel::{ChatMessage, Error, ErrorKind, HistoryProviderExt, Namespace, Result, Seq, Thread};
use libtest_mimic::Arguments;

use crate::trial::{trial, url};
use authority::Authority;
use front::{Begins, front};

const POSTGRES: &str = "LARDER_POSTGRES_URL";
const REDIS: &str = "LARDER_REDIS_URL";
const GARAGE: &str = "LARDER_S3_GARAGE_URL";

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials = vec![
        trial(
            "postgres_trusts_the_authority_that_is_named",
            POSTGRES,
            postgres_trusts_the_configured_authority,
        ),
        trial("redis_trusts_the_authority_that_is_named", REDIS, redis_trusts_the_configured_authority),
        trial("s3_trusts_the_authorities_of_the_system", GARAGE, s3_trusts_the_authorities_of_the_system),
    ];
    crate::groups::run("tls", arguments, trials)
}

/// Returns the address in a URL, such as `127.0.0.1:5432`.
fn place(url: &str) -> &str {
    let behind = url.rsplit_once('@').unwrap().1;
    behind.split_once('/').unwrap().0
}

/// Appends a message, reads it back, and receives its notification.
async fn works(url: &str) -> Result<()> {
    let namespace = Namespace::new(format!("tls-{}", std::process::id()))?;
    let stores = Stores::builder().namespace(namespace).history_url(url).open().await?;
    let history = stores.set().history()?;
    let thread = Thread::new("a", "s")?;
    history.erase().await?;
    let mut events = history.subscribe(&thread, Seq::ZERO).await?;
    history.append(&thread, ChatMessage::user("Hello")).await?;
    assert_eq!(history.tail(&thread, None, 10).await?.messages.len(), 1);
    assert_eq!(events.next().await.unwrap()?.seq, Seq::new(1));
    drop(events);
    history.erase().await
}

fn refuses(error: &Error, advice: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(advice), "{error}");
}

async fn postgres_trusts_the_configured_authority() {
    let url = url(POSTGRES);
    let (authority, other, folder) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let trusted = authority.write_to(folder.path()).display().to_string();
    let behind = async |acceptor| front(acceptor, Begins::OnRequest, place(&url).to_owned()).await;
    let at = |port: u16, mode: &str| {
        let url = url.replace(place(&url), &format!("localhost:{port}"));
        format!("{url}?sslmode={mode}&sslrootcert={trusted}")
    };
    let right = behind(authority.server("localhost")).await;
    works(&at(right, "verify-full")).await.unwrap();
    let foreign = behind(other.server("localhost")).await;
    refuses(&works(&at(foreign, "verify-full")).await.unwrap_err(), "`sslrootcert`");
    let renamed = behind(authority.server("elsewhere.example")).await;
    refuses(&works(&at(renamed, "verify-full")).await.unwrap_err(), "`sslrootcert`");
    works(&at(renamed, "verify-ca")).await.unwrap();
    let plain = place(&url).rsplit_once(':').unwrap().1.parse().unwrap();
    refuses(&works(&at(plain, "verify-full")).await.unwrap_err(), "`sslmode`");
}

async fn redis_trusts_the_configured_authority() {
    let url = url(REDIS);
    let (authority, other, folder) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let trusted = authority.write_to(folder.path()).display().to_string();
    let behind = async |acceptor| front(acceptor, Begins::AtOnce, place(&url).to_owned()).await;
    let at = |port: u16| {
        let url = url.replace("redis://", "rediss://").replace(place(&url), &format!("localhost:{port}"));
        format!("{url}?tls_ca_file={trusted}")
    };
    let right = behind(authority.server("localhost")).await;
    works(&at(right)).await.unwrap();
    for wrong in [other.server("localhost"), authority.server("elsewhere.example")] {
        let port = behind(wrong).await;
        refuses(&works(&at(port)).await.unwrap_err(), "`tls_ca_file`");
    }
}

/// A process reads the system's certificate authorities once, so the program runs in a separate process.
async fn s3_trusts_the_authorities_of_the_system() {
    let url = url(GARAGE);
    let (authority, other, folder) = (Authority::new(), Authority::new(), tempfile::tempdir().unwrap());
    let trusted = authority.write_to(folder.path());
    let server = url.split_once("endpoint=http://").unwrap().1.split('&').next().unwrap();
    let behind = async |acceptor| front(acceptor, Begins::AtOnce, server.to_owned()).await;
    let at = |port: u16| url.replace(&format!("http://{server}"), &format!("https://localhost:{port}"));
    let right = at(behind(authority.server("localhost")).await);
    let printed = session(&right, &trusted).await.unwrap();
    assert!(printed.starts_with("2 messages, "), "{printed}");
    for wrong in [other.server("localhost"), authority.server("elsewhere.example")] {
        let said = session(&at(behind(wrong).await), &trusted).await.unwrap_err();
        assert!(said.contains("Unavailable"), "{said}");
    }
}

/// Returns the output of the example `session` with its blobs in S3, or its error. `cargo test` builds the
/// examples next to the tests.
async fn session(url: &str, authorities: &Path) -> std::result::Result<String, String> {
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.set_file_name("examples");
    program.push("session");
    let mut command = Command::new(program);
    command.args([url, "memory:"]).env("SSL_CERT_FILE", authorities).env_remove("SSL_CERT_DIR");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}
