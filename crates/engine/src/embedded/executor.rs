//! The loop of a worker's thread, for clients of the program's own.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use stillframe_store::{OpError, Worker};

use crate::chores::{Chores, Hands};
use crate::clock::unix_ms;
use crate::config::Config;
use crate::dispatch::call::Outcome;
use crate::dispatch::ctx::{Ctx, Registry};
use crate::dispatch::{self, subscribed, waiting};
use crate::embedded::desk::{Desk, Request};
use crate::embedded::guest::{Guest, Hold};
use crate::log;
use crate::protocol::args::{ArgRange, Args};
use crate::protocol::need::Need;
use crate::protocol::reply::{Replies, Reply};
use crate::protocol::request::Limits;
use crate::server::Server;
use crate::state::client_line::publish_session;
use crate::state::local::{Delivery, Local};
use crate::state::mailbox::{Message, Part};
use crate::state::pause::PauseKind;
use crate::state::session::{Ending, LateReply};
use crate::state::token::Token;

pub struct Executor {
    server: Arc<Server>,
    desk: Arc<Desk>,
    index: usize,
    registry: &'static Registry,
    worker: Worker,
    local: Local,
    config: Arc<Config>,
    config_version: u64,
    chores: Chores,
    guests: HashMap<Token, Guest>,
    /// Clients with requests that are to be executed.
    ready: Vec<Token>,
    /// Clients whose output is held until what it tells of is durable.
    held: HashSet<Token>,
    /// The gate has been asked for them.
    has_asked: bool,
    messages: Vec<Message>,
    ranges: Vec<ArgRange>,
    is_stopping: bool,
}

impl Executor {
    /// # Errors
    /// The store lets no worker in.
    pub fn new(
        server: Arc<Server>,
        desk: Arc<Desk>,
        index: usize,
        registry: &'static Registry,
    ) -> std::io::Result<Executor> {
        let worker = server.store.nonblocking_worker().map_err(std::io::Error::other)?;
        let mut executor = Executor {
            desk,
            index,
            registry,
            worker,
            local: Local::new(index, server.workers[index].stats.clone()),
            config: server.config(),
            config_version: 0,
            chores: Chores::new(index),
            guests: HashMap::new(),
            ready: Vec::new(),
            held: HashSet::new(),
            has_asked: false,
            messages: Vec::new(),
            ranges: Vec::new(),
            is_stopping: false,
            server,
        };
        executor.refresh_config();
        Ok(executor)
    }

    /// Serves until it is told to stop.
    pub fn run(mut self) {
        while !self.is_stopping {
            self.release_held();
            self.wait();
            self.worker.set_now(unix_ms());
            self.refresh_config();
            self.take_messages();
            self.end_waits();
            std::mem::take(&mut self.ready).into_iter().for_each(|token| self.serve(token));
            self.run_chores();
        }
        // A client that learns of the end finds that there is no other to be had.
        self.desk.close();
        let tokens: Vec<Token> = self.guests.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.close(token));
    }

    fn refresh_config(&mut self) {
        let version = self.server.config_version();
        if version != self.config_version {
            (self.config_version, self.config) = (version, self.server.config());
            self.local.follow(&self.config.settings);
        }
    }

    /// Waits for messages, not longer than to the next timer; the store may take cuts meanwhile.
    fn wait(&mut self) {
        if !self.ready.is_empty() || self.local.is_evicting {
            return self.worker.quiesce();
        }
        let time = self.chores.time_left().min(self.local.time_to_deadline());
        let Executor { worker, server, index, .. } = self;
        worker.idle(|| server.workers[*index].mailbox.wait(time));
    }

    fn run_chores(&mut self) {
        let Executor { worker, local, server, config, chores, .. } = self;
        let mut hands = Hands { worker, local, server, config };
        let is_round = chores.run(&mut hands);
        hands.go_on_evicting();
        if is_round && self.server.pause.kind(self.worker.now()) == PauseKind::None {
            self.release_all(Hold::Paused);
        }
    }

    fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.server.workers[self.index].mailbox.take(&mut messages);
        messages.drain(..).for_each(|message| self.take_message(message));
        self.messages = messages;
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Arrived => self.desk.take().into_iter().for_each(|request| self.take_request(request)),
            Message::PagesLoaded(token) => self.release(token, Hold::Fault),
            Message::ValueLoaded(token) => self.draw(token),
            Message::Reply(token, which, replies) => self.unblock(token, which, replies),
            Message::Part(token, part) => self.append_part(token, part),
            Message::KeyReady(key) => {
                let Executor { worker, server, config, local, registry, .. } = self;
                waiting::serve_ready_key(worker, server, config, local, registry, key);
                self.deliver();
            }
            Message::Heard(tokens) => tokens.into_iter().for_each(|token| self.settle(token)),
            Message::Kill(token) => self.close(token),
            Message::PauseChanged => self.release_all(Hold::Paused),
            // What it lets go is given before the next wait.
            Message::Durable => {}
            Message::Stop => self.is_stopping = true,
            // A request is here as a whole.
            Message::InputLoaded(_) => {}
        }
    }

    fn take_request(&mut self, request: Request) {
        match request {
            Request::Connect(info, given) => {
                self.server.clients.add(info.clone());
                self.server.stats.connections_received.fetch_add(1, Relaxed);
                self.guests.insert(info.token(), Guest::new(info, given));
            }
            Request::Execute(token, bytes) => {
                let Some(guest) = self.guests.get_mut(&token) else { return };
                self.local.stats.input_bytes.add(bytes.len() as u64);
                guest.input.extend(bytes);
                guest.is_asked = true;
                guest.info.published.last_active_unix_ms.store(self.worker.now(), Relaxed);
                self.ready.push(token);
            }
            Request::Leave(token) => self.close(token),
        }
    }

    /// Executes the commands of a client that are there.
    fn serve(&mut self, token: Token) {
        self.local.begin_batch();
        while let Some(guest) = self.guests.get_mut(&token) {
            let max_bulk_bytes = self.config.settings.max_bulk_bytes;
            let limits = Limits { max_bulk_bytes, is_authenticated: true };
            match guest.next_command(&mut self.ranges, limits) {
                Some(Ok(end)) => self.execute(token, end),
                Some(Err(text)) => {
                    guest.hear(&mut self.local.heard);
                    guest.refuse(&text);
                    self.server.stats.protocol_errors.fetch_add(1, Relaxed);
                    self.server.count_error(b"ERR");
                }
                None => break,
            }
        }
        self.local.end_batch();
        self.local.count_expired(&self.worker);
        self.draw(token);
        self.deliver();
        self.settle(token);
    }

    /// Executes a command that has been taken apart, and ends at byte `end`.
    fn execute(&mut self, token: Token, end: usize) {
        self.refresh_config();
        let Executor { worker, server, config, local, registry, guests, ranges, index, .. } = self;
        let Some(guest) = guests.get_mut(&token) else { return };
        worker.quiesce();
        let stats = local.stats.clone();
        let args = Args::new(&guest.input, ranges);
        let mut ctx = Ctx {
            worker,
            reply: Reply { resp3: guest.session.resp3, out: &mut guest.out },
            client: &mut guest.session,
            server,
            stats: &stats,
            peer: &guest.info,
            config,
            local,
            registry,
        };
        match dispatch::dispatch(&mut ctx, &args) {
            Outcome::Done => guest.executed(end),
            Outcome::Fault(fault) => {
                guest.hold = Hold::Fault;
                server.load(*index, fault, Message::PagesLoaded(token));
            }
            Outcome::Paused => guest.hold = Hold::Paused,
        }
    }

    /// Writes a reply of random elements to its end, if one has begun.
    fn draw(&mut self, token: Token) {
        let Executor { worker, server, index, guests, .. } = self;
        let Some(guest) = guests.get_mut(&token) else { return };
        let Some(mut drawing) = guest.session.drawing.take() else { return };
        worker.quiesce();
        let mut reply = Reply { resp3: guest.session.resp3, out: &mut guest.out };
        while !drawing.is_done() {
            let before = reply.out.len();
            match drawing.write_part(worker, &mut reply) {
                Ok(()) if reply.out.len() > before => {
                    let (db, key) = drawing.key();
                    let end_offset = server.reply_gate.seen_end_offset(worker, db, &worker.key(key));
                    guest.session.need.raise(end_offset);
                }
                Err(OpError::Fault(fault)) => {
                    guest.session.drawing = Some(drawing);
                    return server.load(*index, fault, Message::ValueLoaded(token));
                }
                // How many come has been announced: half of them are no reply.
                Ok(()) => return self.close(token),
                Err(error) => {
                    log::warning(format!(
                        "A reply of random elements could not be written to its end: {error}"
                    ));
                    return self.close(token);
                }
            }
        }
        self.release(token, Hold::Drawing);
    }

    /// Ends a hold; the commands that waited are executed in the next round.
    fn release(&mut self, token: Token, hold: Hold) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        if guest.hold == hold {
            guest.hold = Hold::Free;
            self.ready.push(token);
        }
    }

    fn release_all(&mut self, hold: Hold) {
        let held = self.guests.iter().filter(|(_, guest)| guest.hold == hold);
        let tokens: Vec<Token> = held.map(|(token, _)| *token).collect();
        tokens.into_iter().for_each(|token| self.release(token, hold));
    }

    /// Hands out the replies of clients of this worker that have been served.
    fn deliver(&mut self) {
        if !self.local.served.is_empty() {
            waiting::note_served(&self.server, &mut self.local, self.registry);
        }
        for Delivery { token, reply, bytes } in std::mem::take(&mut self.local.deliveries) {
            self.unblock(token, reply, bytes);
        }
    }

    /// Answers those whose time is over.
    fn end_waits(&mut self) {
        while let Some(waiter) = waiting::next_over(&self.server, &mut self.local) {
            self.unblock(waiter.client.token(), waiter.reply, waiting::time_is_over(&waiter).into());
        }
    }

    /// Delivers a reply of a command that has waited, and lets the client go on if it was the last.
    fn unblock(&mut self, token: Token, which: LateReply, replies: Replies) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        guest.hear(&mut self.local.heard);
        let Some(replies) = guest.session.late.take(which, replies) else { return };
        guest.session.need.join(replies.need());
        guest.out.append(replies);
        waiting::forget(&self.server, &mut self.local, guest.info.id);
        self.release(token, Hold::Blocked);
    }

    /// Appends a part of a reply whose rest is still to come.
    fn append_part(&mut self, token: Token, part: Part) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        guest.hear(&mut self.local.heard);
        guest.session.need.join(&part.need);
        guest.out.extend(&part.bytes);
        guest.session.late.begin();
        // The thread that writes the reply gives up by itself if nobody wants the rest.
        let _ = part.written.send(());
    }

    /// Gives a client what there is for it, and lets others see what has become of it.
    fn settle(&mut self, token: Token) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        guest.hear(&mut self.local.heard);
        publish_session(&guest.session, &guest.info);
        let ending = guest.session.ending;
        if ending != Ending::AtOnce && !self.may_leave(token) {
            return;
        }
        let Some(guest) = self.guests.get_mut(&token) else { return };
        let is_served = guest.hold == Hold::Free && !self.ready.contains(&token);
        let is_all =
            is_served || ending != Ending::Open || self.server.waiters.of_client(guest.info.id).is_some();
        let given = if ending == Ending::AtOnce { Ok(0) } else { guest.give(is_all) };
        self.local.stats.output_bytes.add(*given.as_ref().unwrap_or(&0));
        if ending != Ending::Open || given.is_err() {
            self.close(token);
        }
    }

    /// Whether all that the client's output tells of is durable. If not it is held; if it never will be, the client is closed.
    fn may_leave(&mut self, token: Token) -> bool {
        let (gate, Some(guest)) = (&self.server.reply_gate, self.guests.get_mut(&token)) else {
            return false;
        };
        let need = &mut guest.session.need;
        let limit_offset = gate.limit_offset();
        let is_durable = need.settled_offset().is_some_and(|need_offset| need_offset <= limit_offset);
        if is_durable || limit_offset == u64::MAX {
            *need = Need::default();
            self.held.remove(&token);
            return true;
        }
        if gate.has_failed() {
            self.close(token);
        } else {
            self.held.insert(token);
        }
        false
    }

    /// Gives what has become durable, and asks to be woken for the rest.
    fn release_held(&mut self) {
        while !self.held.is_empty() || self.has_asked {
            let need_of = |token| self.guests.get_mut(token)?.session.need.settled_offset();
            let lowest_offset =
                self.held.iter().map(need_of).map(|need_offset| need_offset.unwrap_or(0)).min();
            self.has_asked = lowest_offset.is_some();
            self.server.reply_gate.ask(self.index, lowest_offset);
            // Looked at once more: it may have become durable before the gate was asked.
            let tokens: Vec<Token> = self.held.iter().copied().collect();
            let held_count = tokens.len();
            tokens.into_iter().for_each(|token| self.settle(token));
            if self.held.len() == held_count {
                return;
            }
        }
    }

    fn close(&mut self, token: Token) {
        self.held.remove(&token);
        let Some(mut guest) = self.guests.remove(&token) else { return };
        self.server.clients.remove(guest.info.id);
        if guest.session.late.is_awaited() {
            waiting::forget(&self.server, &mut self.local, guest.info.id);
            self.server.data_log.take_of_client(guest.info.id);
        }
        self.server.watches.unwatch_all(&mut guest.session);
        subscribed::stop(&self.server, &mut guest.session);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.desk.close();
    }
}
