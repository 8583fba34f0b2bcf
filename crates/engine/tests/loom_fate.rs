//! The end of a slow script under the model checker: it is ended, or has changed something, never both (SC3).

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::Arc;
use loom::thread;

mod sync {
    pub use loom::sync::atomic;
}

#[path = "../src/state/fate.rs"]
mod fate;

use fate::Fate;

#[test]
fn a_script_is_ended_or_changes_something() {
    loom::model(|| {
        let (fate, has_changed) = (Arc::new(Fate::default()), Arc::new(AtomicBool::new(false)));
        let worker = {
            let (fate, has_changed) = (fate.clone(), has_changed.clone());
            thread::spawn(move || {
                if fate.change() {
                    has_changed.store(true, Ordering::Relaxed);
                }
            })
        };
        let killer = {
            let fate = fate.clone();
            thread::spawn(move || fate.end())
        };
        let is_ended = fate.end();
        let is_ended_too = killer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(is_ended, is_ended_too, "all who end it are told the same");
        assert_ne!(is_ended, has_changed.load(Ordering::Relaxed));
        assert_eq!(fate.has_changed(), !is_ended);
    });
}
