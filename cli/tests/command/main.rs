//! The `larder` command as a program, and the pages of the repository.

mod guide;
mod promises;
mod runner;
#[cfg(feature = "full")]
mod services;
mod usage;
#[cfg(feature = "model")]
mod window;
