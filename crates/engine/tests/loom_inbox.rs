//! Messages under the model checker: none lost, none late (invariants U1 to U4). The inboxes are those of the server; around
//! them are its steps: the table of those who listen, the mailbox of a worker, a command and its reply.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub use loom::sync::atomic;

    #[derive(Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[path = "../src/state/inbox.rs"]
mod inbox;

use inbox::{Inbox, Taken};

/// A step in a wrong order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A thread that changes something lets others see it, and then tells of it.
    TellsLate,
    /// The worker takes the inbox before the command runs, and not after it.
    TakesEarly,
    /// A thread tells after it has let go of the table.
    TellsUnlocked,
}

/// What a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wire {
    Message(u32),
    /// The reply to a command, which has seen the change or has not.
    Reply(bool),
    Unsubscribed,
}

/// A subscriber: what its worker reads and writes.
#[derive(Default)]
struct Subscriber {
    inbox: Inbox<u32>,
    wire: Mutex<Vec<Wire>>,
    /// The mailbox of its worker says that there is something in the inbox.
    is_woken: Mutex<bool>,
}

impl Subscriber {
    fn write(&self, what: Wire) {
        self.wire.lock().unwrap().push(what);
    }

    fn hear(&self) {
        let mut heard = Vec::new();
        if self.inbox.has_some() {
            assert_eq!(self.inbox.take(&mut heard), Taken::All);
        }
        heard.into_iter().for_each(|message| self.write(Wire::Message(message)));
    }

    /// The worker finds the connection in its mailbox, if it is there.
    fn wake(&self) {
        if std::mem::take(&mut *self.is_woken.lock().unwrap()) {
            self.hear();
        }
    }

    fn wire(&self) -> Vec<Wire> {
        self.wire.lock().unwrap().clone()
    }
}

struct World {
    table: Mutex<Vec<Arc<Subscriber>>>,
    /// A key that is changed, or that a message has been published: what a command can learn.
    change: AtomicBool,
    mistake: Mistake,
}

impl World {
    fn new(subscribers: &[Arc<Subscriber>], mistake: Mistake) -> Arc<World> {
        let table = Mutex::new(subscribers.to_vec());
        Arc::new(World { table, change: AtomicBool::new(false), mistake })
    }

    /// `PUBLISH`. Returns how many hear it.
    fn publish(&self, message: u32) -> usize {
        let table = self.table.lock().unwrap();
        let listeners = table.clone();
        if self.mistake == Mistake::TellsUnlocked {
            drop(table);
        }
        for listener in &listeners {
            if listener.inbox.put(message, 1, 0) {
                *listener.is_woken.lock().unwrap() = true;
            }
        }
        listeners.len()
    }

    /// A change that is told of, as message 1.
    fn change(&self) {
        if self.mistake == Mistake::TellsLate {
            self.change.store(true, Ordering::Release);
            self.publish(1);
        } else {
            self.publish(1);
            self.change.store(true, Ordering::Release);
        }
    }

    /// A command of a subscriber that looks for the change.
    fn look(&self, subscriber: &Subscriber) {
        if self.mistake == Mistake::TakesEarly {
            subscriber.hear();
        }
        let is_seen = self.change.load(Ordering::Acquire);
        if self.mistake != Mistake::TakesEarly {
            subscriber.hear();
        }
        subscriber.write(Wire::Reply(is_seen));
    }

    fn unsubscribe(&self, subscriber: &Arc<Subscriber>) {
        self.table.lock().unwrap().retain(|listener| !Arc::ptr_eq(listener, subscriber));
        subscriber.hear();
        subscriber.write(Wire::Unsubscribed);
    }
}

fn check(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// A thread that replies with what has been changed has told of it before.
fn change_meets_command(mistake: Mistake) {
    check(move || {
        let subscriber = Arc::new(Subscriber::default());
        let world = World::new(std::slice::from_ref(&subscriber), mistake);
        let changer = {
            let world = world.clone();
            thread::spawn(move || world.change())
        };
        world.look(&subscriber);
        subscriber.wake();
        world.look(&subscriber);
        changer.join().unwrap();
        subscriber.wake();
        let wire = subscriber.wire();
        let told: Vec<_> = wire.iter().filter(|what| **what == Wire::Message(1)).collect();
        assert_eq!(told.len(), 1, "told once: {wire:?}");
        let seen = wire.iter().position(|what| *what == Wire::Reply(true));
        let told = wire.iter().position(|what| *what == Wire::Message(1));
        assert!(seen.is_none() || told < seen, "told too late: {wire:?}");
    });
}

#[test]
fn a_reply_comes_after_what_it_shows_has_been_told() {
    change_meets_command(Mistake::None);
}

#[test]
#[should_panic(expected = "told too late")]
fn what_is_told_after_it_can_be_seen_is_late() {
    change_meets_command(Mistake::TellsLate);
}

#[test]
#[should_panic(expected = "told too late")]
fn what_comes_while_a_command_runs_is_late_if_the_inbox_was_taken_before() {
    change_meets_command(Mistake::TakesEarly);
}

/// A message that has been counted comes before the end of the subscription, another does not come.
fn publish_meets_unsubscribe(mistake: Mistake) {
    check(move || {
        let subscriber = Arc::new(Subscriber::default());
        let world = World::new(std::slice::from_ref(&subscriber), mistake);
        let publisher = {
            let world = world.clone();
            thread::spawn(move || [world.publish(1), world.publish(2)])
        };
        world.unsubscribe(&subscriber);
        let counts = publisher.join().unwrap();
        subscriber.wake();
        let expected: Vec<Wire> = (1..=2)
            .filter(|message| counts[*message as usize - 1] == 1)
            .map(Wire::Message)
            .chain([Wire::Unsubscribed])
            .collect();
        assert_eq!(subscriber.wire(), expected, "counted: {counts:?}");
    });
}

#[test]
fn what_was_counted_comes_before_the_end_of_the_subscription() {
    publish_meets_unsubscribe(Mistake::None);
}

#[test]
#[should_panic(expected = "counted")]
fn who_tells_without_the_table_tells_one_who_does_not_listen() {
    publish_meets_unsubscribe(Mistake::TellsUnlocked);
}

/// All hear all messages in one order, and nothing is left lying while a worker sleeps.
fn two_tell_two(mistake: Mistake) {
    check(move || {
        let subscribers: Vec<_> = (0..2).map(|_| Arc::new(Subscriber::default())).collect();
        let world = World::new(&subscribers, mistake);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.publish(1))
        };
        world.publish(2);
        subscribers[0].wake();
        other.join().unwrap();
        subscribers.iter().for_each(|subscriber| subscriber.wake());
        let wires = [subscribers[0].wire(), subscribers[1].wire()];
        assert_eq!(wires[0].len(), 2, "nobody sleeps over a message: {wires:?}");
        assert_eq!(wires[0], wires[1], "in one order");
    });
}

#[test]
fn all_hear_in_one_order() {
    two_tell_two(Mistake::None);
}

#[test]
#[should_panic(expected = "in one order")]
fn without_the_table_there_are_two_orders() {
    two_tell_two(Mistake::TellsUnlocked);
}

/// Beyond the bound everything goes, for good, and the worker is woken to end the connection.
#[test]
fn too_much_ends_the_connection() {
    check(|| {
        let inbox: Arc<Inbox<u32>> = Arc::default();
        let wakes: Vec<_> = (0..2)
            .map(|message| {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.put(message, 6, 10))
            })
            .collect();
        let mut heard = Vec::new();
        let early = inbox.take(&mut heard);
        let wakes: Vec<bool> = wakes.into_iter().map(|wake| wake.join().unwrap()).collect();
        let late = inbox.take(&mut heard.clone());
        match late {
            // The one that was taken early made room for the other.
            Taken::All => assert!(early == Taken::All && heard.len() < 2 && inbox.byte_count() == 0),
            Taken::Over => {
                assert!(wakes.iter().all(|is_woken| *is_woken), "once for the first, once for the end");
                assert!(inbox.is_over() && !inbox.put(3, 0, 0) && inbox.byte_count() == 0);
            }
        }
    });
}
