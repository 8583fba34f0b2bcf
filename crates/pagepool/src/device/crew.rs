//! A few threads that help whoever has many jobs that wait for the disk.

use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// Threads of a crew. A disk takes about as long for one short transfer as for eight.
const HELPERS: usize = 8;

/// Threads that are started when they are first wanted, and end with the crew. Each call does its own jobs; the threads
/// take one of each call in turn. So calls share them, and no call waits for a thread that is busy with another's.
#[derive(Default)]
pub struct Crew {
    desk: Arc<Desk>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Where calls and threads meet.
#[derive(Default)]
struct Desk {
    board: Mutex<Board>,
    call_came: Condvar,
    job_ended: Condvar,
}

#[derive(Default)]
struct Board {
    /// The one that is served next comes first.
    calls: Vec<Call>,
    last_id: u64,
    is_closing: bool,
}

/// What all jobs of a call have in common. Its caller's: it goes when that leaves (I3).
type Work = &'static (dyn Fn(usize) + Sync);

struct Call {
    id: u64,
    work: Work,
    /// The first job that nobody has taken.
    next: usize,
    job_count: usize,
    /// Jobs that threads of the crew are at.
    helped_count: usize,
    /// Of the first job that panicked on such a thread.
    panic: Option<Box<dyn Any + Send>>,
}

impl Call {
    fn take_job(&mut self) -> Option<usize> {
        let job = self.next;
        self.next += usize::from(job < self.job_count);
        (job < self.job_count).then_some(job)
    }
}

impl Board {
    fn call(&mut self, id: u64) -> &mut Call {
        let call = self.calls.iter_mut().find(|call| call.id == id);
        call.expect("I3: a call stays until its caller leaves")
    }

    /// A job of the next call in turn.
    fn take_job(&mut self) -> Option<(u64, Work, usize)> {
        let at = self.calls.iter().position(|call| call.next < call.job_count)?;
        self.calls[at..].rotate_left(1);
        let call = self.calls.last_mut()?;
        call.helped_count += 1;
        Some((call.id, call.work, call.take_job()?))
    }
}

impl Crew {
    /// Calls `work` with each number below `job_count`, on this thread and those of the crew. Returns, or unwinds, when
    /// nobody is at it any more.
    ///
    /// # Panics
    /// With what a job panicked with.
    pub fn run(&self, job_count: usize, work: &(dyn Fn(usize) + Sync)) {
        if job_count > 1 {
            self.start_threads();
        }
        // SAFETY: I3: `Visit` stays until no thread is at a job of this call, and then nobody finds it any more.
        let lent = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Work>(work) };
        let visit = Visit::begin(&self.desk, lent, job_count);
        while let Some(job) = visit.take_job() {
            work(job);
        }
        if let Some(panic) = visit.leave() {
            resume_unwind(panic);
        }
    }

    fn start_threads(&self) {
        let mut threads = self.threads.lock();
        if !threads.is_empty() {
            return;
        }
        for number in 0..HELPERS {
            let desk = self.desk.clone();
            let builder = std::thread::Builder::new().name(format!("sf-io-{number}"));
            // Without the thread the others do its part.
            threads.extend(builder.spawn(move || desk.serve()).ok());
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.desk.board.lock().is_closing = true;
        self.desk.call_came.notify_all();
        for thread in self.threads.lock().drain(..) {
            // Panics of jobs have gone to their callers.
            let _ = thread.join();
        }
    }
}

impl Desk {
    /// What a thread of the crew does.
    fn serve(&self) {
        let mut board = self.board.lock();
        while !board.is_closing {
            let Some((id, work, job)) = board.take_job() else {
                self.call_came.wait(&mut board);
                continue;
            };
            drop(board);
            let result = catch_unwind(AssertUnwindSafe(|| work(job)));
            board = self.board.lock();
            let call = board.call(id);
            call.helped_count -= 1;
            if let Err(panic) = result {
                call.panic.get_or_insert(panic);
            }
            if call.helped_count == 0 {
                self.job_ended.notify_all();
            }
        }
    }
}

/// A caller with its call on the board.
struct Visit<'d> {
    desk: &'d Desk,
    id: u64,
}

impl<'d> Visit<'d> {
    fn begin(desk: &'d Desk, work: Work, job_count: usize) -> Visit<'d> {
        let mut board = desk.board.lock();
        board.last_id += 1;
        let id = board.last_id;
        board.calls.push(Call { id, work, next: 0, job_count, helped_count: 0, panic: None });
        drop(board);
        // One job is the caller's own.
        for _ in 1..job_count.min(HELPERS + 1) {
            desk.call_came.notify_one();
        }
        Visit { desk, id }
    }

    fn take_job(&self) -> Option<usize> {
        self.desk.board.lock().call(self.id).take_job()
    }

    /// Takes the call off the board once nobody is at it. Returns what a job on another thread panicked with.
    fn leave(&self) -> Option<Box<dyn Any + Send>> {
        let mut board = self.desk.board.lock();
        let at = |board: &Board| board.calls.iter().position(|call| call.id == self.id);
        at(&board)?;
        let call = board.call(self.id);
        call.next = call.job_count;
        while board.call(self.id).helped_count > 0 {
            self.desk.job_ended.wait(&mut board);
        }
        let at = at(&board)?;
        board.calls.remove(at).panic
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // If the caller unwinds, that says enough.
        drop(self.leave());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_job_is_done_once_and_by_several() {
        let crew = Crew::default();
        for job_count in [0, 1, 2, 7, 500] {
            let counts: Vec<_> = (0..job_count).map(|_| AtomicUsize::new(0)).collect();
            let threads = Mutex::new(HashSet::new());
            crew.run(job_count, &|job| {
                counts[job].fetch_add(1, Ordering::Relaxed);
                threads.lock().insert(std::thread::current().id());
                std::thread::sleep(Duration::from_micros(200));
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            let thread_count = threads.lock().len();
            assert!(thread_count <= HELPERS + 1 && (job_count < 500 || thread_count > 2), "{thread_count}");
        }
    }

    /// A call that has all threads, and keeps them, does not keep another from its end.
    #[test]
    fn no_call_waits_for_threads_that_are_busy_with_another() {
        let crew = Crew::default();
        let (gate, opened) = (Mutex::new(false), Condvar::new());
        let at_gate = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crew.run(100, &|_| {
                    at_gate.fetch_add(1, Ordering::SeqCst);
                    opened.wait_while(&mut gate.lock(), |is_open| !*is_open);
                });
            });
            while at_gate.load(Ordering::SeqCst) < HELPERS + 1 {
                std::thread::yield_now();
            }
            let done = AtomicUsize::new(0);
            crew.run(4, &|_| {
                done.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!((done.into_inner(), at_gate.load(Ordering::SeqCst)), (4, HELPERS + 1));
            *gate.lock() = true;
            opened.notify_all();
        });
        assert_eq!(at_gate.into_inner(), 100);
    }

    #[test]
    fn threads_take_jobs_of_each_call_in_turn() {
        let mut board = Board::default();
        for (id, job_count) in [(1, 2), (2, 5), (3, 0), (4, 1)] {
            board.calls.push(Call { id, work: &|_| (), next: 0, job_count, helped_count: 0, panic: None });
        }
        let taken: Vec<_> = std::iter::from_fn(|| board.take_job().map(|(id, _, job)| (id, job))).collect();
        assert_eq!(taken, [(1, 0), (2, 0), (4, 0), (1, 1), (2, 1), (2, 2), (2, 3), (2, 4)]);
    }

    #[test]
    fn a_panic_reaches_the_caller_when_nobody_is_at_work() {
        let crew = Crew::default();
        for on_helper in [false, true] {
            let caller = std::thread::current().id();
            let at_work = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                crew.run(100, &|_| {
                    at_work.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(std::thread::current().id() == caller, on_helper, "as the test wants it");
                });
            }));
            let text = result.unwrap_err().downcast::<String>().unwrap();
            assert!(text.contains("as the test wants it"), "{text}");
            assert_eq!(at_work.load(Ordering::SeqCst), 0);
        }
        crew.run(10, &|_| ());
    }
}
