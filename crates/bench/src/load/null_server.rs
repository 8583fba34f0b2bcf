//! A server that answers `+OK` to whatever arrives, without looking at it. It shows the most that the generator
//! can drive on a machine, and, since it can be told to stop for a while, that the generator sees a pause.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::scan::ReplyScanner;
use crate::clock::now_ns;
use crate::error::{BenchError, Context, Result};
use crate::pin;
use crate::resp::Address;

/// At `at_ns` the server serves nobody for `duration`.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    pub at_ns: u64,
    pub duration: Duration,
}

struct Client {
    socket: OwnedFd,
    /// Requests are arrays, which the reply scanner counts as well.
    scanner: ReplyScanner,
    owed_replies: usize,
    sent_bytes: usize,
}

const REPLY: &[u8] = b"+OK\r\n";
const LISTENER: u64 = u64::MAX;

/// Serves until `stop`.
pub fn serve(listener: TcpListener, pause: Option<Pause>, stop: &AtomicBool) -> Result<()> {
    listener.set_nonblocking(true).context(|| "make the listener non-blocking".to_owned())?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).context(|| "create an epoll set".to_owned())?;
    epoll::add(&epoll, listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)
        .context(|| "watch the listener".to_owned())?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    let replies = REPLY.repeat(4096);
    let mut events: Vec<Event> = Vec::with_capacity(256);
    let mut pause = pause;
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e).context(|| "wait for requests".to_owned()),
        }
        if let Some(due) = pause.take_if(|p| now_ns() >= p.at_ns) {
            std::thread::sleep(due.duration);
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => accept(&listener, &epoll, &mut clients)?,
                index => {
                    let slot = &mut clients[index as usize];
                    if slot.as_mut().is_some_and(|c| !c.serve(&mut buffer, &replies)) {
                        *slot = None;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Puts a load on such a server, which runs on these processors meanwhile.
///
/// # Errors
/// Those of both.
pub fn beside<L>(cpus: Option<&[usize]>, load: impl FnOnce(&Address) -> Result<L>) -> Result<L> {
    let listener = TcpListener::bind("127.0.0.1:0").context(|| "listen".to_owned())?;
    let port = listener.local_addr().context(|| "read the port".to_owned())?.port();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            cpus.map_or(Ok(()), pin::pin_current_thread)?;
            serve(listener, None, &stop)
        });
        let loaded = load(&Address::local(port));
        stop.store(true, Ordering::SeqCst);
        let served = server.join().map_err(|_| BenchError::Failed("the null server panicked".to_owned()))?;
        served.and(loaded)
    })
}

fn accept(listener: &TcpListener, epoll: &OwnedFd, clients: &mut Vec<Option<Client>>) -> Result<()> {
    let Ok((stream, _)) = listener.accept() else { return Ok(()) };
    let socket = prepare(stream).context(|| "prepare a connection".to_owned())?;
    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
    epoll::add(epoll, socket.as_fd(), EventData::new_u64(clients.len() as u64), interest)
        .context(|| "watch a connection".to_owned())?;
    clients.push(Some(Client { socket, scanner: ReplyScanner::new(), owed_replies: 0, sent_bytes: 0 }));
    Ok(())
}

fn prepare(stream: TcpStream) -> std::io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

impl Client {
    /// False once the connection is over.
    fn serve(&mut self, buffer: &mut [u8], replies: &[u8]) -> bool {
        loop {
            match rustix::io::read(&self.socket, &mut *buffer) {
                Ok(0) => return false,
                Ok(n) => match self.scanner.feed(&buffer[..n]) {
                    Ok(requests) => self.owed_replies += requests,
                    Err(_) => return false,
                },
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
            if !self.answer(replies) {
                return false;
            }
        }
        self.answer(replies)
    }

    fn answer(&mut self, replies: &[u8]) -> bool {
        while self.owed_replies > 0 {
            let end = (self.owed_replies * REPLY.len()).min(replies.len());
            match rustix::io::write(&self.socket, &replies[self.sent_bytes..end]) {
                Ok(n) => {
                    let total = self.sent_bytes + n;
                    self.owed_replies -= total / REPLY.len();
                    self.sent_bytes = total % REPLY.len();
                }
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::closed_loop::ClosedLoop;
    use crate::load::open_loop::OpenLoop;
    use crate::load::{KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};

    const PAUSE_MS: u64 = 60;

    fn with_server(pause_after_ms: Option<u64>, load: impl FnOnce(Address) -> LoadReport) -> LoadReport {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let stop = AtomicBool::new(false);
        let pause = pause_after_ms
            .map(|ms| Pause { at_ns: now_ns() + ms * 1_000_000, duration: Duration::from_millis(PAUSE_MS) });
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(listener, pause, &stop));
            let report = load(target);
            stop.store(true, Ordering::Relaxed);
            server.join().unwrap().unwrap();
            report
        })
    }

    fn sets(key_count: u64, keys: KeyChoice) -> Workload {
        Workload::new(WorkloadSpec::sets(key_count, 100, keys, 1)).unwrap()
    }

    #[test]
    fn open_loop_sees_a_pause_in_every_request_that_was_due() {
        let report = with_server(Some(200), |target| {
            let open = OpenLoop {
                target,
                conn_count: 8,
                requests_per_second: 2000.0,
                burst: 1,
                spin_ns: 0,
                drain_ns: 5_000_000_000,
            };
            open.run(
                &mut sets(1000, KeyChoice::Uniform),
                Recording::with_samples(now_ns(), 1000),
                Stop::after_seconds(0.5),
            )
            .unwrap()
        });
        assert_eq!((report.unanswered, report.sent), (0, report.replies));
        assert!(report.stall.longest_ns >= (PAUSE_MS - 5) * 1_000_000);
        // A closed loop would show 8 slow requests; 2000/s for 60 ms are 120, of which half waited over 30 ms.
        let slow = report.recording.samples().iter().filter(|s| s.latency_ns > 30_000_000).count();
        assert!(slow >= 50, "{slow} slow requests");
    }

    #[test]
    fn closed_loop_sends_each_key_once() {
        let report = with_server(None, |target| {
            let closed = ClosedLoop { target, conn_count: 3, pipeline: 7 };
            closed.run(&mut sets(1001, KeyChoice::Once), Recording::new(now_ns()), Stop::default()).unwrap()
        });
        assert_eq!((report.sent, report.replies, report.unanswered), (1001, 1001, 0));
        assert_eq!(report.recording.histogram.len(), 1001);
    }
}
