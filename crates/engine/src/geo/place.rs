//! Places, and how far they are from one another.

/// Bounds of the longitudes and latitudes that a place may have: those of the usual square maps.
pub const LONGITUDE_MAX: f64 = 180.0;
pub const LATITUDE_MAX: f64 = 85.051_128_78;

pub(super) const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// Longitude and latitude, in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GeoPoint {
    pub longitude: f64,
    pub latitude: f64,
}

impl GeoPoint {
    /// A place, if it is on the map.
    pub fn on_map(longitude: f64, latitude: f64) -> Option<GeoPoint> {
        let is_on_map = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_on_map.then_some(GeoPoint { longitude, latitude })
    }
}

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * RADIANS_PER_DEGREE
}

/// `f64::to_degrees` multiplies, which is another number now and then.
pub(super) fn degrees(radians: f64) -> f64 {
    radians / RADIANS_PER_DEGREE
}

/// Metres between two places along the earth, which is taken for a sphere (haversine formula).
pub fn distance_m(a: GeoPoint, b: GeoPoint) -> f64 {
    let (a_latitude, b_latitude) = (radians(a.latitude), radians(b.latitude));
    let v = ((radians(b.longitude) - radians(a.longitude)) / 2.0).sin();
    if v == 0.0 {
        return EARTH_RADIUS_M * (b_latitude - a_latitude).abs();
    }
    let u = ((b_latitude - a_latitude) / 2.0).sin();
    let square = u * u + a_latitude.cos() * b_latitude.cos() * v * v;
    // Of places on opposite sides of the earth the square may be rounded to more than 1, which no sine has.
    2.0 * EARTH_RADIUS_M * square.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(longitude: f64, latitude: f64) -> GeoPoint {
        GeoPoint { longitude, latitude }
    }

    #[test]
    fn distances_are_those_along_the_sphere() {
        let half_m = std::f64::consts::PI * EARTH_RADIUS_M;
        for (a, b, expected_m) in [
            (place(0.0, 0.0), place(0.0, 0.0), 0.0),
            (place(7.0, -85.0), place(7.0, 85.0), half_m * 170.0 / 180.0),
            // Opposite sides.
            (place(-180.0, 0.0), place(0.0, 0.0), half_m),
            (place(-90.0, 45.0), place(90.0, -45.0), half_m),
            // One place, by two names.
            (place(-180.0, 31.0), place(180.0, 31.0), 0.0),
            // Over the pole.
            (place(0.0, 85.0), place(180.0, 85.0), half_m * 10.0 / 180.0),
            (place(13.361389, 38.115556), place(15.087269, 37.502669), 166_274.257),
        ] {
            for distance_m in [distance_m(a, b), distance_m(b, a)] {
                assert!((distance_m - expected_m).abs() < 0.01, "{a:?} {b:?}: {distance_m}");
            }
        }
    }

    #[test]
    fn any_two_places_have_a_distance() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..100_000 {
            let a = place(random.f64() * 360.0 - 180.0, random.f64() * 170.0 - 85.0);
            let opposite = place(a.longitude - 180.0 * a.longitude.signum(), -a.latitude);
            let distance_m = distance_m(a, opposite);
            let half_m = std::f64::consts::PI * EARTH_RADIUS_M;
            assert!((distance_m - half_m).abs() < 1.0, "{a:?}: {distance_m}");
        }
    }

    #[test]
    fn only_places_on_the_map_are_some() {
        assert!(
            GeoPoint::on_map(-180.0, LATITUDE_MAX).is_some()
                && GeoPoint::on_map(180.0, -LATITUDE_MAX).is_some()
        );
        for (longitude, latitude) in [
            (180.000_01, 0.0),
            (0.0, 85.051_128_79),
            (f64::NAN, 0.0),
            (0.0, f64::NAN),
            (f64::NEG_INFINITY, 0.0),
        ] {
            assert_eq!(GeoPoint::on_map(longitude, latitude), None);
        }
    }
}
