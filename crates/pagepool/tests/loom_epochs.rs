//! The protocol of a page's epochs and claim bit under the model checker: sweep, writer, free and reuse. The steps are
//! those of `snapshot/epoch.rs` and `residency/supply.rs` over the real `src/page/epochs.rs`; each can be taken in a
//! wrong order, and then the checker must find what goes wrong.

use loom::sync::{Arc, Mutex};
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[allow(dead_code)]
#[path = "../src/page/epochs.rs"]
mod epochs;

use epochs::{claim, is_claimed, Epoch, PageEpochs};
use sync::atomic::{AtomicU64, Ordering};

/// A step taken in a wrong order, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// The writer modifies the page before it raises the write epoch.
    ModifyBeforeRaise,
    /// The writer raises the write epoch before it captures.
    RaiseBeforeCapture,
    /// The writer copies first and claims then.
    CaptureBeforeClaim,
    /// The sweep claims a page before it has validated its copy.
    ClaimBeforeValidation,
    /// A view takes whatever it copied.
    NoValidation,
    /// A freed extent is offered to others before its pages are marked.
    KeepBeforeMark,
    /// A freed page is used again whether a cut needs it or not.
    NoQuarantine,
    /// A page that was free at the cut is used again without its tombstone.
    ReuseWithoutTombstone,
    /// The content of a freed page is given up for its spilled image, and its write epoch not raised.
    SpillWithoutRaise,
}

const DURABLE: Epoch = Epoch(1);
const CUT: Epoch = Epoch(2);
const NOW: Epoch = Epoch(3);

/// Content is two words that a writer keeps equal.
type Content = (u64, u64);
const OLD: Content = (1, 1);
const NEW: Content = (2, 2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emitted {
    Content(Content),
    Tombstone,
}

/// A page and the stream that runs over it.
struct Page {
    epochs: PageEpochs,
    words: [AtomicU64; 2],
    claims: AtomicU64,
    /// The latch; the protocol of the state word has a model of its own.
    latch: Mutex<()>,
    emitted: Mutex<Vec<Emitted>>,
    /// What `free` has left for somebody to stream and let go.
    quarantine: Mutex<bool>,
    /// What a view reads once the page is no longer as of its cut.
    image: Mutex<Option<Content>>,
    mistake: Mistake,
}

impl Page {
    fn new(mistake: Mistake, written: Epoch, freed: Option<Epoch>) -> Arc<Page> {
        let epochs = PageEpochs::new();
        epochs.set_written(written);
        freed.into_iter().for_each(|freed| assert!(epochs.set_freed(freed)));
        Arc::new(Page {
            epochs,
            words: [AtomicU64::new(OLD.0), AtomicU64::new(OLD.1)],
            claims: AtomicU64::new(0),
            latch: Mutex::new(()),
            emitted: Mutex::new(Vec::new()),
            quarantine: Mutex::new(false),
            image: Mutex::new(None),
            mistake,
        })
    }

    fn does(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn claim(&self) -> bool {
        claim(&self.claims, 0)
    }

    fn read(&self) -> Content {
        (self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed))
    }

    fn modify(&self, content: Content) {
        self.words[0].store(content.0, Ordering::Relaxed);
        self.words[1].store(content.1, Ordering::Relaxed);
    }

    fn emit(&self, what: Emitted) {
        self.emitted.lock().unwrap().push(what);
    }

    fn needs(&self) -> bool {
        let written = self.epochs.written();
        DURABLE < written && written <= CUT
    }

    fn needs_content(&self) -> bool {
        self.needs() && self.epochs.freed().is_none_or(|freed| freed > CUT)
    }

    /// `EpochSnapshotter::sweep`, for this page.
    fn sweep(&self) {
        if let Some(freed) = self.epochs.freed().filter(|&freed| freed <= CUT) {
            if freed > DURABLE && self.claim() {
                self.emit(Emitted::Tombstone);
            }
            return;
        }
        if !self.needs() || is_claimed(&self.claims, 0) {
            return;
        }
        if self.does(Mistake::ClaimBeforeValidation) && !self.claim() {
            return;
        }
        let mut copy = (0, 0);
        if self.epochs.copy_as_of(CUT, || copy = self.read())
            && (self.does(Mistake::ClaimBeforeValidation) || self.claim())
        {
            self.emit(Emitted::Content(copy));
        }
    }

    /// `View::read_page`.
    fn view(&self) {
        let mut copy = (0, 0);
        if !self.epochs.copy_as_of(CUT, || copy = self.read()) && !self.does(Mistake::NoValidation) {
            copy = self.image.lock().unwrap().expect("an image of what has been superseded");
        }
        assert_eq!(copy, OLD, "a view shows the page as of its cut");
    }

    /// `ExclusiveGuard::page_mut`, then a modification.
    fn write(&self) {
        let _latch = self.latch.lock().unwrap();
        if self.epochs.written() != NOW {
            let (needed, is_seen) = (self.needs(), self.epochs.written() <= CUT);
            if self.does(Mistake::RaiseBeforeCapture) {
                self.epochs.set_written(NOW);
            }
            self.capture(needed, is_seen);
            if self.does(Mistake::ModifyBeforeRaise) {
                self.modify(NEW);
            }
            self.epochs.set_written(NOW);
        }
        self.modify(NEW);
    }

    /// `EpochSnapshotter::before_first_write`.
    fn capture(&self, needed: bool, is_seen: bool) {
        let early = self.read();
        if needed && self.claim() {
            self.emit(Emitted::Content(self.read()));
        } else if needed && self.does(Mistake::CaptureBeforeClaim) {
            self.emit(Emitted::Content(early));
        }
        if is_seen {
            *self.image.lock().unwrap() = Some(self.read());
        }
    }

    /// `Pool::free`; then, if nobody needs the content, the page is used again at once. The latch of the object is not
    /// this page's, which lies inside of it.
    fn free(&self) {
        if self.does(Mistake::KeepBeforeMark) && self.keep() {
            return assert!(self.epochs.set_freed(NOW));
        }
        assert!(self.epochs.set_freed(NOW));
        if !self.keep() {
            self.reuse();
        }
    }

    fn keep(&self) -> bool {
        let needed =
            self.needs_content() && !is_claimed(&self.claims, 0) && !self.does(Mistake::NoQuarantine);
        if needed {
            *self.quarantine.lock().unwrap() = true;
        }
        needed
    }

    /// The saver, or whoever pays for the budget: streams a page in quarantine and lets it be used again.
    fn stream_kept(&self) {
        if !std::mem::take(&mut *self.quarantine.lock().unwrap()) {
            return;
        }
        if self.needs_content() && self.claim() {
            self.emit(Emitted::Content(self.read()));
        }
        self.reuse();
    }

    /// `EpochSnapshotter::spill_freed`; then the page is used again.
    fn spill_and_reuse(&self) {
        *self.image.lock().unwrap() = Some(self.read());
        if !self.does(Mistake::SpillWithoutRaise) {
            self.epochs.set_written(NOW);
        }
        // `Core::give_back`.
        self.modify((0, 0));
        self.reuse();
    }

    /// `Pool::bring_to_life`, then a first modification.
    fn reuse(&self) {
        if let Some(freed) = self.epochs.freed() {
            let was_free = DURABLE < freed && freed <= CUT;
            if was_free && !self.does(Mistake::ReuseWithoutTombstone) && self.claim() {
                self.emit(Emitted::Tombstone);
            }
        }
        let _latch = self.latch.lock().unwrap();
        self.epochs.set_written(NOW);
        self.epochs.set_in_use();
        self.modify(NEW);
    }

    /// Once, and as of the cut.
    fn check(&self, expected: Emitted) {
        assert_eq!(*self.emitted.lock().unwrap(), [expected]);
    }
}

type Step = fn(&Page);

/// Every interleaving of `steps`, each a thread, on a page written before the cut and perhaps freed; then `check`.
fn explore(mistake: Mistake, freed: Option<Epoch>, steps: &[Step], check: Step) {
    let steps = steps.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let page = Page::new(mistake, CUT, freed);
        let spawn = |&step: &Step| {
            let page = page.clone();
            thread::spawn(move || step(&page))
        };
        let threads: Vec<_> = steps.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        check(&page);
    });
}

/// A page changed before the cut is written while it is swept.
fn sweep_and_write(mistake: Mistake) {
    explore(mistake, None, &[Page::sweep, Page::write], |page| {
        page.check(Emitted::Content(OLD));
        assert_eq!(page.read(), NEW, "the write is not lost");
    });
}

/// It is freed by one, let go by another and used again, while the saver sweeps it.
fn sweep_and_free(mistake: Mistake) {
    explore(mistake, None, &[Page::free, Page::sweep, Page::stream_kept], |page| {
        page.stream_kept();
        page.check(Emitted::Content(OLD));
        assert_eq!((page.epochs.freed(), page.epochs.written()), (None, NOW), "the page is in use");
    });
}

/// It is written and then freed while it is swept.
fn sweep_write_and_free(mistake: Mistake) {
    let write_and_free: Step = |page| {
        page.write();
        page.free();
    };
    explore(mistake, None, &[Page::sweep, write_and_free], |page| {
        page.stream_kept();
        page.check(Emitted::Content(OLD));
    });
}

/// A page freed before the cut is used again while it is swept.
fn sweep_and_reuse(mistake: Mistake) {
    explore(mistake, Some(CUT), &[Page::sweep, Page::reuse], |page| {
        page.check(Emitted::Tombstone);
        assert_eq!(page.epochs.freed(), None);
    });
}

/// A view reads a page that is written.
fn view_and_write(mistake: Mistake) {
    explore(mistake, None, &[Page::view, Page::write], |_| ());
}

/// A view reads a page freed after its cut, which is spilled and used again.
fn view_and_spill(mistake: Mistake) {
    explore(mistake, Some(NOW), &[Page::view, Page::spill_and_reuse], |_| ());
}

const MODELS: [fn(Mistake); 6] =
    [sweep_and_write, sweep_and_free, sweep_write_and_free, sweep_and_reuse, view_and_write, view_and_spill];

#[test]
fn pictures_are_as_of_the_cut() {
    MODELS.iter().for_each(|model| model(Mistake::None));
}

/// The checker finds what goes wrong: each model can fail.
#[test]
fn every_mistake_is_found() {
    let cases: [(Mistake, fn(Mistake)); 10] = [
        (Mistake::RaiseBeforeCapture, view_and_write),
        (Mistake::ModifyBeforeRaise, view_and_write),
        (Mistake::NoValidation, view_and_write),
        (Mistake::CaptureBeforeClaim, sweep_and_write),
        (Mistake::ClaimBeforeValidation, sweep_and_write),
        (Mistake::CaptureBeforeClaim, sweep_write_and_free),
        (Mistake::KeepBeforeMark, sweep_and_free),
        (Mistake::NoQuarantine, sweep_and_free),
        (Mistake::ReuseWithoutTombstone, sweep_and_reuse),
        (Mistake::SpillWithoutRaise, view_and_spill),
    ];
    for (mistake, model) in cases {
        let found = std::panic::catch_unwind(|| model(mistake)).is_err();
        assert!(found, "{mistake:?} goes unnoticed");
    }
}
