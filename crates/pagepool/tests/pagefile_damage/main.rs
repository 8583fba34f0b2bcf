//! Damaged page files: a typed error or the truth, never a panic, and the next checkpoint is sound.

mod checks;

use std::time::{Duration, Instant};

#[test]
fn what_holds_for_any_damage_holds_for_random_damage() {
    let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
    let deadline = Instant::now() + Duration::from_millis(1500);
    let mut round_count = 0;
    while Instant::now() < deadline || round_count < 100 {
        let mode = [0, 0, 0, 1, 1, 1, 1, 2][random.usize(0..8)];
        let mut script = vec![mode];
        for _ in 0..random.usize(0..4) {
            let kind = random.u8(..);
            // Superblocks and fields that mean something rather often.
            let slot = if random.bool() { random.u8(0..2) } else { random.u8(..) };
            let offset = if random.bool() { random.u16(0..70) } else { random.u16(..) };
            let value = if random.bool() { random.u16(0..40) } else { random.u16(..) };
            script.extend([kind, slot]);
            script.extend(offset.to_le_bytes());
            script.extend(value.to_le_bytes());
        }
        if mode == 2 {
            script.resize(random.usize(1..5 * 4096), random.u8(..));
        }
        checks::damaged(&script);
        round_count += 1;
    }
    println!("{round_count} rounds");
}
