//! A backend outside of the workspace: key-value on redb, with the complete `larder` command for its URLs.

mod driver;
mod store;
mod tables;
mod watch;

use larder::Registry;

fn main() -> std::process::ExitCode {
    larder_cli::run(&Registry::default().with(driver::RedbDriver::default()))
}
