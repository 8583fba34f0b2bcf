//! Asking for memory before it is needed.

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
