//! `null-server`: serves `+OK` so that the generator's own limit on a machine can be measured.

use std::net::TcpListener;
use std::sync::atomic::AtomicBool;

use crate::error::{Context, Result};
use crate::load::null_server;
use crate::pin;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(short, long, value_name = "PORT", default_value_t = 6399)]
    port: u16,
    /// Cores to run on
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Option<Vec<usize>>,
}

pub fn run(args: &Args) -> Result<()> {
    if let Some(cpus) = &args.cpus {
        pin::pin_current_thread(cpus)?;
    }
    let address = ("127.0.0.1", args.port);
    let listener = TcpListener::bind(address).context(|| format!("listen on 127.0.0.1:{}", args.port))?;
    null_server::serve(listener, None, &AtomicBool::new(false))
}
