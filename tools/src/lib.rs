//! What the `ferroce` command is made of, apart from its command line.
//!
//! [`decode`] reads a [`capture`], takes off each frame's [`link`] header, takes the [`packet`]
//! apart, lets [`verify`] follow its connection, and shows it through [`view`]. [`demo`] makes such
//! traffic: every operation, between two nodes in one process.

#![forbid(unsafe_code)]

pub mod capture;
pub mod decode;
pub mod demo;
pub mod link;
pub mod mad;
pub mod packet;
pub mod verify;
pub mod view;
