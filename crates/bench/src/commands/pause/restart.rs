//! How long a restart takes: to the first correct reply, and until everything is in memory.

use std::fs;
use std::time::Duration;

use super::config::Config;
use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::load::values::{mix, ValuePool};
use crate::load::workload::key_name;
use crate::peer::{Peer, Server, StartOptions};
use crate::resp::{Client, Reply};

#[derive(Clone, Copy, Debug)]
pub struct Restart {
    pub first_reply_ns: u64,
    pub warm_ns: u64,
    pub page_cache_dropped: bool,
}

const TIMEOUT_NS: u64 = 1800 * NS_PER_S;
/// Keys that are read and checked once the server is warm.
const CHECKED_KEYS: u64 = 200;

/// Starts the peer on the files it left in `options.dir`.
pub fn measure(config: &Config, peer: &Peer, options: &StartOptions) -> Result<Restart> {
    let page_cache_dropped = drop_page_cache();
    let largest = config.value_bytes.max(config.overwrite_size.max_bytes);
    let pool = ValuePool::new(config.seed, largest, false);
    let probe = mix(config.seed) % config.key_count;
    let start_ns = now_ns();
    let mut server = peer.spawn(options)?;
    let mut client = first_reply(&mut server, &pool, probe, start_ns)?;
    let first_reply_ns = now_ns() - start_ns;
    server.pin();
    wait_until_warm(&mut server, &mut client, start_ns)?;
    let warm_ns = now_ns() - start_ns;
    for i in 0..CHECKED_KEYS {
        let key_index = mix(config.seed + i) % config.key_count;
        if !read_value(&mut client, &pool, key_index)? {
            return Err(BenchError::Failed(format!(
                "{}: {} is still loading after a restart",
                peer.name, server.target
            )));
        }
    }
    server.stop_without_save()?;
    Ok(Restart { first_reply_ns, warm_ns, page_cache_dropped })
}

fn first_reply(server: &mut Server, pool: &ValuePool, probe: u64, start_ns: u64) -> Result<Client> {
    let mut client = None;
    loop {
        server.check_alive()?;
        if client.is_none() {
            client = server.client().ok();
        }
        if let Some(connected) = &mut client {
            if read_value(connected, pool, probe)? {
                break;
            }
        }
        if now_ns() - start_ns > TIMEOUT_NS {
            return Err(BenchError::Failed(format!(
                "{}: no reply half an hour after a restart",
                server.name
            )));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    client.ok_or_else(|| BenchError::Failed("unreachable server".to_owned()))
}

/// True if the key's value came and is right; false while the server says that it is loading.
fn read_value(client: &mut Client, pool: &ValuePool, key_index: u64) -> Result<bool> {
    let key = key_name(key_index);
    match client.request(&["GET", &key])? {
        Reply::Bulk(value) if pool.verify(key_index, &value) => Ok(true),
        Reply::Error(text) if text.starts_with(b"LOADING") => Ok(false),
        Reply::Bulk(value) => Err(BenchError::Failed(format!(
            "after the restart GET {key} returned {} bytes that were never written to this key",
            value.len()
        ))),
        other => Err(BenchError::Failed(format!("after the restart GET {key} returned {other:?}"))),
    }
}

fn wait_until_warm(server: &mut Server, client: &mut Client, start_ns: u64) -> Result<()> {
    loop {
        let info = client.info("everything")?;
        let is_zero = |field: &str| info.get(field).is_none_or(|v| v == "0");
        if is_zero("loading") && is_zero("warmup_in_progress") {
            return Ok(());
        }
        server.check_alive()?;
        server.pin();
        if now_ns() - start_ns > TIMEOUT_NS {
            return Err(BenchError::Failed(format!(
                "{}: not warm half an hour after a restart",
                server.name
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes everything dirty back, then asks the kernel to forget all clean pages; needs root.
fn drop_page_cache() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3\n").is_ok()
}
