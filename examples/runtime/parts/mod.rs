//! The parts of the runtime.
#![allow(clippy::mod_module_files, reason = "a test includes this folder by its path")]

mod agent;
mod board;
mod models;
mod runtime;
mod script;
mod snapshot;
mod steps;
mod tools;

pub(crate) use models::Models;
pub(crate) use runtime::Runtime;
pub(crate) use script::DIMENSIONS;
pub(crate) use steps::Steps;
