//! Whether the data after a restart is that of one instant, and of which.

use std::sync::Arc;

use crate::lane::{Lane, Nanos, Span};
use crate::model::{own_share, Entry, Keyspace, SHARED_DB};
use crate::process::Conn;

/// Keys that are asked for at once.
const CHUNK_KEYS: usize = 128;

/// When a checkpoint took its cut, as far as is known from outside.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from_ns: Nanos,
    pub to_ns: Nanos,
}

/// Reads one database, all of it.
pub fn fetch(conn: &mut Conn, db: u32) -> Keyspace {
    conn.ask(&format!("SELECT {db}"));
    let key_count = conn.ask("DBSIZE").integer().expect("a number");
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = conn.ask(&format!("SCAN {cursor} COUNT 500"));
        let items = reply.items().expect("an array");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("keys are text");
        keys.extend(items[1].items().expect("keys").iter().map(|key| text(key.bytes().expect("a key"))));
        cursor = text(items[0].bytes().expect("a cursor"));
        if cursor == "0" {
            break;
        }
    }
    let mut space = Keyspace::new();
    for chunk in keys.chunks(CHUNK_KEYS) {
        for key in chunk {
            conn.queue_text(&format!("GET {key}"));
            conn.queue_text(&format!("PEXPIRETIME {key}"));
        }
        conn.flush().expect("a connection");
        for key in chunk {
            let value = conn.reply().expect("a reply");
            let deadline_ms = conn.reply().expect("a reply").integer().expect("a number");
            let value = value.bytes().unwrap_or_else(|| panic!("GET {key} in db {db}: {value:?}"));
            let deadline_ms = (deadline_ms >= 0).then_some(deadline_ms);
            let entry = Entry { value: Arc::new(value.to_vec()), deadline_ms };
            assert!(space.insert(key.clone(), entry).is_none(), "SCAN gave {key} twice");
        }
    }
    assert_eq!(space.len() as i64, key_count, "keys found and DBSIZE of db {db}");
    space
}

/// The spans, one a lane, that an instant within one of the windows belongs to, and the number of that window.
fn find_cut(spans: &[Vec<Span>], windows: &[Window]) -> Option<(usize, Vec<Span>)> {
    windows.iter().enumerate().find_map(|(number, window)| {
        let starts = spans.iter().flatten().map(|span| span.from_ns);
        let mut instants =
            starts.filter(|at| (window.from_ns..=window.to_ns).contains(at)).chain([window.from_ns]);
        instants.find_map(|at| {
            let of_lane = |spans: &Vec<Span>| {
                spans.iter().find(|span| (span.from_ns..=span.to_ns).contains(&at)).copied()
            };
            Some((number, spans.iter().map(of_lane).collect::<Option<Vec<_>>>()?))
        })
    })
}

/// What a restart has brought back.
pub struct Picture {
    /// The window that its instant lies in.
    pub window: usize,
    /// Operations since the last look that are in it.
    pub op_count: usize,
}

/// Fails unless the server holds the picture of one instant in one of the windows: of each lane a prefix of its
/// history. Takes it as the new base.
pub fn check_picture(conn: &mut Conn, lanes: &mut [Lane], windows: &[Window]) -> Picture {
    let found: Vec<_> = lanes.iter().map(|lane| fetch(conn, lane.db)).collect();
    let spans: Vec<_> = lanes.iter().zip(&found).map(|(lane, found)| lane.spans_of(found)).collect();
    for ((lane, found), spans) in lanes.iter().zip(&found).zip(&spans) {
        assert!(!spans.is_empty(), "{}", lane.explain(found));
    }
    let Some((window, cut)) = find_cut(&spans, windows) else {
        panic!("no instant in {windows:?} has a cut with {spans:?}");
    };
    let shares: i64 = found.iter().map(own_share).sum();
    let shared = fetch(conn, SHARED_DB);
    assert_eq!(crate::model::count_of(&shared, "shared"), shares, "the counter and the shares in it");
    assert!(shared.len() <= 1, "{shared:?}");
    lanes.iter_mut().zip(found).for_each(|(lane, found)| lane.rewind(found));
    Picture { window, op_count: cut.iter().map(|span| span.op_count).sum() }
}
