//! One test for each case of the suite: `cargo test --test conformance`, with the filters that every test target takes.

use std::process::ExitCode;

use larder_conformance::Suite;
use my_backend::MyHarness;

fn main() -> ExitCode {
    Suite::new(MyHarness::default()).main()
}
