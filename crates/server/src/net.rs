//! Sockets: listening, connections, the limit of open files.

pub mod conn;
pub mod descriptors;
pub mod held;
pub mod listen;
mod receive;
pub mod slots;
pub mod spare;
pub mod watched;
pub mod wire;
