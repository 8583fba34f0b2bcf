//! A consumer that keeps units in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_store::stream::{Body, Consumer, Piece, Selected, Unit};
use stillframe_store::OpError;

/// Bytes of a unit, or the hold on a large value.
enum Held {
    Bytes(Vec<u8>),
    Body(Arc<dyn Body>),
}

struct Kept {
    select: Vec<u8>,
    pieces: Vec<Held>,
    len_bytes: u64,
}

impl Kept {
    /// All of it, large values as they are read now.
    fn read(&self, with_select: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                Held::Bytes(more) => bytes.extend_from_slice(more),
                Held::Body(body) => {
                    let start = bytes.len();
                    bytes.resize(start + body.len_bytes() as usize, 0);
                    // In parts, as a log would.
                    for (index, part) in bytes[start..].chunks_mut(100_000).enumerate() {
                        body.read_at(index as u64 * 100_000, part).expect("a body without damage");
                    }
                }
            }
        }
        assert_eq!(bytes.len() as u64, self.len_bytes);
        if with_select {
            bytes.splice(0..0, self.select.iter().copied());
        }
        bytes
    }
}

#[derive(Default)]
struct Inner {
    kept: Vec<Kept>,
    selected: Selected,
    held_bytes_most: usize,
    failed: Option<String>,
}

#[derive(Default)]
pub struct Memory {
    inner: Mutex<Inner>,
    forgets_cuts: bool,
}

impl Memory {
    /// One that makes a mistake: it does not know where a cut was.
    pub fn forgetting_cuts() -> Memory {
        Memory { forgets_cuts: true, ..Memory::default() }
    }

    /// The units since the last time, SELECT included.
    pub fn take(&self) -> Vec<Vec<u8>> {
        self.taken(true)
    }

    pub fn take_without_selects(&self) -> Vec<Vec<u8>> {
        self.taken(false)
    }

    fn taken(&self, with_selects: bool) -> Vec<Vec<u8>> {
        let kept = {
            let mut inner = self.inner.lock();
            assert_eq!(inner.failed, None);
            std::mem::take(&mut inner.kept)
        };
        kept.iter().map(|unit| unit.read(with_selects)).collect()
    }

    pub fn cut(&self) {
        if !self.forgets_cuts {
            self.inner.lock().selected.cut();
        }
    }

    /// The most bytes that a unit has had in memory.
    pub fn held_bytes_most(&self) -> usize {
        self.inner.lock().held_bytes_most
    }
}

impl Consumer for Memory {
    fn append(&self, unit: &Unit) {
        let mut inner = self.inner.lock();
        let mut select = Vec::new();
        inner.selected.put_before(unit, &mut select);
        inner.held_bytes_most = inner.held_bytes_most.max(unit.held_bytes());
        let hold = |piece: Piece<'_>| match piece {
            Piece::Bytes(bytes) => Held::Bytes(bytes.to_vec()),
            Piece::Body(body) => Held::Body(body.clone()),
        };
        let pieces = unit.pieces().map(hold).collect();
        inner.kept.push(Kept { select, pieces, len_bytes: unit.len_bytes() });
    }

    fn fail(&self, error: &OpError) {
        self.inner.lock().failed = Some(error.to_string());
    }
}
