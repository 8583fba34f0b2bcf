//! The server from outside: a process, sockets, replies byte for byte.

mod admin;
#[path = "../algorithms/mod.rs"]
mod algorithms;
mod as_redis;
mod atomic;
mod blocking;
mod blocking_load;
mod bounded;
mod busy;
mod clients;
mod dump;
mod dumped;
mod evict;
mod half_close;
mod harness;
mod hash_deadlines;
#[cfg(debug_assertions)]
mod held;
mod hostile;
mod io;
mod large;
mod large_replies;
mod limits;
mod loading;
mod log_as_valkey;
mod long_elements;
mod one_core;
mod parts;
mod persistence;
mod protocol;
mod pubsub;
mod restart;
mod scripts;
mod scrub;
mod settings_kept;
mod start;
mod steps;
mod streamed;
mod streams;
mod tiered;
mod told;
mod transactions;
mod waitaof;
