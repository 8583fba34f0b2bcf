//! Both places of a page: filling the second, moving over to it, and reading either.

use std::sync::atomic::{fence, Ordering};

use super::second::{SecondWord, Side};
use super::table::{PageTable, Seconds};
use crate::space::Arena;
use crate::{PageBytes, PageId};

impl PageTable {
    fn second(&self, page: PageId) -> (&Arena, &Seconds, &SecondWord) {
        let parts = self.arena().zip(self.seconds());
        let (arena, seconds) = parts.expect("M6: pages of this pool have two places");
        (arena, seconds, seconds.words.get(page.0 as usize))
    }

    /// Sees to it that both copies have the latest content of the page, of which `side` is said not to: nothing to do if that is
    /// the one in its place, else the page's bytes are copied to the second place. Nobody else modifies the page meanwhile,
    /// fills it or lets go of it. Whether anything was copied.
    pub fn fill(&self, page: PageId, side: Side) -> bool {
        let (arena, seconds, word) = self.second(page);
        let now = word.get();
        let is_new = now.frame() == 0;
        if now.side() == side && !is_new {
            return false;
        }
        let frame = if is_new { arena.take() } else { now.frame() };
        // SAFETY: M1: a frame of the mapping. M4, M6: it is this page's second one or new, and its one user is the caller.
        let into = unsafe { &mut *self.address_of(frame) };
        let is_copied = self.copy_place(page, into);
        assert!(is_copied, "M6: {page:?} is filled from its place");
        assert!(word.filled(now, frame), "M6: one at a time fills {page:?}");
        seconds.frame_count.fetch_add(u64::from(is_new), Ordering::Relaxed);
        true
    }

    /// Whether a page has two places now.
    pub fn has_second(&self, page: PageId) -> bool {
        self.second(page).2.get().frame() != 0
    }

    /// Makes a copy the one that lies in the page's place, before it is modified there. Both copies are equal, or this one has
    /// been filled. Under the latch of the page, or of the object that it is part of.
    pub fn place(&self, page: PageId, side: Side) {
        let (_, _, word) = self.second(page);
        if word.get().side() == side {
            return;
        }
        if word.get().frame() == 0 {
            self.fill(page, side);
        }
        let now = word.get();
        let state = &self.descriptor(page).state;
        // First this word: who reads the copy that is not going to be modified finds it, whatever of both it sees.
        let is_turned = word.placed(now, state.frame());
        assert!(is_turned, "M6: one at a time places {page:?}");
        state.exchange_frame(now.frame());
    }

    /// What is going to lie in the place of a page without content, which nobody else has yet, is this copy.
    pub fn name(&self, page: PageId, side: Side) {
        let (_, _, word) = self.second(page);
        assert!(word.name(side), "M6: {page:?} is nobody else's yet");
    }

    /// Copies a copy of the page that nobody modifies, wherever it lies and moves to; of a page with one place what is there.
    /// False if it has none.
    pub fn copy_side(&self, page: PageId, side: Side, into: &mut PageBytes) -> bool {
        let (_, _, word) = self.second(page);
        loop {
            let now = word.get();
            if now.side() == side || now.frame() == 0 {
                if !self.copy_place(page, into) {
                    return false;
                }
            } else {
                // SAFETY: M1: a frame of the mapping. P4: plain bytes, for which every value is valid, and which mean nothing
                // unless the frame is the page's still, and nobody has modified it (M6).
                unsafe { std::ptr::copy_nonoverlapping(self.address_of(now.frame()).cast_const(), into, 1) };
                fence(Ordering::Acquire);
            }
            if word.get() == now {
                return true;
            }
        }
    }

    /// Copies what lies in a page's place, which nobody modifies meanwhile, but which may be on its way to another frame. False if
    /// it has no place.
    pub fn copy_place(&self, page: PageId, into: &mut PageBytes) -> bool {
        let state = &self.descriptor(page).state;
        loop {
            let since = state.place();
            if self.has_lost(since) {
                return false;
            }
            self.copy_racy(page, since, into);
            if state.is_still_at(since) {
                return true;
            }
        }
    }

    /// TWO → ALONE, unless the copy `dead`, which nobody will read, is the one in the page's place. The caller gives the frame
    /// back, by [`PageTable::give_seconds`], when nobody who has found it earlier is still reading (P13).
    pub fn let_go_of_second(&self, page: PageId, dead: Side) -> Option<u32> {
        self.second(page).2.let_go(Some(dead))
    }

    /// Frames that hold a second copy of a page.
    pub fn second_frames(&self) -> u64 {
        self.seconds().map_or(0, |seconds| seconds.frame_count.load(Ordering::Relaxed))
    }
}
