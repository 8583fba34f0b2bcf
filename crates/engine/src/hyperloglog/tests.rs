use super::*;

/// Bytes that Redis 7.0.15 gives for these elements.
#[test]
fn bytes_are_those_of_redis() {
    let body = |elements: &[&str]| {
        let mut sketch = Sketch::empty();
        for element in elements {
            sketch.add(element.as_bytes(), 3000).unwrap();
        }
        sketch.bytes()[HEADER_BYTES..].to_vec()
    };
    assert_eq!(body(&[]), b"\x7f\xff");
    assert_eq!(body(&["a"]), b"q\xa6\x84NW");
    let mut sketch = Sketch::empty();
    assert_eq!(sketch.known_count(), Some(0));
    assert_eq!(sketch.forget_count(), Some((15, 0x80)));
    assert_eq!((sketch.forget_count(), sketch.known_count()), (None, None));
    assert_eq!(sketch.bytes(), b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff");
}

#[test]
fn both_encodings_say_the_same() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..40 {
        let (mut sparse, mut dense) = (Sketch::empty(), Sketch::empty());
        dense.make_dense().unwrap();
        let limit = rng.u64(100..6000);
        for _ in 0..rng.usize(0..3000) {
            // Also registers side by side, and values too high for a run.
            let (index, value) = (rng.usize(0..600) * rng.usize(1..28), rng.u8(1..=rng.clone().u8(2..40)));
            let raised = sparse.raise(index, value, limit).unwrap();
            assert_eq!(raised, dense.raise(index, value, 0).unwrap());
            if sparse.encoding() == Encoding::Sparse {
                assert!(sparse.bytes().len() as u64 <= limit);
            }
        }
        assert_eq!(sparse.count(), dense.count());
        let (mut of_sparse, mut of_dense) = (Registers::default(), Registers::default());
        sparse.merge_into(&mut of_sparse).unwrap();
        dense.merge_into(&mut of_dense).unwrap();
        assert!(of_sparse.iter().eq(of_dense.iter()));
        assert_eq!(Ok(of_sparse.count()), sparse.count());
        sparse.make_dense().unwrap();
        assert_eq!(sparse.bytes(), dense.bytes());
    }
}

#[test]
fn what_is_not_a_sketch_is_refused() {
    let of = |text: &[u8], value_bytes| Sketch::read(text.to_vec(), value_bytes);
    let head = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80";
    assert!(of(&head[..15], 15).is_none(), "too short");
    assert!(of(b"hyll\x01\0\0\0\0\0\0\0\0\0\0\x80", 16).is_none());
    assert!(of(b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\x80", 16).is_none(), "no such encoding");
    assert!(of(b"HYLL\x00\0\0\0\0\0\0\0\0\0\0\x80", 16).is_none(), "dense, and too short");
    for body in [&b""[..], b"\x7f", b"\x7f\xfe", b"\x7f\xff\x00", b"\x7f\xfe\x81", b"\x80"] {
        let sketch = || of(&[head, body].concat(), 0).unwrap();
        assert_eq!(sketch().count(), Err(Corrupted), "{body:?}");
        assert_eq!(sketch().make_dense(), Err(Corrupted), "{body:?}");
        assert_eq!(sketch().merge_into(&mut Registers::default()), Err(Corrupted), "{body:?}");
    }
    assert_eq!(of(&[head, &b"\x7f\xfe\x80"[..]].concat(), 19).unwrap().count(), Ok(1));
}

/// Nothing that a client can write makes it panic or grow without end.
#[test]
fn any_bytes_can_be_worked_with() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..2000 {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
        bytes.extend((0..rng.usize(0..60)).map(|_| rng.u8(..)));
        let len = bytes.len();
        let mut sketch = Sketch::read(bytes, len as u64).unwrap();
        for _ in 0..20 {
            let _ = sketch.raise(rng.usize(..REGISTER_COUNT), rng.u8(1..=51), 200);
        }
        assert!(sketch.bytes().len() <= 200 || sketch.encoding() == Encoding::Dense);
        let _ = (sketch.count(), sketch.make_dense());
    }
}

#[test]
fn it_tests_itself() {
    assert_eq!(self_test(), Ok(()));
}
