//! The contract's suite finds each published mistake. Run with the feature `mutations`.

#[allow(dead_code)]
#[path = "../physical/contract.rs"]
mod contract;
#[path = "../physical/intruder.rs"]
mod intruder;
#[path = "../physical/picture.rs"]
mod picture;
#[path = "../physical/world.rs"]
mod world;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, Once};

use stillframe_algorithms::hooks::Mutation;
use stillframe_algorithms::PhysicalKind;

use contract::{script, walk, Intruder};

/// Walks within which a mistake has to be found.
const WALKS_MAX: u64 = 200;

const MISTAKES: [(PhysicalKind, &[Mutation]); 6] = [
    (PhysicalKind::Cou, &[Mutation::CouSavedBeforeCopy, Mutation::CouTestThenEmit]),
    (
        PhysicalKind::Zigzag,
        &[
            Mutation::PartTakenForWhole,
            Mutation::ZigzagNoCarryOver,
            Mutation::ZigzagOneCopyNotInitialised,
            Mutation::ZigzagBitsNotFlipped,
            Mutation::ZigzagNeighboursNotAtomic,
        ],
    ),
    (
        PhysicalKind::PingPong,
        &[
            Mutation::PingPongNoCarryOver,
            Mutation::PingPongFirstWriteOnly,
            Mutation::PingPongClearedBeforeFinish,
        ],
    ),
    (
        PhysicalKind::Hourglass,
        &[
            Mutation::PartTakenForWhole,
            Mutation::HourglassNoCarryOver,
            Mutation::HourglassLatestNotKept,
            Mutation::HourglassNoBaseImage,
            Mutation::HourglassClearedBeforeFinish,
            Mutation::HourglassFailedImageForgotten,
        ],
    ),
    (
        PhysicalKind::Piggyback,
        &[
            Mutation::PartTakenForWhole,
            Mutation::PiggybackNoCarryOver,
            Mutation::PiggybackFlagBeforeCopy,
            Mutation::PiggybackTestThenCopy,
            Mutation::PiggybackNeighboursNotAtomic,
            Mutation::PiggybackSwapBeforePassEnds,
        ],
    ),
    (
        PhysicalKind::Epoch,
        &[
            Mutation::EpochNoValidation,
            Mutation::EpochCaptureUnclaimed,
            Mutation::EpochNoHelp,
            Mutation::EpochEndsBeforeCaptured,
            Mutation::PartsNotLinked,
            Mutation::PartsNotLaidOver,
            Mutation::PartsOfLastCut,
            Mutation::PartsReleasedUnclaimed,
            Mutation::HelpWithoutParts,
        ],
    ),
];

/// What threads panicked with, for what else panics only says that one did.
static REASONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Mistakes are meant to panic: one line each is enough.
fn keep_reasons() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| REASONS.lock().expect("one line").push(panic.to_string())));
    });
}

/// What fails: the script, or else the first walk that does.
fn killed_by(kind: PhysicalKind, mutation: Mutation) -> Option<String> {
    let fails = |part: fn(PhysicalKind, u64, &Arc<Intruder>), seed| {
        let intruder = Arc::new(Intruder::new(Some(mutation)));
        catch_unwind(AssertUnwindSafe(|| part(kind, seed, &intruder))).is_err()
    };
    if fails(|kind, _, intruder| script(kind, intruder), 0) {
        return Some("the script".to_owned());
    }
    (0..WALKS_MAX).find(|&seed| fails(walk, seed)).map(|seed| format!("walk {seed}"))
}

/// One kind at a time, so that the reasons are its own.
static TURN: Mutex<()> = Mutex::new(());

fn each_is_killed(kind: PhysicalKind) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    keep_reasons();
    let (_, mutations) = MISTAKES.iter().find(|(of, _)| *of == kind).expect("mistakes of this kind");
    for &mutation in *mutations {
        let killed_by = killed_by(kind, mutation);
        let reasons = std::mem::take(&mut *REASONS.lock().expect("one line"));
        let reason = reasons.first().and_then(|reason| reason.lines().nth(1)).unwrap_or_default().to_owned();
        println!("{mutation:?}: by {}: {reason}", killed_by.as_deref().unwrap_or("nothing"));
        assert!(killed_by.is_some(), "{mutation:?} survives");
    }
}

#[test]
fn of_cou() {
    each_is_killed(PhysicalKind::Cou);
}

#[test]
fn of_zigzag() {
    each_is_killed(PhysicalKind::Zigzag);
}

#[test]
fn of_pingpong() {
    each_is_killed(PhysicalKind::PingPong);
}

#[test]
fn of_hourglass() {
    each_is_killed(PhysicalKind::Hourglass);
}

#[test]
fn of_piggyback() {
    each_is_killed(PhysicalKind::Piggyback);
}

#[test]
fn of_epoch() {
    each_is_killed(PhysicalKind::Epoch);
}
