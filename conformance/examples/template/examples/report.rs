//! All levels of the library, printed and written to a report: `cargo run --release --example report`.

use std::process::ExitCode;

use larder_conformance::Suite;
use my_backend::MyHarness;

fn main() -> std::io::Result<ExitCode> {
    let report = Suite::new(MyHarness::default()).every_level().run_blocking();
    print!("{report}");
    report.write_json("target/larder.json")?;
    Ok(ExitCode::from(report.exit_code()))
}
