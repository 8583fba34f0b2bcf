//! What the server remembers: clients, sessions, counters, logs. Nothing here knows the server as a whole.

pub mod client_line;
pub mod clients;
pub mod combination;
pub mod drawing;
pub mod elements;
pub mod exceptions;
pub mod heap;
pub mod inbox;
pub mod latency;
pub mod listener;
pub mod loading;
pub mod local;
pub mod mailbox;
pub mod notify;
pub mod patience;
pub mod pause;
pub mod pubsub;
pub mod restoring;
pub mod session;
pub mod slowlog;
pub mod stats;
pub mod subscription;
pub mod token;
pub mod turns;
pub mod waiting;
pub mod watch;
