//! What the `ferroce` command is made of, apart from its command line.
//!
//! [`decode`] reads a [`capture`], takes off each frame's [`link`] header, takes the [`packet`]
//! apart, lets [`verify`] follow its connection, and shows it through [`view`], or draws it
//! as a [`ladder`]. [`demo`] makes such traffic: every operation, between two nodes in one process.
//!
//! [`run`] starts an unmodified program over our library, with what [`settings`] say; [`devices`]
//! and [`config`] show what it will find, [`mod@env`] lets a shell do the same, and [`install`]
//! puts all of it in place. [`up`] leads from a fabric to a real network. [`conform`] judges an
//! implementation by scenarios. [`stat`] shows what the
//! processes of a fabric count, [`ports`] where they listen. [`sim`] simulates a network. [`agent`]
//! calls verbs for a runner of scenarios elsewhere.

#![forbid(unsafe_code)]

pub mod agent;
pub mod capture;
pub mod config;
pub mod conform;
pub mod decode;
pub mod demo;
pub mod devices;
pub mod env;
pub mod install;
pub mod ladder;
pub mod link;
pub mod mad;
pub mod output;
pub mod packet;
pub mod ports;
pub mod run;
pub mod settings;
pub mod sim;
pub mod stat;
mod table;
pub mod up;
pub mod verify;
pub mod view;
