//! Schedules that are the same each time. Each is right under every algorithm that it is for, and shows what a mistake
//! does. Sessions take turns on one thread; a cut takes its steps between them.

use std::panic::{catch_unwind, AssertUnwindSafe};

use stillframe_transactional::{
    Algorithm, Cut, Prefix, Probe, Progress, RowId, Session, SessionId, Shape, Stage, Step as CutStep, Store,
    Txn, TxnError,
};

use super::history::{History, Record};
use super::images::{CheckedImage, Failed, Failure};

pub type Outcome = Result<(), String>;

pub const ROW_COUNT: u32 = 6;
pub const FIRST: u64 = 10;

/// Opens sessions, and remembers what they commit.
pub struct World<'s, A: Algorithm> {
    pub store: &'s Store<A>,
    pub image: CheckedImage,
    records: Vec<Record>,
}

/// What a transaction under way has read and written.
#[derive(Default)]
pub struct Trace {
    reads: Vec<(RowId, usize, u64)>,
    writes: Vec<(RowId, usize, Vec<u64>)>,
}

pub fn shape() -> Shape {
    Shape::new(ROW_COUNT, 64).expect("a shape")
}

pub fn failed(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// A transaction of a scenario, and its trace.
pub struct Step<'t, 's, A: Algorithm> {
    pub txn: Txn<'t, 's, A>,
    trace: Trace,
}

impl<'t, 's, A: Algorithm> Step<'t, 's, A> {
    pub fn begin(session: &'t mut Session<'s, A>) -> Step<'t, 's, A> {
        Step { txn: session.begin(), trace: Trace::default() }
    }

    /// Word 0 of a row.
    pub fn read(&mut self, row: u32) -> Result<u64, TxnError> {
        let mut word = [0];
        self.txn.read(RowId(row), 0, &mut word)?;
        self.trace.reads.push((RowId(row), 0, word[0]));
        Ok(word[0])
    }

    pub fn write(&mut self, row: u32, word: usize, value: u64) -> Result<(), TxnError> {
        self.write_words(row, word, vec![value])
    }

    /// Every word of a row.
    pub fn replace(&mut self, row: u32, value: u64) -> Result<(), TxnError> {
        self.write_words(row, 0, vec![value; shape().row_words()])
    }

    fn write_words(&mut self, row: u32, first_word: usize, words: Vec<u64>) -> Result<(), TxnError> {
        self.txn.write(RowId(row), first_word, &words)?;
        self.trace.writes.push((RowId(row), first_word, words));
        Ok(())
    }
}

impl<'s, A: Algorithm> World<'s, A> {
    /// Word 0 of each row is [`FIRST`].
    pub fn new(store: &'s Store<A>) -> Result<World<'s, A>, String> {
        let mut world = World { store, image: CheckedImage::new(store.shape()), records: Vec::new() };
        let mut session = store.session();
        let id = session.id();
        let mut step = Step::begin(&mut session);
        (0..ROW_COUNT).try_for_each(|row| step.write(row, 0, FIRST)).map_err(failed)?;
        world.commit(id, step)?;
        Ok(world)
    }

    /// Commits it as the next, and remembers what it did.
    pub fn commit(&mut self, session: SessionId, step: Step<'_, '_, A>) -> Result<(), String> {
        let lock_point = self.records.len() as u64;
        self.commit_at(session, step, lock_point)
    }

    /// The same, for who knows better when it had its locks.
    pub fn commit_at(&mut self, session: SessionId, step: Step<'_, '_, A>, lock_point: u64) -> Outcome {
        let Step { txn, trace } = step;
        let committed = txn.commit().map_err(failed)?;
        let Trace { reads, writes } = trace;
        self.records.push(Record { session, committed, lock_point, reads, writes });
        Ok(())
    }

    /// A whole transaction in a session of its own: writes these, word 0.
    pub fn put(&mut self, session: &mut Session<'s, A>, writes: &[(u32, u64)]) -> Result<(), String> {
        let id = session.id();
        let mut step = Step::begin(session);
        writes.iter().try_for_each(|(row, value)| step.write(*row, 0, *value)).map_err(failed)?;
        self.commit(id, step)
    }

    /// A transaction that another thread has committed.
    pub fn add(&mut self, record: Record) {
        self.records.push(record);
    }

    pub fn history(&self) -> History {
        History::new(self.store.shape(), self.records.clone())
    }

    /// The image is what it says, and readers saw the latest.
    pub fn check(&self) -> Outcome {
        let history = self.history();
        history.check_reads()?;
        history.check_image(&self.image.prefix(), |row| self.image.merged.words_of(row))
    }

    /// Whether the image has word 0 of a row so.
    pub fn expect(&self, row: u32, value: u64) -> Outcome {
        let found = self.image.merged.words_of(RowId(row))[0];
        (found == value)
            .then_some(())
            .ok_or_else(|| format!("row {row} of the image is {found}, not {value}"))
    }

    /// Ends a cut with its image, and checks it.
    pub fn end(&mut self, mut cut: Cut<'_, A>) -> Outcome {
        cut.access(&mut self.image).map_err(failed)?;
        cut.finish();
        self.check()?;
        self.check_clean()
    }

    pub fn check_clean(&self) -> Outcome {
        match self.store.first_unclean() {
            Some(row) => Err(format!("{row:?} is not clean")),
            None => Ok(()),
        }
    }

    pub fn snapshot(&mut self) -> Outcome {
        let cut = self.store.begin_cut();
        self.end(cut)
    }
}

fn is_at_cut<A: Algorithm>(cut: &Cut<'_, A>) -> bool {
    matches!(cut.next_step(), CutStep::Cut(_))
}

/// Steps until transactions that begin now are the last before the cut: PREPARE, where there is such a phase.
pub fn prepare<A: Algorithm>(cut: &mut Cut<'_, A>) {
    if A::EPOCH_BEGINS > Stage(1) {
        while !is_at_cut(cut) {
            assert_eq!(cut.step(), Progress::Moved);
        }
    }
}

/// The step that is the cut.
pub fn cut_now<A: Algorithm>(cut: &mut Cut<'_, A>) {
    assert!(is_at_cut(cut));
    assert_eq!(cut.step(), Progress::Moved);
}

/// Steps as far as nobody has to end.
pub fn go_on<A: Algorithm>(cut: &mut Cut<'_, A>) -> Progress {
    loop {
        match cut.step() {
            Progress::Moved => {}
            end => return end,
        }
    }
}

/// An old transaction overwrites what a new one has committed, or begins anew: two rows of one transaction are in
/// the image together or not at all.
pub fn old_overwrites_newer<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    let (old_id, mut cut) = (old.id(), store.begin_cut());
    prepare(&mut cut);
    let mut first = Step::begin(&mut old);
    first.write(3, 0, 11).map_err(failed)?;
    cut_now(&mut cut);
    world.put(&mut new, &[(0, 5), (1, 15)])?;
    match first.write(0, 1, 99) {
        Ok(()) => world.commit(old_id, first)?,
        Err(_) => first.txn.abort(),
    }
    world.end(cut)?;
    world.expect(0, FIRST)?;
    world.expect(1, FIRST)
}

/// An old transaction reads what a new one has committed, and writes it elsewhere.
pub fn old_reads_newer<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    let (old_id, mut cut) = (old.id(), store.begin_cut());
    prepare(&mut cut);
    let mut first = Step::begin(&mut old);
    first.write(3, 0, 11).map_err(failed)?;
    cut_now(&mut cut);
    world.put(&mut new, &[(0, 77)])?;
    let copied = first.read(0).and_then(|value| first.write(2, 0, value));
    match copied {
        Ok(()) => world.commit(old_id, first)?,
        Err(_) => first.txn.abort(),
    }
    world.end(cut)?;
    world.expect(2, FIRST)?;
    world.expect(0, FIRST)
}

/// An old transaction overwrites what a new one has read: the new one is not in the image, and comes first.
pub fn old_overwrites_what_newer_read<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    let (old_id, new_id, mut cut) = (old.id(), new.id(), store.begin_cut());
    prepare(&mut cut);
    let mut first = Step::begin(&mut old);
    first.write(3, 0, 11).map_err(failed)?;
    cut_now(&mut cut);
    let mut second = Step::begin(&mut new);
    let value = second.read(0).map_err(failed)?;
    second.write(1, 0, value + 1).map_err(failed)?;
    world.commit(new_id, second)?;
    match first.write(0, 0, 20) {
        Ok(()) => world.commit(old_id, first)?,
        Err(_) => first.txn.abort(),
    }
    world.end(cut)
}

/// A transaction began before the cut and commits after it, with a row written on either side and two changes of one.
pub fn overtaken_by_the_cut<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut other) = (store.session(), store.session());
    world.put(&mut other, &[(4, 40)])?;
    let (old_id, mut cut) = (old.id(), store.begin_cut());
    prepare(&mut cut);
    let mut step = Step::begin(&mut old);
    for (row, word, value) in [(0, 0, 1), (0, 1, 2), (0, 0, 3), (4, 0, 41)] {
        step.write(row, word, value).map_err(failed)?;
    }
    cut_now(&mut cut);
    step.write(1, 0, 4).map_err(failed)?;
    step.write(0, 2, 5).map_err(failed)?;
    world.commit(old_id, step)?;
    world.put(&mut other, &[(1, 50), (5, 51)])?;
    world.end(cut)?;
    world.snapshot()?;
    world.expect(0, 3)?;
    world.expect(1, 50)
}

fn replace_and_give_up<A: Algorithm>(session: &mut Session<'_, A>, row: u32, value: u64) -> Outcome {
    let mut step = Step::begin(session);
    step.replace(row, value).map_err(failed)?;
    let Step { txn, .. } = step;
    txn.abort();
    Ok(())
}

/// Rows that are written as a whole, before the cut, across it and after it, kept or given up; and parts of them then.
pub fn whole_rows<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut other) = (store.session(), store.session());
    let (old_id, other_id) = (old.id(), other.id());
    let mut all = |world: &mut World<'_, A>, value| {
        let mut step = Step::begin(&mut other);
        (0..ROW_COUNT).try_for_each(|row| step.replace(row, value)).map_err(failed)?;
        world.commit(other_id, step)
    };
    all(&mut world, 1)?;
    world.snapshot()?;
    // The other copies are of before that. Row 0 is given up; of row 1 a part is written, too.
    replace_and_give_up(&mut old, 0, 2)?;
    let mut cut = store.begin_cut();
    prepare(&mut cut);
    let mut step = Step::begin(&mut old);
    step.replace(1, 3).and_then(|()| step.write(1, 2, 4)).map_err(failed)?;
    step.write(2, 5, 5).map_err(failed)?;
    cut_now(&mut cut);
    step.replace(3, 6).map_err(failed)?;
    world.commit(old_id, step)?;
    replace_and_give_up(&mut old, 4, 7)?;
    world.end(cut)?;
    world.snapshot()?;
    all(&mut world, 8)?;
    let mut cut = store.begin_cut();
    prepare(&mut cut);
    cut_now(&mut cut);
    // Before the image, and any pass, has been at what has just been replaced.
    world.put(&mut old, &[(0, 9), (5, 9)])?;
    replace_and_give_up(&mut old, 4, 10)?;
    world.end(cut)?;
    world.snapshot()
}

/// The same, and it is given up.
pub fn overtaken_and_given_up<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut other) = (store.session(), store.session());
    let mut cut = store.begin_cut();
    prepare(&mut cut);
    let mut step = Step::begin(&mut old);
    step.write(0, 0, 1).map_err(failed)?;
    cut_now(&mut cut);
    step.write(1, 0, 4).map_err(failed)?;
    step.txn.abort();
    world.put(&mut other, &[(1, 50)])?;
    world.end(cut)?;
    world.expect(0, FIRST)?;
    world.snapshot()?;
    world.expect(0, FIRST)
}

/// Who begins and commits before the cut, late, is in the image.
pub fn committed_just_before_the_cut<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut late, mut other) = (store.session(), store.session());
    let mut cut = store.begin_cut();
    prepare(&mut cut);
    world.put(&mut late, &[(0, 1), (1, 2)])?;
    world.put(&mut other, &[(1, 3)])?;
    cut_now(&mut cut);
    world.put(&mut other, &[(0, 9)])?;
    world.end(cut)?;
    world.expect(0, 1)?;
    world.expect(1, 3)
}

/// Who begins after the cut is not in the image, whether it ends before the image begins or not.
pub fn begun_after_the_cut<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut new, mut other) = (store.session(), store.session());
    let mut cut = store.begin_cut();
    prepare(&mut cut);
    cut_now(&mut cut);
    world.put(&mut new, &[(0, 1), (1, 2)])?;
    let mut open = Step::begin(&mut new);
    open.write(2, 0, 3).map_err(failed)?;
    if A::EPOCH_BEGINS == Stage(1) {
        // Nobody has to end: the image comes while this one is under way.
        cut.access(&mut world.image).map_err(failed)?;
        open.txn.abort();
        cut.finish();
        world.check()?;
    } else {
        open.txn.abort();
        world.end(cut)?;
    }
    world.put(&mut other, &[(2, 4)])?;
    (0..3).try_for_each(|row| world.expect(row, FIRST))?;
    world.snapshot()
}

/// Transactions that began at rest and go on through the cut. Where the algorithm waits for them, others do not.
pub fn under_way_since_rest<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    let old_id = old.id();
    let mut first = Step::begin(&mut old);
    first.write(0, 0, 1).map_err(failed)?;
    let mut cut = store.begin_cut();
    let waits_before_cut = go_on_to_cut(&mut cut) == Progress::Waiting;
    if waits_before_cut {
        world.put(&mut new, &[(4, 8)])?;
        first.write(1, 0, 2).map_err(failed)?;
        world.commit(old_id, first)?;
        prepare(&mut cut);
        cut_now(&mut cut);
        world.put(&mut new, &[(1, 30), (2, 30)])?;
        return world.end(cut);
    }
    cut_now(&mut cut);
    world.put(&mut new, &[(1, 30), (2, 30)])?;
    let is_waiting = go_on(&mut cut) == Progress::Waiting;
    if !is_waiting {
        // The image is taken beside a transaction that may belong to it.
        cut.access(&mut world.image).map_err(failed)?;
    }
    first.write(1, 1, 2).map_err(failed)?;
    world.commit(old_id, first)?;
    if is_waiting {
        return world.end(cut);
    }
    cut.finish();
    world.check()
}

/// Steps until the next is the cut, or somebody has to end.
pub fn go_on_to_cut<A: Algorithm>(cut: &mut Cut<'_, A>) -> Progress {
    while !is_at_cut(cut) {
        if cut.step() == Progress::Waiting {
            return Progress::Waiting;
        }
    }
    Progress::Moved
}

/// A transaction of the last phase before the cut goes on after it, and the image waits for it.
pub fn image_waits_for_the_old<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    let (old_id, mut cut) = (old.id(), store.begin_cut());
    prepare(&mut cut);
    let mut first = Step::begin(&mut old);
    first.write(0, 0, 1).map_err(failed)?;
    cut_now(&mut cut);
    let is_waiting = go_on(&mut cut) == Progress::Waiting;
    // Others go on.
    world.put(&mut new, &[(5, 55)])?;
    if !is_waiting {
        cut.access(&mut world.image).map_err(failed)?;
    }
    first.write(1, 0, 2).map_err(failed)?;
    world.commit(old_id, first)?;
    if is_waiting {
        return world.end(cut);
    }
    cut.finish();
    world.check()
}

/// A row that was written and restored just before the cut, and then written for good.
pub fn given_up_just_before_the_cut<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut one, mut other) = (store.session(), store.session());
    let mut cut = store.begin_cut();
    prepare(&mut cut);
    let mut step = Step::begin(&mut one);
    step.write(0, 0, 1).map_err(failed)?;
    step.write(0, 0, 2).map_err(failed)?;
    step.txn.abort();
    world.put(&mut other, &[(0, 20)])?;
    cut_now(&mut cut);
    world.end(cut)?;
    world.expect(0, 20)
}

/// Who gives up leaves nothing behind.
pub fn given_up_at_rest<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut one, mut other) = (store.session(), store.session());
    let mut step = Step::begin(&mut one);
    for (row, word, value) in [(0, 0, 1), (1, 3, 2), (0, 0, 3), (0, 1, 4)] {
        step.write(row, word, value).map_err(failed)?;
    }
    step.txn.abort();
    let id = other.id();
    let mut step = Step::begin(&mut other);
    step.read(0).map_err(failed)?;
    step.write(5, 0, 6).map_err(failed)?;
    world.commit(id, step)?;
    world.snapshot()?;
    world.expect(0, FIRST)
}

/// An image fails at its beginning, at a row, or at its end. The next has all that it would have had.
pub fn failed_images<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let mut one = store.session();
    let failures = [Failure::AtBegin, Failure::AfterRows(0), Failure::AfterRows(1), Failure::AtEnd];
    for (number, failure) in failures.into_iter().enumerate() {
        let value = 100 + number as u64;
        world.put(&mut one, &[(1, value), (4, value)])?;
        let mut cut = store.begin_cut();
        prepare(&mut cut);
        cut_now(&mut cut);
        world.put(&mut one, &[(1, value + 50), (2, value)])?;
        world.image.failure = Some(failure);
        if cut.access(&mut world.image) != Err(Failed) {
            return Err(format!("{failure:?} is not told"));
        }
        cut.finish();
        world.check_clean()?;
        world.image.failure = None;
        if number % 2 == 0 {
            world.snapshot()?;
            world.expect(4, value)?;
        }
    }
    world.snapshot()
}

/// Cuts that are dropped after each number of steps are ended by the next one.
pub fn cuts_given_up<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let mut one = store.session();
    for step_count in 0..10 {
        let mut cut = store.begin_cut();
        for _ in 0..step_count {
            if matches!(cut.step(), Progress::AtAccess | Progress::Over) {
                break;
            }
        }
        world.put(&mut one, &[(step_count % ROW_COUNT, u64::from(step_count))])?;
        drop(cut);
        world.put(&mut one, &[(0, u64::from(step_count))])?;
        if step_count % 3 == 0 {
            world.snapshot()?;
        }
    }
    world.snapshot()
}

/// An image panics at a row. The next one ends the cut, and has everything.
pub fn image_panics<A: Algorithm>(probe: Probe) -> Outcome {
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let mut one = store.session();
    for number in 0..4 {
        world.put(&mut one, &[(0, 70 + number), (3, 80 + number)])?;
        world.image.failure = Some(Failure::PanicAfterRows(number as u32 % 2));
        let panicked = catch_unwind(AssertUnwindSafe(|| store.snapshot(&mut world.image)));
        if panicked.is_ok() {
            return Err("the image has not panicked".to_owned());
        }
        world.image.failure = None;
        world.put(&mut one, &[(3, 90 + number)])?;
        world.snapshot()?;
    }
    Ok(())
}

/// More cuts than the phase has numbers for, with transactions under way across each.
pub fn numbers_come_round<A: Algorithm>(probe: Probe) -> Outcome {
    const CUT_COUNT: u64 = 8192 + 20;
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    for number in 0..CUT_COUNT {
        let is_looked_at = !(3..8180).contains(&number);
        let mut cut = store.begin_cut();
        prepare(&mut cut);
        let mut first = old.begin();
        first.write(RowId(0), 0, &[number]).map_err(failed)?;
        first.write(RowId(1), 0, &[number]).map_err(failed)?;
        cut_now(&mut cut);
        let mut second = new.begin();
        second.write(RowId(2), 0, &[number]).map_err(failed)?;
        second.commit().map_err(failed)?;
        first.commit().map_err(failed)?;
        cut.access(&mut world.image).map_err(failed)?;
        cut.finish();
        if is_looked_at && number > 0 {
            // By commits the first is not in the image; by sessions it is.
            let first_in_image = number - u64::from(A::BY_COMMIT_ORDER);
            world.expect(0, first_in_image)?;
            world.expect(1, first_in_image)?;
            world.expect(2, number - 1)?;
            world.check_clean()?;
        }
    }
    Ok(())
}

/// What the sessions' points, or the order of commits, make of the same schedule: one that began before the cut commits
/// after one that began later, and they share nothing. Says whether the image is a prefix of the order of commits.
pub fn is_commit_prefix_if_old_commits_last<A: Algorithm>() -> Result<bool, String> {
    let store = Store::<A>::new(shape());
    let mut world = World::new(&store)?;
    let (mut old, mut new) = (store.session(), store.session());
    let (old_id, mut cut) = (old.id(), store.begin_cut());
    prepare(&mut cut);
    let mut first = Step::begin(&mut old);
    first.write(0, 0, 1).map_err(failed)?;
    cut_now(&mut cut);
    world.put(&mut new, &[(1, 2)])?;
    world.commit(old_id, first)?;
    world.end(cut)?;
    if let Prefix::Sessions(points) = world.image.prefix() {
        assert_eq!(points.get(&old_id).map(|seq| seq.0), Some(1));
        assert_eq!(points.get(&new.id()).map(|seq| seq.0), Some(0));
    }
    Ok(world.history().is_commit_prefix(&world.image.prefix()))
}
