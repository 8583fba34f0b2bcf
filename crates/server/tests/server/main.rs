//! The server from outside: a process, sockets, replies byte for byte.

mod admin;
mod atomic;
mod clients;
mod dump;
mod evict;
mod harness;
mod hostile;
mod io;
mod large;
mod limits;
mod loading;
mod parts;
mod persistence;
mod protocol;
mod restart;
mod scrub;
mod start;
mod tiered;
mod transactions;
