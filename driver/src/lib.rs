//! Around the transport: memory the library owns, the links frames travel on, and a world of
//! devices on a virtual clock.

#![forbid(unsafe_code)]

pub mod frame;
pub mod memory;
pub mod rand;
pub mod world;
