//! The diagnosis of a database with AGE, in addition to that of any Postgres database.

use super::config::AgeConfig;
use super::schema::{Found, is_new_enough, look};
use crate::diagnose::{Check, Findings};
use crate::postgres::diagnose as postgres;

const AGE: &str = "Apache AGE stores and queries the graphs";
const GRAPHS: &str = "a table maps namespaces to graphs";

/// Diagnoses the database.
pub(crate) async fn diagnose(config: &AgeConfig, findings: &Findings) {
    let Some(mut session) = postgres::diagnose(&config.postgres, false, findings).await else { return };
    postgres::add(findings, "age", AGE, async { Ok(checks(look(session.question().await).await?)) }).await;
    postgres::close(session).await;
}

fn checks(found: Found) -> Vec<Check> {
    let Found { version, available, table } = found;
    let extension = match version {
        Some(version) if is_new_enough(&version) => Check::ok("age", version, AGE),
        Some(version) => {
            let advice = "install 1.5.0 or newer on the server and run `ALTER EXTENSION age UPDATE`";
            Check::fail("age", format!("{version}, too old"), AGE, advice)
        }
        None if available => {
            let advice =
                "nothing if the user has the permission, because opening runs `CREATE EXTENSION age`";
            Check::warn("age", "installed on the server, not yet in the database", AGE, advice)
        }
        None => Check::fail(
            "age",
            "not installed on the server",
            AGE,
            "install Apache AGE 1.5.0 or newer on the server",
        ),
    };
    let graphs = if table {
        Check::ok("graphs", "the table of graphs exists", GRAPHS)
    } else {
        Check::warn(
            "graphs",
            "none yet",
            GRAPHS,
            "nothing if the database is new: opening it creates the table",
        )
    };
    vec![extension, graphs]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::CheckStatus::{Fail, Ok, Warn};

    #[test]
    fn an_old_or_missing_extension_is_reported() {
        for (version, available, table, expected) in [
            (Some("1.6.0"), true, true, [Ok, Ok]),
            (Some("1.4.0"), true, true, [Fail, Ok]),
            (None, true, false, [Warn, Warn]),
            (None, false, false, [Fail, Warn]),
        ] {
            let found = Found { version: version.map(str::to_owned), available, table };
            let statuses: Vec<_> = checks(found).iter().map(|check| check.status).collect();
            assert_eq!(statuses, expected);
        }
    }
}
