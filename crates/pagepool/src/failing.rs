//! Failures that a test injects into what its thread asks of a pool, in debug builds; without debug assertions nothing looks.
//!
//! ```text
//!                  before the failing place; met or allocated by others meanwhile
//!   UNKNOWN ────────────────────────────────────────────────────────────────────────▶ FOUND
//!      │ at the failing place                                                           ▲
//!      └────────────────────────────────▶ FAILED ───────────────────────────────────────┘
//!                                                   missing, and brought in
//! ```
//! A page that a command has met in memory stays there until each command ends that is under way (R3). So a place of an operation is
//! its first access to a page, and what that has answered each further access answers, too.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{PageId, Restart};

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// More memory is refused.
    NoMemory,
    /// A new object finds no page numbers.
    NoPages,
    /// A page is not in memory.
    Missing,
    /// A page cannot be read.
    Damaged,
}

/// What a page answers to a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Found,
    Failed,
}

struct Plan {
    failure: Failure,
    /// Places that are passed before one fails.
    places_before: u64,
    /// The places behind that one fail, too.
    goes_on: bool,
    failed_count: u64,
    answers: HashMap<PageId, Answer>,
    /// How many pages had been met when the first was asked for.
    since: Option<u64>,
}

impl Plan {
    /// A place is reached: whether it fails.
    fn reach(&mut self) -> bool {
        if self.places_before > 0 {
            self.places_before -= 1;
            return false;
        }
        let fails = self.goes_on || self.failed_count == 0;
        self.failed_count += u64::from(fails);
        fails
    }

    fn is_of_pages(&self) -> bool {
        matches!(self.failure, Failure::Missing | Failure::Damaged)
    }

    fn answer(&mut self, met: &Met, page: PageId, may_fail: impl FnOnce() -> bool) -> Answer {
        if let Some(answer) = self.answers.get(&page) {
            return *answer;
        }
        let since = *self.since.get_or_insert_with(|| met.count());
        let answer = match may_fail() && !met.has_since(since, page) && self.reach() {
            true => Answer::Failed,
            false => Answer::Found,
        };
        if answer == Answer::Found {
            met.note([page]);
        }
        self.answers.insert(page, answer);
        answer
    }
}

/// Threads for which something fails.
static FAILING_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this is one of them: what is dropped with the thread is not asked for then.
    static IS_PLANNED: Cell<bool> = const { Cell::new(false) };
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// While it lives, something fails for its thread.
#[must_use]
pub struct Failing(PhantomData<*const ()>);

impl Failing {
    /// After `places_before` places that do not, one fails, and if it `goes_on` each place behind that. A thread has one at a time,
    /// for one pool.
    pub fn begin(failure: Failure, places_before: u64, goes_on: bool) -> Failing {
        let answers = HashMap::new();
        PLAN.set(Some(Plan { failure, places_before, goes_on, failed_count: 0, answers, since: None }));
        IS_PLANNED.set(true);
        FAILING_COUNT.fetch_add(1, Ordering::SeqCst);
        Failing(PhantomData)
    }

    /// How many places have failed.
    pub fn failed_count(&self) -> u64 {
        with_plan(|plan| plan.failed_count).unwrap_or(0)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        FAILING_COUNT.fetch_sub(1, Ordering::SeqCst);
        IS_PLANNED.set(false);
        PLAN.set(None);
    }
}

/// The pages of a pool that threads have met for which something fails, and those allocated meanwhile: when last.
#[derive(Default)]
pub(crate) struct Met {
    #[cfg(debug_assertions)]
    last: parking_lot::Mutex<(u64, HashMap<PageId, u64>)>,
}

#[cfg(debug_assertions)]
impl Met {
    fn count(&self) -> u64 {
        self.last.lock().0
    }

    fn has_since(&self, since: u64, page: PageId) -> bool {
        self.last.lock().1.get(&page).is_some_and(|last| *last > since)
    }

    fn note(&self, pages: impl IntoIterator<Item = PageId>) {
        let (count, last) = &mut *self.last.lock();
        for page in pages {
            *count += 1;
            last.insert(page, *count);
        }
    }
}

#[cfg(not(debug_assertions))]
impl Met {
    fn count(&self) -> u64 {
        0
    }

    fn has_since(&self, _: u64, _: PageId) -> bool {
        false
    }

    fn note(&self, _: impl IntoIterator<Item = PageId>) {}
}

fn with_plan<R>(f: impl FnOnce(&mut Plan) -> R) -> Option<R> {
    PLAN.with_borrow_mut(|plan| plan.as_mut().map(f))
}

/// Whether an allocation, or the memory for one, fails here.
#[inline(always)]
pub fn is_refused(failure: Failure) -> bool {
    let as_planned = |plan: &mut Plan| plan.failure == failure && plan.reach();
    cfg!(debug_assertions) && IS_PLANNED.get() && with_plan(as_planned).unwrap_or(false)
}

/// A page is asked for. `may_fail`: it is in memory, and need not be.
///
/// # Errors
/// [`Restart::Fault`], [`Restart::Damaged`]: it fails here.
#[inline(always)]
pub(crate) fn ask_for(met: &Met, page: PageId, may_fail: impl FnOnce() -> bool) -> Result<(), Restart> {
    match cfg!(debug_assertions) && IS_PLANNED.get() {
        true => ask_as_planned(met, page, may_fail),
        false => Ok(()),
    }
}

#[cold]
fn ask_as_planned(met: &Met, page: PageId, may_fail: impl FnOnce() -> bool) -> Result<(), Restart> {
    let answer = with_plan(|plan| {
        let answer = plan.is_of_pages().then(|| plan.answer(met, page, may_fail));
        (plan.failure, answer)
    });
    match answer {
        Some((Failure::Damaged, Some(Answer::Failed))) => {
            Err(Restart::Damaged(format!("page {}: damaged by a test", page.0).into()))
        }
        Some((_, Some(Answer::Failed))) => Err(Restart::Fault(page)),
        _ => Ok(()),
    }
}

/// Whether a page answers that it is damaged.
#[inline(always)]
pub(crate) fn is_damaged(page: PageId) -> bool {
    let is_failed = |plan: &mut Plan| {
        plan.failure == Failure::Damaged && plan.answers.get(&page) == Some(&Answer::Failed)
    };
    cfg!(debug_assertions) && IS_PLANNED.get() && with_plan(is_failed).unwrap_or(false)
}

/// Pages have been brought in: those that were missing are there.
#[inline(always)]
pub(crate) fn note_loaded(met: &Met, pages: &[PageId]) {
    if cfg!(debug_assertions) && IS_PLANNED.get() {
        with_plan(|plan| {
            if plan.failure == Failure::Missing {
                plan.answers.extend(pages.iter().map(|page| (*page, Answer::Found)));
                met.note(pages.iter().copied());
            }
        });
    }
}

/// Pages have been allocated: they are in memory, whatever became of those that had their numbers before.
#[inline(always)]
pub(crate) fn note_allocated(met: &Met, first: PageId, page_count: u32) {
    if cfg!(debug_assertions) && FAILING_COUNT.load(Ordering::SeqCst) > 0 {
        let pages = || (first.0..first.0 + page_count).map(PageId);
        met.note(pages());
        with_plan(|plan| plan.answers.extend(pages().map(|page| (page, Answer::Found))));
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    fn ask(met: &Met, page: u32) -> Result<(), Restart> {
        ask_for(met, PageId(page), || true)
    }

    #[test]
    fn a_page_keeps_its_answer() {
        let (met, missing) = (Met::default(), |page| Err(Restart::Fault(PageId(page))));
        let failing = Failing::begin(Failure::Missing, 1, false);
        assert_eq!([ask(&met, 7), ask(&met, 7)], [Ok(()), Ok(())]);
        assert_eq!([ask(&met, 8), ask(&met, 7), ask(&met, 8)], [missing(8), Ok(()), missing(8)]);
        note_loaded(&met, &[PageId(8)]);
        assert_eq!([ask(&met, 8), ask(&met, 9)], [Ok(()), Ok(())]);
        assert_eq!(failing.failed_count(), 1);
        drop(failing);
        let failing = Failing::begin(Failure::Damaged, 0, true);
        assert!(matches!(ask(&met, 7), Err(Restart::Damaged(_))) && is_damaged(PageId(7)));
        note_loaded(&met, &[PageId(7)]);
        assert!(ask(&met, 7).is_err() && ask(&met, 8).is_err());
        assert!(ask_for(&met, PageId(9), || false).is_ok());
        note_allocated(&met, PageId(7), 1);
        assert!(ask(&met, 7).is_ok() && !is_refused(Failure::NoMemory));
        assert_eq!(failing.failed_count(), 2);
        drop(failing);
        assert_eq!(ask(&met, 10), Ok(()));
    }

    #[test]
    fn what_others_have_met_meanwhile_is_there() {
        let met = Met::default();
        met.note([PageId(1)]);
        let failing = Failing::begin(Failure::Missing, 0, true);
        assert!(ask(&met, 1).is_err());
        met.note([PageId(1), PageId(2)]);
        assert_eq!(
            [ask(&met, 1).is_err(), ask(&met, 2).is_err(), ask(&met, 3).is_err()],
            [true, false, true]
        );
        drop(failing);
    }

    #[test]
    fn memory_is_refused_at_its_place() {
        let met = Met::default();
        let failing = Failing::begin(Failure::NoMemory, 1, false);
        let refused = [(); 3].map(|()| is_refused(Failure::NoMemory));
        assert_eq!((refused, failing.failed_count()), ([false, true, false], 1));
        assert!(!is_refused(Failure::NoPages) && ask(&met, 1).is_ok());
    }
}
