//! Memory as devices want it, and numbers in it.

use stillframe_pagepool::PAGE_SIZE;

/// Bytes whose address is a multiple of a page's.
pub struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many bytes, all 0.
    pub fn new(len: usize) -> AlignedBytes {
        let memory = vec![0; len + PAGE_SIZE];
        let address = memory.as_ptr().addr();
        AlignedBytes { start: address.next_multiple_of(PAGE_SIZE) - address, memory, len }
    }

    pub fn get(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

/// Writes numbers at places, little-endian.
pub fn put(bytes: &mut [u8], at: usize, number: &[u8]) {
    bytes[at..at + number.len()].copy_from_slice(number);
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// The machine's clock in milliseconds since 1970, 0 if it is before that.
pub fn now_unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
