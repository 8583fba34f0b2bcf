//! The longest GET beside commands that change or wake a great deal.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::setting::Setting;
use crate::clock::now_ns;
use crate::error::{BenchError, Result};
use crate::output::{human_ns, markdown_table};
use crate::peer::Server;
use crate::resp::Client;
use crate::section::{row, Section};
use crate::stats::median;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Trim,
    Delete,
    Destroy,
    Wake,
}

impl Beside {
    const ALL: [Beside; 4] = [Beside::Trim, Beside::Delete, Beside::Destroy, Beside::Wake];

    fn what(self) -> &'static str {
        match self {
            Beside::Trim => "XTRIM of all entries",
            Beside::Delete => "DEL of the stream, all entries pending",
            Beside::Destroy => "XGROUP DESTROY, all entries pending",
            Beside::Wake => "XADD that ends the wait of all XREADs",
        }
    }

    fn bar(self) -> Option<f64> {
        (self == Beside::Wake).then_some(0.25)
    }

    /// The longest GET while that is done.
    fn measure(self, setting: &Setting, server: &Server) -> Result<f64> {
        let mut client = server.client()?;
        if self == Beside::Wake {
            return woken(setting, server, &mut client);
        }
        setting.fill(server, self != Beside::Trim)?;
        longest_get_ns(server, || {
            match self {
                Beside::Trim => client.call(&["XTRIM", "stream", "MAXLEN", "0"])?,
                Beside::Delete => client.call(&["DEL", "stream"])?,
                _ => client.call(&["XGROUP", "DESTROY", "stream", "group"])?,
            };
            Ok(())
        })
    }
}

/// All wait, then an entry comes, and each gets its reply.
fn woken(setting: &Setting, server: &Server, client: &mut Client) -> Result<f64> {
    client.call(&["FLUSHALL"])?;
    client.call(&["CONFIG", "SET", "maxclients", &(setting.waiter_count + 100).to_string()])?;
    let mut waiters = Vec::with_capacity(setting.waiter_count);
    for _ in 0..setting.waiter_count {
        let mut waiter = server.client()?;
        waiter.send(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"])?;
        waiters.push(waiter);
    }
    let expected = setting.waiter_count as f64;
    while client.info("clients")?.get("blocked_clients").and_then(|count| count.parse().ok())
        != Some(expected)
    {
        std::thread::yield_now();
    }
    longest_get_ns(server, || {
        client.call(&["XADD", "stream", "*", "field", "value"])?;
        waiters.iter_mut().try_for_each(|waiter| waiter.read().map(drop))
    })
}

/// The longest GET on another connection from before `act` until after it.
fn longest_get_ns(server: &Server, act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let mut other = server.client()?;
    let (has_begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let gets = scope.spawn(|| -> Result<u64> {
            let mut longest_ns = 0;
            while !is_over.load(Ordering::Relaxed) {
                let since_ns = now_ns();
                other.call(&["GET", "other"])?;
                longest_ns = longest_ns.max(now_ns() - since_ns);
                has_begun.store(true, Ordering::Relaxed);
            }
            Ok(longest_ns)
        });
        while !has_begun.load(Ordering::Relaxed) && !gets.is_finished() {
            std::thread::yield_now();
        }
        let done = act();
        is_over.store(true, Ordering::Relaxed);
        let longest =
            gets.join().unwrap_or_else(|_| Err(BenchError::Failed("a thread has failed".to_owned())));
        done.and(longest).map(|ns| ns as f64)
    })
}

pub fn measure(setting: &Setting) -> Result<Section> {
    let servers = setting.start_all("waits")?;
    let (mut rows, mut bars, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for beside in Beside::ALL {
        let mut longest_ns = vec![Vec::new(); servers.len()];
        for _ in 0..setting.rounds {
            for (server, of_server) in servers.iter().zip(&mut longest_ns) {
                of_server.push(beside.measure(setting, server)?);
            }
        }
        let what = beside.what();
        let medians: Vec<f64> = longest_ns.iter().map(|of| median(of)).collect();
        let bar = beside.bar().map(|bar| setting.bars(&format!("longest GET beside {what}"), bar, &medians));
        bars.extend(bar.into_iter().flatten());
        for (peer, of) in setting.peers.iter().zip(&longest_ns) {
            records.push(json!({ "part": "waits", "what": what, "peer": peer.name, "longest_ns": of }));
        }
        rows.push(row(what, &longest_ns, human_ns));
    }
    servers.into_iter().try_for_each(Server::stop_without_save)?;
    let mut header = vec!["longest GET of another connection beside"];
    header.extend(setting.peers.iter().map(|peer| peer.name.as_str()));
    let title =
        format!("What others wait for: {} entries, {} waiters", setting.entry_count, setting.waiter_count);
    Ok(Section { title, table: markdown_table(&header, &rows), bars, records })
}
