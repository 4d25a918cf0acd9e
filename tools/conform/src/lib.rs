//! The scriptable peer: scenarios say what a peer sends and what an implementation of RoCE v2 must
//! then do, and which rule says so; the runner plays the peer and judges.
//!
//! A scenario file is parsed into [`ast`]; `docs/scenarios.md` describes the language. The
//! implementation that is judged is a [`target::Target`]: our own stack in memory on a virtual clock,
//! or any implementation on the wire, whose verbs an agent calls for us.

#![forbid(unsafe_code)]

pub mod agent;
pub mod ast;
pub mod check;
pub mod cm;
pub mod frame;
mod hint;
pub mod known;
mod lex;
pub mod memory;
pub mod parse;
pub mod report;
pub mod run;
pub mod session;
pub mod suite;
pub mod target;
pub mod value;
pub mod wire;
pub mod words;
