//! The clients of all workers, as `CLIENT LIST` shows them.

/// What others may know of a client.
#[derive(Default, Debug)]
pub struct ClientInfo {
    pub id: u64,
    /// `ip:port`, or the path of the unix socket with `:0`.
    pub addr: String,
    pub laddr: String,
}
