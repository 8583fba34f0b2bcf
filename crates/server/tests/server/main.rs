//! The server from outside: a process, sockets, replies byte for byte.

mod admin;
mod clients;
mod harness;
mod limits;
mod persistence;
mod protocol;
mod start;
mod transactions;
