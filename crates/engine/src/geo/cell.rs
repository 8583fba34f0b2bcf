//! Cells: the map, halved so many times in either direction.
//!
//! ```text
//!   number of a cell of 3 steps    x2 y2 x1 y1 x0 y0      x: from the west, y: from the south
//! ```

use super::place::{GeoPoint, LATITUDE_MAX, LONGITUDE_MAX};

/// A range of degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Span {
    pub min: f64,
    pub max: f64,
}

/// A part of the map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Area {
    pub longitude: Span,
    pub latitude: Span,
}

impl Area {
    pub const MAP: Area = Area {
        longitude: Span { min: -LONGITUDE_MAX, max: LONGITUDE_MAX },
        latitude: Span { min: -LATITUDE_MAX, max: LATITUDE_MAX },
    };
}

/// See the module. What lies on the east or north edge of the map is in a cell beyond it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub number: u64,
    /// How often the map has been halved in either direction, at most 32 times.
    pub steps: u32,
}

/// Shifts that move the upper half of each group of bits, and what is kept of them.
const SPREADING: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, EVEN_BITS),
];
const EVEN_BITS: u64 = 0x5555_5555_5555_5555;

/// Moves the bits of a number apart, to the even places.
fn spread(number: u32) -> u64 {
    SPREADING.iter().fold(u64::from(number), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Brings the bits at the even places together.
fn gather(bits: u64) -> u32 {
    let masks = [0x3333_3333_3333_3333, 0x0f0f_0f0f_0f0f_0f0f, 0x00ff_00ff_00ff_00ff, 0x0000_ffff_0000_ffff];
    let shifts = [1, 2, 4, 8];
    let bits =
        shifts.iter().zip(masks).fold(bits & EVEN_BITS, |bits, (shift, mask)| (bits | bits >> shift) & mask);
    (bits | bits >> 16) as u32
}

impl Cell {
    /// The cell of a place in an area that is halved so many times.
    pub fn of(place: GeoPoint, area: &Area, steps: u32) -> Cell {
        let offset = |degrees: f64, span: Span| {
            ((degrees - span.min) / (span.max - span.min) * (1u64 << steps) as f64) as u32
        };
        Cell::at(offset(place.longitude, area.longitude), offset(place.latitude, area.latitude), steps)
    }

    fn at(x: u32, y: u32, steps: u32) -> Cell {
        Cell { number: spread(x) << 1 | spread(y), steps }
    }

    fn x(self) -> u32 {
        gather(self.number >> 1)
    }

    fn y(self) -> u32 {
        gather(self.number)
    }

    /// What is in the cell, on the map.
    pub fn area(self) -> Area {
        let count = (1u64 << self.steps) as f64;
        let span = |offset: u32, span: Span| {
            let at = |offset: u32| span.min + f64::from(offset) / count * (span.max - span.min);
            Span { min: at(offset), max: at(offset.wrapping_add(1)) }
        };
        Area { longitude: span(self.x(), Area::MAP.longitude), latitude: span(self.y(), Area::MAP.latitude) }
    }

    /// The cell so many to the east and to the north; at the edges of the map round the earth, which is not so in the north and
    /// south.
    pub fn moved(self, east: i32, north: i32) -> Cell {
        let mask = ((1u64 << self.steps) - 1) as u32;
        let moved = |offset: u32, by: i32| match by {
            0 => offset,
            _ => offset.wrapping_add_signed(by) & mask,
        };
        Cell::at(moved(self.x(), east), moved(self.y(), north), self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_and_gathered() {
        assert_eq!((spread(0b1011), gather(0b100_0101)), (0b100_0101, 0b1011));
        assert_eq!((spread(u32::MAX), gather(u64::MAX)), (EVEN_BITS, u32::MAX));
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..1_000 {
            let (number, other) = (random.u32(..), random.u64(..));
            assert_eq!(gather(spread(number) | other & !EVEN_BITS), number);
        }
    }

    #[test]
    fn places_are_in_their_cells() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..10_000 {
            let place = GeoPoint {
                longitude: (random.f64() * 2.0 - 1.0) * LONGITUDE_MAX,
                latitude: (random.f64() * 2.0 - 1.0) * LATITUDE_MAX,
            };
            let cell = Cell::of(place, &Area::MAP, random.u32(1..=26));
            let Area { longitude, latitude } = cell.area();
            // A hair for what is rounded at the edges.
            let is_in = |degrees: f64, span: Span| span.min - 1e-9 <= degrees && degrees <= span.max + 1e-9;
            assert!(
                is_in(place.longitude, longitude) && is_in(place.latitude, latitude),
                "{place:?} {cell:?}"
            );
        }
    }

    #[test]
    fn neighbours_are_side_by_side_round_the_earth() {
        let cell = Cell::at(7, 3, 3);
        assert_eq!((cell.moved(1, 0), cell.moved(-1, 1)), (Cell::at(0, 3, 3), Cell::at(6, 4, 3)));
        assert_eq!(Cell::at(0, 0, 3).moved(-1, -1), Cell::at(7, 7, 3));
        let (west, east) = (cell.area(), cell.moved(1, 0).area());
        assert_eq!((west.longitude.max, east.longitude.min), (LONGITUDE_MAX, -LONGITUDE_MAX));
        // On the edge of the map.
        let corner = GeoPoint { longitude: LONGITUDE_MAX, latitude: LATITUDE_MAX };
        assert_eq!(Cell::of(corner, &Area::MAP, 3), Cell::at(8, 8, 3));
        assert_eq!(Cell::at(8, 8, 3).moved(1, 0), Cell::at(1, 8, 3));
    }
}
