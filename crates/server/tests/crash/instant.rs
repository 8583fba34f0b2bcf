//! When something happened, and whether states of several clients belong to one instant.

use std::time::Instant;

/// In nanoseconds on a clock that all threads of the test share.
pub type Nanos = u64;

/// The acknowledgement of what was never answered.
pub const NEVER: Nanos = Nanos::MAX;

/// The shared clock. No event has time 0.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now_ns(self) -> Nanos {
        self.0.elapsed().as_nanos() as Nanos + 1
    }
}

/// A number of operations after which a client's data was as it was found, and when a cut sees just these.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub op_count: usize,
    pub from_ns: Nanos,
    pub to_ns: Nanos,
}

/// When a save took its cut, as far as is known from outside.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from_ns: Nanos,
    pub to_ns: Nanos,
}

/// The spans, one a client, that an instant within one of the windows belongs to, and the number of that window.
pub fn find_cut(spans: &[Vec<Span>], windows: &[Window]) -> Option<(usize, Vec<Span>)> {
    windows.iter().enumerate().find_map(|(number, window)| {
        let starts = spans.iter().flatten().map(|span| span.from_ns);
        let mut instants =
            starts.filter(|at| (window.from_ns..=window.to_ns).contains(at)).chain([window.from_ns]);
        instants.find_map(|at| {
            let of_client = |spans: &Vec<Span>| {
                spans.iter().find(|span| (span.from_ns..=span.to_ns).contains(&at)).copied()
            };
            Some((number, spans.iter().map(of_client).collect::<Option<Vec<_>>>()?))
        })
    })
}
