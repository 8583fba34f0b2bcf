//! Commits, phases and the flags of a row under the model checker: every interleaving of a transaction with the thread that
//! takes a cut. The steps are those of `session.rs` and of the algorithms, over the real `src/cut` and `src/row`; each
//! can be taken in a wrong order, and then the checker must find what goes wrong.

use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic;

    pub fn pause() {
        loom::thread::yield_now();
    }
}

#[allow(dead_code, unused_imports)]
#[path = "../src/cut/mod.rs"]
mod cut;

#[allow(dead_code, unused_imports)]
#[path = "../src/row/mod.rs"]
mod row;

use cut::{fence_before_places, CommitSeq, CommitWord, Phase, Place, Stage};
use row::{Mode, Parity, RowLock, RowSide, RowStatus, RowTouched, Side, Taken};
use sync::atomic::{AtomicU64, Ordering};

/// A step taken in a wrong order, or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// A session does not look at the phase again after it has written its place.
    NoSecondLook,
    /// A transaction looks at the phase, and then commits.
    PhaseBeforeCommit,
    /// The points of sessions are read while transactions before them are under way.
    NoWait,
    /// CALC: who began in PREPARE lets its copy go, wherever it has committed.
    StraddlerLetsGo,
    /// A writer modifies the row, and then holds its copy.
    ModifyBeforeHold,
    /// The sweep believes the first copy that it has made.
    NoValidation,
    /// An abort restores the row and lets its copy go while the sweep runs.
    LetGoInSweep,
    /// vHG: who commits after the cut leaves what it wrote before where it is.
    OvertakenStays,
    /// A failed image copies its rows to the other side without making them BUSY.
    CarryWithoutBusy,
    /// The pass says that both sides are the same, and then copies.
    SameBeforeCopy,
    /// Who does not share a row says that it does.
    NotAmongSharers,
}

const OLD: u64 = 1;
const NEW: u64 = 2;
const FIRST_STAGE: Stage = Stage(1);

/// A copy of a row: two words that a writer keeps equal.
struct Words([AtomicU64; 2]);

impl Words {
    fn new(value: u64) -> Words {
        Words([AtomicU64::new(value), AtomicU64::new(value)])
    }

    fn read(&self) -> (u64, u64) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }

    fn write(&self, (one, other): (u64, u64)) {
        self.0[0].store(one, Ordering::Relaxed);
        self.0[1].store(other, Ordering::Relaxed);
    }
}

struct World {
    word: CommitWord,
    place: Place,
    lock: RowLock,
    status: RowStatus,
    touched: RowTouched,
    side: RowSide,
    copies: [Words; 2],
    /// Who goes by an old phase says so here.
    goes_by_old: AtomicU64,
    mistake: Mistake,
}

impl World {
    fn new(mistake: Mistake) -> World {
        let side = RowSide::new();
        side.move_to(Side::Zero);
        World {
            word: CommitWord::new(),
            place: Place::new(0),
            lock: RowLock::new(),
            status: RowStatus::new(),
            touched: RowTouched::new(),
            side,
            copies: [Words::new(OLD), Words::new(OLD)],
            goes_by_old: AtomicU64::new(0),
            mistake,
        }
    }

    fn does(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn live(&self) -> &Words {
        &self.copies[0]
    }

    fn stable(&self) -> &Words {
        &self.copies[1]
    }

    fn copy(&self, from: Side) {
        self.copies[from.other() as usize].write(self.copies[from as usize].read());
    }

    fn begin(&self) -> Phase {
        if self.does(Mistake::NoSecondLook) {
            // A word that never moves.
            let phase = self.word.phase();
            let still = CommitWord::new();
            still.advance(phase.stage());
            return self.place.begin(&still);
        }
        self.place.begin(&self.word)
    }

    fn commit(&self) -> (CommitSeq, Phase) {
        let early = self.word.phase();
        let (seq, phase) = self.word.commit();
        (seq, if self.does(Mistake::PhaseBeforeCommit) { early } else { phase })
    }

    /// A phase begins, and all who go by an older one end.
    fn advance_and_drain(&self, to: Stage) -> (CommitSeq, Phase) {
        let (last, phase) = self.word.advance(to);
        fence_before_places();
        while !self.does(Mistake::NoWait) && !self.place.is_past(phase) {
            thread::yield_now();
        }
        (last, phase)
    }
}

/// Every interleaving of a session with the thread that takes a cut; then `check` what both say.
fn explore<S: 'static + Send, C: 'static>(
    mistake: Mistake,
    session: fn(&World) -> S,
    cut: fn(&World) -> C,
    check: fn(&World, S, C),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = Arc::new(World::new(mistake));
        let other = world.clone();
        let thread = thread::spawn(move || session(&other));
        let of_cut = cut(&world);
        let of_session = thread.join().unwrap();
        check(&world, of_session, of_cut);
    });
}

/// Once the places have been looked at, nobody goes by an older phase.
fn nobody_goes_by_an_old_phase(mistake: Mistake) {
    let session = |world: &World| {
        let is_old = world.begin().stage() == Stage::REST;
        world.goes_by_old.store(u64::from(is_old), Ordering::Relaxed);
        world.goes_by_old.store(0, Ordering::Relaxed);
        world.place.end();
    };
    let cut = |world: &World| {
        world.advance_and_drain(FIRST_STAGE);
        assert_eq!(world.goes_by_old.load(Ordering::Relaxed), 0, "somebody goes by an old phase");
    };
    explore(mistake, session, cut, |_, (), ()| ());
}

/// A commit says of itself whether it is before the cut, and the cut says the same.
fn a_commit_is_before_the_cut_or_after(mistake: Mistake) {
    let session = |world: &World| [world.commit(), world.commit()];
    let cut = |world: &World| world.word.advance(FIRST_STAGE).0;
    explore(mistake, session, cut, |_, commits, last| {
        for (seq, phase) in commits {
            assert_eq!(phase.stage() == Stage::REST, seq <= last, "{seq:?}, {last:?}");
        }
    });
}

/// The point of a session is after the last that began before the cut.
fn points_are_where_sessions_crossed(mistake: Mistake) {
    let session = |world: &World| {
        [(); 2].map(|()| {
            let epoch = world.begin().epoch(FIRST_STAGE);
            world.place.enter_epoch(epoch);
            let seq = world.place.count_commit();
            world.place.end();
            (epoch, seq)
        })
    };
    let cut = |world: &World| {
        let epoch = world.advance_and_drain(FIRST_STAGE).1.epoch(FIRST_STAGE);
        (epoch, world.place.committed_before(epoch))
    };
    explore(mistake, session, cut, |_, commits, (new, point)| {
        for (epoch, seq) in commits {
            assert_eq!(epoch != new, seq <= point, "{epoch} {seq:?}, {new} {point:?}");
        }
    });
}

const EVEN: Parity = Parity(false);

fn sweep(world: &World) -> (u64, u64) {
    let mut copied = None;
    world.status.take(EVEN, |from| {
        if copied.is_some() && world.does(Mistake::NoValidation) {
            return;
        }
        copied = Some(if from == Taken::Stable { world.stable().read() } else { world.live().read() });
    });
    copied.unwrap()
}

/// What is copied is known. A read of it here would hide that of the sweep from the checker, which looks for races with the
/// last access of a word alone.
fn hold(world: &World) -> bool {
    world.status.hold(EVEN, || world.stable().write((OLD, OLD)))
}

/// A writer after the cut, and the sweep.
fn the_sweep_takes_the_row_as_of_the_cut(mistake: Mistake) {
    let session = |world: &World| {
        if world.does(Mistake::ModifyBeforeHold) {
            world.live().write((NEW, NEW));
        }
        hold(world);
        world.live().write((NEW, NEW));
    };
    explore(mistake, session, sweep, |world, (), image| {
        assert_eq!(image, (OLD, OLD));
        assert!(world.status.is_done(EVEN));
        assert_eq!(world.live().read(), (NEW, NEW));
    });
}

/// The same writer gives up.
fn the_sweep_takes_nothing_of_who_gives_up(mistake: Mistake) {
    let session = |world: &World| {
        let is_held = hold(world);
        world.live().write((NEW, NEW));
        world.live().write((OLD, OLD));
        if is_held && world.does(Mistake::LetGoInSweep) {
            world.status.let_go(EVEN);
        }
    };
    explore(mistake, session, sweep, |world, (), image| {
        assert_eq!(image, (OLD, OLD));
        assert!(world.status.is_done(EVEN));
    });
}

/// A reader's mark, and the sweep.
fn a_mark_does_not_disturb_the_sweep(mistake: Mistake) {
    let session = |world: &World| world.status.mark_read(EVEN);
    explore(mistake, session, sweep, |world, (), image| {
        assert_eq!(image, (OLD, OLD));
        assert!(world.status.is_done(EVEN));
    });
}

/// CALC: who began in PREPARE commits before the cut or after it.
fn a_straddler_is_in_the_image_or_not(mistake: Mistake) {
    let session = |world: &World| {
        world.begin();
        hold(world);
        world.live().write((NEW, NEW));
        let (seq, ended) = world.commit();
        if ended.stage() == Stage::REST || world.does(Mistake::StraddlerLetsGo) {
            world.status.let_go(EVEN);
        }
        world.place.end();
        seq
    };
    let cut = |world: &World| {
        let last = world.advance_and_drain(FIRST_STAGE).0;
        (last, sweep(world))
    };
    explore(mistake, session, cut, |_, seq, (last, image)| {
        let value = if seq <= last { NEW } else { OLD };
        assert_eq!(image, (value, value));
    });
}

/// vHG: a transaction is overtaken by the cut, or is not.
fn the_overtaken_moves(mistake: Mistake) {
    let session = |world: &World| {
        world.begin();
        let me = Side::of_epoch(world.word.phase().epoch(FIRST_STAGE));
        world.touched.touch(me, || world.copy(me.other()));
        world.copies[me as usize].write((NEW, NEW));
        let (seq, ended) = world.commit();
        let new = Side::of_epoch(ended.epoch(FIRST_STAGE));
        if new != me && !world.does(Mistake::OvertakenStays) {
            world.copy(me);
            world.copies[me as usize].write((OLD, OLD));
            world.touched.move_to(new);
        }
        world.place.end();
        seq
    };
    let cut = |world: &World| {
        let last = world.advance_and_drain(FIRST_STAGE).0;
        assert!(world.touched.is_touched(Side::Zero));
        (last, world.copies[0].read())
    };
    explore(mistake, session, cut, |world, seq, (last, image)| {
        let value = if seq <= last { NEW } else { OLD };
        assert_eq!(image, (value, value));
        assert_eq!(world.copies[world.touched.live() as usize].read(), (NEW, NEW));
    });
}

/// vHG: the image has failed, and a writer comes.
fn a_failed_image_loses_no_write(mistake: Mistake) {
    let session = |world: &World| {
        world.touched.touch(Side::One, || world.copy(Side::Zero));
        world.copies[1].write((NEW, NEW));
    };
    let cut = |world: &World| {
        if world.does(Mistake::CarryWithoutBusy) {
            world.copy(Side::Zero);
            world.touched.move_to(Side::One);
            world.touched.clear(Side::Zero);
        } else {
            world.touched.carry(Side::Zero, || world.copy(Side::Zero));
        }
    };
    explore(mistake, session, cut, |world, (), ()| {
        assert_eq!(world.copies[world.touched.live() as usize].read(), (NEW, NEW));
        assert!(world.touched.is_touched(Side::One) && !world.touched.is_touched(Side::Zero));
    });
}

/// vPB: the pass, and a writer. At the cut the old side alone is the latest.
fn the_pass_loses_no_write(mistake: Mistake) {
    let session = |world: &World| {
        world.side.take(Side::One, || world.copy(Side::Zero));
        world.copies[1].write((NEW, NEW));
    };
    let cut = |world: &World| {
        if world.does(Mistake::SameBeforeCopy) {
            world.side.settle(Side::Zero, || ());
            world.copy(Side::Zero);
        } else {
            world.side.settle(Side::Zero, || world.copy(Side::Zero));
        }
    };
    explore(mistake, session, cut, |world, (), ()| {
        assert_eq!(world.copies[world.side.live() as usize].read(), (NEW, NEW));
        assert_eq!(world.copies[0].read(), (OLD, OLD), "the side of the image");
    });
}

/// A writer and a reader that becomes one.
fn one_writer_or_several_readers(mistake: Mistake) {
    let session = |world: &World| {
        if world.lock.try_take(Mode::Exclusive, world.does(Mistake::NotAmongSharers), false) {
            world.live().write((NEW, NEW));
            world.lock.release(Mode::Exclusive);
        }
    };
    let reader = |world: &World| {
        if !world.lock.try_take(Mode::Shared, false, false) {
            return;
        }
        let (one, other) = world.live().read();
        assert_eq!(one, other, "a reader has the row to itself");
        let is_alone = world.lock.try_take(Mode::Exclusive, true, false);
        world.lock.release(if is_alone { Mode::Exclusive } else { Mode::Shared });
    };
    explore(mistake, session, reader, |world, (), ()| assert!(world.lock.is_free()));
}

/// What the elder waits for it gets, and its mark goes.
fn the_elder_gets_what_it_waits_for(mistake: Mistake) {
    let session = |world: &World| {
        if world.lock.try_take(Mode::Shared, false, false) {
            world.lock.release(Mode::Shared);
        }
    };
    let elder = |world: &World| {
        while !world.lock.try_take(Mode::Exclusive, false, true) {
            world.lock.want();
            thread::yield_now();
        }
        world.lock.release(Mode::Exclusive);
    };
    explore(mistake, session, elder, |world, (), ()| assert!(world.lock.is_free()));
}

type Model = fn(Mistake);

const MODELS: [Model; 12] = [
    nobody_goes_by_an_old_phase,
    a_commit_is_before_the_cut_or_after,
    points_are_where_sessions_crossed,
    the_sweep_takes_the_row_as_of_the_cut,
    the_sweep_takes_nothing_of_who_gives_up,
    a_mark_does_not_disturb_the_sweep,
    a_straddler_is_in_the_image_or_not,
    the_overtaken_moves,
    a_failed_image_loses_no_write,
    the_pass_loses_no_write,
    one_writer_or_several_readers,
    the_elder_gets_what_it_waits_for,
];

#[test]
fn images_are_as_of_the_cut() {
    MODELS.iter().for_each(|model| model(Mistake::None));
}

/// The checker finds what goes wrong: each model can fail.
#[test]
fn every_mistake_is_found() {
    let cases: [(Mistake, Model); 12] = [
        (Mistake::NoSecondLook, nobody_goes_by_an_old_phase),
        (Mistake::PhaseBeforeCommit, a_commit_is_before_the_cut_or_after),
        (Mistake::NoWait, points_are_where_sessions_crossed),
        (Mistake::NoWait, the_overtaken_moves),
        (Mistake::ModifyBeforeHold, the_sweep_takes_the_row_as_of_the_cut),
        (Mistake::NoValidation, the_sweep_takes_the_row_as_of_the_cut),
        (Mistake::LetGoInSweep, the_sweep_takes_nothing_of_who_gives_up),
        (Mistake::StraddlerLetsGo, a_straddler_is_in_the_image_or_not),
        (Mistake::OvertakenStays, the_overtaken_moves),
        (Mistake::CarryWithoutBusy, a_failed_image_loses_no_write),
        (Mistake::SameBeforeCopy, the_pass_loses_no_write),
        (Mistake::NotAmongSharers, one_writer_or_several_readers),
    ];
    for (mistake, model) in cases {
        let found = std::panic::catch_unwind(|| model(mistake)).is_err();
        assert!(found, "{mistake:?} goes unnoticed");
    }
}
