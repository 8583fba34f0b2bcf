//! Whether the data after a restart is that of one instant, and of which.

use std::sync::Arc;

use crate::instant::{find_cut, Window};
use crate::lane::Lane;
use crate::ledger::Ledger;
use crate::model::{own_share, Entry, Keyspace, SHARED_DB};
use crate::process::Client;

/// Keys that are asked for at once.
const CHUNK_KEYS: usize = 128;

/// Reads one database, all of it.
pub fn fetch(conn: &mut Client, db: u32) -> Keyspace {
    conn.run(&format!("SELECT {db}"));
    let key_count = conn.run("DBSIZE").integer().expect("a number");
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = conn.run(&format!("SCAN {cursor} COUNT 500"));
        let items = reply.items();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("keys are text");
        keys.extend(items[1].items().iter().map(|key| text(key.bytes().expect("a key"))));
        cursor = text(items[0].bytes().expect("a cursor"));
        if cursor == "0" {
            break;
        }
    }
    let mut space = Keyspace::new();
    for chunk in keys.chunks(CHUNK_KEYS) {
        for key in chunk {
            conn.queue_line(&format!("GET {key}"));
            conn.queue_line(&format!("PEXPIRETIME {key}"));
        }
        conn.flush().expect("a connection");
        for key in chunk {
            let value = conn.try_read().expect("a reply");
            let deadline_ms = conn.try_read().expect("a reply").integer().expect("a number");
            let value = value.bytes().unwrap_or_else(|| panic!("GET {key} in db {db}: {value:?}"));
            let deadline_ms = (deadline_ms >= 0).then_some(deadline_ms);
            let entry = Entry { value: Arc::new(value.to_vec()), deadline_ms };
            assert!(space.insert(key.clone(), entry).is_none(), "SCAN gave {key} twice");
        }
    }
    assert_eq!(space.len() as i64, key_count, "keys found and DBSIZE of db {db}");
    space
}

/// What a restart has brought back.
pub struct Picture {
    /// The window that its instant lies in.
    pub window: usize,
    /// Operations since the last look that are in it.
    pub op_count: usize,
}

/// The clients of a run: those that know every operation, and those of transactions over two databases.
pub struct Clients {
    pub lanes: Vec<Lane>,
    pub ledgers: Vec<Ledger>,
}

impl Clients {
    pub fn op_count(&self) -> usize {
        let of_ledgers = self.ledgers.iter().map(|ledger| ledger.history.lock().unwrap().acked_count());
        self.lanes.iter().map(Lane::op_count).chain(of_ledgers).sum()
    }
}

/// Fails unless the server holds the picture of one instant in one of the windows: of each client a prefix of its
/// history. Takes it as the new base.
pub fn check_picture(conn: &mut Client, clients: &mut Clients, windows: &[Window]) -> Picture {
    let Clients { lanes, ledgers } = clients;
    let found: Vec<_> = lanes.iter().map(|lane| fetch(conn, lane.db)).collect();
    let found_by_ledger: Vec<_> = ledgers.iter().map(|ledger| ledger.dbs.map(|db| fetch(conn, db))).collect();
    let mut spans: Vec<_> = lanes.iter().zip(&found).map(|(lane, found)| lane.spans_of(found)).collect();
    for ((lane, found), spans) in lanes.iter().zip(&found).zip(&spans) {
        assert!(!spans.is_empty(), "{}", lane.explain(found));
    }
    for (ledger, found) in ledgers.iter().zip(&found_by_ledger) {
        let history = ledger.history.lock().unwrap();
        spans.push(history.spans_of(found));
        assert!(!spans[spans.len() - 1].is_empty(), "{:?}: {}", ledger.dbs, history.explain(found));
    }
    let Some((window, cut)) = find_cut(&spans, windows) else {
        panic!("no instant in {windows:?} has a cut with {spans:?}");
    };
    if !lanes.is_empty() {
        let shares: i64 = found.iter().map(own_share).sum();
        let shared = fetch(conn, SHARED_DB);
        assert_eq!(crate::model::count_of(&shared, "shared"), shares, "the counter and the shares in it");
        assert!(shared.len() <= 1, "{shared:?}");
    }
    lanes.iter_mut().zip(found).for_each(|(lane, found)| lane.rewind(found));
    ledgers.iter_mut().zip(found_by_ledger).for_each(|(ledger, found)| ledger.rewind(found));
    Picture { window, op_count: cut.iter().map(|span| span.op_count).sum() }
}
