//! The doors by which clients come in, by kind.

/// What kind of listening socket a client has connected to. It decides about the client's wire, its address and its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoorKind {
    /// An address of `bind`, with `port`.
    Tcp,
    /// The path of `unixsocket`.
    Unix,
}
