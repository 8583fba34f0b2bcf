//! One batch of commands: the stages that it goes through.

use std::sync::atomic::Ordering::Relaxed;

use stillframe_engine::command::flag;
use stillframe_engine::dispatch;
use stillframe_engine::dispatch::call::Outcome;
use stillframe_engine::dispatch::ctx::Ctx;
use stillframe_engine::log;
use stillframe_engine::protocol::args::Args;
use stillframe_engine::protocol::reply::Reply;
use stillframe_engine::protocol::request::{Limits, Parsed};
use stillframe_engine::state::mailbox::Message;
use stillframe_engine::state::session::{Ending, Session};
use stillframe_store::{ElementAhead, Fault, OpError, SlabNeeds, Worker};

use crate::event_loop::batch::{Batch, BatchElement, BatchKey, Item};
use crate::event_loop::flow::{publish, publish_input, OUTPUT_FULL_BYTES};
use crate::event_loop::receive;
use crate::event_loop::worker::EventLoop;
use crate::net::conn::{Conn, Hold, Output, Peer, ReadEvent};
use crate::net::slots::SlotId;

/// Commands in a batch, about: what is asked for ahead of them is to be in the nearest caches still when they run.
const BATCH_COMMANDS: usize = 128;
/// Commands of one connection in a batch, so that one long pipeline does not keep the others waiting.
const CONN_COMMANDS: usize = 256;
/// Arguments from which on no further command of a connection comes into a batch: one that misses a page comes again, and all
/// that were taken apart behind it.
const CONN_ARGS: usize = 1024;
/// Commands of a connection that are looked at when one before them misses a page.
const AHEAD_COMMANDS: usize = 64;
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
            log::warning(format!(
                "Closing client that reached max query buffer length: id={} addr={}, {} bytes waiting",
                conn.info.id,
                conn.info.addr,
                conn.input.waiting_bytes()
            ));
            self.server.stats.query_limit_closed.fetch_add(1, Relaxed);
            self.close(id);
        }
    }

    /// Stage 2: hashes the keys and asks for the memory of their leaves, then of their records.
    fn hash_and_prefetch(&mut self) {
        let EventLoop { batch, slots, worker, .. } = self;
        let mut before = None;
        for item in &mut batch.items {
            let Some(command) = item.found.map(|found| found.command) else { continue };
            let Some(index) = command.first_key() else { continue };
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

    /// Stage 3: runs the commands, those of a connection in their order.
    fn execute(&mut self) {
        if self.batch.items.is_empty() {
            return;
        }
        self.local.begin_batch();
        for index in 0..self.batch.items.len() {
            if self.server.config_version() != self.config_version {
                self.refresh_config();
            }
            self.execute_item(index);
        }
        self.local.end_batch();
        self.local.count_expired(&self.worker);
        self.batch.items.clear();
        self.batch.ranges.clear();
    }

    fn execute_item(&mut self, index: usize) {
        let EventLoop {
            batch,
            slots,
            worker,
            server,
            stats,
            config,
            local,
            registry,
            has_paused,
            index: worker_index,
            ..
        } = self;
        let item = &batch.items[index];
        let token = slots.token(item.slot);
        let Some(conn) = slots.get(item.slot) else { return };
        if conn.hold != Hold::Free || conn.session.ending != Ending::Open {
            return;
        }
        if item.range_count == 0 {
            conn.session.reply_mode.end_command();
            return conn.input.executed(item.end);
        }
        worker.quiesce();
        conn.output.set_hard_limit(conn.session.output_limit(&config.settings).hard_bytes);
        let Conn { session, info, input, output, .. } = conn;
        let ranges = &batch.ranges[item.first_range as usize..(item.first_range + item.range_count) as usize];
        let args = input.args(ranges);
        let args = item.key.as_ref().map_or(args, |found| args.with_hashed(found.arg as usize, found.key));
        let element = item.key.as_ref().and_then(|found| found.element.as_ref());
        worker.know_element(element.map(|element| (args.at(element.arg as usize), element.ahead)));
        let mut ctx = Ctx {
            worker,
            reply: Reply { resp3: session.resp3, out: &mut output.buf },
            client: session,
            server,
            stats,
            peer: info,
            config,
            local,
            registry,
        };
        let queued_before = ctx.client.queued_count();
        let outcome = match item.found {
            Some(found) => dispatch::run(&mut ctx, found, &args),
            None => dispatch::dispatch(&mut ctx, &args),
        };
        ctx.worker.know_element(None);
        let (hold, fault) = match outcome {
            Outcome::Done => {
                if let Some(queued) = session.queued_since(queued_before) {
                    queued.incoming = input.take_incoming();
                }
                input.executed(item.end);
                (hold_after(session, output), None)
            }
            Outcome::Fault(fault) => (Hold::Fault, Some(with_later(worker, batch, index, &input.buf, fault))),
            Outcome::Paused => (Hold::Paused, None),
        };
        *has_paused |= hold == Hold::Paused;
        conn.go_on_as(hold);
        if let Some(fault) = fault {
            server.load(*worker_index, fault, Message::PagesLoaded(token));
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

/// With what the next commands of the connection will miss: it comes with the same read.
fn with_later(worker: &mut Worker, batch: &Batch, index: usize, buf: &[u8], fault: Fault) -> Fault {
    let (item, later) = (&batch.items[index], &batch.items[index + 1..]);
    let of_same = later.iter().take_while(|later| later.slot == item.slot).take(AHEAD_COMMANDS);
    let key = |item: &Item| {
        let found = item.key.as_ref()?;
        let range = batch.ranges[item.first_range as usize + found.arg as usize];
        let bytes = buf.get(range.start as usize..(range.start + range.len) as usize)?;
        let ranges = &batch.ranges[item.first_range as usize..(item.first_range + item.range_count) as usize];
        let command = item.found.map(|found| found.command)?;
        let reach = command.reach_of(&Args::new(buf, ranges), found.arg as usize);
        Some((found.db, worker.key(bytes), reach))
    };
    let keys: Vec<_> = of_same.filter_map(key).collect();
    match worker.resolve_reaching(keys.into_iter(), &SlabNeeds::default()) {
        Err(OpError::Fault(later)) => fault.and(later),
        _ => fault,
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

/// Why the next commands wait once one has been executed, if they do.
fn hold_after(session: &mut Session, output: &mut Output) -> Hold {
    let is_full = output.pending_bytes() > OUTPUT_FULL_BYTES;
    if session.drawing.is_some() {
        return Hold::Drawing;
    }
    match session.late.first_place() {
        Some(at) => {
            session.late.hold(output.buf.split_off_all(at));
            Hold::Blocked
        }
        None if is_full => Hold::Full,
        None => Hold::Free,
    }
}
