//! `larder mcp`, driven by rmcp's client: over standard input and output and over streamable HTTP, on SQLite
//! and on Postgres.
//!
//! Tests of Postgres are ignored without `LARDER_POSTGRES_URL`; with `LARDER_SERVICES=required` they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod client;
mod conversations;
mod graph;
mod http;
mod notes;
mod offers;
mod parsing;
mod resources;
mod sessions;
mod tasks;

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use client::Place;

const POSTGRES: &str = "LARDER_POSTGRES_URL";

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = vec![
        trial("offers::a_store_without_tools_is_refused", None, |_| offers::nothing_to_offer()),
        trial("offers::the_answer_to_a_reader_is_reading", None, offers::read_only),
        trial("parsing::over_standard_input", None, parsing::stdio),
        trial("parsing::over_http", None, parsing::http),
        trial("parsing::arguments_as_clients_send_them", None, parsing::arguments),
        Trial::test("memory::four_sessions_keep_every_observation", || {
            run(&Arc::new(Place::at("memory:".to_owned())), graph::four_sessions)
        }),
        trial("http::listening_beyond_this_machine_needs_a_token", None, |_| http::beyond_loopback()),
    ];
    for (name, variable) in [("sqlite", None), ("postgres", Some(POSTGRES))] {
        trials.extend([
            trial(&format!("{name}::conversations"), variable, conversations::run),
            trial(&format!("{name}::graph"), variable, graph::run),
            trial(&format!("{name}::creating_a_known_entity_keeps_what_it_holds"), variable, graph::kept),
            trial(&format!("{name}::four_servers_keep_every_observation"), variable, graph::four_servers),
            trial(&format!("{name}::notes"), variable, notes::run),
            trial(&format!("{name}::tasks"), variable, tasks::run),
            trial(&format!("{name}::resources"), variable, resources::run),
            trial(&format!("{name}::bad_input"), variable, bad_input::run),
            trial(&format!("{name}::http"), variable, http::run),
            trial(&format!("{name}::sessions_after_a_restart"), variable, sessions::restart),
        ]);
    }
    crate::groups::run("mcp", arguments, trials)
}

/// A test with a separate backend: SQLite in a temporary folder, or the service that the variable names.
fn trial<F: Future<Output = ()>>(
    name: &str,
    variable: Option<&'static str>,
    test: impl FnOnce(Arc<Place>) -> F + Send + 'static,
) -> Trial {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let ignored = variable.is_some_and(|variable| std::env::var(variable).is_err()) && !required;
    let start = move || {
        let place = match variable {
            None => Place::sqlite(),
            Some(variable) => match std::env::var(variable) {
                Ok(url) => Place::at(url),
                Err(_) => return Err(format!("{variable} is not set").into()),
            },
        };
        run(&Arc::new(place), test)
    };
    Trial::test(name, start).with_ignored_flag(ignored)
}

fn run<F: Future<Output = ()>>(place: &Arc<Place>, test: impl FnOnce(Arc<Place>) -> F) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(Failed::from)?;
    runtime.block_on(test(Arc::clone(place)));
    runtime.block_on(place.erase());
    Ok(())
}
