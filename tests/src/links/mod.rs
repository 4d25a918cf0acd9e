//! Fabrics on a network: two network namespaces that a virtual cable joins ([`Cable`]), and a
//! virtual machine with Linux's own RoCE ([`Lab`]) beside a fabric ([`Setup`]), with programs of the
//! distribution or with our own ([`Peers`]).
//!
//! Programs find each other by TCP over another cable, so that nothing but RoCE passes the one
//! under test, and nothing has asked for its neighbours before.

mod cable;
mod gateway;
mod lab;
mod marker;
mod peers;
mod setup;

pub use cable::{Cable, Side};
pub use gateway::{Gateway, has_lost};
pub use lab::{Kernel, Lab};
pub use marker::{Marked, Marker};
pub use peers::Peers;
pub use setup::Setup;
