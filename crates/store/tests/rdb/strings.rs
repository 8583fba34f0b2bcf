//! Strings of the kinds that the format treats differently.

/// A string of at most about `max_len` bytes: an integer or nearly one, random or repetitive bytes, or words.
pub fn random_string(random: &mut fastrand::Rng, max_len: usize) -> Vec<u8> {
    let len = match random.u8(0..4) {
        0 => random.usize(0..=20),
        1 => random.usize(0..=80),
        _ => random.usize(0..=max_len),
    };
    match random.u8(0..6) {
        0 => (random.i64(..) >> random.u32(0..64)).to_string().into_bytes(),
        1 => format!("{}{}", ["0", "-0", "+", " "][random.usize(0..4)], random.i32(..)).into_bytes(),
        2 => (0..len).map(|_| random.u8(..)).collect(),
        3 => {
            let alphabet = random.u8(1..6);
            (0..len).map(|_| random.u8(0..alphabet)).collect()
        }
        4 => {
            let words = ["alpha", "beta", "gamma", "{\"id\":", "\"name\":", "},", "user:1000"];
            let mut text = Vec::new();
            while text.len() < len {
                text.extend_from_slice(words[random.usize(0..words.len())].as_bytes());
            }
            text
        }
        _ => {
            // Repeats over distances around the longest that a reference spans.
            let unit: Vec<u8> = (0..random.usize(1..=len.max(1))).map(|_| random.u8(..)).collect();
            unit.iter().copied().cycle().take(len).collect()
        }
    }
}
