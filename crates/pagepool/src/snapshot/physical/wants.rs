//! What an algorithm may want of a pool.

/// Where the second copies of pages lie, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Places {
    /// A page lies in one of two frames, and the page table says in which. The other one becomes free when it has been streamed.
    Two,
    /// The same, but both stay: they are to be equal again when the page is written next.
    TwoKept,
    /// In memory of their own, which has what the running stream needs and does not find in the page's place.
    Shadow,
    /// In memory of their own, a second and a third copy of what has been written in a period.
    Updates,
}

impl Places {
    /// Whether pages have two places.
    pub const fn are_two(self) -> bool {
        matches!(self, Places::Two | Places::TwoKept)
    }

    /// Copies of all pages in memory of their own.
    pub const fn region_count(self) -> usize {
        match self {
            Places::Two | Places::TwoKept => 0,
            Places::Shadow => 1,
            Places::Updates => 2,
        }
    }
}

/// Says what an algorithm wants.
pub trait Wants {
    const PLACES: Places;
}
