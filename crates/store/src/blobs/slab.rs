//! A slab: an object of 16 pages cut into equal slots for values (or keys) of about one size.
//!
//! ```text
//! 0  kind u8 | 1 class u8 | 2 used_count u16    4 reserved u32
//! 8  prev u32, 12 next u32: neighbours among the class's slabs with free slots (0: none)
//! 16 reserved 16 bytes                          32 bitmap: 256 bits, 1 is used
//! 64 slots
//! ```
//!
//! A slot may cross pages. Only the head page has this header.

use crate::page::*;

/// Pages of a slab.
pub(crate) const SLAB_PAGE_COUNT: u32 = 16;
const HEADER_BYTES: usize = 64;
const SLAB_BYTES: usize = SLAB_PAGE_COUNT as usize * PAGE_SIZE;
const BITMAP: usize = 32;
const SLOT_COUNT_MIN: usize = 6;
const SLOT_COUNT_MAX: usize = 240;

/// Number of size classes.
pub(crate) const CLASS_COUNT: usize = count_classes();
/// Slots of a slab of each class, growing.
const SLOT_COUNTS: [u16; CLASS_COUNT] = slot_counts();

const fn next_slot_count(count: usize) -> usize {
    count + if count < 16 { 1 } else { count / 16 }
}

const fn count_classes() -> usize {
    let (mut slots, mut classes) = (SLOT_COUNT_MIN, 0);
    while slots <= SLOT_COUNT_MAX {
        slots = next_slot_count(slots);
        classes += 1;
    }
    classes
}

const fn slot_counts() -> [u16; CLASS_COUNT] {
    let mut counts = [0; CLASS_COUNT];
    let (mut slots, mut class) = (SLOT_COUNT_MIN, 0);
    while class < CLASS_COUNT {
        counts[class] = slots as u16;
        slots = next_slot_count(slots);
        class += 1;
    }
    counts
}

const fn slot_bytes_of(slot_count: usize) -> usize {
    (SLAB_BYTES - HEADER_BYTES) / slot_count / 8 * 8
}

/// Size class of a slab: its slots are all of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class(pub u8);

impl Class {
    /// The class with the smallest slots that hold `len_bytes`; `None` if they are too many for a slab.
    pub fn for_bytes(len_bytes: usize) -> Option<Class> {
        let fitting = SLOT_COUNTS.partition_point(|n| slot_bytes_of(usize::from(*n)) >= len_bytes);
        Some(Class(fitting.checked_sub(1)? as u8))
    }

    pub fn slot_count(self) -> usize {
        SLOT_COUNTS.get(usize::from(self.0)).map_or(SLOT_COUNT_MIN, |n| usize::from(*n))
    }

    pub fn slot_bytes(self) -> usize {
        slot_bytes_of(self.slot_count())
    }

    /// Where a slot starts, in bytes from the start of the slab.
    pub fn slot_offset(self, slot: u16) -> usize {
        HEADER_BYTES + usize::from(slot) * self.slot_bytes()
    }
}

/// Read access to a slab's head page.
#[derive(Clone, Copy)]
pub(crate) struct Slab<'a> {
    page: &'a Page,
}

impl<'a> Slab<'a> {
    /// `None` unless the page is the head of a slab.
    pub fn new(page: &'a Page) -> Option<Slab<'a>> {
        (page[0] == KIND_SLAB && usize::from(page[1]) < CLASS_COUNT).then_some(Slab { page })
    }

    pub fn class(&self) -> Class {
        Class(self.page[1])
    }

    pub fn used_count(&self) -> usize {
        usize::from(get_u16(self.page, 2))
    }

    pub fn is_full(&self) -> bool {
        self.used_count() >= self.class().slot_count()
    }

    pub fn prev(&self) -> u32 {
        get_u32(self.page, 8)
    }

    pub fn next(&self) -> u32 {
        get_u32(self.page, 12)
    }

    pub fn is_used(&self, slot: u16) -> bool {
        let slot = usize::from(slot);
        slot < self.class().slot_count() && self.page[BITMAP + slot / 8] & (1 << (slot % 8)) != 0
    }

    /// The first free slot.
    pub fn free_slot(&self) -> Option<u16> {
        let word = (0..4).find(|w| get_u64(self.page, BITMAP + 8 * w) != u64::MAX)?;
        let bit = get_u64(self.page, BITMAP + 8 * word).trailing_ones() as usize;
        let slot = 64 * word + bit;
        (slot < self.class().slot_count()).then_some(slot as u16)
    }

    /// All free slots, in the order in which they are taken.
    pub fn free_slots(self) -> impl Iterator<Item = u16> + 'a {
        (0..self.class().slot_count() as u16).filter(move |slot| !self.is_used(*slot))
    }
}

/// Makes an empty slab's head of the page.
pub(crate) fn init(page: &mut Page, class: Class) {
    page[..HEADER_BYTES].fill(0);
    page[0] = KIND_SLAB;
    page[1] = class.0;
}

pub(crate) fn set_links(page: &mut Page, prev: u32, next: u32) {
    put_u32(page, 8, prev);
    put_u32(page, 12, next);
}

pub(crate) fn set_prev(page: &mut Page, prev: u32) {
    put_u32(page, 8, prev);
}

pub(crate) fn set_next(page: &mut Page, next: u32) {
    put_u32(page, 12, next);
}

/// Marks a slot used or free; it must have been the other.
pub(crate) fn set_used(page: &mut Page, slot: u16, used: bool) {
    let slot = usize::from(slot);
    let bit = 1u8 << (slot % 8);
    debug_assert!((page[BITMAP + slot / 8] & bit != 0) != used);
    page[BITMAP + slot / 8] ^= bit;
    let count = get_u16(page, 2);
    put_u16(page, 2, if used { count + 1 } else { count.saturating_sub(1) });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLAB_MAX_BYTES: usize = slot_bytes_of(SLOT_COUNT_MIN);

    #[test]
    fn classes_cover_every_length_with_little_waste() {
        assert_eq!(Class::for_bytes(SLAB_MAX_BYTES + 1), None);
        let smallest = Class(CLASS_COUNT as u8 - 1).slot_bytes();
        for len_bytes in 0..=SLAB_MAX_BYTES {
            let class = Class::for_bytes(len_bytes).unwrap();
            assert!(class.slot_bytes() >= len_bytes);
            let waste = class.slot_bytes() - len_bytes.max(smallest);
            assert!(waste <= class.slot_bytes() / 7 + 8, "{len_bytes} in {}", class.slot_bytes());
            assert!(class.slot_offset(class.slot_count() as u16) <= SLAB_BYTES);
        }
        assert_eq!(Class::for_bytes(1024).unwrap().slot_count(), 63);
        assert_eq!(Class::for_bytes(2048).unwrap().slot_count(), 31);
    }

    #[test]
    fn slots_are_given_until_the_slab_is_full() {
        for class in (0..CLASS_COUNT as u8).map(Class) {
            let mut page = [0xaa; PAGE_SIZE];
            init(&mut page, class);
            set_links(&mut page, 5, 6);
            for expected in 0..class.slot_count() as u16 {
                let slab = Slab::new(&page).unwrap();
                assert!(!slab.is_full());
                assert_eq!(slab.free_slot(), Some(expected));
                set_used(&mut page, expected, true);
            }
            let slab = Slab::new(&page).unwrap();
            assert!(slab.is_full() && slab.free_slot().is_none());
            assert_eq!((slab.class(), slab.prev(), slab.next()), (class, 5, 6));
            set_used(&mut page, 3, false);
            let slab = Slab::new(&page).unwrap();
            assert_eq!(slab.free_slot(), Some(3));
            assert!(!slab.is_used(3) && slab.is_used(2) && !slab.is_used(1000));
            assert_eq!(slab.used_count(), class.slot_count() - 1);
        }
    }

    #[test]
    fn other_pages_are_no_slabs() {
        let mut page = [0; PAGE_SIZE];
        assert!(Slab::new(&page).is_none());
        page[0] = KIND_SLAB;
        page[1] = CLASS_COUNT as u8;
        assert!(Slab::new(&page).is_none());
    }
}
