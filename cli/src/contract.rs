//! `larder contract`: generates CONTRACT.md from the sources.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use larder_conformance::contract_text;

use crate::output;

/// Arguments of `larder contract`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Compare with this file instead of printing; exit with 1 if it differs.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    let text = contract_text();
    let Some(path) = &args.check else {
        return output::finish(text.trim_end(), ExitCode::SUCCESS);
    };
    match std::fs::read_to_string(path) {
        Ok(found) if found == text => ExitCode::SUCCESS,
        Ok(_) => output::finish(
            format_args!("{} is out of date; run `cargo larder contract > {0}`", path.display()),
            ExitCode::FAILURE,
        ),
        Err(error) => output::trouble(format_args!("cannot read {}: {error}", path.display())),
    }
}
