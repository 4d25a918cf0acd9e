//! A network of hosts and switches on a virtual clock.
//!
//! Every host is a [`ferroce_stack::Device`], every packet one that it has made: only links,
//! switches and what the hosts' programs do are modelled here. Nothing depends on anything but the
//! [`Plan`]: the same one gives the same [`Outcome`], byte for byte.

#![forbid(unsafe_code)]

pub mod config;
mod near;
pub mod net;
pub mod outcome;
pub mod plan;
pub mod plot;
pub mod report;
pub mod sweep;
pub mod topology;
pub mod workload;

pub use net::{Progress, SimError, run};
pub use outcome::Outcome;
pub use plan::Plan;
