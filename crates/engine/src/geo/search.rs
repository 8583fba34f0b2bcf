//! What a search is for, and which scores it has to look at.

use super::cell::{Area, Cell, Span};
use super::place::{degrees, distance_m, radians, GeoPoint, EARTH_RADIUS_M};
use super::score::STEPS;

/// Half the circumference of the earth, and a little more.
const HALF_ROUND_M: f64 = 20_037_726.37;
/// Cells of fewer steps are too large to leave any out.
const LEAVING_OUT_FROM_STEPS: u32 = 2;

/// A cell and those around it, in the order in which they are looked at, as steps to the east and to the north.
const AROUND: [(i32, i32); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// What is searched, in the search's unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// Where is searched. Infinite sizes are fine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Search {
    pub center: GeoPoint,
    pub shape: Shape,
    pub unit_m: f64,
}

impl Search {
    /// Metres from the centre to a place, if the search is for it.
    pub fn distance_to(&self, place: GeoPoint) -> Option<f64> {
        match self.shape {
            Shape::Circle { radius } => {
                Some(distance_m(self.center, place)).filter(|distance_m| *distance_m <= radius * self.unit_m)
            }
            Shape::Box { width, height } => {
                let beside = GeoPoint { longitude: self.center.longitude, ..place };
                let is_inside = distance_m(beside, place) <= width * self.unit_m / 2.0
                    && distance_m(beside, self.center) <= height * self.unit_m / 2.0;
                is_inside.then(|| distance_m(self.center, place))
            }
        }
    }

    /// Metres from the centre to the farthest place.
    fn reach_m(&self) -> f64 {
        let reach = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        reach * self.unit_m
    }

    /// What encloses all of it, if it does not reach a pole.
    fn bounds(&self) -> Area {
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let GeoPoint { longitude, latitude } = self.center;
        let latitude_delta = degrees(self.unit_m * height / EARTH_RADIUS_M);
        // Circles of latitude are shorter farther from the equator.
        let farthest = if latitude < 0.0 { latitude - latitude_delta } else { latitude + latitude_delta };
        let longitude_delta = degrees(self.unit_m * width / EARTH_RADIUS_M / radians(farthest).cos());
        let around = |middle: f64, delta: f64| Span { min: middle - delta, max: middle + delta };
        Area { longitude: around(longitude, longitude_delta), latitude: around(latitude, latitude_delta) }
    }

    /// Ranges of scores, each from the first to before the last, in the order in which Redis looks at them.
    pub fn ranges(&self) -> Vec<(f64, f64)> {
        let cells = self.cells();
        let score = |number: u64, steps: u32| (number << (2 * (STEPS - steps))) as f64;
        let range = |cell: &Cell| (score(cell.number, cell.steps), score(cell.number + 1, cell.steps));
        cells.iter().map(range).collect()
    }

    fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let mut steps = steps_for(self.reach_m(), self.center.latitude);
        let mut center = Cell::of(self.center, &Area::MAP, steps);
        if steps > 1 && is_left(&bounds, center) {
            steps -= 1;
            center = Cell::of(self.center, &Area::MAP, steps);
        }
        let area = center.area();
        let is_needed = |east: i32, north: i32| {
            steps < LEAVING_OUT_FROM_STEPS
                || !(north < 0 && area.latitude.min < bounds.latitude.min
                    || north > 0 && area.latitude.max > bounds.latitude.max
                    || east < 0 && area.longitude.min < bounds.longitude.min
                    || east > 0 && area.longitude.max > bounds.longitude.max)
        };
        let mut cells = Vec::with_capacity(AROUND.len());
        for (east, north) in AROUND.into_iter().filter(|(east, north)| is_needed(*east, *north)) {
            let cell = center.moved(east, north);
            // Where there are two cells round the earth, those on both sides are the same.
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }
}

/// Whether the cells around one leave out a part of what is within bounds.
fn is_left(bounds: &Area, cell: Cell) -> bool {
    let area = |east: i32, north: i32| cell.moved(east, north).area();
    area(0, 1).latitude.max < bounds.latitude.max
        || area(0, -1).latitude.min > bounds.latitude.min
        || area(1, 0).longitude.max < bounds.longitude.max
        || area(-1, 0).longitude.min > bounds.longitude.min
}

/// Steps of cells of which nine mostly enclose a circle.
fn steps_for(reach_m: f64, latitude: f64) -> u32 {
    if reach_m == 0.0 {
        return STEPS;
    }
    let (mut reach_m, mut steps) = (reach_m, 1);
    while reach_m < HALF_ROUND_M {
        reach_m *= 2.0;
        steps += 1;
    }
    // Cells are to be larger than the circle; and towards the poles they are narrower.
    steps -= 2;
    for polar in [66.0, 80.0] {
        steps -= i32::from(latitude.abs() > polar);
    }
    steps.clamp(1, STEPS as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::super::place::{LATITUDE_MAX, LONGITUDE_MAX};
    use super::super::score::{place_of, score_of};
    use super::*;

    fn circle(longitude: f64, latitude: f64, radius: f64) -> Search {
        Search { center: GeoPoint { longitude, latitude }, shape: Shape::Circle { radius }, unit_m: 1.0 }
    }

    fn bounding(search: Search, width: f64, height: f64) -> Search {
        Search { shape: Shape::Box { width, height }, ..search }
    }

    fn looks_at(search: &Search, place: GeoPoint) -> bool {
        let score = score_of(place);
        search.ranges().iter().any(|(min, max)| (*min..*max).contains(&score))
    }

    /// Away from the poles, everything that is near enough is in the cells that are looked at.
    #[test]
    fn nothing_near_is_missed() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let mut found = 0;
        for _ in 0..20_000 {
            let (longitude, latitude) = (random.f64() * 358.0 - 179.0, random.f64() * 120.0 - 60.0);
            let radius = 10f64.powf(random.f64() * 6.0);
            let mut search = circle(longitude, latitude, radius);
            if random.bool() {
                search = bounding(search, radius * random.f64(), radius * random.f64());
            }
            let reach = degrees(radius / EARTH_RADIUS_M) * 1.2;
            let place = GeoPoint::on_map(
                longitude + (random.f64() * 2.0 - 1.0) * reach,
                latitude + (random.f64() * 2.0 - 1.0) * reach,
            );
            let Some(kept) = place.map(|place| place_of(score_of(place))) else { continue };
            if search.distance_to(kept).is_some() {
                found += 1;
                assert!(looks_at(&search, kept), "{search:?} {kept:?}");
            }
        }
        assert!(found > 5_000, "{found}");
    }

    #[test]
    fn the_date_line_is_no_end() {
        let search = circle(179.9, 10.0, 50_000.0);
        let place = GeoPoint { longitude: -179.9, latitude: 10.0 };
        assert!(search.distance_to(place).is_some_and(|distance_m| (distance_m - 21_908.0).abs() < 10.0));
        assert!(looks_at(&search, place));
        assert!(bounding(search, 50_000.0, 10.0).distance_to(place).is_some());
        assert!(bounding(search, 30_000.0, 10.0).distance_to(place).is_none());
    }

    /// Towards the poles cells are narrow: larger ones are taken.
    #[test]
    fn near_the_poles_cells_are_larger() {
        let steps = |latitude: f64| steps_for(1_000.0, latitude);
        assert_eq!([0.0, 66.0, 67.0, 80.0, 81.0, -81.0].map(steps), [14, 14, 13, 13, 12, 12]);
        for latitude in [85.0, LATITUDE_MAX, -LATITUDE_MAX] {
            let search = circle(0.0, latitude, 1_000.0);
            assert!(looks_at(&search, search.center), "{latitude}");
            assert!(looks_at(&search, GeoPoint { longitude: 0.1, ..search.center }), "{latitude}");
        }
    }

    #[test]
    fn huge_ones_look_at_the_whole_map_once() {
        for radius in [30_000_000.0, 1e300, f64::INFINITY] {
            let search = circle(10.0, 10.0, radius);
            for search in [search, bounding(search, radius, radius)] {
                let mut ranges = search.ranges();
                ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
                let quarter = (1u64 << 50) as f64;
                let quarters: Vec<_> =
                    (0..4u8).map(|at| (f64::from(at) * quarter, f64::from(at + 1) * quarter)).collect();
                assert_eq!(ranges, quarters, "{search:?}");
            }
        }
    }

    #[test]
    fn no_size_is_too_odd() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let sizes = [0.0, -0.0, 5e-324, 1e-9, 1.0, 1e7, 1e19, f64::MAX, f64::INFINITY];
        for _ in 0..2_000 {
            let mut pick = |from: &[f64]| from[random.usize(..from.len())];
            let longitude = pick(&[-LONGITUDE_MAX, LONGITUDE_MAX, 0.0, 179.999_999, 5e-324]);
            let latitude = pick(&[-LATITUDE_MAX, LATITUDE_MAX, 0.0, 80.000_1, -66.000_1]);
            let circle = circle(longitude, latitude, pick(&sizes));
            let search = bounding(circle, pick(&sizes), pick(&sizes));
            for search in [circle, search, Search { unit_m: 1609.34, ..search }] {
                let ranges = search.ranges();
                assert!((1..=9).contains(&ranges.len()) && ranges.iter().all(|(min, max)| min <= max));
                // Scores of what is on the east edge are beyond the integers that a score can tell apart.
                if longitude < LONGITUDE_MAX {
                    assert!(looks_at(&search, search.center), "{search:?}");
                }
            }
        }
    }

    #[test]
    fn small_ones_look_at_little() {
        let width: f64 = circle(15.0, 37.0, 100.0).ranges().iter().map(|(min, max)| max - min).sum();
        assert!(width < 2f64.powi(52 - 2 * 16) * 9.0, "{width}");
    }
}
