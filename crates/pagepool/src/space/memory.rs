//! Where pages live: the `Memory` seam, and arrays indexed by page.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::discards::Discards;
use crate::exmap::Exmap;
use crate::sched::{idly, may_take_long};
use crate::PAGE_SIZE;

/// Bytes of a huge page; pages are given to the kernel and taken from it in such extents.
pub const HUGE_PAGE_SIZE: usize = 2 << 20;

/// Why address space could not be had.
#[derive(thiserror::Error, Debug)]
#[error(
    "cannot reserve {byte_len} bytes of address space: {source}; raise `ulimit -v` or set vm.overcommit_memory to 0 or 1"
)]
pub struct MapError {
    pub byte_len: usize,
    pub source: std::io::Error,
}

/// A fixed range of zeroed memory that backs pages. Cold: the pool keeps the base address and uses this only to
/// populate and discard.
///
/// Implementations guarantee that `base` stays valid for `byte_len` bytes while the value lives, and that it is
/// aligned to a page (invariant M1).
pub trait Memory: Send + Sync {
    fn base(&self) -> NonNull<u8>;
    fn byte_len(&self) -> usize;
    /// Makes memory resident ahead of its first touch. A hint: failure is not an error.
    fn populate(&self, start: usize, byte_len: usize);
    /// Asks for huge pages in a range that is going to be used densely, whose first touch is the caller's: it takes as long as the
    /// system needs to clear 2 MB (M10). A hint.
    fn prefer_huge(&self, start: usize, byte_len: usize);
    /// Takes that back: the next touch of what has no memory gives it a page of 4 KB. A hint.
    fn refuse_huge(&self, _start: usize, _byte_len: usize) {}
    /// Gives memory back; it reads as zero afterwards. The caller owns the range (invariant M2).
    fn discard(&self, start: usize, byte_len: usize);
    /// The same of several ranges, each `(start, byte_len)`.
    fn discard_parts(&self, parts: &[(usize, usize)]) {
        parts.iter().for_each(|&(start, byte_len)| self.discard(start, byte_len));
    }
    /// Single pages are going to be given back: no huge page is made any more, and those that there are are divided when
    /// the first page of theirs is given back. A hint.
    fn avoid_huge(&self) {}
    /// Whether a page has to be given memory before it is written. Else its first touch gives it some.
    fn is_given(&self) -> bool {
        false
    }
    /// Gives memory to ranges, each `(start, byte_len)`, of which the caller owns each page (M2). What is in it is undefined,
    /// but for pages that have some already.
    fn give(&self, _parts: &[(usize, usize)]) {}
    /// The map that it is, if files are to be read into it by way of that.
    fn exmap(&self) -> Option<&Arc<Exmap>> {
        None
    }
}

/// Bytes that a thread populates at once if it cannot be idle meanwhile although it should.
const POPULATE_STEP_BYTES: usize = 64 << 10;

/// Populates a range in the background. The caller holds no lock.
pub fn populate_idly(memory: &dyn Memory, start: usize, byte_len: usize) {
    let step = if may_take_long() { byte_len.max(1) } else { POPULATE_STEP_BYTES };
    for at in (start..start + byte_len).step_by(step) {
        idly(|| memory.populate(at, step.min(start + byte_len - at)));
    }
}

/// Anonymous, unreserved memory: the kernel gives a page at its first touch, of 4 KB unless huge ones are asked for.
pub struct AnonMemory {
    base: NonNull<u8>,
    byte_len: usize,
    /// A bit for each 2 MB: no huge page is there any more. Made by `avoid_huge`.
    divided: OnceLock<Vec<AtomicU64>>,
    discards: Discards,
}

// SAFETY: M1: the mapping is owned by the value and valid from any thread.
unsafe impl Send for AnonMemory {}
// SAFETY: M1: `populate` and `discard` are thread-safe system calls on a mapping that outlives `&self`.
unsafe impl Sync for AnonMemory {}

impl AnonMemory {
    /// Maps `byte_len` bytes of address space.
    ///
    /// # Errors
    /// [`MapError`] if the address space is limited (`ulimit -v`, `vm.overcommit_memory = 2`).
    pub fn new(byte_len: usize) -> Result<AnonMemory, MapError> {
        let layout_len = byte_len.next_multiple_of(HUGE_PAGE_SIZE) + HUGE_PAGE_SIZE;
        // SAFETY: M1: a fresh private mapping at an address of the kernel's choice aliases nothing.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return Err(MapError { byte_len, source: std::io::Error::last_os_error() });
        }
        let skip = (raw as usize).next_multiple_of(HUGE_PAGE_SIZE) - raw as usize;
        // SAFETY: M1: both calls name ranges inside the mapping made above; `skip` is less than HUGE_PAGE_SIZE.
        let base = unsafe {
            let base = raw.cast::<u8>().add(skip);
            // Both are hints; kernels without the feature refuse them and nothing is lost.
            libc::madvise(base.cast(), byte_len, libc::MADV_NOHUGEPAGE);
            libc::madvise(base.cast(), byte_len, libc::MADV_DONTDUMP);
            // The aligned part is kept, the rest goes back.
            libc::munmap(raw, skip);
            let tail = layout_len - skip - byte_len.next_multiple_of(PAGE_SIZE);
            libc::munmap(base.add(byte_len.next_multiple_of(PAGE_SIZE)).cast(), tail);
            base
        };
        let base = NonNull::new(base).expect("a mapping is never at address zero");
        Ok(AnonMemory {
            base,
            byte_len: byte_len.next_multiple_of(PAGE_SIZE),
            divided: OnceLock::new(),
            discards: Discards::default(),
        })
    }

    fn advise(&self, start: usize, byte_len: usize, advice: i32) -> bool {
        assert!(
            start.checked_add(byte_len).is_some_and(|end| end <= self.byte_len),
            "M1: range in the mapping"
        );
        // SAFETY: M1: the range lies in the mapping; M2: a discarded range is owned by the caller.
        unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), byte_len, advice) == 0 }
    }

    /// Not by `MADV_POPULATE_WRITE`: that holds the lock of the address space while the kernel clears memory, 2 MB at a time, and
    /// on a busy processor for many milliseconds. Whose allocator wants address space then, a worker's, waits as long. A page
    /// fault takes the lock of this mapping alone.
    #[cfg(target_arch = "x86_64")]
    fn populate_range(&self, start: usize, byte_len: usize) {
        for at in (start / PAGE_SIZE * PAGE_SIZE..start + byte_len).step_by(PAGE_SIZE) {
            let byte = self.base.as_ptr().wrapping_add(at);
            // SAFETY: M1: the byte lies in the mapping. M7: it is changed by one atomic instruction, to what it is.
            unsafe { std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack)) };
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn populate_range(&self, start: usize, byte_len: usize) {
        self.advise(start, byte_len, libc::MADV_POPULATE_WRITE);
    }

    /// A huge page of which a part is given back keeps all its memory unless it has been divided. The kernel divides one when
    /// a part of it is called cold.
    fn divide_huge(&self, start: usize, byte_len: usize) {
        let Some(divided) = self.divided.get() else { return };
        for chunk in start / HUGE_PAGE_SIZE..(start + byte_len).div_ceil(HUGE_PAGE_SIZE) {
            let (word, bit) = (&divided[chunk / 64], 1 << (chunk % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
                self.advise(chunk * HUGE_PAGE_SIZE, PAGE_SIZE, libc::MADV_COLD);
            }
        }
    }
}

impl Memory for AnonMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn byte_len(&self) -> usize {
        self.byte_len
    }

    fn populate(&self, start: usize, byte_len: usize) {
        assert!(
            start.checked_add(byte_len).is_some_and(|end| end <= self.byte_len),
            "M1: range in the mapping"
        );
        self.populate_range(start, byte_len);
    }

    fn prefer_huge(&self, start: usize, byte_len: usize) {
        if self.divided.get().is_none() {
            self.advise(start, byte_len, libc::MADV_HUGEPAGE);
        }
    }

    fn refuse_huge(&self, start: usize, byte_len: usize) {
        self.advise(start, byte_len, libc::MADV_NOHUGEPAGE);
    }

    fn discard(&self, start: usize, byte_len: usize) {
        // Those within go whole.
        let cut_through = [start, start + byte_len].into_iter().filter(|edge| edge % HUGE_PAGE_SIZE != 0);
        cut_through.for_each(|edge| self.divide_huge(edge, 0));
        let done = self.advise(start, byte_len, libc::MADV_DONTNEED);
        assert!(done, "madvise(MADV_DONTNEED) on an own mapping cannot fail");
    }

    fn discard_parts(&self, parts: &[(usize, usize)]) {
        let in_mapping =
            |&(start, len): &(usize, usize)| start.checked_add(len).is_some_and(|end| end <= self.byte_len);
        assert!(parts.iter().all(in_mapping), "M1: ranges in the mapping");
        parts.iter().for_each(|&(start, len)| self.divide_huge(start, len));
        self.discards.discard(self.base, parts);
    }

    fn avoid_huge(&self) {
        let word_count = self.byte_len.div_ceil(HUGE_PAGE_SIZE).div_ceil(64);
        self.divided.get_or_init(|| (0..word_count).map(|_| AtomicU64::new(0)).collect());
        self.advise(0, self.byte_len, libc::MADV_NOHUGEPAGE);
    }
}

impl Drop for AnonMemory {
    fn drop(&mut self) {
        // SAFETY: M1: the mapping is owned and nobody refers to it after the owner is gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.byte_len) };
    }
}

/// Plain heap memory, for model checkers and small tests (`MADV_*` are no-ops or a fill with zero).
pub struct HeapMemory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: M1: the allocation is owned by the value and valid from any thread.
unsafe impl Send for HeapMemory {}
// SAFETY: M1: as above; `discard` writes only ranges that its caller owns (M2).
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    /// Allocates `byte_len` zeroed bytes.
    pub fn new(byte_len: usize) -> HeapMemory {
        let byte_len = byte_len.max(1).next_multiple_of(PAGE_SIZE);
        let layout = Layout::from_size_align(byte_len, PAGE_SIZE).expect("a test's size fits a layout");
        // SAFETY: M1: the layout has a non-zero size.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { std::alloc::handle_alloc_error(layout) };
        HeapMemory { base, layout }
    }
}

impl Memory for HeapMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn byte_len(&self) -> usize {
        self.layout.size()
    }

    fn populate(&self, _start: usize, _byte_len: usize) {}

    fn prefer_huge(&self, _start: usize, _byte_len: usize) {}

    fn discard(&self, start: usize, byte_len: usize) {
        assert!(
            start.checked_add(byte_len).is_some_and(|end| end <= self.layout.size()),
            "M1: range in the heap"
        );
        // SAFETY: M1: in range; M2: the caller owns the range.
        unsafe { std::ptr::write_bytes(self.base.as_ptr().add(start), 0, byte_len) }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: M1: allocated with this layout, and nobody refers to it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Marks types for which all-zero bytes are a valid value and whose shared references may be used from any
/// thread (atomics and structs of atomics).
///
/// # Safety
/// The implementor asserts exactly that (invariant M3).
pub unsafe trait ZeroInit: Sync + Send {}

// SAFETY: M3: an atomic integer of zero.
unsafe impl ZeroInit for std::sync::atomic::AtomicU64 {}
// SAFETY: M3: as above.
unsafe impl ZeroInit for std::sync::atomic::AtomicU32 {}
// SAFETY: M3: as above.
unsafe impl ZeroInit for std::sync::atomic::AtomicU8 {}

/// A huge array of zeroed elements of which only the touched parts take memory: one element a page.
pub struct VirtualArray<T: ZeroInit> {
    memory: AnonMemory,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: ZeroInit> VirtualArray<T> {
    /// Reserves address space for `len` elements.
    ///
    /// # Errors
    /// As [`AnonMemory::new`].
    pub fn new(len: usize) -> Result<VirtualArray<T>, MapError> {
        let memory = AnonMemory::new(len * std::mem::size_of::<T>())?;
        Ok(VirtualArray { memory, len, _elements: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory(&self) -> &AnonMemory {
        &self.memory
    }

    /// The element at `index`.
    ///
    /// # Panics
    /// If `index` is out of range: page ids are checked where they enter.
    #[inline(always)]
    pub fn get(&self, index: usize) -> &T {
        self.try_get(index).expect("index in the array")
    }

    /// The element at `index`, if there is one.
    #[inline(always)]
    pub fn try_get(&self, index: usize) -> Option<&T> {
        // SAFETY: M1 and the check: in the mapping; M3: zero or a value written through `&T`.
        (index < self.len).then(|| unsafe { &*self.memory.base().as_ptr().cast::<T>().add(index) })
    }

    /// The memory of elements `[start, end)`, in whole pages: where it begins, and its length in bytes.
    fn range(&self, start: usize, end: usize) -> (usize, usize) {
        let size = std::mem::size_of::<T>();
        let first = start * size / PAGE_SIZE * PAGE_SIZE;
        let last = (end.min(self.len) * size).next_multiple_of(PAGE_SIZE).min(self.memory.byte_len());
        (first, last.saturating_sub(first))
    }

    /// Asks for huge pages behind elements `[start, end)`, as of [`Memory::prefer_huge`].
    pub fn prefer_huge(&self, start: usize, end: usize) {
        let (first, byte_len) = self.range(start, end);
        self.memory.prefer_huge(first, byte_len);
    }

    /// Makes elements `[start, end)` resident ahead of their first touch.
    pub fn populate(&self, start: usize, end: usize) {
        let (first, byte_len) = self.range(start, end);
        populate_idly(&self.memory, first, byte_len);
    }

    /// Address of an element, for prefetching.
    pub(crate) fn address(&self, index: usize) -> *const T {
        self.memory.base().as_ptr().cast::<T>().wrapping_add(index)
    }

    /// Sets `[start, end)` to zero, giving whole pages of it back. Nobody else uses the range meanwhile.
    pub fn zero_range(&self, start: usize, end: usize)
    where
        T: Resettable,
    {
        let size = std::mem::size_of::<T>();
        let first_whole = (start * size).next_multiple_of(PAGE_SIZE) / size;
        let last_whole = end * size / PAGE_SIZE * PAGE_SIZE / size;
        if first_whole >= last_whole {
            return (start..end).for_each(|i| self.get(i).reset());
        }
        (start..first_whole).chain(last_whole..end).for_each(|i| self.get(i).reset());
        self.memory.discard(first_whole * size, (last_whole - first_whole) * size);
    }

    /// Sets the elements of single pages of 4 KB to zero, giving them back with few system calls. Nobody else uses these
    /// meanwhile.
    ///
    /// # Panics
    /// If a page lies beyond the array.
    pub fn zero_pages(&self, pages: &[usize])
    where
        T: Resettable,
    {
        let parts: Vec<(usize, usize)> = pages.iter().map(|page| (page * PAGE_SIZE, PAGE_SIZE)).collect();
        self.memory.discard_parts(&parts);
    }
}

impl<T: ZeroInit> AsRef<[T]> for VirtualArray<T> {
    #[inline(always)]
    fn as_ref(&self) -> &[T] {
        // SAFETY: M1: so many elements lie in the mapping; M3: zero or a value written through `&T`.
        unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr().cast::<T>(), self.len) }
    }
}

/// An element that can be set back to zero.
pub trait Resettable {
    fn reset(&self);
}

impl Resettable for std::sync::atomic::AtomicU64 {
    fn reset(&self) {
        self.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}
