//! The doors by which clients come in, by kind.

/// By what kind of listening socket a client has come in. It decides about the client's wire, its address and its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoorKind {
    /// An address of `bind`, with `port`.
    Tcp,
    /// The path of `unixsocket`.
    Unix,
    /// None: the client is one of the program that the engine is a part of, and has no socket.
    Program,
}
