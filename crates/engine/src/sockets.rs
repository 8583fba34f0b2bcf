//! What commands ask of the sockets that clients come in by. The engine has no sockets: those of the server are one [`Sockets`], and a
//! program that drives the engine itself has [`NoSockets`].

use std::error::Error;

use crate::config::Settings;

/// The system does not allow as many descriptors as so many clients take.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error(
    "The operating system is not able to handle the specified number of clients, try with {allowed_count}"
)]
pub struct TooManyClients {
    /// Clients that there is room for.
    pub allowed_count: u64,
}

/// Where clients come in. Any thread may call it, within a command.
pub trait Sockets: Send + Sync {
    /// The TCP port that is listened on; 0 without TCP.
    fn tcp_port(&self) -> u16;

    /// Listens where `bind` and `port` of `new` say instead of where those of `old` said. Clients that are connected stay.
    ///
    /// # Errors
    /// The first address that cannot be listened on. It is listened where `old` says then, as far as that can be.
    fn rebind(&self, old: &Settings, new: &Settings) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Makes room for so many clients of so many workers, or leaves all as it is.
    ///
    /// # Errors
    /// There is no room; the log says why.
    fn make_room(&self, maxclients: usize, worker_count: usize) -> Result<(), TooManyClients>;
}

/// No sockets: nobody comes in but clients of the program itself.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoSockets;

/// It was to listen somewhere.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("This engine has no sockets: it cannot listen on port {port}. Run stillframe-server for that")]
pub struct ListensNowhere {
    port: u16,
}

impl Sockets for NoSockets {
    fn tcp_port(&self) -> u16 {
        0
    }

    fn rebind(&self, _old: &Settings, new: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err(ListensNowhere { port: new.port }.into())
    }

    fn make_room(&self, _maxclients: usize, _worker_count: usize) -> Result<(), TooManyClients> {
        // A client of the program takes no descriptor.
        Ok(())
    }
}
