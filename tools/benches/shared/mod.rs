//! What all benches of programs and links need: the machine, processes in pairs, a table.

pub mod machine;
pub mod probe;
pub mod process;
pub mod table;
