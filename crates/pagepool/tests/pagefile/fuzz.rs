//! Page files that nobody would write: opening them never panics, never hangs and never invents content.

use std::collections::BTreeSet;
use std::sync::Arc;

use stillframe_pagepool::device::PageBuf;
use stillframe_pagepool::device::SimDevice;
use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::model::{mapped, open, Change, Content};

/// Reads and changes superblock and map in the raw image of a page file, independently of the code under test, from
/// `docs/internals/format.md` alone.
pub struct MapEditor {
    pub image: Vec<u8>,
    pub place: usize,
}

impl MapEditor {
    /// For the superblock of the greater generation.
    pub fn newest(image: Vec<u8>) -> MapEditor {
        let generation = |place: usize| u64_at(&image, place * PAGE_SIZE + 16);
        let place = usize::from(generation(1) > generation(0));
        MapEditor { image, place }
    }

    /// For the superblock at `place`.
    pub fn at(image: Vec<u8>, place: usize) -> MapEditor {
        MapEditor { image, place }
    }

    fn root_at(&self) -> usize {
        self.place * PAGE_SIZE + 24
    }

    /// Slots of all map pages, the root first.
    pub fn map_slots(&self) -> Vec<u32> {
        let mut slots = vec![u64_at(&self.image, self.root_at()) as u32];
        let mut level: Vec<u32> = slots.clone();
        for _ in 0..3 {
            level = level.iter().flat_map(|slot| self.children(*slot)).collect();
            slots.extend(&level);
        }
        slots
    }

    fn children(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let page = slot as usize * PAGE_SIZE;
        (0..512).map(move |entry| u64_at(&self.image, page + entry * 8) as u32).filter(|slot| *slot != 0)
    }

    /// Places in the image of the entries on the way from the superblock to page `pid`.
    fn path(&self, pid: u32) -> Vec<usize> {
        let mut path = vec![self.root_at()];
        for shift in [27, 18, 9, 0] {
            let slot = u64_at(&self.image, path[path.len() - 1]) as u32 as usize;
            if slot < 3 || (slot + 1) * PAGE_SIZE > self.image.len() {
                break;
            }
            path.push(slot * PAGE_SIZE + (pid >> shift) as usize % 512 * 8);
        }
        path
    }

    /// The slot of page `pid`.
    pub fn page_slot(&self, pid: u32) -> u32 {
        let path = self.path(pid);
        assert_eq!(path.len(), 5);
        u64_at(&self.image, path[4]) as u32
    }

    /// Makes the checksums right again along the way to page `pid`, up to the superblock.
    fn seal(&mut self, pid: u32) {
        let path = self.path(pid);
        for entry in path.windows(2).rev().map(|pair| pair[0]) {
            let slot = u64_at(&self.image, entry) as u32 as usize;
            let crc32c = crc32c::crc32c(&self.image[slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE]);
            self.image[entry + 4..entry + 8].copy_from_slice(&crc32c.to_le_bytes());
        }
        let page = &mut self.image[self.place * PAGE_SIZE..(self.place + 1) * PAGE_SIZE];
        let crc32c = crc32c::crc32c(&page[..PAGE_SIZE - 4]);
        page[PAGE_SIZE - 4..].copy_from_slice(&crc32c.to_le_bytes());
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A file of a few random checkpoints, and its content.
fn sample(seed: u64) -> (Vec<u8>, Content) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let device = Arc::new(SimDevice::new(seed));
    let (file, _) = open(&device).unwrap();
    let mut content = Content::new();
    for version in 1..5 {
        let change = Change::random(&mut rng, &content, 900, 200, version);
        change.run(&file).unwrap();
        content = change.after;
    }
    (device.image(), content)
}

/// Opens a damaged image and does all there is to do; what matters is that it returns.
fn exercise(image: Vec<u8>) -> bool {
    let device = Arc::new(SimDevice::from_image(1, image));
    let Ok((file, recovered)) = open(&device) else { return false };
    let pids = mapped(&file);
    assert_eq!(pids.len() as u64, recovered.page_count);
    assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), pids.len());
    let mut bufs = vec![PageBuf::ZERO; pids.len()];
    let mut reads: Vec<_> = pids.iter().zip(&mut bufs).map(|(pid, buf)| (PageId(*pid), &mut buf.0)).collect();
    file.read_pages(&mut reads);
    let mut rng = fastrand::Rng::with_seed(1);
    Change::random(&mut rng, &Content::new(), 900, 50, 9).run(&file).unwrap();
    true
}

#[test]
fn random_bytes_in_superblocks_and_map_do_no_harm() {
    let seed = stillframe_testkit::seed_or(31);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (image, _) = sample(seed);
    let map_slots = MapEditor::newest(image.clone()).map_slots();
    for _ in 0..400 {
        let mut image = image.clone();
        for _ in 0..1 + rng.usize(..4) {
            let slot =
                if rng.bool() { rng.usize(..2) } else { map_slots[rng.usize(..map_slots.len())] as usize };
            let at = slot * PAGE_SIZE + rng.usize(..PAGE_SIZE);
            image[at] = rng.u8(..);
        }
        exercise(image);
    }
}

#[test]
fn wrong_but_sealed_superblocks_and_maps_do_no_harm() {
    let seed = stillframe_testkit::seed_or(32);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (image, content) = sample(seed);
    let pids: Vec<u32> = content.keys().copied().collect();
    let mut opened = [0, 0];
    for _ in 0..500 {
        let mut editor = MapEditor::newest(image.clone());
        let pid = pids[rng.usize(..pids.len())];
        let path = editor.path(pid);
        let at = match rng.u8(..4) {
            // Somewhere in the superblock's fields, or an entry of a map page on the way, or one beside it.
            0 => editor.place * PAGE_SIZE + 12 + rng.usize(..60),
            1 => path[1 + rng.usize(..path.len() - 1)] / PAGE_SIZE * PAGE_SIZE + rng.usize(..512) * 8,
            _ => path[rng.usize(..path.len())],
        };
        match rng.u8(..5) {
            // Cycles, slots named twice, slots beyond the end, superblocks as pages, far and meaningless entries.
            0 => {
                let other = editor.path(pids[rng.usize(..pids.len())]);
                let source = other[rng.usize(..other.len())];
                editor.image.copy_within(source..source + 8, at);
            }
            1 => editor.image[at..at + 4].copy_from_slice(&rng.u32(..4).to_le_bytes()),
            2 => editor.image[at..at + 4].copy_from_slice(&(path[3] as u32 / PAGE_SIZE as u32).to_le_bytes()),
            3 => editor.image[at..at + 8].copy_from_slice(&rng.u64(..).to_le_bytes()),
            _ => editor.image[at] ^= 1 << rng.u8(..8),
        }
        editor.seal(pid);
        opened[usize::from(exercise(editor.image))] += 1;
    }
    assert!(opened[1] > 30, "{opened:?}");
}

#[test]
fn random_images_are_refused() {
    let seed = stillframe_testkit::seed_or(33);
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..100 {
        let mut image = vec![0; PAGE_SIZE * rng.usize(1..8)];
        image.fill_with(|| rng.u8(..));
        assert!(open(&Arc::new(SimDevice::from_image(1, image))).is_err());
    }
}
