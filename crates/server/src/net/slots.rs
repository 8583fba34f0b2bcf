//! A worker's connections by token.

use stillframe_engine::state::token::Token;

use crate::net::conn::Conn;

#[derive(Default)]
struct Slot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

/// Connections by slot number; the generation in the token tells a slot's tenants apart.
#[derive(Default)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(pub u32);

impl Slots {
    pub fn add(&mut self, conn: Box<Conn>) -> Token {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[id as usize];
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        slot.conn = Some(conn);
        Token(u64::from(slot.generation) << 32 | u64::from(id))
    }

    /// The slot of a token whose connection is still there.
    pub fn find(&self, token: Token) -> Option<SlotId> {
        let id = token.0 as u32;
        let slot = self.slots.get(id as usize)?;
        (slot.conn.is_some() && u64::from(slot.generation) == token.0 >> 32).then_some(SlotId(id))
    }

    pub fn get(&mut self, id: SlotId) -> Option<&mut Conn> {
        self.slots.get_mut(id.0 as usize)?.conn.as_deref_mut()
    }

    pub fn remove(&mut self, id: SlotId) -> Option<Box<Conn>> {
        let conn = self.slots.get_mut(id.0 as usize)?.conn.take()?;
        self.free.push(id.0);
        Some(conn)
    }

    /// Takes a connection out for a while: the slot stays its own.
    pub fn lend(&mut self, id: SlotId) -> Option<Box<Conn>> {
        self.slots.get_mut(id.0 as usize)?.conn.take()
    }

    /// Ends [`Slots::lend`].
    pub fn put_back(&mut self, id: SlotId, conn: Box<Conn>) {
        self.slots[id.0 as usize].conn = Some(conn);
    }

    pub fn token(&self, id: SlotId) -> Token {
        Token(u64::from(self.slots[id.0 as usize].generation) << 32 | u64::from(id.0))
    }

    /// Numbers in use so far, the highest plus one.
    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Slots that have a connection.
    pub fn ids(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.slots.iter().enumerate().filter(|(_, s)| s.conn.is_some()).map(|(i, _)| SlotId(i as u32))
    }
}
