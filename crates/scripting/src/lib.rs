//! Scripts and function libraries as Redis 7.0 runs them: states of Lua 5.1 for hostile programs. It knows nothing of a
//! store; its one seam is [`Host`].
//!
//! ```text
//!   number, random, pattern     numbers as C writes them, Redis's generator, Lua's patterns
//!   host                        what runs commands, and how a run is ended from outside
//!   words                       the words of a command
//!   raise, args                 errors with the place that Lua would name; arguments
//!   from_resp, to_resp          replies as values, values as replies
//!   registered                  what a library has registered
//!   shared                      what functions share with their state
//!   api, library                redis.*, redis.register_function
//!   strings, json, msgpack, structs, bits
//!   sandbox (and sandbox.lua)   what a script finds
//!   state                       compiling, running, loading
//! ```
//!
//! # Engine
//!
//! Lua 5.1.5 as `mlua` builds it from the registry, without a change. What is wrong with it for programs of strangers is kept
//! from them from outside; `tests/scripting/holes.rs` shows each hole and that it is closed:
//!
//! | hole | here |
//! |---|---|
//! | `unpack` with a range that overflows ends the process (CVE-2025-46817) | `unpack` looks at its range first |
//! | a chunk's name is freed while its reader runs (CVE-2025-49844) | `load` calls its reader until the end first; the parser never calls a script |
//! | counters of long brackets overflow (CVE-2025-46819) | no chunk over 16 MB |
//! | bytecode | text only; `string.dump` refuses |
//! | the metatable of strings and the libraries can be changed for all (CVE-2025-46818) | fronts, below |
//! | `find`, `match`, `gmatch`, `gsub` recurse in C for each item of a pattern | an own matcher: 2,000 levels, and it looks at the interrupt |
//! | strings of any size | the allocator's bound, see [`Options::memory_bytes_max`] |
//! | `pcall`, `xpcall`, coroutines go on after a kill | all of them are others, which pass it on |
//! | `setfenv`, `getfenv`, `newproxy`, `debug`, `os`, `io`, `package` | are not there, nor are they in Debian's redis-server |
//! | `collectgarbage('stop')` outlives a run | does nothing |
//!
//! Nested calls of C functions are bounded by Lua itself, at 200 a thread of execution; what this crate adds to each fits
//! them into a stack of 2 MB (tested). JSON and MessagePack nest to 1,000 and 256 levels, replies to 256.
//!
//! **Not closed.** The hash of strings looks at every second byte or fewer of those over 31 bytes: the order of `pairs` for such
//! keys is not Redis's, and a script that knows this can make a slow table of its own. It hurts its own run, which a kill
//! ends. A single operation on a large string or table (`..`, `table.concat`, `table.sort` without a function, a full collection,
//! parsing 16 MB) meets no hook: a kill waits for it, for a time that the bound of memory bounds.
//!
//! # Patching Lua
//!
//! `mlua` can be linked with a library of our own: its feature `external` (in place of `vendored`) builds and links nothing, so
//! a build script may compile the registry's sources, patched in `OUT_DIR`, and name the library. No hole asks for it now.
//!
//! # Read-only tables
//!
//! Stock Lua has none. `redis`, `string` and the others are empty tables in front of the real ones (`sandbox`): reading costs a
//! second look-up, writing is refused in Redis's words, and `pairs`, `next`, `rawget` look behind. `table.foreach`,
//! `table.maxn` and the native `next` that `pairs` returns for other tables see them empty.
//!
//! # Costs
//!
//! A host is reached by a scoped thread-local, since closures made for each run (`Lua::scope`) cost more than a short run. The
//! allocator's bound makes each operation of `mlua`'s a protected call: it is in force while Lua runs, and not while a function
//! of this crate does, which looks at sizes itself. Text that goes into a table under no bound is pushed as it is; each value that is kept on its way
//! costs two moves between stacks of Lua's.
//!
//! What a run takes is in `docs/measured/figures.md`; `tests/scripting/cost.rs` measures runs with a host that answers at once. A fifth of `return 1` is
//! Lua's collector, as it is in Redis.
//!
//! # Known differences from redis-server 7.0.15
//!
//! - `server` is there beside `redis`, as in Valkey.
//! - Options of `cjson` last until the end of the run, not for ever.
//! - A function that is written in Lua here (`pcall`, `xpcall`, `next`, `pairs`, `rawget`, `rawset`, `getmetatable`, `setmetatable`,
//!   `unpack`, `load`, `loadstring`, `collectgarbage`, `table.insert`, `string.gsub`, `coroutine.resume` and `wrap`) leaves no place in its own errors if it
//!   was called by `return f(...)`, and counts as a level of `error(text, level)`.
//! - `pcall()` without arguments calls a nil value, not a boolean one. `error` as the function of `gsub` names the line of `gsub`.
//! - What a reader of `load` raises comes back as it is, not as a table with `err`.
//! - An error that is a table without `err` says `ERR unknown error`; redis-server ends.
//! - A run that needs too much memory ends with an error; redis-server grows.
//! - `tostring` of functions and tables: addresses. The order of `pairs` for keys of more than 31 bytes.
//! - JSON nests to 1,000 whatever a script allows, MessagePack to 256 when it is read, replies to 256.
#![forbid(unsafe_code)]
// No script may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

mod api;
mod args;
mod bits;
mod from_resp;
mod host;
mod items;
mod json;
mod library;
mod msgpack;
mod number;
mod pattern;
mod raise;
mod random;
mod registered;
mod sandbox;
mod shared;
mod state;
mod strings;
mod structs;
mod to_resp;
mod words;

pub use host::{Called, Halt, Host, Interrupt, LogLevel, Permission, Replication, Resp};
pub use random::Random;
pub use registered::LibraryFunction;
pub use state::{CompileError, Library, LoadError, Options, Outcome, Script, State, StateError};
pub use stillframe_script_header::{
    library_header, script_header, Flags, HeaderError, LibraryHeader, ScriptHeader,
};
