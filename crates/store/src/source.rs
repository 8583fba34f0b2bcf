//! Pages that are read one after the other, and those that are asked for ahead.
//!
//! Whoever walks says which pages come next, in their order ([`Ahead::expect`]). The first of them that is asked for is read
//! together with those after it, up to a bound. So a walk of data that is in a file alone keeps the device busy.

use std::cell::RefCell;

use stillframe_pagepool::device::PageBuf;
use stillframe_pagepool::PageId;

use crate::error::SaveError;
use crate::page::Page;

/// Pages that are read at once (4 MB).
const WINDOW_PAGES: usize = 1024;

/// Where pages come from. What is in them does not change.
pub(crate) trait PageSource {
    /// Copies a page.
    fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError>;

    /// Copies many, with as few calls of the device as it can. What became of each, in order.
    fn read_pages(&self, pages: &mut [(PageId, &mut PageBuf)]) -> Vec<Result<(), SaveError>>;
}

/// Pages in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub first: PageId,
    pub page_count: u32,
}

impl Run {
    /// How far into the run a page is, if it is in it.
    fn index_of(&self, pid: PageId) -> Option<u32> {
        pid.0.checked_sub(self.first.0).filter(|index| *index < self.page_count)
    }
}

/// Pages of a source, of which those that are expected are read ahead. Holds 4 MB at most.
pub(crate) struct Ahead<'a, S> {
    source: &'a S,
    window: RefCell<Window>,
}

#[derive(Default)]
struct Window {
    /// What is expected, in the order in which it will be asked for.
    runs: Vec<Run>,
    /// The first run that has not been read to its end.
    next: usize,
    /// What was read last, ascending.
    pids: Vec<PageId>,
    /// Which of these are good. A page that is not is an error only once it is asked for, and read again alone then.
    is_good: Vec<bool>,
    /// At least as many as `pids`; kept for the next ones.
    pages: Vec<PageBuf>,
}

impl<'a, S: PageSource> Ahead<'a, S> {
    pub fn new(source: &'a S) -> Ahead<'a, S> {
        Ahead { source, window: RefCell::default() }
    }

    /// These will be asked for next, in their order; what was expected before is forgotten.
    pub fn expect(&self, runs: impl Iterator<Item = Run>) {
        let window = &mut *self.window.borrow_mut();
        window.runs.clear();
        window.runs.extend(runs);
        window.next = 0;
    }

    /// Copies a page, expected or not.
    ///
    /// # Errors
    /// As of [`PageSource::read_page`].
    pub fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
        let window = &mut *self.window.borrow_mut();
        let place = window.pids.binary_search(&pid).ok().or_else(|| {
            window.turn_to(pid)?;
            window.fill(self.source);
            window.pids.binary_search(&pid).ok()
        });
        match place.filter(|place| window.is_good[*place]) {
            Some(place) => into.copy_from_slice(&window.pages[place].0),
            None => self.source.read_page(pid, into)?,
        }
        Ok(())
    }
}

impl Window {
    /// Chooses `pid` and what is expected after it as what is to be read; `None` if it is not expected.
    fn turn_to(&mut self, pid: PageId) -> Option<()> {
        let next = self.next.min(self.runs.len());
        let mut places = (next..self.runs.len()).chain(0..next);
        let (place, mut skipped) = places.find_map(|place| Some((place, self.runs[place].index_of(pid)?)))?;
        self.next = place;
        self.pids.clear();
        while let Some(run) = self.runs.get(self.next) {
            let room = (WINDOW_PAGES - self.pids.len()) as u32;
            let end = run.page_count.min(skipped.saturating_add(room));
            self.pids.extend((skipped..end).map(|index| PageId(run.first.0.saturating_add(index))));
            if end < run.page_count {
                break;
            }
            (self.next, skipped) = (self.next + 1, 0);
        }
        self.pids.sort_unstable();
        self.pids.dedup();
        Some(())
    }

    /// Reads what is to be read.
    fn fill(&mut self, source: &impl PageSource) {
        if self.pages.len() < self.pids.len() {
            self.pages.resize(self.pids.len(), PageBuf::ZERO);
        }
        let mut wanted: Vec<_> = self.pids.iter().copied().zip(&mut self.pages).collect();
        self.is_good = source.read_pages(&mut wanted).iter().map(Result::is_ok).collect();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use stillframe_pagepool::PAGE_SIZE;

    use super::*;

    /// Pages of which each holds its number; some cannot be read.
    #[derive(Default)]
    struct Numbers {
        bad: BTreeSet<u32>,
        /// Calls for one page, and for many.
        calls: Cell<(usize, usize)>,
    }

    impl Numbers {
        fn read(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
            into[..4].copy_from_slice(&pid.0.to_le_bytes());
            match self.bad.contains(&pid.0) {
                true => Err(SaveError::Damaged(format!("page {} is bad", pid.0).into())),
                false => Ok(()),
            }
        }
    }

    impl PageSource for Numbers {
        fn read_page(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
            let (one, many) = self.calls.get();
            self.calls.set((one + 1, many));
            self.read(pid, into)
        }

        fn read_pages(&self, pages: &mut [(PageId, &mut PageBuf)]) -> Vec<Result<(), SaveError>> {
            assert!((1..=WINDOW_PAGES).contains(&pages.len()), "{} pages at once", pages.len());
            let (one, many) = self.calls.get();
            self.calls.set((one, many + 1));
            pages.iter_mut().map(|(pid, page)| self.read(*pid, &mut page.0)).collect()
        }
    }

    fn check(source: &Numbers, ahead: &Ahead<'_, Numbers>, pid: u32) {
        let mut page = [0; PAGE_SIZE];
        match ahead.read_page(PageId(pid), &mut page) {
            Ok(()) => assert!(page[..4] == pid.to_le_bytes() && !source.bad.contains(&pid), "page {pid}"),
            Err(error) => assert!(source.bad.contains(&pid), "page {pid}: {error}"),
        }
    }

    /// Short runs and very long ones, some twice; some are passed over, and some asked for that nobody expects.
    #[test]
    fn pages_read_ahead_are_those_that_were_asked_for() {
        let mut rng = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..20 {
            let source = Numbers { bad: (0..200).map(|_| rng.u32(..20_000)).collect(), ..Numbers::default() };
            let ahead = Ahead::new(&source);
            for _ in 0..5 {
                let run_count = rng.usize(..400);
                let run = |_| {
                    let page_count = if rng.u8(..20) == 0 { rng.u32(..3_000) } else { rng.u32(..4) };
                    Run { first: PageId(rng.u32(..18_000)), page_count }
                };
                let runs: Vec<Run> = (0..run_count).map(run).collect();
                ahead.expect(runs.iter().copied());
                for run in &runs {
                    if rng.u8(..30) == 0 {
                        continue;
                    }
                    (run.first.0..run.first.0 + run.page_count).for_each(|pid| check(&source, &ahead, pid));
                    if rng.u8(..30) == 0 {
                        check(&source, &ahead, rng.u32(..30_000));
                    }
                }
            }
        }
    }

    /// What is asked for in the order in which it was expected costs a call for each window, be it short values or long ones.
    #[test]
    fn many_pages_are_read_with_few_calls() {
        for page_count in [1, 7, 5_000] {
            let source = Numbers::default();
            let ahead = Ahead::new(&source);
            let firsts = (0..20_000).step_by(page_count);
            ahead.expect(firsts.map(|first| Run { first: PageId(first), page_count: page_count as u32 }));
            (0..20_000).for_each(|pid| check(&source, &ahead, pid));
            assert_eq!(source.calls.get(), (0, 20_000usize.div_ceil(WINDOW_PAGES)), "runs of {page_count}");
        }
    }

    /// It is read again alone when it is asked for, and not before; its neighbours are not.
    #[test]
    fn a_bad_page_is_an_error_when_it_is_asked_for() {
        let source = Numbers { bad: [5].into(), ..Numbers::default() };
        let ahead = Ahead::new(&source);
        ahead.expect(std::iter::once(Run { first: PageId(0), page_count: 10 }));
        (0..5).for_each(|pid| check(&source, &ahead, pid));
        assert_eq!(source.calls.get(), (0, 1));
        let error = ahead.read_page(PageId(5), &mut [0; PAGE_SIZE]).expect_err("it is bad").to_string();
        assert_eq!((error.as_str(), source.calls.get()), ("page 5 is bad", (1, 1)));
        (6..10).for_each(|pid| check(&source, &ahead, pid));
        assert_eq!(source.calls.get(), (1, 1));
    }
}
