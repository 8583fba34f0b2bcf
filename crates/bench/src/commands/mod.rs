//! One file a subcommand.

pub mod fill;
pub mod load;
pub mod null_server;
pub mod pause;

use std::path::PathBuf;

use crate::load::conn::Target;

/// A server that runs already.
#[derive(Clone, Debug, clap::Args)]
pub struct TargetArgs {
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    #[arg(short, long, value_name = "PORT", default_value_t = 6379)]
    pub port: u16,
    /// Connect through a unix socket instead
    #[arg(short = 's', long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl TargetArgs {
    pub fn target(&self) -> Target {
        match &self.socket {
            Some(path) => Target::Unix(path.clone()),
            None => Target::Tcp { host: self.host.clone(), port: self.port },
        }
    }
}
