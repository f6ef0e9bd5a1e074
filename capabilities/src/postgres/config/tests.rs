//! Connection strings as providers print them, and mistakes in them.

#![allow(clippy::panic, clippy::expect_used)]

use super::*;

fn read(url: &str) -> PostgresConfig {
    PostgresConfig::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Returns the error for a URL, which names the field and contains no secret.
fn refused(url: &str) -> Error {
    let error = PostgresConfig::from_url(url).expect_err(url);
    assert_eq!(error.field(), Some("url"), "{url}");
    assert!(!format!("{error:?} {error}").contains("s3cret"), "{url}");
    error
}

#[test]
fn another_machine_needs_a_certificate_by_default() {
    for (url, mode) in [
        ("postgres://u:s3cret@db.example/x", "VerifyFull"),
        ("postgres://u:s3cret@db.example/x?sslmode=disable", "Disable"),
        ("postgres://u:s3cret@db.example/x?sslmode=allow", "Prefer"),
        ("postgres://u:s3cret@db.example/x?sslmode=prefer", "Prefer"),
        ("postgres://u:s3cret@db.example/x?sslmode=require", "Require"),
        ("postgres://u:s3cret@db.example/x?sslmode=verify-ca", "VerifyCa"),
        // An authority that is named is verified, as libpq does.
        ("postgres://u:s3cret@db.example/x?sslmode=require&sslrootcert=/ca.pem", "VerifyCa"),
        ("postgres://u:s3cret@127.0.0.1/x?sslrootcert=system", "VerifyFull"),
        ("postgres://u:s3cret@db.example/x?pool_size=2", "VerifyFull"),
        ("postgres://u:s3cret@127.0.0.1/x?sslmode=verify-full", "VerifyFull"),
        ("postgres://u:s3cret@127.0.0.1.example/x", "VerifyFull"),
        ("postgres://u:s3cret@localhost.example/x", "VerifyFull"),
        ("postgres://u:s3cret@127.0.0.1/x?host=db.example", "VerifyFull"),
        ("postgres://u:s3cret@10.0.0.1/x", "VerifyFull"),
        ("postgres://u:s3cret@[2001:db8::1]/x", "VerifyFull"),
        ("postgres://u:s3cret@127.0.0.1:5433/x", "Prefer"),
        ("postgresql://u@[::1]/x", "Prefer"),
        ("postgres://u@localhost/x", "Prefer"),
        ("postgres://u@ignored/x?host=/var/run", "Prefer"),
    ] {
        let config = read(url);
        assert_eq!(format!("{:?}", config.connect.get_ssl_mode()), mode, "{url}");
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}

#[test]
fn connection_strings_of_providers_are_read() {
    let (neon, pooler) = ("ep-x-1.eu.aws.neon.tech", "aws-0-eu.pooler.supabase.com");
    let (rds, azure) = ("db.abc.eu-west-1.rds.amazonaws.com", "x.postgres.database.azure.com");
    for (url, host, port, user, database) in [
        (format!("postgresql://o:s3cret@{neon}/neondb?sslmode=require"), neon, 5432, "o", "neondb"),
        (
            format!("postgresql://o:s3cret@{neon}/d?sslmode=require&channel_binding=prefer"),
            neon,
            5432,
            "o",
            "d",
        ),
        (format!("postgres://o:s3cret@{neon}/d?options=endpoint%3Dep-x-1"), neon, 5432, "o", "d"),
        (format!("postgres://postgres.ref:s3cret@{pooler}:6543/p"), pooler, 6543, "postgres.ref", "p"),
        (format!("postgres://u:s3cret@{rds}:5432/x?connect_timeout=10"), rds, 5432, "u", "x"),
        (
            format!("postgres://me%40x:s3cret@{azure}/x?target_session_attrs=read-write"),
            azure,
            5432,
            "me@x",
            "x",
        ),
        (format!("postgres://{rds}/x?user=u&password=s3cret&port=1"), rds, 1, "u", "x"),
        ("postgres://u:s3cret@[::1]:5433/x".to_owned(), "::1", 5433, "u", "x"),
        ("postgres://u:s3cret@/x?host=[::1]".to_owned(), "::1", 5432, "u", "x"),
        ("postgres://u:s3cret@/x?hostaddr=::1".to_owned(), "::1", 5432, "u", "x"),
        ("postgres://u:s3cret@h/x?hostaddr=10.0.0.1&sslmode=require".to_owned(), "10.0.0.1", 5432, "u", "x"),
        ("postgres://u:s3cret@h:/a%2Fb%3F".to_owned(), "h", 5432, "u", "a/b?"),
    ] {
        let connect = read(&url).connect;
        assert_eq!((connect.get_host(), connect.get_port()), (host, port), "{url}");
        assert_eq!((connect.get_username(), connect.get_database()), (user, Some(database)), "{url}");
        assert!(connect.get_socket().is_none(), "{url}");
    }
    for url in [
        "postgres:///x?host=/var/run/postgresql",
        "postgres://u:s3cret@/x?host=%2Fvar%2Frun%2Fpostgresql",
        "postgres://u:s3cret@%2Fvar%2Frun%2Fpostgresql/x",
    ] {
        let connect = read(url).connect;
        assert_eq!(connect.get_socket().and_then(|path| path.to_str()), Some("/var/run/postgresql"), "{url}");
        assert_eq!(connect.get_database(), Some("x"));
    }
    let config = read("postgres://u@h/x?connect_timeout=7&target_session_attrs=primary&options=-c%20a.b%3Dc");
    assert_eq!((config.acquire_timeout, config.target), (Duration::from_secs(7), Target::Primary));
    assert_eq!(config.connect.get_options(), Some("-c a.b=c"));
    let config = read("postgres://u@h/x?connect_timeout=7&acquire_timeout_ms=100");
    assert_eq!(config.acquire_timeout, Duration::from_millis(100));
    assert_eq!(read("postgres://u@h/x?connect_timeout=0").acquire_timeout, ACQUIRE_TIMEOUT_DEFAULT);
}

/// The driver shows the password only in its `Debug` output.
#[test]
fn an_escaped_password_reaches_the_driver_whole() {
    let every: String = (1_u8..128).map(char::from).chain("äß€𝄞".chars()).collect();
    let escaped: String = every.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for url in [format!("postgres://u:{escaped}@h/x"), format!("postgres://u@h/x?password={escaped}")] {
        let shown = format!("{:?}", read(&url).connect);
        assert!(shown.contains(&format!("password: Some({every:?})")), "{shown}");
        assert_eq!(read(&url).connect.get_host(), "h");
    }
}

/// Once, `postgres://u:p@ss/word@host/x` connected to the host `ss`, and `u:12/…@host` to the host `u`.
#[test]
fn an_ambiguous_login_is_refused_before_anything_is_resolved() {
    for url in [
        "postgres://u:p@s3cret@h/x",
        "postgres://u:p@s3cret/word@h/x",
        "postgres://u:s3cret/word@h/x",
        "postgres://u:12/s3cret@h/x",
        "postgres://u:12?s3cret@h/x",
        "postgres://u:12?s3cret&b=c@h/x",
        "postgres://u:12#s3cret@h/x",
        "postgres://s3cret/@h/x",
        "postgres://h/x?password=p@s3cret",
    ] {
        let error = refused(url);
        assert!(error.message().contains("unescaped"), "{url}: {error}");
        assert!(error.message().contains("%40") || error.message().contains("%23"), "{error}");
    }
}

#[test]
fn parameters_that_cannot_be_kept_are_refused_by_name() {
    for (parameters, parts) in [
        ("channel_binding=require", ["`channel_binding=require`", "`sslmode=verify-full"]),
        ("channel_binding=s3cret", ["`channel_binding`", "`prefer`"]),
        ("target_session_attrs=standby", ["`target_session_attrs`", "`read-write`"]),
        ("hostaddr=10.0.0.1", ["`hostaddr`", "`sslmode=verify-ca`"]),
        ("hostaddr=s3cret", ["`hostaddr`", "IP address"]),
        ("host=a,b", ["several hosts", "primary"]),
        ("port=1,2", ["several hosts", "primary"]),
        ("connect_timeout=s3cret", ["`connect_timeout`", "seconds"]),
        ("sslmode=s3cret", ["`sslmode`", "`verify-full`"]),
        ("sslrootcert=system&sslmode=require", ["`sslrootcert=system`", "`sslmode=verify-full`"]),
        ("password=s3cret%ff", ["password", "UTF-8"]),
        ("password=s3cret%00", ["password", "NUL"]),
        ("password=s3cret%", ["password", "`%25`"]),
        ("gssencmode=s3cret", ["`gssencmode`", "`postgres:` takes"]),
        ("connection_limit=1", ["`connection_limit`", "`pool_size`"]),
        ("s3cret%=1", ["unknown query parameter;", "`pool_size`"]),
    ] {
        let error = refused(&format!("postgres://u@h/x?{parameters}"));
        for part in parts {
            assert!(error.message().contains(part), "{parameters}: {error}");
        }
    }
    let several = refused("postgres://u:s3cret@a:1,b:2/x?target_session_attrs=read-write");
    assert!(several.message().contains("several hosts"), "{several}");
}

#[test]
fn mistakes_are_refused_without_repeating_them() {
    for url in [
        "mysql://u:s3cret@h/x",
        "postgres:s3cret",
        "postgres://u:s3cret@h:port/x",
        "postgres://u:s3cret@h:0/x",
        "postgres://u:s3cret@::1/x",
        "postgres://u:s3cret@[::1/x",
        "postgres://u:s3cret@[::1]5432/x",
        "postgres://u:s3cret@[s3cret]/x",
        "postgres://u:s3cret@h h/x",
        "postgres://u:s3cret%zz@h/x",
        "postgres://u@h/x?migrate=s3cret",
        "postgres://u@h/x?pool_size=0",
        "postgres://u@h/x?lock_timeout_ms=-1",
        "postgres://u@h/x?vector_index=s3cret",
        "postgres://u@h/x?vector_index_rows_min=0",
    ] {
        refused(url);
    }
}
