//! Checkpoints in memory.

mod basics;
mod channels;
mod cost;
mod faults;
mod model;
mod moments;
mod moving;
mod pending;
mod removal;
mod steps;
mod support;
mod together;
mod writers;
