//! Each named mistake is found by a schedule that is right without it. None is found by luck: what threads there are, are held
//! up where it matters.

mod common;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};

use common::history::Record;
use common::images::CheckedImage;
use common::scenarios::{self, failed, shape, Outcome, Step, World};
use stillframe_transactional::{
    Algorithm, Calc, Cpr, Mutation, Point, Prefix, Probe, RowId, SessionId, SessionSeq, Store, TxnError,
    VirtualHourglass, VirtualPiggyback,
};

/// Holds the thread up that comes to the next of some points, once it is armed.
struct Gate {
    is_armed: Arc<AtomicBool>,
    reached: Receiver<Point>,
    go: Sender<()>,
}

impl Gate {
    fn new(points: &'static [Point], mut probe: Probe) -> (Gate, Probe) {
        let (tell, reached) = channel();
        let (go, wait) = channel();
        let is_armed = Arc::new(AtomicBool::new(false));
        let (armed, next) = (is_armed.clone(), AtomicUsize::new(0));
        let ends = Mutex::new((tell, wait));
        probe.at = Some(Arc::new(move |point| {
            let at = next.load(Ordering::SeqCst);
            if armed.load(Ordering::SeqCst) && points.get(at) == Some(&point) {
                next.store(at + 1, Ordering::SeqCst);
                let ends = ends.lock().expect("one at a time");
                // If the test has ended nobody waits any more.
                let _ = ends.0.send(point);
                let _ = ends.1.recv();
            }
        }));
        (Gate { is_armed, reached, go }, probe)
    }

    fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    fn wait(&self) {
        self.reached.recv_timeout(stillframe_testkit::PATIENCE).expect("the point is reached");
    }

    fn go(&self) {
        self.go.send(()).expect("somebody is held up");
    }
}

/// A whole snapshot on another thread, while `meanwhile` lets it go from point to point. Then the image is checked.
fn snapshot_held_up<A: Algorithm>(
    points: &'static [Point],
    probe: Probe,
    before: impl FnOnce(&mut World<'_, A>) -> Outcome,
    meanwhile: impl FnOnce(&mut World<'_, A>, &Gate) -> Outcome,
) -> Outcome {
    let (gate, probe) = Gate::new(points, probe);
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    before(&mut world)?;
    gate.arm();
    let mut image = std::mem::replace(&mut world.image, CheckedImage::new(shape()));
    std::thread::scope(|scope| {
        let saver = scope.spawn(|| store.snapshot(&mut image).map_err(failed));
        // Dropped at its end, so that the saver goes on whatever happens.
        let gate = gate;
        let result = meanwhile(&mut world, &gate);
        drop(gate);
        let report = saver.join().map_err(|_| "the saver panicked".to_owned())?;
        report.and(result)
    })?;
    world.image = image;
    world.check()?;
    world.check_clean()
}

/// A writer comes between the sweep's look at a row and its copy.
fn sweep_meets_a_writer<A: Algorithm>(probe: Probe) -> Outcome {
    snapshot_held_up::<A>(
        &[Point::SweepFound],
        probe,
        |_| Ok(()),
        |world, gate| {
            gate.wait();
            let mut session = world.store.session();
            world.put(&mut session, &[(0, 5), (1, 6)])?;
            gate.go();
            Ok(())
        },
    )
}

/// The same, and is given up before the sweep has validated what it copied meanwhile.
fn sweep_meets_an_abort<A: Algorithm>(probe: Probe) -> Outcome {
    let points = &[Point::SweepFound, Point::SweepCopied];
    snapshot_held_up::<A>(
        points,
        probe,
        |_| Ok(()),
        |world, gate| {
            gate.wait();
            let mut session = world.store.session();
            let mut step = Step::begin(&mut session);
            step.write(0, 0, 5).map_err(failed)?;
            gate.go();
            gate.wait();
            step.txn.abort();
            gate.go();
            Ok(())
        },
    )
}

/// A reader comes while the pass copies a row.
fn pass_meets_a_reader<A: Algorithm>(probe: Probe) -> Outcome {
    let before = |world: &mut World<'_, A>| {
        world.snapshot()?;
        let mut session = world.store.session();
        world.put(&mut session, &[(0, 20)])
    };
    snapshot_held_up::<A>(&[Point::PassClaimed], probe, before, |world, gate| {
        gate.wait();
        let mut session = world.store.session();
        let id = session.id();
        let mut step = Step::begin(&mut session);
        let seen = step.read(0).map_err(failed)?;
        step.write(1, 0, seen).map_err(failed)?;
        world.commit(id, step)?;
        gate.go();
        world.history().check_reads().map(|_| ())
    })
}

/// Another transaction comes when one has its place in the order of commits.
fn order_comes_before_release<A: Algorithm>(probe: Probe) -> Outcome {
    let (gate, probe) = Gate::new(&[Point::Ordered], probe);
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store)?;
    gate.arm();
    let record = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut session = store.session();
            let mut txn = session.begin();
            txn.write(RowId(0), 0, &[1]).map_err(failed)?;
            let committed = txn.commit().map_err(failed)?;
            let writes = vec![(RowId(0), 0, vec![1])];
            Ok::<_, String>(Record {
                session: session.id(),
                committed,
                lock_point: 1,
                reads: Vec::new(),
                writes,
            })
        });
        let gate = gate;
        gate.wait();
        let mut session = store.session();
        let id = session.id();
        let mut step = Step::begin(&mut session);
        match step.read(0) {
            Ok(seen) => {
                step.write(1, 0, seen).map_err(failed)?;
                world.commit_at(id, step, 2)?;
            }
            Err(_) => step.txn.abort(),
        }
        gate.go();
        first.join().map_err(|_| "the first panicked".to_owned())?
    })?;
    world.add(record);
    world.history().check_reads().map(|_| ())
}

type Scenario = fn(Probe) -> Outcome;

fn survives(scenario: Scenario, mutation: Option<Mutation>) -> Outcome {
    let probe = Probe { mutation, at: None };
    catch_unwind(AssertUnwindSafe(|| scenario(probe))).unwrap_or_else(|_| Err("panicked".to_owned()))
}

/// Right without the mistake, wrong with it.
fn kills(mutation: Mutation, scenarios: &[(&str, Scenario)]) {
    for (name, scenario) in scenarios {
        assert_eq!(survives(*scenario, None), Ok(()), "{name} is right by itself");
        match survives(*scenario, Some(mutation)) {
            Ok(()) => panic!("{mutation:?} goes unnoticed by {name}"),
            Err(error) => println!("{mutation:?}, {name}: {error}"),
        }
    }
}

macro_rules! killed {
    ($($test:ident: $mutation:ident by $($scenario:path),+;)*) => {$(
        #[test]
        fn $test() {
            kills(Mutation::$mutation, &[$((stringify!($scenario), $scenario)),+]);
        }
    )*};
}

type Vhg = VirtualHourglass;
type Vpb = VirtualPiggyback;

killed! {
    // The anomaly of the publication.
    vhg_as_published: AsPublished by scenarios::old_overwrites_newer::<Vhg>, scenarios::old_reads_newer::<Vhg>;
    vpb_as_published: AsPublished by scenarios::old_overwrites_newer::<Vpb>, scenarios::old_reads_newer::<Vpb>;
    overtaken_not_undone: OvertakenNotUndone
        by scenarios::overtaken_by_the_cut::<Vhg>, scenarios::overtaken_by_the_cut::<Vpb>;
    part_taken_for_whole: PartTakenForWhole by scenarios::whole_rows::<Vhg>, scenarios::whole_rows::<Vpb>;
    kept_where_written: KeptWhereWritten by scenarios::whole_rows::<Vhg>, scenarios::whole_rows::<Vpb>;
    no_wait_for_overtaken: NoWaitForOvertaken
        by scenarios::image_waits_for_the_old::<Vhg>, scenarios::image_waits_for_the_old::<Vpb>;
    failed_image_forgotten: FailedImageForgotten by scenarios::failed_images::<Vhg>;
    same_before_copy: SameBeforeCopy by pass_meets_a_reader::<Vpb>;
    straddler_lets_go: StraddlerLetsGo by scenarios::overtaken_by_the_cut::<Calc>;
    straddler_keeps: StraddlerKeeps by scenarios::committed_just_before_the_cut::<Calc>;
    no_wait_for_rest: NoWaitForRest by scenarios::under_way_since_rest::<Calc>;
    stable_let_go_early: StableLetGoEarly by scenarios::begun_after_the_cut::<Calc>;
    undo_forgets_copy: UndoForgetsCopy by scenarios::given_up_just_before_the_cut::<Calc>;
    undo_lets_go_in_sweep: UndoLetsGoInSweep by sweep_meets_an_abort::<Calc>, sweep_meets_an_abort::<Cpr>;
    no_validation: NoValidation by sweep_meets_a_writer::<Calc>, sweep_meets_a_writer::<Cpr>;
    no_wait_for_sessions: NoWaitForSessions by scenarios::image_waits_for_the_old::<Cpr>;
    no_wait_for_prepare: NoWaitForPrepare by scenarios::under_way_since_rest::<Cpr>;
    meets_newer: MeetsNewer by scenarios::old_overwrites_newer::<Cpr>, scenarios::old_reads_newer::<Cpr>;
    reads_unmarked: ReadsUnmarked by scenarios::old_overwrites_what_newer_read::<Cpr>;
    no_undo: NoUndo by scenarios::given_up_at_rest::<Calc>, scenarios::given_up_at_rest::<Cpr>,
        scenarios::given_up_at_rest::<Vhg>, scenarios::given_up_at_rest::<Vpb>;
    locks_released_early: LocksReleasedEarly by order_comes_before_release::<Calc>,
        order_comes_before_release::<Vhg>, order_comes_before_release::<Vpb>;
}

/// The anomaly by what the publication claims: all who began before the cut are in the image, and none who began later.
/// `old_step` is what the old transaction does after the new one has moved 5 from row 0 to row 1.
fn image_as_published<A: Algorithm>(
    old_step: impl Fn(&mut Step<'_, '_, A>) -> Result<(), TxnError>,
) -> (Outcome, [u64; 3]) {
    let probe = Probe { mutation: Some(Mutation::AsPublished), at: None };
    let store = Store::<A>::with_probe(shape(), probe);
    let mut world = World::new(&store).expect("a world");
    let (mut old, mut new) = (store.session(), store.session());
    let old_id = old.id();
    let mut cut = store.begin_cut();
    let mut step = Step::begin(&mut old);
    step.write(3, 0, 11).expect("free");
    scenarios::cut_now(&mut cut);
    world.put(&mut new, &[(0, 5), (1, 15)]).expect("free");
    old_step(&mut step).expect("the new one has ended");
    world.commit(old_id, step).expect("nothing in its way");
    cut.access(&mut world.image).expect("the image does not fail");
    cut.finish();
    let claimed = Prefix::Sessions([(SessionId(0), SessionSeq(1)), (old_id, SessionSeq(1))].into());
    let words_of = |row| world.image.merged.words_of(row);
    let outcome = world.history().check_image(&claimed, words_of);
    (outcome, [0, 1, 2].map(|row| words_of(RowId(row))[0]))
}

fn the_anomaly_is_there<A: Algorithm>() {
    // It changes a word of row 0: half of the new transaction is in the image, and 5 have gone.
    let (outcome, rows) = image_as_published::<A>(|old| old.write(0, 1, 99));
    assert!(outcome.is_err());
    assert_eq!(rows, [5, 10, 10]);
    // It copies row 0 to row 2: there the image has what no transaction of the image has written.
    let (outcome, rows) = image_as_published::<A>(|old| old.read(0).and_then(|value| old.write(2, 0, value)));
    assert!(outcome.is_err());
    assert_eq!(rows, [10, 10, 5]);
    // Without such a step the image is what is claimed.
    let (outcome, rows) = image_as_published::<A>(|_| Ok(()));
    assert_eq!((outcome, rows), (Ok(()), [10, 10, 10]));
}

#[test]
fn as_published_an_image_has_effects_of_who_began_after_the_cut() {
    the_anomaly_is_there::<Vhg>();
    the_anomaly_is_there::<Vpb>();
}

/// A mistake that nobody looks for would count as one that is found.
#[test]
fn each_mistake_has_a_test() {
    let source = include_str!("mutations.rs");
    let listed = include_str!("../src/probe.rs");
    let list =
        listed.split("pub enum Mutation {").nth(1).and_then(|rest| rest.split('}').next()).expect("the list");
    let names: Vec<&str> = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//") && !line.is_empty())
        .map(|line| line.trim_end_matches(','))
        .collect();
    assert!(names.len() >= 18, "{names:?}");
    for name in names {
        assert!(
            source.contains(&format!(": {name} by")) || source.contains(&format!(": {name}\n")),
            "{name}"
        );
    }
}
