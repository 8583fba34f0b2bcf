//! Asking for memory before it is needed.

/// Hints that a value outside the pool will be written soon, by this processor and no other: whoever writes next then
/// waits for nobody to give up the cache line.
#[inline(always)]
pub fn prefetch_value_for_write<T>(value: &T) {
    prefetch_for_write(std::ptr::from_ref(value).cast());
}

/// Hints that a value outside the pool will be read soon.
#[inline(always)]
pub fn prefetch_value<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast());
}

/// Hints that the cache line at an address will be read soon.
#[inline(always)]
pub fn prefetch(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A1: a prefetch of any address has no effect that a program can observe.
    unsafe {
        std::arch::x86_64::_mm_prefetch(address, std::arch::x86_64::_MM_HINT_T0)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Hints that these bytes, counted from the start of a line, will be read soon.
#[inline(always)]
pub fn prefetch_lines(line: *const i8, bytes: std::ops::Range<usize>) {
    let first = bytes.start - bytes.start % LINE_BYTES;
    (first..bytes.end).step_by(LINE_BYTES).for_each(|offset| prefetch(line.wrapping_add(offset)));
}

/// Hints that the cache line at an address will be written soon.
#[inline(always)]
pub fn prefetch_for_write(address: *const i8) {
    // By name: the compiler makes a plain prefetch of the intrinsic unless it builds for one processor. Those without the
    // instruction take it for none.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A1: a prefetch of any address has no effect that a program can observe.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
