//! The store: keys and values in the pages of `stillframe-pagepool`; an embeddable library.
//!
//! It is not a server: no sockets, no protocol, no command names.
#![forbid(unsafe_code)]
