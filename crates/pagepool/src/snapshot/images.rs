//! Before-images that views read: one image serves every cut in its interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::core::Core;
use super::frames::FrameId;
use super::spill::SpilledImage;
use super::version::Version;
use super::views::Views;
use crate::page::Epoch;
use crate::{CheckpointError, PageId};

const SHARD_COUNT: usize = 64;

/// Where an image's bytes are.
pub enum Held {
    Frame(FrameId),
    Spilled(Arc<SpilledImage>),
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

    /// The version that cut `cut` sees, if there is an image of it. The cut is that of a view that stays open meanwhile, so
    /// the image does, too.
    pub fn find<'c>(&self, core: &'c Core, page: PageId, cut: Epoch) -> Option<Version<'c>> {
        let shard = self.shard(page).lock();
        let mut later = shard.range((page, Epoch(cut.0 + 1))..=(page, Epoch(u32::MAX)));
        let (_, image) = later.next().filter(|(_, image)| image.written <= cut)?;
        // Writers whose images belong into this shard wait neither for a copy nor for the disk.
        Some(match &image.held {
            Held::Frame(frame) => Version::Frame(core.frames.adopt(core.frames.share(frame))),
            Held::Spilled(spilled) => Version::Spilled(spilled.clone()),
            Held::Lost(error) => Version::Lost(error.clone()),
        })
    }

    /// Drops the images that no view sees.
    pub fn retain_seen(&self, core: &Core, views: &Views) {
        for shard in &self.shards {
            let unseen: Shard = {
                let mut shard = shard.lock();
                let (seen, unseen) = std::mem::take(&mut *shard)
                    .into_iter()
                    .partition(|((_, superseded), image)| views.see(image.written, Some(*superseded)));
                *shard = seen;
                unseen
            };
            unseen.into_values().for_each(|image| release(core, image.held));
        }
    }
}

/// Gives back what an image was held in.
pub fn release(core: &Core, held: Held) {
    match held {
        Held::Frame(frame) => core.frames.release(frame),
        Held::Spilled(_) | Held::Lost(_) => {}
    }
}
