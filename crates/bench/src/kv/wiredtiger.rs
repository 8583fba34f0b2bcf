//! WiredTiger: a B-tree with versions of rows. Transactions run beside each other on a picture as of their beginning; one
//! that writes what another has changed meanwhile is begun anew.

use std::ops::Range;

use stillframe_wiredtiger_sys::{Bulk, Connection, Direction, Error, Session as WtSession};

use super::seam::{
    Access, Body, Done, KeyValue, OpenOptions, Order, Session, Settings, Show, Transaction, TreeId, TreeRow,
    Verdict,
};
use crate::error::{BenchError, Result};

/// What is in the cache takes more than its size, and the kernel caches files in what is left.
const CACHE_PERCENT: u64 = 50;
/// Sessions of the library's own threads, and those that open, load and flush.
const SESSIONS_BESIDE: usize = 64;

/// Sizes of a table's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The library's own choice, and the paper's: leaves of 32 KB.
    Large,
    /// As the other systems have them.
    Of4Kb,
}

impl Pages {
    fn config(self) -> &'static str {
        match self {
            Pages::Large => "key_format=u,value_format=u",
            Pages::Of4Kb => {
                "key_format=u,value_format=u,allocation_size=4KB,leaf_page_max=4KB,internal_page_max=4KB"
            }
        }
    }
}

pub struct WiredTiger {
    connection: Connection,
    uris: Vec<String>,
    cache_bytes: u64,
    pages: Pages,
}

fn failed(error: Error) -> BenchError {
    BenchError::failed("WiredTiger", error)
}

impl WiredTiger {
    pub fn open(options: &OpenOptions<'_>, pages: Pages) -> Result<WiredTiger> {
        let cache_bytes = options.memory_bytes / 100 * CACHE_PERCENT;
        let session_max = options.thread_count + SESSIONS_BESIDE;
        let config = format!(
            "create,cache_size={cache_bytes},session_max={session_max},log=(enabled=false),statistics=(none),\
             eviction=(threads_min=1,threads_max=4)"
        );
        let connection = Connection::open(options.dir, &config).map_err(failed)?;
        let uris: Vec<String> = options.trees.iter().map(|name| format!("table:{name}")).collect();
        let mut session = WtSession::open(&connection, &[]).map_err(failed)?;
        uris.iter().try_for_each(|uri| session.create(uri, pages.config())).map_err(failed)?;
        drop(session);
        Ok(WiredTiger { connection, uris, cache_bytes, pages })
    }
}

impl KeyValue for WiredTiger {
    fn settings(&self) -> Settings {
        let pages = match self.pages {
            Pages::Large => "leaves of 32 KB",
            Pages::Of4Kb => "pages of 4 KB",
        };
        let cache = stillframe_units::human_bytes(self.cache_bytes as f64);
        Settings {
            version: format!("WiredTiger {}", Connection::version()),
            memory: format!("cache of {cache}, {pages}, snapshot isolation"),
            durability: "none until a flush, which is a checkpoint (no log)".to_owned(),
        }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let session = WtSession::open(&self.connection, &self.uris).map_err(failed)?;
        Ok(Box::new(WiredTigerSession { session }))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        let mut session = WtSession::open(&self.connection, &[]).map_err(failed)?;
        let mut rows = rows.peekable();
        while let Some(&(tree, ..)) = rows.peek() {
            let mut bulk = Bulk::open(&mut session, &self.uris[tree.0]).map_err(failed)?;
            while let Some((_, key, value)) = rows.next_if(|row| row.0 == tree) {
                bulk.add(&key, &value).map_err(failed)?;
            }
            bulk.finish().map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        WtSession::open(&self.connection, &[]).and_then(|mut session| session.checkpoint()).map_err(failed)
    }

    fn has_many_writers(&self) -> bool {
        true
    }
}

struct WiredTigerSession<'s> {
    session: WtSession<'s>,
}

impl Session for WiredTigerSession<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.session.get(tree.0, key, found).map_err(failed)
    }

    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        let mut retry_count = 0;
        loop {
            self.session.begin().map_err(failed)?;
            let mut running = Running { session: &mut self.session, access, is_in_conflict: false };
            let verdict = body(&mut running);
            let mut is_in_conflict = running.is_in_conflict;
            match verdict {
                Ok(Verdict::Commit) if !is_in_conflict => match self.session.commit() {
                    Ok(()) => return Ok(Done { verdict: Verdict::Commit, retry_count }),
                    // It has been rolled back.
                    Err(Error::Rollback) => is_in_conflict = true,
                    Err(error) => return Err(failed(error)),
                },
                _ => self.session.rollback().map_err(failed)?,
            }
            match is_in_conflict {
                true => retry_count += 1,
                false => return Ok(Done { verdict: verdict?, retry_count }),
            }
        }
    }
}

struct Running<'r, 's> {
    session: &'r mut WtSession<'s>,
    access: Access,
    /// What the body then answers does not count.
    is_in_conflict: bool,
}

impl Running<'_, '_> {
    fn seen<T>(&mut self, result: std::result::Result<T, Error>) -> Result<T> {
        self.is_in_conflict |= matches!(result, Err(Error::Rollback));
        result.map_err(failed)
    }
}

impl Transaction for Running<'_, '_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let result = self.session.get(tree.0, key, found);
        self.seen(result)
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.access.check_write()?;
        let result = self.session.put(tree.0, key, value);
        self.seen(result)
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.access.check_write()?;
        let result = self.session.remove(tree.0, key);
        self.seen(result)
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        let direction = match order {
            Order::Ascending => Direction::Up,
            Order::Descending => Direction::Down,
        };
        let mut failure = None;
        let result = self.session.scan(tree.0, (keys.start, keys.end), direction, |key, value| {
            row(key, value).map(|flow| flow.is_continue()).unwrap_or_else(|error| {
                failure = Some(error);
                false
            })
        });
        self.seen(result)?;
        failure.map_or(Ok(()), Err)
    }
}
