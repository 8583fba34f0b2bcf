//! Input buffers that no connection has anything in.

/// One that has grown beyond this stays with its connection, which is likely to fill it again.
const KEPT_BYTES: usize = 16 * 1024;
/// More connections than this rarely have input at a time.
const KEPT_COUNT: usize = 64;

/// The buffers of one worker. Connections without input have none: ten thousand that wait take no memory for it, and what is
/// read goes where the last input was, which is in the nearest caches.
#[derive(Default)]
pub struct SpareBuffers(Vec<Vec<u8>>);

impl SpareBuffers {
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Takes an empty buffer over, if it is worth keeping for others.
    pub fn take_over(&mut self, buf: &mut Vec<u8>) {
        debug_assert!(buf.is_empty());
        if buf.capacity() > KEPT_BYTES {
            return;
        }
        let buf = std::mem::take(buf);
        if self.0.len() < KEPT_COUNT && buf.capacity() > 0 {
            self.0.push(buf);
        }
    }
}
