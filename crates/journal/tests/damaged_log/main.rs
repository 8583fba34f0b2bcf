//! A short run, by seed, of what the fuzz target `log_blocks` does.

mod checks;

#[test]
fn reading_never_panics_and_invents_nothing() {
    checks::damaged(&[]);
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..400 {
        let len = rng.usize(1..6) * 8;
        let mut script: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
        if rng.bool() {
            // Without checksums made right.
            script.chunks_mut(8).for_each(|change| change[4] &= 7);
        }
        let ran = std::panic::catch_unwind(|| checks::damaged(&script));
        assert!(ran.is_ok(), "{script:?}");
    }
}
