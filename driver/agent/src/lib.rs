//! The agent: it calls the verbs of the machine it runs on, for a runner of scenarios elsewhere, and
//! tells what completes and happens there.
//!
//! It loads the machine's own libibverbs, so that what is judged is what programs of that machine
//! have: a NIC, the kernel's RoCE, or our library. [`serve`] talks to one runner at a time over TCP,
//! in the lines of [`ferroce_conform::agent`]; when a runner goes, all that was made for it goes.
//!
//! Whoever connects may call verbs, and gets memory for it: an agent belongs on a network of trust.

mod cm;
mod device;
mod error;
mod library;
mod memory;
mod post;
mod qp;
mod queues;
mod scenario;
mod serve;
mod session;
mod tell;
mod trial;
mod words;

pub use device::DeviceError;
pub use library::LoadError;
pub use serve::{Options, ServeError, serve};
