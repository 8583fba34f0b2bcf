//! Scripts as Redis's clients see them: by themselves, and beside Debian's redis-server.

mod against_redis;
mod cases;
mod cost;
mod fuzz;
mod halts;
mod holes;
mod libraries;
mod runner;
mod sandbox;
mod server;
