//! `libibverbs.so.1` and `librdmacm.so.1` over the ferroce RoCE v2 stack.
//!
//! Programs linked against those libraries run unchanged: this crate has their symbols with their
//! versions ([`mod@layout`] has their structures), checks what it is given, and hands the rest to
//! the engine. There is no protocol in it. What is not supported answers EOPNOTSUPP, and what is
//! refused says in the log why (`FERROCE_LOG`).

pub use ferroce_verbs_layout as layout;

mod ah;
mod channel;
mod context;
mod cq;
mod cq_ex;
mod device;
mod dm;
mod errno;
mod event;
mod export;
mod flow;
mod fork;
mod kern;
mod log;
mod mcast;
mod mr;
mod mw;
mod neighbour;
mod object;
mod ops;
mod order;
mod pd;
mod port;
mod post;
mod qp;
mod qp_attr;
mod rate;
mod rdma;
mod rsocket;
mod srq;
mod stub;
mod sysfs;
mod text;
mod wr;
mod xrcd;
