//! One test for each case of the suite: `cargo test --test conformance`, with the usual filters of a test
//! target.

use std::process::ExitCode;

use larder_conformance::Suite;
use my_backend::MyHarness;

fn main() -> ExitCode {
    Suite::new(MyHarness::default()).main()
}
