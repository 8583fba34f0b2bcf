//! Before-images that views read: one image serves every cut in its interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::views::Views;
use crate::core::{Core, Epoch};
use crate::frames::FrameId;
use crate::pagefile::{PageBuf, Spilled};
use crate::snapshot::Spill;
use crate::{CheckpointError, PageBytes, PageId, PAGE_SIZE};

const SHARD_COUNT: usize = 64;

/// Where an image's bytes are.
pub enum Held {
    Frame(FrameId),
    Spilled(Arc<Spilled>),
    /// It could not be spilled: views that see it fail with this.
    Lost(Box<CheckpointError>),
}

/// A page version over `[written, superseded)`.
struct Image {
    written: Epoch,
    held: Held,
}

/// By page and the epoch that superseded the version: versions of a page do not overlap, so the one that a cut sees
/// is the first that was superseded after it, if any.
type Shard = BTreeMap<(PageId, Epoch), Image>;

/// Images by page.
pub struct Images {
    shards: Vec<Mutex<Shard>>,
}

impl Images {
    pub fn new() -> Images {
        Images { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, page: PageId) -> &Mutex<Shard> {
        &self.shards[page.0 as usize % SHARD_COUNT]
    }

    /// Keeps the version of `page` over `[written, superseded)`; `false` and `held` back if no view sees it any more.
    pub fn insert(
        &self,
        views: &Views,
        page: PageId,
        (written, superseded): (Epoch, Epoch),
        held: Held,
    ) -> Result<(), Held> {
        let mut shard = self.shard(page).lock();
        if !views.see(written, Some(superseded)) {
            return Err(held);
        }
        shard.insert((page, superseded), Image { written, held });
        Ok(())
    }

    /// Copies the version that cut `cut` sees; false if there is no image of it. The cut is that of a view that stays
    /// open meanwhile, so the image does, too.
    pub fn read(
        &self,
        core: &Core,
        spill: &dyn Spill,
        page: PageId,
        cut: Epoch,
        into: &mut PageBytes,
    ) -> Result<bool, CheckpointError> {
        let shard = self.shard(page).lock();
        let mut later = shard.range((page, Epoch(cut.0 + 1))..=(page, Epoch(u32::MAX)));
        let Some((_, image)) = later.next().filter(|(_, image)| image.written <= cut) else {
            return Ok(false);
        };
        let spilled = match &image.held {
            Held::Frame(frame) => {
                into.copy_from_slice(core.frames.read(frame));
                return Ok(true);
            }
            Held::Spilled(spilled) => spilled.clone(),
            Held::Lost(error) => return Err((**error).clone()),
        };
        // Writers whose images belong into this shard do not wait for the disk.
        drop(shard);
        let mut aligned = PageBuf([0; PAGE_SIZE]);
        let result = spill.read_spill(&spilled, &mut aligned.0);
        give_back(spill, spilled);
        result?;
        *into = aligned.0;
        Ok(true)
    }

    /// Drops the images that no view sees.
    pub fn retain_seen(&self, core: &Core, spill: &dyn Spill, views: &Views) {
        for shard in &self.shards {
            let unseen: Shard = {
                let mut shard = shard.lock();
                let (seen, unseen) = std::mem::take(&mut *shard)
                    .into_iter()
                    .partition(|((_, superseded), image)| views.see(image.written, Some(*superseded)));
                *shard = seen;
                unseen
            };
            unseen.into_values().for_each(|image| release(core, spill, image.held));
        }
    }
}

/// Gives back what an image was held in.
pub fn release(core: &Core, spill: &dyn Spill, held: Held) {
    match held {
        Held::Frame(frame) => core.frames.release(frame),
        Held::Spilled(spilled) => give_back(spill, spilled),
        Held::Lost(_) => {}
    }
}

/// Gives up a reference to a spilled page; the last one gives its slot back.
fn give_back(spill: &dyn Spill, spilled: Arc<Spilled>) {
    if let Some(spilled) = Arc::into_inner(spilled) {
        spill.release_spill(spilled);
    }
}
