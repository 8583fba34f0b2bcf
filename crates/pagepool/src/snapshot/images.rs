//! Before-images that views read: one image serves every cut in its interval.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::core::{Core, Epoch};
use crate::frames::FrameId;
use crate::pagefile::{PageBuf, Spilled};
use crate::snapshot::Spill;
use crate::{CheckpointError, PageBytes, PageId, PAGE_SIZE};

const SHARD_COUNT: usize = 64;

/// Where an image's bytes are.
pub enum Held {
    Frame(FrameId),
    Spilled(Spilled),
    /// It could not be spilled: views that see it fail with this.
    Lost(CheckpointError),
}

/// A page version over `[written, superseded)`.
struct Image {
    written: Epoch,
    superseded: Epoch,
    held: Held,
}

/// Images by page.
pub struct Images {
    shards: Vec<Mutex<HashMap<PageId, Vec<Image>>>>,
}

impl Images {
    pub fn new() -> Images {
        Images { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, page: PageId) -> &Mutex<HashMap<PageId, Vec<Image>>> {
        &self.shards[page.0 as usize % SHARD_COUNT]
    }

    pub fn insert(&self, page: PageId, written: Epoch, superseded: Epoch, held: Held) {
        self.shard(page).lock().entry(page).or_default().push(Image { written, superseded, held });
    }

    /// Copies the version that cut `cut` sees; false if there is no image of it.
    pub fn read(
        &self,
        core: &Core,
        spill: &dyn Spill,
        page: PageId,
        cut: Epoch,
        into: &mut PageBytes,
    ) -> Result<bool, CheckpointError> {
        let shard = self.shard(page).lock();
        let sees = |image: &&Image| image.written <= cut && cut < image.superseded;
        let Some(image) = shard.get(&page).and_then(|images| images.iter().find(sees)) else {
            return Ok(false);
        };
        match &image.held {
            Held::Frame(frame) => into.copy_from_slice(core.frames.read(frame)),
            Held::Spilled(spilled) => {
                let mut aligned = PageBuf([0; PAGE_SIZE]);
                spill.read_spill(spilled, &mut aligned.0)?;
                *into = aligned.0;
            }
            Held::Lost(error) => return Err(error.clone()),
        }
        Ok(true)
    }

    /// Drops the images that none of `cuts` sees.
    pub fn retain(&self, core: &Core, spill: &dyn Spill, cuts: &[Epoch]) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|_, images| {
                let needed = |i: &Image| cuts.iter().any(|&cut| i.written <= cut && cut < i.superseded);
                let (kept, dropped): (Vec<Image>, Vec<Image>) =
                    std::mem::take(images).into_iter().partition(needed);
                *images = kept;
                for image in dropped {
                    match image.held {
                        Held::Frame(frame) => core.frames.release(frame),
                        Held::Spilled(spilled) => spill.release_spill(spilled),
                        Held::Lost(_) => {}
                    }
                }
                !images.is_empty()
            });
            if shard.is_empty() {
                shard.shrink_to_fit();
            }
        }
    }
}
