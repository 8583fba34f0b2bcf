//! The end of a stream, freed extents in quarantine and the budget under the model checker, over the real
//! `src/snapshot/{running,quarantine,views,budget}.rs` and `src/page/epochs.rs`. The steps are those of `snapshot/epoch.rs` and
//! `residency/supply.rs`; each can be taken wrongly, and then the checker must find what goes wrong.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

#[path = "loom_sync/mod.rs"]
mod sync;

#[allow(dead_code)]
#[path = "../src/page/epochs.rs"]
mod epochs;

#[allow(dead_code)]
#[path = "../src/snapshot/budget.rs"]
mod budget;

#[allow(dead_code)]
#[path = "../src/snapshot/quarantine.rs"]
mod quarantine;

#[allow(dead_code)]
#[path = "../src/snapshot/running.rs"]
mod running;

#[allow(dead_code)]
#[path = "../src/snapshot/views.rs"]
mod views;

#[path = "../src/space/extent.rs"]
mod extent;

/// What the sources above take from the crate.
mod page {
    pub use crate::epochs::Epoch;
    use crate::epochs::PageEpochs;

    pub struct Descriptor {
        pub epochs: PageEpochs,
    }
}

mod space {
    pub use crate::extent::Extent;
}

mod core {
    use crate::{budget::Budget, page::Descriptor, PageId};

    pub struct Frames(pub Budget);

    impl Frames {
        pub fn budget(&self) -> &Budget {
            &self.0
        }
    }

    pub struct Pages(pub [Descriptor; 1]);

    impl Pages {
        pub fn descriptor(&self, page: PageId) -> &Descriptor {
            &self.0[page.0 as usize]
        }
    }

    pub struct Core {
        pub frames: Frames,
        pub pages: Pages,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageId(u32);

use budget::Budget;
use core::{Core, Frames, Pages};
use epochs::{claim, is_claimed, Epoch, PageEpochs};
use extent::Extent;
use page::Descriptor;
use quarantine::{Kept, Quarantine};
use running::Running;
use sync::atomic::{AtomicU64, Ordering};
use sync::Mutex;
use views::Views;

/// A step taken wrongly, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// A writer that has no frame hands its page over without taking part.
    HelpWithoutPart,
    /// It lets the stream go before it takes part.
    JoinLate,
    /// The saver takes a stream for complete once everything is claimed.
    NoClose,
    /// The claims are cleared while the stream can still be looked at.
    ClearBeforeEnd,
    /// Whoever pays for the budget takes no part.
    PayWithoutPart,
    /// A freed extent is kept after the look that found that the stream needs it.
    KeepAfterLook,
    /// A view goes through the quarantine before it closes.
    SettleBeforeEnd,
    /// A freed extent is used again though it is kept.
    ReuseWhatIsKept,
    /// The budget is looked at, and then taken.
    LookThenTake,
}

const DURABLE: Epoch = Epoch(1);
const CUT: Epoch = Epoch(2);
const NOW: Epoch = Epoch(3);
const OLD: u64 = 1;
const NEW: u64 = 2;
const PAGE: PageId = PageId(0);
const EXTENT: Extent = Extent { start: PAGE, page_count: 1 };

#[derive(Default)]
struct Stream {
    captured: Mutex<Vec<u64>>,
    emitted: Mutex<Vec<u64>>,
}

/// One page that has changed before the cut, and the stream that runs over it.
struct World {
    core: Core,
    content: UnsafeCell<u64>,
    claims: AtomicU64,
    stream: Running<Stream>,
    quarantine: Quarantine,
    views: Views,
    /// How often the page has been let go.
    reuse_count: AtomicU64,
    mistake: Mistake,
}

impl World {
    fn new(mistake: Mistake, has_view: bool) -> Arc<World> {
        let epochs = PageEpochs::new();
        epochs.set_written(CUT);
        let world = World {
            core: Core { frames: Frames(Budget::new(1)), pages: Pages([Descriptor { epochs }]) },
            content: UnsafeCell::new(OLD),
            claims: AtomicU64::new(0),
            stream: Running::default(),
            quarantine: Quarantine::default(),
            views: Views::default(),
            reuse_count: AtomicU64::new(0),
            mistake,
        };
        world.stream.begin(Stream::default());
        if has_view {
            world.views.begin(CUT);
        }
        Arc::new(world)
    }

    fn does(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn read(&self) -> u64 {
        // SAFETY: P3: that nobody writes is what the model checks.
        self.content.with(|place| unsafe { *place })
    }

    fn write(&self) {
        // SAFETY: P2: that nobody else has the page is what the model checks.
        self.content.with_mut(|place| unsafe { *place = NEW });
    }

    fn epochs(&self) -> &PageEpochs {
        &self.core.pages.descriptor(PAGE).epochs
    }

    fn claim(&self) -> bool {
        claim(&self.claims, 0)
    }

    fn needs_content(&self) -> bool {
        let written = self.epochs().written();
        DURABLE < written && written <= CUT && self.epochs().freed().is_none_or(|freed| freed > CUT)
    }

    /// `EpochSnapshotter::before_first_write` with a frame for the copy.
    fn capture(&self) {
        let look = self.stream.look();
        if let Some(stream) = look.stream() {
            if self.needs_content() && self.claim() {
                stream.captured.lock().push(OLD);
            }
        }
        self.epochs().set_written(NOW);
    }

    /// The same without one.
    fn help(&self) {
        let look = self.stream.look();
        if look.stream().is_none() || !self.needs_content() || !self.claim() {
            return;
        }
        let (work, joined) = match self.mistake {
            Mistake::HelpWithoutPart => (self.stream.current(), None),
            Mistake::JoinLate => {
                drop(look);
                (None, self.stream.look().join())
            }
            _ => {
                let joined = look.join();
                drop(look);
                (None, joined)
            }
        };
        thread::yield_now();
        if let Some(stream) = work.as_deref().or(joined.as_deref()) {
            stream.emitted.lock().push(OLD);
        }
        self.epochs().set_written(NOW);
    }

    /// `EpochSnapshotter::run_stream` and `end_stream`; what has been emitted by the end.
    fn save(&self) -> Vec<u64> {
        let stream = self.stream.current().expect("it runs");
        if self.needs_content() && self.claim() {
            stream.emitted.lock().push(OLD);
        }
        if !self.does(Mistake::NoClose) {
            self.stream.close();
        }
        let captured = std::mem::take(&mut *stream.captured.lock());
        stream.emitted.lock().extend(captured);
        self.write_kept(&stream);
        let emitted = stream.emitted.lock().clone();
        if self.does(Mistake::ClearBeforeEnd) {
            self.claims.store(0, Ordering::Relaxed);
        }
        drop(stream);
        // Finds that somebody still holds the stream, and with it the checkpoint's writer.
        drop(self.stream.end());
        if !self.does(Mistake::ClearBeforeEnd) {
            self.claims.store(0, Ordering::Relaxed);
        }
        self.quarantine.settle_unswept(&self.core, &self.views);
        emitted
    }

    fn save_and_check(&self) {
        assert_eq!(self.save(), [OLD], "once, as of the cut");
        assert!(!is_claimed(&self.claims, 0));
    }

    /// `EpochSnapshotter::write_kept`.
    fn write_kept(&self, stream: &Stream) {
        let Some(kept) = self.quarantine.take_unswept() else { return };
        if self.needs_content() && self.claim() {
            stream.emitted.lock().push(self.read());
        }
        self.quarantine.settle(&self.core, &self.views, Kept { next: 0, ..kept });
    }

    /// `EpochSnapshotter::relieve`, of one page of several: the extent goes back.
    fn pay(&self) {
        let look = self.stream.look();
        let joined = if self.does(Mistake::PayWithoutPart) { None } else { look.join() };
        let takes_part = joined.is_some() || self.does(Mistake::PayWithoutPart);
        drop(look);
        if takes_part {
            if let Some(kept) = self.quarantine.take_unswept() {
                self.quarantine.put_back_unswept(kept);
            }
        }
    }

    /// `Pool::free`; then whoever allocates uses the page again.
    fn free(&self) {
        assert!(self.epochs().set_freed(NOW));
        if !self.keep_freed() || self.does(Mistake::ReuseWhatIsKept) {
            self.reuse();
        }
    }

    /// `EpochSnapshotter::keep_freed`.
    fn keep_freed(&self) -> bool {
        let look = self.stream.look();
        let is_needed = look.stream().is_some() && self.needs_content() && !is_claimed(&self.claims, 0);
        if self.does(Mistake::KeepAfterLook) {
            drop(look);
        }
        if is_needed {
            self.quarantine.keep_for_stream(&self.core, EXTENT);
            return true;
        }
        self.quarantine.keep_for_views(&self.core, &self.views, EXTENT)
    }

    /// `Pool::take_back` and an allocation.
    fn allocate(&self) {
        self.quarantine.take_released(8).iter().for_each(|_| self.reuse());
    }

    fn reuse(&self) {
        self.reuse_count.fetch_add(1, Ordering::Relaxed);
        self.write();
        self.epochs().set_written(NOW);
    }

    /// A view reads the page, which has been freed or will be, and ends.
    fn view_and_end(&self) {
        assert_eq!(self.read(), OLD, "the page is as of the cut while the view is open");
        if self.does(Mistake::SettleBeforeEnd) {
            self.quarantine.settle_viewed(&self.core, &self.views);
        }
        self.views.end(CUT);
        if !self.does(Mistake::SettleBeforeEnd) {
            self.quarantine.settle_viewed(&self.core, &self.views);
        }
    }

    fn check_freed(&self) {
        self.allocate();
        assert_eq!(self.reuse_count.load(Ordering::Relaxed), 1, "the page is let go, once");
        assert_eq!(self.core.frames.budget().held_pages(), 0);
    }
}

type Step = fn(&World);

/// Every interleaving of `steps`, each a thread; then `check`.
fn explore(mistake: Mistake, has_view: bool, steps: &[Step], check: Step) {
    let steps = steps.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = World::new(mistake, has_view);
        let spawn = |&step: &Step| {
            let world = world.clone();
            thread::spawn(move || step(&world))
        };
        let threads: Vec<_> = steps.iter().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        check(&world);
    });
}

/// Writers capture a page, or hand it over themselves, while the stream comes to its end.
fn end_beside_writers(mistake: Mistake) {
    explore(mistake, false, &[World::save_and_check, World::capture], |world| {
        assert!(!is_claimed(&world.claims, 0))
    });
    explore(mistake, false, &[World::save_and_check, World::help], |world| {
        assert!(!is_claimed(&world.claims, 0))
    });
}

/// A page is freed, and somebody pays for the budget, while the stream comes to its end.
fn end_beside_free(mistake: Mistake) {
    explore(mistake, false, &[World::save_and_check, World::free, World::pay], World::check_freed);
}

/// A page is freed while a view of it ends.
fn free_beside_view(mistake: Mistake) {
    let end_stream: Step = |world| drop(world.save());
    let free: Step = |world| {
        world.free();
        world.allocate();
    };
    explore(mistake, true, &[end_stream, free, World::view_and_end], World::check_freed);
}

/// Two want the last page of the budget.
fn last_page(mistake: Mistake) {
    loom::model(move || {
        let budget = Arc::new(Budget::new(1));
        let take = move |budget: &Budget| match mistake {
            Mistake::LookThenTake if budget.held_pages() == 0 => {
                budget.take(1);
                true
            }
            Mistake::LookThenTake => false,
            _ => budget.try_take(),
        };
        let other = budget.clone();
        let thread = thread::spawn(move || take(&other));
        let (here, there) = (take(&budget), thread.join().unwrap());
        assert!(here != there, "one of them gets it");
        assert_eq!((budget.held_pages(), budget.is_exceeded()), (1, false));
    });
}

const MODELS: [fn(Mistake); 4] = [end_beside_writers, end_beside_free, free_beside_view, last_page];

#[test]
fn streams_end_whole_and_let_everything_go() {
    MODELS.iter().for_each(|model| model(Mistake::None));
}

/// The checker finds what goes wrong: each model can fail.
#[test]
fn every_mistake_is_found() {
    let cases: [(Mistake, fn(Mistake)); 9] = [
        (Mistake::HelpWithoutPart, end_beside_writers),
        (Mistake::JoinLate, end_beside_writers),
        (Mistake::NoClose, end_beside_writers),
        (Mistake::ClearBeforeEnd, end_beside_writers),
        (Mistake::PayWithoutPart, end_beside_free),
        (Mistake::KeepAfterLook, end_beside_free),
        (Mistake::SettleBeforeEnd, free_beside_view),
        (Mistake::ReuseWhatIsKept, free_beside_view),
        (Mistake::LookThenTake, last_page),
    ];
    for (mistake, model) in cases {
        let found = std::panic::catch_unwind(|| model(mistake)).is_err();
        assert!(found, "{mistake:?} goes unnoticed");
    }
}
