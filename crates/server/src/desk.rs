//! The desk: one thread that has the connections of workers while a script runs for long (SC4).
//!
//! It reads, answers what the engine's [`Front`] answers without a worker, nearly always by `-BUSY`, and writes. It has no worker, and
//! nothing here leads to the store. It is started when it is first needed, and ends when it has nothing.

mod counter;
mod table;
mod tied;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use stillframe_engine::commands::{while_busy, REGISTRY};
use stillframe_engine::dispatch::while_busy::Front;
use stillframe_engine::log;
use stillframe_engine::server::Server;
use stillframe_engine::state::mailbox::{Mailbox, Message};

use crate::net::listen::{Admission, Doors};

use counter::{Counter, Given, Taken};
use table::Table;
pub use tied::Tied;

/// See the module.
pub struct Desk {
    counter: Counter<Tied>,
    front: Front,
    doors: Arc<Doors>,
    /// Of each worker.
    mailboxes: Vec<Arc<Mailbox>>,
    wake: OwnedFd,
}

/// How often output that may not leave yet is looked at.
const HELD_PERIOD_NS: i64 = 10_000_000;

impl Desk {
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(server: &Arc<Server>, doors: &Arc<Doors>) -> std::io::Result<Desk> {
        Ok(Desk {
            counter: Counter::new(server.worker_count),
            front: Front::new(server.clone(), &REGISTRY, while_busy::ROWS),
            doors: doors.clone(),
            mailboxes: server.workers.iter().map(|worker| worker.mailbox.clone()).collect(),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Serves what a worker cannot serve now, until it is taken back.
    pub fn give(self: &Arc<Desk>, tied: Tied) {
        match self.counter.give(tied.worker, tied) {
            Given::Wake => self.wake(),
            Given::Start => {
                let desk = self.clone();
                let attend = move || Attending { desk: &desk, tables: Vec::new() }.run();
                if let Err(error) = std::thread::Builder::new().name("desk".into()).spawn(attend) {
                    log::warning(format!(
                        "Can't start the thread that serves clients while a script runs: {error}"
                    ));
                    self.counter.close();
                }
            }
        }
    }

    /// What the worker has given, after at most one round of the desk.
    pub fn take_back(&self, worker: usize) -> Option<Tied> {
        match self.counter.ask(worker) {
            Taken::There(tied) => Some(tied),
            Taken::Nothing => None,
            Taken::Asked => {
                self.wake();
                Some(self.counter.await_return(worker))
            }
        }
    }

    /// What tells a worker of its messages.
    fn wake_fd(&self, worker: usize) -> BorrowedFd<'_> {
        self.mailboxes[worker].wake_fd()
    }

    /// Takes over what has been given, and the clients that have come in for that worker.
    fn lay(&self, tied: Tied) -> Table {
        let (arrived, wake) = (self.doors.take(tied.worker), self.wake_fd(tied.worker));
        let mut table = Table::begin(tied, wake, self.front.config());
        arrived.into_iter().for_each(|(socket, info)| table.add(socket, info, &self.front));
        table
    }

    fn wake(&self) {
        // The counter cannot overflow: the desk takes it back to zero.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The desk's thread, with what it has.
struct Attending<'d> {
    desk: &'d Desk,
    tables: Vec<Table>,
}

impl Attending<'_> {
    fn run(mut self) {
        loop {
            self.tables.extend(self.desk.counter.take_given().into_iter().map(|tied| self.desk.lay(tied)));
            self.give_back(|desk, worker| desk.counter.is_asked(worker));
            if !self.tables.is_empty() {
                self.serve();
                self.wait();
            } else if self.desk.counter.leave() {
                return;
            }
        }
    }

    fn give_back(&mut self, is_due: impl Fn(&Desk, usize) -> bool) {
        let desk = self.desk;
        let (due, stay) =
            std::mem::take(&mut self.tables).into_iter().partition(|table| is_due(desk, table.worker()));
        self.tables = stay;
        let due: Vec<Table> = due;
        due.into_iter().for_each(|table| {
            let worker = table.worker();
            desk.counter.give_back(worker, table.end(desk.wake_fd(worker)));
        });
    }

    /// One round.
    fn serve(&mut self) {
        if self.desk.front.is_left() {
            return;
        }
        let config = self.desk.front.config();
        let mut is_door_open = false;
        for table in &mut self.tables {
            table.follow(&config);
            is_door_open |= table.take_events();
        }
        if is_door_open {
            self.accept();
        }
        self.tables.iter_mut().for_each(|table| table.serve(&self.desk.front));
    }

    /// Lets waiting clients in, for the worker whose turn it is.
    fn accept(&mut self) {
        let (front, config) = (&self.desk.front, self.desk.front.config());
        let admission = Admission {
            settings: &config.settings,
            clients: front.clients(),
            stats: front.stats(),
            worker_count: front.worker_count(),
        };
        for (socket, info) in self.desk.doors.accept(&admission) {
            match self.tables.iter_mut().find(|table| table.worker() == info.worker) {
                Some(table) => table.add(socket, info, front),
                None => {
                    let worker = info.worker;
                    self.desk.doors.hand_over(socket, info);
                    self.desk.mailboxes[worker].send(Message::Arrived);
                }
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) {
        let is_left = self.desk.front.is_left();
        let tables = || self.tables.iter().filter(|_| !is_left);
        let nanos = match () {
            () if tables().any(Table::goes_on) => Some(0),
            () if tables().any(Table::has_held) => Some(HELD_PERIOD_NS),
            () => None,
        };
        let mut watched = vec![PollFd::new(&self.desk.wake, PollFlags::IN)];
        watched.extend(tables().map(|table| PollFd::from_borrowed_fd(table.epoll().as_fd(), PollFlags::IN)));
        let time = nanos.map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
        // A wait that fails is a short one.
        let _ = poll(&mut watched, time.as_ref());
        let _ = rustix::io::read(&self.desk.wake, &mut [0; 8]);
    }
}

/// Whatever becomes of the thread: no connection is lost, and no worker waits in vain.
impl Drop for Attending<'_> {
    fn drop(&mut self) {
        self.give_back(|_, _| true);
    }
}
