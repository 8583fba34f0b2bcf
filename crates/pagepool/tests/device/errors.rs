//! What fails, fails alone and says what it was.

use std::path::Path;

use rustix::io::Errno;
use stillframe_pagepool::device::{Device, DeviceErrorKind, DeviceOp, FileDevice, PageBuf};
use stillframe_pagepool::PAGE_SIZE;

use crate::support::{
    alone, check_pages, create, each_device, each_file, offset_of, singles, transfer, ways, End, Kind, Op,
};

fn kind_of(end: End) -> Option<DeviceErrorKind> {
    end.err().map(|error| error.kind)
}

#[test]
fn a_read_past_the_end_fails_alone() {
    each_device(1, |_, device| {
        device.allocate(offset_of(100)).unwrap();
        transfer(&*device, &singles(0..100, Some(1)));
        let read = |first, page_count| Op { first, page_count, version: None };
        let mut ops = singles(0..90, None);
        ops.extend([read(95, 10), read(100, 1), read(5000, 3), read(90, 10)]);
        let past_end = Some(DeviceErrorKind::PastEnd { len: offset_of(100) });
        for (op, end) in ops.iter().zip(transfer(&*device, &ops)) {
            match op.first + op.page_count <= 100 {
                true => check_pages(op.first, &end.unwrap(), |_| 1),
                false => assert_eq!(kind_of(end), past_end, "{op:?}"),
            }
        }
        for op in &ops[90..93] {
            let error = alone(&*device, op).err().unwrap();
            assert_eq!((error.op, Some(error.kind)), (DeviceOp::Read, past_end), "{op:?}");
        }
    });
}

/// Somebody cuts the file off, in the middle of a block: what is still there is read.
#[test]
fn a_file_that_was_cut_off_has_what_is_left_of_it() {
    each_file(|kind, dir| {
        let device = create(kind, dir);
        device.allocate(offset_of(200)).unwrap();
        transfer(&device, &singles(0..200, Some(1)));
        let len = offset_of(120) + 1000;
        std::fs::OpenOptions::new().write(true).open(dir.join("pages")).unwrap().set_len(len).unwrap();
        for (page, end) in transfer(&device, &singles(0..200, None)).into_iter().enumerate() {
            match page < 120 {
                true => check_pages(page, &end.unwrap(), |_| 1),
                false => assert_eq!(kind_of(end), Some(DeviceErrorKind::PastEnd { len }), "page {page}"),
            }
        }
        let over = Op { first: 110, page_count: 20, version: None };
        let ends = transfer(&device, &[over.clone(), over.clone()]);
        assert!(ends.into_iter().all(|end| kind_of(end) == Some(DeviceErrorKind::PastEnd { len })));
        assert_eq!(kind_of(alone(&device, &over)), Some(DeviceErrorKind::PastEnd { len }));
    });
}

/// Each write of a call is refused, and the reads of the same call are done.
#[test]
fn a_file_that_is_open_to_read_takes_no_writes() {
    each_file(|kind, dir| {
        let device = create(kind, dir);
        device.allocate(offset_of(80)).unwrap();
        transfer(&device, &singles(0..80, Some(1)));
        drop(device);
        let Kind::File(way) = kind else { panic!("it is a file") };
        let device = FileDevice::open_to_read(&dir.join("pages"), way).unwrap();
        let mut ops = singles(0..40, Some(2));
        ops.extend(singles(40..80, None));
        for (op, end) in ops.iter().zip(transfer(&device, &ops)) {
            match op.version {
                Some(_) => {
                    let error = end.err().unwrap();
                    assert_eq!((error.op, error.offset), (DeviceOp::Write, offset_of(op.first)));
                    assert_eq!(error.kind, DeviceErrorKind::Os(Errno::BADF));
                    assert!(error.to_string().contains("pages"), "{error}");
                }
                None => check_pages(op.first, &end.unwrap(), |_| 1),
            }
        }
        check_pages(0, &alone(&device, &singles(0..1, None)[0]).unwrap(), |_| 1);
    });
}

/// It has no room for anything.
#[test]
fn a_full_disk_is_told_as_such() {
    for way in ways() {
        let device = FileDevice::open(Path::new("/dev/full"), way).unwrap();
        let ops = singles(0..100, Some(1));
        for (op, end) in ops.iter().zip(transfer(&device, &ops)) {
            let error = end.err().unwrap();
            assert_eq!(
                (error.op, error.offset, error.len),
                (DeviceOp::Write, offset_of(op.first), PAGE_SIZE as u64)
            );
            assert!(error.is_no_space(), "{error}");
        }
        // Reads are of zeros, without an end.
        let ends = transfer(&device, &singles(0..100, None));
        assert!(ends.into_iter().all(|end| end.unwrap()[0].0 == PageBuf::ZERO.0));
    }
}
