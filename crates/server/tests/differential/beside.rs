//! What goes on beside a sequence on a server with little memory: saves, so that pages that a cut needs come and go, and others
//! who use what memory there is.

use std::io;
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

/// Values in a database of their own. When they have been read, what a sequence has is in the page file alone.
pub struct Crowd {
    conn: Client,
    /// Pages loaded for these values.
    loaded_page_count: u64,
}

/// A database that sequences do not use.
const CROWD_DB: u32 = 9;
/// Twice what memory takes: a page that was used has a second chance.
const CROWD_VALUE_COUNT: usize = 64;
const CROWD_VALUE_BYTES: usize = 256 << 10;

impl Crowd {
    pub fn start(mut conn: Client) -> io::Result<Crowd> {
        conn.try_run(&format!("SELECT {CROWD_DB}"))?;
        let mut crowd = Crowd { conn, loaded_page_count: 0 };
        (0..CROWD_VALUE_COUNT).try_for_each(|number| crowd.store(number))?;
        Ok(crowd)
    }

    fn store(&mut self, number: usize) -> io::Result<()> {
        let value = vec![number as u8; CROWD_VALUE_BYTES];
        self.conn.try_run_words(&[b"SET".to_vec(), format!("crowd:{number}").into_bytes(), value]).map(drop)
    }

    /// Reads all of it, and stores anew what a sequence has flushed.
    pub fn take_memory(&mut self) -> io::Result<()> {
        let before = loaded_page_count(&mut self.conn);
        for number in 0..CROWD_VALUE_COUNT {
            self.conn.queue(&[b"BITCOUNT".to_vec(), format!("crowd:{number}").into_bytes()]);
        }
        self.conn.flush()?;
        let counts: Vec<_> =
            (0..CROWD_VALUE_COUNT).map(|_| self.conn.try_read()).collect::<io::Result<_>>()?;
        for (number, count) in counts.iter().enumerate() {
            let bits = CROWD_VALUE_BYTES as i64 * i64::from(number.count_ones());
            match count.integer() {
                Some(found) if found == bits => {}
                Some(0) => self.store(number)?,
                _ => panic!("crowd:{number} has {count:?} bits of {bits}"),
            }
        }
        self.loaded_page_count += loaded_page_count(&mut self.conn) - before;
        Ok(())
    }

    /// Pages loaded for anything else.
    pub fn others_loaded_page_count(&mut self) -> u64 {
        loaded_page_count(&mut self.conn) - self.loaded_page_count
    }
}

fn loaded_page_count(conn: &mut Client) -> u64 {
    conn.info("data_pages_loaded").parse().expect("a number")
}
