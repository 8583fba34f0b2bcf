//! What goes on beside a sequence on a server with little memory: saves, so that pages that a cut needs come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stillframe_testkit::Client;

/// A thread that saves until this is dropped, or the server has gone.
pub struct Saves {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Saves {
    pub fn start(mut conn: Client) -> Saves {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            let commands = ["BGSAVE", "BGSAVE", "BGSAVE RDB"];
            for number in 0.. {
                let is_over = until.load(Ordering::Relaxed);
                // One that is refused, as another is under way or the server loads, comes the next time.
                if is_over || conn.try_run(commands[number % commands.len()]).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        Saves { stop, thread: Some(thread) }
    }
}

impl Drop for Saves {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has nothing to say.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
