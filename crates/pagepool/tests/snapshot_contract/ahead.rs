//! Many pages of a view at once.

use std::sync::Arc;

use stillframe_pagepool::device::{Device, PageBuf, SimDevice};
use stillframe_pagepool::pagefile::USER_HEADER_BYTES;
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{PageBytes, PageId, Pool, SnapshotKind, PAGE_SIZE};

use crate::support::*;

const PAGE_COUNT: u32 = 1200;
const MEMORY_PAGES: u64 = 200;

/// A page that holds its number all over.
fn numbered(number: u32) -> PageBytes {
    std::array::from_fn(|at| number.to_le_bytes()[at % 4])
}

/// A pool of which most is in the page file alone.
fn pool_on(device: &Arc<SimDevice>) -> (Arc<Pool>, Vec<PageId>) {
    let device: Arc<dyn Device> = device.clone();
    let (pool, _) = Pool::open(device, &options(SnapshotKind::Epoch, 1 << 20)).unwrap();
    let pages = fill_pool(&pool, PAGE_COUNT);
    for (number, page) in (1..).zip(&pages) {
        pool.exclusive(*page).unwrap().page_mut().copy_from_slice(&numbered(number));
    }
    pool.checkpoint(|| Ok([1; USER_HEADER_BYTES]), &Progress::default()).unwrap();
    pool.set_memory_pages(Some(MEMORY_PAGES));
    pool.wait_for_room();
    (pool, pages)
}

/// Each of them is told by its own error with its slot; the others are whole, and so is what is in memory.
#[test]
fn damaged_pages_do_not_spoil_their_neighbours() {
    seeds(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let device = Arc::new(SimDevice::new(seed));
        let (pool, pages) = pool_on(&device);
        let view = pool.view_after(|| ()).unwrap();
        let image = device.image();
        let mut places = vec![None; pages.len()];
        for _ in 0..20 {
            let index = rng.usize(..pages.len());
            let place = image.chunks(PAGE_SIZE).position(|page| page == numbered(index as u32 + 1)).unwrap();
            if places[index].replace(place * PAGE_SIZE).is_none() {
                device.corrupt((place * PAGE_SIZE + rng.usize(..PAGE_SIZE)) as u64, 1, |bytes| bytes[0] ^= 8);
            }
        }
        let mut order: Vec<usize> = (0..pages.len()).collect();
        rng.shuffle(&mut order);
        // Some twice.
        order.extend_from_within(..50);
        let mut bufs = vec![PageBuf::ZERO; order.len()];
        let mut wanted: Vec<_> = order.iter().map(|index| pages[*index]).zip(&mut bufs).collect();
        let results = view.read_pages(&mut wanted);
        for ((index, result), PageBuf(bytes)) in order.iter().zip(results).zip(&bufs) {
            let is_damaged = places[*index].filter(|_| !pool.is_resident(pages[*index]));
            match (result, is_damaged) {
                (Ok(()), None) => assert!(*bytes == numbered(*index as u32 + 1), "page {index}"),
                (Err(error), Some(place)) => {
                    let place = format!("byte {place}");
                    assert!(error.to_string().contains(&place), "{error}: {place}");
                }
                (result, place) => panic!("page {index} at {place:?}: {result:?}"),
            }
        }
        assert!(pool.stats().resident_pages <= MEMORY_PAGES, "nothing was brought into memory");
    });
}

/// A page that never was is an error of its own.
#[test]
fn pages_that_are_not_there_do_not_spoil_others() {
    let (pool, pages) = pool_on(&Arc::new(SimDevice::new(1)));
    let view = pool.view_after(|| ()).unwrap();
    let asked = [pages[0], PageId(u32::MAX), pages[700], PageId(pages[1199].0 + 5000), pages[1199]];
    let mut bufs = vec![PageBuf::ZERO; asked.len()];
    let results = view.read_pages(&mut asked.into_iter().zip(&mut bufs).collect::<Vec<_>>());
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, false, true]);
    for (buf, number) in [(0, 1), (2, 701), (4, 1200)] {
        assert!(bufs[buf].0 == numbered(number), "page {number}");
    }
    assert!(view.read_pages(&mut []).is_empty());
}
