//! Colours: an algorithm keeps its own in all figures. Told apart on white and on black.

use crate::chart::{Series, Stroke};

/// In the order of the paper, ours, then what other systems do.
const COLORS: [(&str, &str, bool); 16] = [
    ("naive", "#d97706", false),
    ("cou", "#dc2626", false),
    ("fork", "#8b5cf6", false),
    ("zigzag", "#0891b2", false),
    ("pingpong", "#65a30d", false),
    ("hourglass", "#3b82f6", false),
    ("piggyback", "#db2777", false),
    ("epoch", "#059669", false),
    ("uffd-wp", "#78716c", true),
    ("entry-cow", "#a16207", true),
    ("bucket-cow", "#6366f1", true),
    ("redis", "#ef4444", true),
    ("calc", "#d97706", false),
    ("vhg", "#3b82f6", false),
    ("vpb", "#db2777", false),
    ("cpr", "#059669", false),
];
/// The line of ticks that are left out: each is by itself.
pub const STOPPED: &str = "machine stopped";
const OTHER: (&str, bool) = ("#64748b", true);

/// A line of an algorithm. What comes after a comma in its name is a variant of it, and dashed.
pub fn series(name: &str, points: Vec<(f64, f64)>) -> Series {
    let (algorithm, variant) = name.split_once(',').map_or((name, None), |(name, rest)| (name, Some(rest)));
    let found = COLORS.iter().find(|(own, ..)| *own == algorithm);
    let (color, is_dashed) = found.map_or(OTHER, |(_, color, is_dashed)| (*color, *is_dashed));
    let stroke = match name == STOPPED {
        true => Stroke::Dots,
        false => Stroke::dashed(is_dashed || variant.is_some()),
    };
    Series { name: name.to_owned(), color, points, stroke }
}
