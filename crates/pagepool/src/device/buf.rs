//! Memory as devices want it.

use crate::PAGE_SIZE;

/// A page-sized, page-aligned buffer, as devices want them.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct PageBuf(pub [u8; PAGE_SIZE]);

impl PageBuf {
    /// A page of zeros.
    pub const ZERO: PageBuf = PageBuf([0; PAGE_SIZE]);

    /// A page of zeros on the heap.
    pub(crate) fn boxed() -> Box<PageBuf> {
        Box::new(PageBuf::ZERO)
    }
}
