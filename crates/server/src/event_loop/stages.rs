//! One batch of commands: the stages that it goes through.

use std::sync::atomic::Ordering::Relaxed;

use stillframe_engine::command::flag;
use stillframe_engine::dispatch;
use stillframe_engine::log;
use stillframe_engine::protocol::args::Args;
use stillframe_engine::protocol::reply::Reply;
use stillframe_engine::protocol::request::{Limits, Parsed};
use stillframe_engine::state::mailbox::Message;
use stillframe_engine::state::session::Ending;
use stillframe_store::ElementAhead;

use crate::event_loop::batch::{Batch, BatchElement, BatchKey, Item};
use crate::event_loop::flow::{publish, publish_input};
use crate::event_loop::receive;
use crate::event_loop::worker::EventLoop;
use crate::net::conn::{Hold, Peer, ReadEvent};
use crate::net::slots::SlotId;

/// Commands in a batch, about: what is asked for ahead of them is to be in the nearest caches still when they run.
const BATCH_COMMANDS: usize = 128;
/// Commands of one connection in a batch, so that one long pipeline does not keep the others waiting.
const CONN_COMMANDS: usize = 256;
/// Arguments from which on no further command of a connection comes into a batch: one that misses a page comes again, and all
/// that were taken apart behind it.
const CONN_ARGS: usize = 1024;
/// Commands from which on it pays to look the keys up in stages.
const STAGED_COMMANDS: usize = 4;

impl EventLoop {
    /// Serves all connections of the ready list once.
    pub(super) fn serve_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        let mut from = 0;
        while from < ready.len() {
            from = self.read_and_parse(&ready, from);
            self.hash_and_prefetch();
            self.execute();
            self.deliver();
            self.write();
        }
        ready.clear();
        // What was added meanwhile stays for the next round.
        ready.append(&mut self.ready);
        self.ready = ready;
        for (id, can_read) in std::mem::take(&mut self.batch.again) {
            self.make_ready(id, can_read);
        }
    }

    /// Stage 1: fills the batch from the connections of `ready[from..]`; returns where it stopped.
    fn read_and_parse(&mut self, ready: &[(SlotId, bool)], mut from: usize) -> usize {
        while from < ready.len() && self.batch.items.len() < BATCH_COMMANDS {
            let (id, can_read) = ready[from];
            from += 1;
            let Some(conn) = self.slots.get(id) else { continue };
            conn.is_ready = false;
            if can_read && conn.wants_input() {
                match conn.input.read(&mut conn.wire, &mut self.spare) {
                    ReadEvent::Bytes { count, is_all } => {
                        self.stats.reads.add(1);
                        self.stats.input_bytes.add(count as u64);
                        if !is_all || conn.wire.has_pending() || conn.peer.is_read_on() {
                            self.batch.again.push((id, true));
                        }
                    }
                    // Of one that takes no replies only what has arrived by then.
                    ReadEvent::NothingYet if conn.peer == Peer::Deaf && !conn.input.is_awaiting_pages => {
                        self.end_input(id);
                    }
                    ReadEvent::NothingYet => {}
                    ReadEvent::Missing(fault) => {
                        conn.input.is_awaiting_pages = true;
                        let token = self.slots.token(id);
                        self.server.load(self.index, fault, Message::InputLoaded(token));
                    }
                    ReadEvent::Closed => self.end_input(id),
                }
            }
            self.parse(id);
        }
        from
    }

    /// Takes the connection's complete commands into the batch.
    fn parse(&mut self, id: SlotId) {
        let settings = &self.config.settings;
        let Some(conn) = self.slots.get(id) else { return };
        if conn.input.waiting_bytes() > settings.query_buffer_limit_bytes {
            return self.close_for_query_limit(id);
        }
        publish_input(&self.server.clients, conn);
        if conn.hold != Hold::Free || conn.session.ending != Ending::Open {
            self.end_wait_of_silent(id);
            return self.update_interest(id);
        }
        if conn.input.is_receiving() {
            // A value that will not come as a whole is none.
            return if conn.peer.has_sent() { self.part(id) } else { self.update_interest(id) };
        }
        let limits = Limits {
            max_bulk_bytes: settings.max_bulk_bytes,
            is_authenticated: conn.session.is_authenticated || settings.requirepass.is_empty(),
        };
        let has_sent = conn.peer.has_sent();
        let batch = &mut self.batch;
        let (mut count, args_before) = (0, batch.ranges.len());
        loop {
            let first = batch.ranges.len();
            match conn.input.parse(&mut batch.ranges, limits) {
                Parsed::Command { end } => {
                    let args = Args::new(&conn.input.buf, &batch.ranges[first..]);
                    batch.items.push(Item {
                        slot: id,
                        first_range: first as u32,
                        range_count: (batch.ranges.len() - first) as u32,
                        end,
                        found: dispatch::lookup(self.registry, &args).ok(),
                        key: None,
                    });
                }
                // It ends what `CLIENT REPLY SKIP` holds back, in its place among the commands.
                Parsed::Nothing { end } => batch.items.push(Item {
                    slot: id,
                    first_range: first as u32,
                    range_count: 0,
                    end,
                    found: None,
                    key: None,
                }),
                Parsed::Incomplete { .. } if has_sent && count == 0 => return self.part(id),
                Parsed::Incomplete { .. } if has_sent => {
                    batch.again.push((id, false));
                    break;
                }
                Parsed::Incomplete { .. } => {
                    receive::begin_if_large(&self.server, self.registry, &mut self.worker, conn);
                    break;
                }
                Parsed::Error(text) => {
                    conn.protocol_error = Some(text);
                    break;
                }
            }
            count += 1;
            if count == CONN_COMMANDS || batch.ranges.len() - args_before >= CONN_ARGS {
                batch.again.push((id, false));
                break;
            }
        }
        if !conn.is_touched {
            conn.is_touched = true;
            batch.touched.push(id);
        }
    }

    fn close_for_query_limit(&mut self, id: SlotId) {
        if let Some(conn) = self.slots.get(id) {
            conn.log_query_limit(&self.server.stats);
            self.close(id);
        }
    }

    /// Stage 2: hashes the keys and asks for the memory of their leaves, then of their records.
    fn hash_and_prefetch(&mut self) {
        let EventLoop { batch, slots, worker, .. } = self;
        let mut before = None;
        for item in &mut batch.items {
            let Some(command) = item.found.map(|found| found.command) else { continue };
            // The key that may not be there.
            let Some(index) = command.first_key().filter(|index| *index < item.range_count as usize) else {
                continue;
            };
            let Some(conn) = slots.get(item.slot) else { continue };
            let bytes = batch.ranges[item.first_range as usize + index].of(&conn.input.buf);
            let key = worker.key(bytes).to_be_written(command.is(flag::WRITE)).detach();
            let db = conn.session.db;
            let is_as_before = before.replace((db, key.hash)) == Some((db, key.hash));
            item.key = Some(BatchKey { arg: index as u32, db, key, is_as_before, element: None });
        }
        if batch.items.len() < STAGED_COMMANDS {
            return;
        }
        let items = &mut batch.items;
        new_keys(items).for_each(|key| worker.prefetch().node(key.db, &mut key.key));
        new_keys(items).for_each(|key| worker.prefetch().child(&key.key));
        new_keys(items).for_each(|key| worker.prefetch().leaf(key.db, &mut key.key));
        new_keys(items).for_each(|key| worker.prefetch().slots(&mut key.key));
        new_keys(items).for_each(|key| worker.prefetch().record(&mut key.key));
        self.prefetch_values();
    }

    /// What lies outside of the leaves of the keys: values, and elements of large collections, these in stages of their own.
    fn prefetch_values(&mut self) {
        let EventLoop { batch, slots, worker, .. } = self;
        let (mut before, mut element_count) = (None, 0);
        for item in &mut batch.items {
            let (Some(found), Some(command)) = (&mut item.key, item.found.map(|found| found.command)) else {
                continue;
            };
            let (hinted, trees) = match before.filter(|_| found.is_as_before) {
                Some(known) => known,
                None => (found.key, worker.prefetch().trees(&found.key)),
            };
            before = Some((hinted, trees));
            found.key = hinted.to_be_written(found.key.will_write());
            let element = command.element.filter(|index| *index < item.range_count as usize);
            let (Some(trees), Some(index), Some(conn)) = (trees, element, slots.get(item.slot)) else {
                continue;
            };
            let bytes = batch.ranges[item.first_range as usize + index].of(&conn.input.buf);
            let ahead = worker.prefetch().element_node(trees, bytes, found.key.will_write());
            found.element = Some(BatchElement { arg: index as u32, ahead });
            element_count += 1;
        }
        if element_count > 0 {
            self.prefetch_elements();
        }
    }

    fn prefetch_elements(&mut self) {
        let EventLoop { batch, slots, worker, .. } = self;
        let Batch { items, ranges, .. } = batch;
        elements(items).for_each(|(_, ahead)| worker.prefetch().element_child(ahead));
        elements(items).for_each(|(_, ahead)| worker.prefetch().element_leaf(ahead));
        elements(items).for_each(|(_, ahead)| worker.prefetch().element_slots(ahead));
        elements(items).for_each(|(_, ahead)| worker.prefetch().element_record(ahead));
        // Of sorted sets, where the members are in the order.
        let in_order = |(_, ahead): &(_, &mut ElementAhead)| ahead.is_in_order();
        for ((slot, range), ahead) in elements(items).filter(in_order) {
            let Some(conn) = slots.get(slot) else { continue };
            worker.prefetch().element_place(ahead, ranges[range].of(&conn.input.buf));
        }
        for ((slot, range), ahead) in elements(items).filter(in_order) {
            let Some(conn) = slots.get(slot) else { continue };
            worker.prefetch().element_in_order(ahead, ranges[range].of(&conn.input.buf));
        }
    }

    /// Stage 4: one write a connection.
    fn write(&mut self) {
        for index in 0..self.batch.touched.len() {
            let id = self.batch.touched[index];
            let Some(conn) = self.slots.get(id) else { continue };
            conn.is_touched = false;
            if conn.session.ending != Ending::Open {
                conn.input.discard();
                conn.protocol_error = None;
            }
            if let Some(text) = conn.protocol_error.take() {
                self.answer_protocol_error(id, &text);
            }
            let Some(conn) = self.slots.get(id) else { continue };
            conn.input.recycle(conn.hold == Hold::Free, &mut self.spare);
            publish(&self.server.clients, conn, self.worker.now());
            if conn.hold == Hold::Blocked {
                self.end_wait_of_silent(id);
            }
            let Some(conn) = self.slots.get(id) else { continue };
            let is_plain = conn.output.pending_bytes() == 0 && conn.session.ending == Ending::Open;
            if is_plain && conn.hold == Hold::Free {
                continue;
            }
            self.flush(id);
        }
        self.batch.touched.clear();
    }

    fn answer_protocol_error(&mut self, id: SlotId, text: &str) {
        self.end_hearing(id);
        let Some(conn) = self.slots.get(id) else { return };
        let mut reply = Reply { resp3: conn.session.resp3, out: &mut conn.output.buf };
        reply.error(format!("ERR {text}").as_bytes());
        conn.session.ending = Ending::AfterReply;
        conn.input.discard();
        log::verbose(format!("{text} from client id={} addr={}", conn.info.id, conn.info.addr));
        self.server.stats.protocol_errors.fetch_add(1, Relaxed);
        self.server.count_error(b"ERR");
    }
}

/// The keys of a batch, those left out that the command before is about.
fn new_keys(items: &mut [Item]) -> impl Iterator<Item = &mut BatchKey> {
    items.iter_mut().filter_map(|item| item.key.as_mut()).filter(|key| !key.is_as_before)
}

/// The elements that commands of a batch look for; where their bytes are: the connection, and the range.
fn elements(items: &mut [Item]) -> impl Iterator<Item = ((SlotId, usize), &mut ElementAhead)> {
    items.iter_mut().filter_map(|item| {
        let element = item.key.as_mut()?.element.as_mut()?;
        Some(((item.slot, item.first_range as usize + element.arg as usize), &mut element.ahead))
    })
}
