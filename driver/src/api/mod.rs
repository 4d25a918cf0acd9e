//! The verbs as safe Rust: what a program that speaks RDMA is written against.
//!
//! A [`Context`] is an open device. From it come protection domains ([`Pd`]) and completion
//! queues ([`Cq`]), from those registered memory ([`Mr`]) and queue pairs ([`Qp`]). Every object
//! keeps alive what it depends on, and destroys itself when dropped, in whatever order. All of
//! them can be shared between threads.
//!
//! Memory belongs to its region, and is copied in and out, as a peer may write to it at any moment.
//! A region that is dropped is deregistered first: a work request that still names it fails with a
//! protection error and touches nothing.
//!
//! Progress is made by whoever posts, polls or waits, and by a thread of the device while nobody
//! does: a peer's READ is served while the program sleeps.
//!
//! ```
//! use std::time::Duration;
//!
//! use ferroce::config::Settings;
//! use ferroce::verbs::{Access, QpType};
//! use ferroce::{ConnectOptions, Context, QpOptions, SendRequest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = Settings::load()?;
//! settings.addr = vec!["192.0.2.1".parse()?];
//! # let folder = tempfile::tempdir()?;
//! # settings.fabric = folder.path().join("fabric");
//! let context = Context::open(&settings)?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(16)?;
//!
//! // Two QPs of one device. Programs exchange endpoint and region over a connection of their own;
//! // both have a form as text.
//! let alice = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
//! let bob = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;
//! alice.connect(&bob.endpoint(), &ConnectOptions::default())?;
//! bob.connect(&alice.endpoint(), &ConnectOptions::default())?;
//!
//! let source = pd.register_zeroed(4096, Access::NONE)?;
//! let target = pd.register_zeroed(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! source.write_at(0, b"hello")?;
//! let remote = target.remote().slice(100..)?;
//! alice.post_send(&SendRequest::write(7, &[source.slice(..5)?], remote))?;
//!
//! let wc = cq.wait(Duration::from_secs(5))?.ok()?;
//! assert_eq!(wc.wr_id, 7);
//! let mut bytes = [0; 5];
//! target.read_at(100, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod ah;
mod context;
mod cq;
mod error;
mod mr;
mod pd;
mod qp;
mod srq;
mod window;
mod work;
mod xrcd;

pub use crate::engine::{AsyncEvent, Completion, Subject};
pub use ah::AddressHandle;
pub use context::Context;
pub use cq::Cq;
pub use error::Error;
pub use mr::{LocalSlice, Mr, RemoteRegion};
pub use pd::Pd;
pub use qp::{ConnectOptions, Endpoint, Qp, QpOptions};
pub use srq::Srq;
pub use window::Window;
pub use work::{Payload, RecvBatch, SendBatch, SendRequest};
pub use xrcd::Xrcd;
