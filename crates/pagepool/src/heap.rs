//! The heap that everything beside pages comes from: what others have freed goes back to the system.
//!
//! The allocator of glibc gives back only what is free at the end of a heap. Small blocks that stay keep all before them.

/// Blocks of so many bytes and more, such as parts of large replies, are mappings of their own, which go when they are freed. A
/// buffer of 256 KB, which connections keep, is less.
#[cfg(target_env = "gnu")]
const MAPPED_MIN_BYTES: libc::c_int = 264 << 10;

/// Has large blocks mapped one by one, from now on. Of use to a process whose memory is its own affair.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: A4: the allocator's settings decide where blocks lie that are still to come.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_MIN_BYTES);
    }
}

/// Gives whole free pages of the heap back. A thread that allocates from the same part of the heap meanwhile waits.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: A4: blocks that are in use stay as they are.
    unsafe {
        libc::malloc_trim(0);
    }
}
