//! Places as scores of sorted sets.

use super::cell::{Area, Cell, Span};
use super::place::{GeoPoint, LATITUDE_MAX, LONGITUDE_MAX};

/// Steps of the finest grid: the number of a cell is a whole number that a score holds.
pub(super) const STEPS: u32 = 26;

const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
const LETTER_BITS: u32 = 5;
/// Letters of a geohash.
const TEXT_LEN: usize = 11;

pub fn score_of(place: GeoPoint) -> f64 {
    Cell::of(place, &Area::MAP, STEPS).number as f64
}

/// The place that a score stands for, whatever it is: the middle of its cell.
pub fn place_of(score: f64) -> GeoPoint {
    let area = Cell { number: number_of(score), steps: STEPS }.area();
    let middle = |span: Span, most: f64| ((span.min + span.max) / 2.0).clamp(-most, most);
    GeoPoint {
        longitude: middle(area.longitude, LONGITUDE_MAX),
        latitude: middle(area.latitude, LATITUDE_MAX),
    }
}

/// A score without its fraction. What is not a number of 64 bits becomes what C makes of it on x86-64.
fn number_of(score: f64) -> u64 {
    const TOP_BIT: u64 = 1 << 63;
    // 2^63
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let signed = |number: f64| match (-LIMIT..LIMIT).contains(&number) {
        true => number as i64 as u64,
        false => TOP_BIT,
    };
    match score < LIMIT {
        true => signed(score),
        false => signed(score - LIMIT) ^ TOP_BIT,
    }
}

/// The usual geohash of the place that a score stands for. The usual ones reach to the poles. The last letter has no bits left.
pub fn text_of(score: f64) -> [u8; TEXT_LEN] {
    let area = Area { latitude: Span { min: -90.0, max: 90.0 }, ..Area::MAP };
    let number = Cell::of(place_of(score), &area, STEPS).number;
    std::array::from_fn(|index| {
        let shift = (2 * STEPS).checked_sub(LETTER_BITS * (index as u32 + 1));
        shift.map_or(ALPHABET[0], |shift| ALPHABET[(number >> shift & 31) as usize])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(score: f64) -> String {
        String::from_utf8(text_of(score).to_vec()).unwrap()
    }

    fn place(longitude: f64, latitude: f64) -> GeoPoint {
        GeoPoint { longitude, latitude }
    }

    /// What redis-server 7.0.15 gives.
    #[test]
    fn scores_are_those_of_redis() {
        for (place, score, hash) in [
            (place(13.361389, 38.115556), 3_479_099_956_230_698.0, "sqc8b49rny0"),
            (place(15.087269, 37.502669), 3_479_447_370_796_909.0, "sqdtr74hyu0"),
            (place(-180.0, -LATITUDE_MAX), 0.0, "00bh0hbj200"),
            (place(-180.0, 0.0), 1_125_899_906_842_624.0, "80000000000"),
            (place(180.0, 0.0), 10_133_099_161_583_616.0, "80000000000"),
            (place(180.0, LATITUDE_MAX), 13_510_798_882_111_488.0, "bp05b5048p0"),
        ] {
            assert_eq!(score_of(place), score, "{place:?}");
            assert_eq!(text(score), hash, "{place:?}");
        }
    }

    /// What redis-server 7.0.15 gives: `ZADD` may have put there any number.
    #[test]
    fn any_score_stands_for_a_place() {
        let (west, east) = (-179.999_997_317_790_99, LONGITUDE_MAX);
        let (south, north) = (-85.051_127_512_639_43, LATITUDE_MAX);
        for (score, longitude, latitude) in [
            (-1.0, east, north),
            (-0.5, west, south),
            (f64::NEG_INFINITY, east, south),
            (f64::INFINITY, west, south),
            (1e19, east, north),
            (1e20, west, south),
            (18_446_744_073_709_549_568.0, east, north),
            (9_223_372_036_854_775_808.0, east, south),
            (-9_223_372_036_854_775_808.0, east, south),
            (-1e19, east, south),
            (4_503_599_627_370_496.0, west, north),
            (4_503_599_627_370_495.5, -west, -south),
        ] {
            assert_eq!(place_of(score), place(longitude, latitude), "{score}");
        }
    }

    #[test]
    fn a_score_keeps_its_place() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..10_000 {
            let (x, y) = (random.f64() * 2.0 - 1.0, random.f64() * 2.0 - 1.0);
            let place = place(x * LONGITUDE_MAX, y * LATITUDE_MAX);
            let kept = place_of(score_of(place));
            assert!((place.longitude - kept.longitude).abs() < 3e-6, "{place:?} {kept:?}");
            assert!((place.latitude - kept.latitude).abs() < 2e-6, "{place:?} {kept:?}");
            assert_eq!(score_of(kept), score_of(place));
        }
    }
}
