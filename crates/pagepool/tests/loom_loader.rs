//! Loaders, frees, reuse and the end of the warm-up under the model checker. The steps are those of
//! `residency/loader.rs`, `residency/stream.rs` and `residency/supply.rs` over the real `src/page/latch.rs` and `src/page/epochs.rs`; each can
//! be taken wrongly, and then the checker must find what goes wrong.

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[allow(dead_code)]
#[path = "../src/page/latch.rs"]
mod latch;

#[allow(dead_code)]
#[path = "../src/page/epochs.rs"]
mod epochs;

use epochs::{Epoch, PageEpochs};
use latch::{StateWord, Wanted};
use sync::atomic::Ordering;

/// A step taken wrongly, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// A loader reads whatever page it has got hold of.
    NoLookAtTheMark,
    /// A free looks at the state of a page that is not in memory, and does not write it.
    RetireByLooking,
    /// A free marks its pages after it has retired them.
    MarkAfterRetire,
    /// A free lets its pages go while one of them is being read.
    NoDeferral,
    /// A load that is going on counts as done.
    LoadingIsResident,
    /// The warm-up ends when its own reads have ended.
    NoWaitForOthers,
    /// Damage is noted once the page has been let go.
    NoteAfterEnd,
    /// A page is given up by whoever finds it absent, without the loaders' claim.
    GiveUpUnclaimed,
    /// A loader looks whether the page has been given up, and then makes the claim.
    LookBeforeClaim,
    /// What others are bringing in, or giving back, counts as done for a request.
    OthersAreDone,
    /// The evictor's page counts as in memory once it is not on its way any more.
    MovedIsThere,
}

const NOW: Epoch = Epoch(2);
/// Content as the page file has it, and as an owner after the first writes it.
const STORED: u64 = 1;
const NEW: u64 = 2;

/// A page of an object (not its head, so nobody latches it), in the page file and not in memory.
struct Page {
    state: StateWord,
    epochs: PageEpochs,
    /// Checked by the model: two at a time are a failure if one of them writes.
    content: UnsafeCell<u64>,
    /// What a free has put off, and what an allocation finds.
    deferred: Mutex<bool>,
    free: Mutex<bool>,
    is_damaged: bool,
    has_damage: AtomicBool,
    warm: AtomicBool,
    is_given_up: Mutex<bool>,
    /// What somebody relies on who has given the page up.
    is_relied_on: AtomicBool,
    mistake: Mistake,
}

impl Page {
    fn new(mistake: Mistake, is_damaged: bool) -> Arc<Page> {
        Arc::new(Page {
            state: StateWord::new_evicted(),
            epochs: PageEpochs::new(),
            content: UnsafeCell::new(0),
            deferred: Mutex::new(false),
            free: Mutex::new(false),
            is_damaged,
            has_damage: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            is_given_up: Mutex::new(false),
            is_relied_on: AtomicBool::new(false),
            mistake,
        })
    }

    fn does(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn write(&self, content: u64) {
        // SAFETY: P2: that nobody else has it is what the model checks.
        self.content.with_mut(|place| unsafe { *place = content });
    }

    fn read(&self) -> u64 {
        // SAFETY: P1: that nobody writes it is what the model checks.
        self.content.with(|place| unsafe { *place })
    }

    fn is_as_checkpointed(&self) -> bool {
        self.epochs.written() == Epoch(0) && self.epochs.freed().is_none()
    }

    /// `Loader::next` until the request is done: who runs its command then finds the page, or why there is none.
    fn request(&self) {
        loop {
            if self.state.is_resident() || self.has_damage.load(Ordering::Acquire) {
                break;
            }
            self.load_absent();
            if !self.state.is_moving() {
                match self.does(Mistake::MovedIsThere) {
                    true => break,
                    false => continue,
                }
            }
            if self.does(Mistake::OthersAreDone) {
                break;
            }
            thread::yield_now();
        }
        let is_damaged = self.has_damage.load(Ordering::Acquire);
        assert!(is_damaged || self.state.is_resident(), "a request is done when its page is there");
        if !is_damaged {
            assert_eq!(self.read(), STORED);
        }
    }

    /// `Residency::begin_load` and `Residency::end_load`.
    fn load_absent(&self) {
        let look = || *self.is_given_up.lock().unwrap();
        let before = look();
        if !self.state.begin_load() {
            return;
        }
        let is_given_up = if self.does(Mistake::LookBeforeClaim) { before } else { look() };
        if is_given_up {
            let _ = self.state.load_failed();
            return;
        }
        if !self.is_as_checkpointed() && !self.does(Mistake::NoLookAtTheMark) {
            let _ = self.state.load_failed();
            return;
        }
        self.write(STORED);
        let note = || self.has_damage.store(true, Ordering::Release);
        if self.is_damaged && !self.does(Mistake::NoteAfterEnd) {
            note();
        }
        let _ = if self.is_damaged { self.state.load_failed() } else { self.state.loaded(true) };
        if self.is_damaged && self.does(Mistake::NoteAfterEnd) {
            note();
        }
        self.finish_deferred_frees();
    }

    /// `Residency::give_up` of a page that could not be read before, and can now.
    fn give_up(&self) {
        if self.does(Mistake::GiveUpUnclaimed) {
            if !self.state.is_resident() {
                *self.is_given_up.lock().unwrap() = true;
                self.is_relied_on.store(true, Ordering::Relaxed);
            }
            return;
        }
        if self.state.begin_load() {
            *self.is_given_up.lock().unwrap() = true;
            let _ = self.state.load_failed();
            self.is_relied_on.store(true, Ordering::Relaxed);
        }
    }

    /// `wait_for_load`; the parking lot is the scheduler here.
    fn wait_for_load(&self) {
        while self.state.announce_waiter(Wanted::EndOfMove) {
            thread::yield_now();
        }
    }

    /// The end of `warm_up`.
    fn warm_up(&self) {
        self.load_absent();
        if !self.does(Mistake::NoWaitForOthers) {
            self.wait_for_load();
        }
        self.warm.store(true, Ordering::Release);
    }

    /// `Keyspace::note_residence`, and then a GET that takes every page to be in memory.
    fn get(&self) {
        if self.warm.load(Ordering::Acquire) && !self.has_damage.load(Ordering::Acquire) {
            assert_eq!(self.read(), STORED, "what is served is there");
        }
    }

    /// `Pool::object_page` under the latch of the head.
    fn read_if_resident(&self) {
        let is_resident = match self.mistake {
            Mistake::LoadingIsResident => {
                self.state.is_resident() || self.state.announce_waiter(Wanted::EndOfMove)
            }
            _ => self.state.is_resident(),
        };
        if is_resident {
            assert_eq!(self.read(), STORED);
        }
    }

    /// `Pool::free`, for this page.
    fn free(&self) {
        if self.does(Mistake::MarkAfterRetire) {
            self.finish_free();
            return assert!(self.epochs.set_freed(NOW));
        }
        assert!(self.epochs.set_freed(NOW));
        self.finish_free();
    }

    fn finish_free(&self) {
        let is_retired = match self.mistake {
            Mistake::RetireByLooking if !self.state.is_resident() => {
                !self.state.announce_waiter(Wanted::EndOfMove)
            }
            _ => self.state.retire().is_some(),
        };
        if is_retired || self.does(Mistake::NoDeferral) {
            *self.free.lock().unwrap() = true;
        } else {
            *self.deferred.lock().unwrap() = true;
        }
    }

    fn finish_deferred_frees(&self) {
        let is_deferred = std::mem::take(&mut *self.deferred.lock().unwrap());
        if is_deferred {
            self.finish_free();
        }
    }

    /// `Pool::allocate_object`: of a page that has been freed.
    fn allocate(&self) {
        self.finish_deferred_frees();
        if !std::mem::take(&mut *self.free.lock().unwrap()) {
            return;
        }
        while !self.state.begin_life() {
            thread::yield_now();
        }
        self.epochs.set_written(NOW);
        self.epochs.set_in_use();
        let _ = self.state.unlock();
        // Under the latch of the new head.
        self.write(NEW);
    }
}

type Step = fn(&Page);

/// Every interleaving of `steps`, each a thread; then `check`.
fn explore(mistake: Mistake, is_damaged: bool, steps: &[Step], check: Step) {
    let steps = steps.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let page = Page::new(mistake, is_damaged);
        let spawn = |&step: &Step| {
            let page = page.clone();
            thread::spawn(move || step(&page))
        };
        let threads: Vec<_> = steps.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        check(&page);
    });
}

/// An object that is not in memory is freed, and its pages used again, while a loader comes to one of them.
fn load_and_reuse(mistake: Mistake) {
    let free_and_allocate: Step = |page| {
        page.free();
        page.allocate();
    };
    explore(mistake, false, &[Page::load_absent, free_and_allocate], |page| {
        page.allocate();
        assert_eq!(page.read(), NEW, "the new owner's content stays");
        assert!(page.state.is_resident() && page.epochs.freed().is_none());
    });
}

/// The warm-up passes a page that another loader reads; a command then takes everything to be in memory.
fn load_and_warm_up(mistake: Mistake) {
    explore(mistake, false, &[Page::load_absent, Page::warm_up, Page::get], Page::get);
}

/// The same where the page turns out to be damaged.
fn load_and_warm_up_damaged(mistake: Mistake) {
    let look: Step = |page| {
        let is_warm = page.warm.load(Ordering::Acquire);
        assert!(!is_warm || page.has_damage.load(Ordering::Acquire), "nothing is taken for whole");
    };
    explore(mistake, true, &[Page::load_absent, Page::warm_up, look], look);
}

/// A page is read while its loader is at it.
fn load_and_read(mistake: Mistake) {
    explore(mistake, false, &[Page::load_absent, Page::read_if_resident], |_| ());
}

/// A page is given up while loaders come to it.
fn load_and_give_up(mistake: Mistake) {
    explore(mistake, false, &[Page::load_absent, Page::give_up, Page::load_absent], |page| {
        let is_relied_on = page.is_relied_on.load(Ordering::Relaxed);
        assert!(!is_relied_on || !page.state.is_resident(), "what has been given up stays absent");
    });
}

/// A page is asked for by two requests of different threads.
fn two_requests(mistake: Mistake) {
    for is_damaged in [false, true] {
        explore(mistake, is_damaged, &[Page::request, Page::request], |_| ());
    }
}

/// A page is asked for while the evictor gives it back.
fn request_and_evict(mistake: Mistake) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let page = Page::new(mistake, false);
        // On its way out, as of `StateWord::claim`.
        assert!(page.state.begin_load());
        let asker = page.clone();
        let asker = thread::spawn(move || asker.request());
        let _ = page.state.moved_out();
        asker.join().unwrap();
    });
}

const MODELS: [fn(Mistake); 7] = [
    load_and_reuse,
    load_and_warm_up,
    load_and_warm_up_damaged,
    load_and_read,
    load_and_give_up,
    two_requests,
    request_and_evict,
];

#[test]
fn nothing_is_read_before_it_is_there() {
    MODELS.iter().for_each(|model| model(Mistake::None));
}

/// Whoever waits for the end of a load is told.
#[test]
fn no_end_of_a_load_is_lost() {
    for is_good in [true, false] {
        loom::model(move || {
            let page = Page::new(Mistake::None, !is_good);
            assert!(page.state.begin_load());
            let waiter = page.clone();
            let thread = thread::spawn(move || waiter.state.announce_waiter(Wanted::EndOfMove));
            let woke = if is_good { page.state.loaded(true) } else { page.state.load_failed() };
            let announced = thread.join().unwrap();
            assert_eq!(woke, announced, "the loader wakes exactly those that announced themselves");
            assert!(!page.state.still_waiting());
        });
    }
}

/// The checker finds what goes wrong: each model can fail.
#[test]
fn every_mistake_is_found() {
    let cases: [(Mistake, fn(Mistake)); 11] = [
        (Mistake::OthersAreDone, two_requests),
        (Mistake::MovedIsThere, request_and_evict),
        (Mistake::NoLookAtTheMark, load_and_reuse),
        (Mistake::RetireByLooking, load_and_reuse),
        (Mistake::MarkAfterRetire, load_and_reuse),
        (Mistake::NoDeferral, load_and_reuse),
        (Mistake::LoadingIsResident, load_and_read),
        (Mistake::NoWaitForOthers, load_and_warm_up),
        (Mistake::NoteAfterEnd, load_and_warm_up_damaged),
        (Mistake::GiveUpUnclaimed, load_and_give_up),
        (Mistake::LookBeforeClaim, load_and_give_up),
    ];
    for (mistake, model) in cases {
        let found = std::panic::catch_unwind(|| model(mistake)).is_err();
        assert!(found, "{mistake:?} goes unnoticed");
    }
}
