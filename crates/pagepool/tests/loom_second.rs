//! The second place of a page under the model checker: a writer that moves the page over to it before it writes, beside the saver
//! that reads the copy of the cut, and beside a reader without a latch. The steps are those of `page/places.rs` over the real
//! `src/page/second.rs` and `src/page/latch.rs`; each can be taken wrongly, and then the checker must find what goes wrong.

use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[allow(dead_code)]
#[path = "../src/page/latch.rs"]
mod latch;
#[allow(dead_code)]
#[path = "../src/page/second.rs"]
mod second;

use latch::StateWord;
use second::{SecondWord, Side};
use sync::atomic::{fence, AtomicU64, Ordering};

/// A step taken wrongly, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// The writer writes where the page has been, not where it is now.
    WrittenBeforeMove,
    /// The saver believes what it has copied.
    NoLookAfterwards,
    /// The page moves, but its second word stays.
    NotTurned,
    /// What was let go is used by another page while a reader may still be there.
    NoTurns,
}

const OLD: u64 = 1;
const NEW: u64 = 2;
/// What another page has in the frame.
const OTHERS: u64 = 9;

/// A page in frame 1, the first copy, as of a cut that has just been; frame 2 is free.
struct World {
    state: StateWord,
    second: SecondWord,
    frames: [AtomicU64; 3],
    /// Held by a member during its command: who takes it has seen the member between two.
    command: Mutex<()>,
    mistake: Mistake,
}

impl World {
    fn new(mistake: Mistake) -> Arc<World> {
        let state = StateWord::new_evicted();
        assert!(state.begin_load());
        state.set_frame(1);
        let _ = state.loaded(true);
        let frames = [AtomicU64::new(0), AtomicU64::new(OLD), AtomicU64::new(0)];
        let (second, command) = (SecondWord::new_alone(), Mutex::new(()));
        Arc::new(World { state, second, frames, command, mistake })
    }

    fn does(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn content(&self, frame: u32) -> &AtomicU64 {
        &self.frames[frame as usize]
    }

    /// The first write after the cut: `PageTable::fill` and `PageTable::place`, then the write.
    fn write(&self) {
        assert!(self.state.try_lock().is_ok());
        let now = self.second.get();
        self.content(2).store(self.content(1).load(Ordering::Relaxed), Ordering::Relaxed);
        assert!(self.second.filled(now, 2));
        if self.does(Mistake::WrittenBeforeMove) {
            self.content(self.state.frame()).store(NEW, Ordering::Relaxed);
        }
        if !self.does(Mistake::NotTurned) {
            assert!(self.second.placed(self.second.get(), self.state.frame()));
        }
        self.state.exchange_frame(2);
        self.content(self.state.frame()).store(NEW, Ordering::Relaxed);
        let _ = self.state.unlock();
    }

    /// `PageTable::copy_side` of the copy that was written before the cut. None: it is to be tried again.
    fn read_cut(&self) -> Option<u64> {
        let now = self.second.get();
        let copy = if now.side() == Side::First || now.frame() == 0 {
            let since = self.state.place();
            let copy = self.content(since.frame()).load(Ordering::Relaxed);
            if !self.state.is_still_at(since) && !self.does(Mistake::NoLookAfterwards) {
                return None;
            }
            copy
        } else {
            let copy = self.content(now.frame()).load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            copy
        };
        (self.second.get() == now || self.does(Mistake::NoLookAfterwards)).then_some(copy)
    }

    /// The end of a stream: what is not the page's place is let go, and another page has it.
    fn let_go(&self) {
        let Some(frame) = self.second.let_go(Some(Side::First)) else { return };
        if !self.does(Mistake::NoTurns) {
            drop(self.command.lock().unwrap());
        }
        fence(Ordering::Release);
        self.content(frame).store(OTHERS, Ordering::Relaxed);
    }
}

/// The saver gets the content of the cut, whenever the writer comes.
fn saver_beside_writer(mistake: Mistake) {
    loom::model(move || {
        let world = World::new(mistake);
        // Not the writer: the checker forgets that somebody else has read a word which a thread reads before it writes it.
        let at_read = world.clone();
        let saver = thread::spawn(move || at_read.read_cut());
        world.write();
        let copy = saver.join().unwrap();
        let copy = copy.or_else(|| world.read_cut()).expect("nobody is in the way now");
        assert_eq!(copy, OLD, "the copy is of the cut");
        assert_eq!(world.content(world.state.frame()).load(Ordering::Relaxed), NEW);
    });
}

/// A reader without a latch finds the page before it moves, and reads on while its old frame becomes another page's. What it
/// reads as words must be the page's own until its command ends.
fn reader_beside_let_go(mistake: Mistake) {
    loom::model(move || {
        let world = World::new(mistake);
        let at_read = world.clone();
        let reader = thread::spawn(move || {
            let _command = at_read.command.lock().unwrap();
            let Ok(since) = at_read.state.read_version() else { return };
            let content = at_read.content(since.place().frame()).load(Ordering::Relaxed);
            assert_ne!(content, OTHERS, "a member reads what has been given to another page");
            assert!(!at_read.state.validate(since) || content == OLD || content == NEW);
        });
        world.write();
        world.let_go();
        reader.join().unwrap();
    });
}

#[test]
fn the_saver_finds_the_copy_of_the_cut() {
    saver_beside_writer(Mistake::None);
}

#[test]
fn readers_keep_what_they_have_found() {
    reader_beside_let_go(Mistake::None);
}

#[test]
#[should_panic(expected = "the copy is of the cut")]
fn a_write_before_the_move_is_found() {
    saver_beside_writer(Mistake::WrittenBeforeMove);
}

#[test]
#[should_panic(expected = "the copy is of the cut")]
fn a_copy_that_is_believed_is_found() {
    saver_beside_writer(Mistake::NoLookAfterwards);
}

#[test]
#[should_panic(expected = "the copy is of the cut")]
fn a_second_word_that_stays_is_found() {
    saver_beside_writer(Mistake::NotTurned);
}

#[test]
#[should_panic(expected = "has been given to another page")]
fn frames_that_are_given_too_early_are_found() {
    reader_beside_let_go(Mistake::NoTurns);
}
