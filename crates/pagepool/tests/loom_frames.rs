//! Frames under the model checker: one that is used again beside a reader without a latch, and a page that moves to another
//! beside those who use it. The steps are those of `page/table.rs` over the real `src/page/latch.rs`; each can be taken
//! wrongly, and then the checker must find what goes wrong.

use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[allow(dead_code)]
#[path = "../src/page/latch.rs"]
mod latch;

use latch::{Mark, Met, StateWord};
use sync::atomic::{fence, AtomicU64, Ordering};

/// A step taken wrongly, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// A reader without a latch believes what it has copied.
    NoLookAfterwards,
    /// A frame becomes free while a state word still names it.
    GivenWhileNamed,
    /// A frame's new owner writes before that can be seen (P13).
    NoFence,
    /// A page moves without having been claimed.
    MoveUnclaimed,
    /// A page moves although somebody may have found it before it was marked.
    NoTurns,
    /// Who needs no latch of the page writes while it moves.
    NoWaitForMove,
}

const OLD: u64 = 1;
const NEW: u64 = 2;
/// What another page has in the frame.
const OTHERS: u64 = 9;

/// A page in frame 1, which nobody has touched for a while.
struct World {
    state: StateWord,
    frames: [AtomicU64; 3],
    free: Mutex<Vec<u32>>,
    /// Held by a member during its command: who takes it has seen the member between two.
    command: Mutex<()>,
    mistake: Mistake,
}

impl World {
    fn new(mistake: Mistake) -> Arc<World> {
        let state = StateWord::new_evicted();
        assert!(state.begin_load());
        state.set_frame(1);
        let _ = state.loaded(false);
        let frames = [AtomicU64::new(0), AtomicU64::new(OLD), AtomicU64::new(0)];
        let (free, command) = (Mutex::new(Vec::new()), Mutex::new(()));
        Arc::new(World { state, frames, free, command, mistake })
    }

    fn does(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn content(&self, frame: u32) -> &AtomicU64 {
        &self.frames[frame as usize]
    }

    /// The evictor's steps, from the claim on.
    fn evict(&self) {
        let Met::Idle(mark) = self.state.meet() else { return };
        let give = |frame| self.free.lock().unwrap().push(frame);
        if self.does(Mistake::GivenWhileNamed) {
            give(mark.place().frame());
        }
        if !self.state.claim(mark) {
            return;
        }
        let frame = self.state.take_frame();
        if !self.does(Mistake::GivenWhileNamed) {
            give(frame);
        }
        let _ = self.state.moved_out();
    }

    /// The evictor's steps, from a mark on. Whether the page has gone.
    fn evict_after_turns(&self, mark: Mark) -> bool {
        drop(self.command.lock().unwrap());
        let has_gone = self.state.claim(mark);
        if has_gone {
            self.content(1).store(OTHERS, Ordering::Relaxed);
        }
        has_gone
    }

    /// Another page is brought in.
    fn use_again(&self) {
        let Some(frame) = self.free.lock().unwrap().pop() else { return };
        if !self.does(Mistake::NoFence) {
            fence(Ordering::Release);
        }
        self.content(frame).store(OTHERS, Ordering::Relaxed);
    }

    /// `PageTable::copy_as_of`.
    fn read_without_latch(&self) -> Option<u64> {
        let since = self.state.residence()?;
        let copy = self.content(since.frame()).load(Ordering::Relaxed);
        (self.state.is_still_resident(since) || self.does(Mistake::NoLookAfterwards)).then_some(copy)
    }

    /// The keeper moves the page to frame 2.
    fn relocate(&self) {
        let Some(mark) = self.state.mark() else { return };
        if !self.does(Mistake::NoTurns) {
            drop(self.command.lock().unwrap());
        }
        let is_claimed = self.state.begin_relocation(mark);
        if !is_claimed && !self.does(Mistake::MoveUnclaimed) {
            return;
        }
        // Not as a load: the checker orders a store anew only beside the last load, and forgets that of the reader then.
        let copy = self.content(mark.place().frame()).fetch_or(0, Ordering::Relaxed);
        self.content(2).store(copy, Ordering::Relaxed);
        if is_claimed {
            let _ = self.state.end_relocation(2);
            self.free.lock().unwrap().push(1);
        } else if self.state.try_lock().is_ok() {
            // As if nothing were needed to change the frame.
            let _ = self.state.evict();
            self.state.take_frame();
            assert!(self.state.begin_life());
            self.state.set_frame(2);
            let _ = self.state.unlock();
        }
    }

    /// A command that changes the page under its latch. Whether it did.
    fn write_latched(&self) -> bool {
        let _command = self.command.lock().unwrap();
        if self.state.try_lock().is_err() {
            return false;
        }
        self.content(self.state.frame()).store(NEW, Ordering::Relaxed);
        let _ = self.state.unlock();
        true
    }

    /// One that changes it under the latch of its object's head (`page::touch_covered`).
    fn write_covered(&self) {
        let _command = self.command.lock().unwrap();
        loop {
            let found = match self.does(Mistake::NoWaitForMove) {
                true => Some(self.state.touch()),
                false => self.state.touch_covered(),
            };
            match found {
                Some(is_resident) => break assert!(is_resident, "a page that moves is in memory"),
                None => thread::yield_now(),
            }
        }
        self.content(self.state.frame()).store(NEW, Ordering::Relaxed);
    }

    /// A command that looks whether the page is in memory, and comes back to it later.
    fn find_twice(&self) {
        let _command = self.command.lock().unwrap();
        if self.state.touch() {
            let content = self.content(1).fetch_or(0, Ordering::Relaxed);
            assert_eq!(content, OLD, "what a command has found stays until it ends");
        }
    }

    fn now(&self) -> u64 {
        self.content(self.state.frame()).load(Ordering::Relaxed)
    }
}

/// Whether the model checker finds nothing wrong.
fn holds(mistake: Mistake, model: fn(Mistake)) -> bool {
    std::panic::catch_unwind(|| loom::model(move || model(mistake))).is_ok()
}

fn check(mistakes: &[Mistake], model: fn(Mistake)) {
    assert!(holds(Mistake::None, model));
    for &mistake in mistakes {
        assert!(!holds(mistake, model), "{mistake:?} goes unnoticed");
    }
}

#[test]
fn a_frame_is_used_again_beside_a_reader() {
    check(&[Mistake::NoLookAfterwards, Mistake::GivenWhileNamed, Mistake::NoFence], |mistake| {
        let world = World::new(mistake);
        let (evictor, loader) = (world.clone(), world.clone());
        let evicting = thread::spawn(move || evictor.evict());
        let loading = thread::spawn(move || loader.use_again());
        if let Some(copy) = world.read_without_latch() {
            assert_eq!(copy, OLD, "that is another page's");
        }
        evicting.join().unwrap();
        loading.join().unwrap();
    });
}

#[test]
fn a_page_moves_beside_a_reader_and_its_frame_is_used_again() {
    check(&[Mistake::NoLookAfterwards], |mistake| {
        let world = World::new(mistake);
        let keeper = world.clone();
        let moving = thread::spawn(move || {
            keeper.relocate();
            keeper.use_again();
        });
        if let Some(copy) = world.read_without_latch() {
            assert_eq!(copy, OLD, "that is another page's");
        }
        moving.join().unwrap();
        assert_eq!(world.now(), OLD);
    });
}

#[test]
fn a_page_moves_beside_a_writer() {
    check(&[Mistake::MoveUnclaimed], |mistake| {
        let world = World::new(mistake);
        let keeper = world.clone();
        let moving = thread::spawn(move || keeper.relocate());
        let has_written = world.write_latched();
        moving.join().unwrap();
        assert_eq!(world.now(), if has_written { NEW } else { OLD }, "a write is lost");
    });
}

#[test]
fn a_page_of_an_object_moves_beside_a_writer() {
    check(&[Mistake::NoTurns, Mistake::NoWaitForMove], |mistake| {
        let world = World::new(mistake);
        let keeper = world.clone();
        let moving = thread::spawn(move || keeper.relocate());
        world.write_covered();
        moving.join().unwrap();
        assert_eq!(world.now(), NEW, "a write is lost");
    });
}

/// R2, R3: a walk, or the keeper, marks the page anew that a command has found since the evictor came by. The mistake here
/// would be in the state word: a mark that is the same as the one before.
#[test]
fn a_page_is_marked_by_a_walk_beside_a_command() {
    check(&[], |mistake| {
        let world = World::new(mistake);
        let Met::Idle(mark) = world.state.meet() else { panic!("nobody has touched it") };
        let (evictor, walk) = (world.clone(), world.clone());
        let evicting = thread::spawn(move || evictor.evict_after_turns(mark));
        let walking = thread::spawn(move || matches!(walk.state.meet(), Met::Touched));
        world.find_twice();
        let _ = walking.join().unwrap();
        assert_eq!(evicting.join().unwrap(), !world.state.is_resident());
    });
}
