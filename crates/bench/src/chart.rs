//! Lines over categories (sizes, numbers of threads) or over time, in the style of the figure of a save.

use std::fmt::Write;

use crate::plot::{Svg, Text, FAINT, GRID, INK, LABEL};

pub struct Chart {
    pub title: String,
    pub subtitle: String,
    pub x_title: String,
    /// Where the axis is labelled, and with what; at least one.
    pub x_labels: Vec<(f64, String)>,
    /// A logarithmic scale, for values above 0.
    pub log: bool,
    pub show: fn(f64) -> String,
    pub series: Vec<Series>,
    pub footer: String,
}

pub struct Series {
    pub name: String,
    pub color: &'static str,
    pub points: Vec<(f64, f64)>,
    pub stroke: Stroke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    Solid,
    Dashed,
    /// Nothing between the points.
    Dots,
}

impl Stroke {
    pub fn dashed(is_dashed: bool) -> Stroke {
        match is_dashed {
            true => Stroke::Dashed,
            false => Stroke::Solid,
        }
    }
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 66.0;
const LEGEND_LINE: f64 = 20.0;
/// Points closer than this are a line without dots.
const DOTS_UP_TO: usize = 24;

struct Scale {
    x: (f64, f64),
    y: (f64, f64),
    log: bool,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|s| &s.points);
        let xs = points().map(|p| p.0).chain(chart.x_labels.iter().map(|l| l.0));
        let x = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
        let ys = || points().map(|p| p.1).filter(|y| !chart.log || *y > 0.0);
        let (low, high) = ys().fold((f64::INFINITY, 0.0f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
        let y = match chart.log {
            true if low.is_finite() => {
                (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.1).log10().ceil()))
            }
            true => (1.0, 10.0),
            false => (0.0, if high > 0.0 { high * 1.1 } else { 1.0 }),
        };
        Self { x: if x.0 < x.1 { x } else { (x.0 - 1.0, x.0 + 1.0) }, y, log: chart.log }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.log { v.max(self.y.0).log10() } else { v };
        let part = (scale(value) - scale(self.y.0)) / (scale(self.y.1) - scale(self.y.0));
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - part.clamp(0.0, 1.0))
    }

    fn y_ticks(&self) -> Vec<f64> {
        if !self.log {
            return (0..=4).map(|i| self.y.1 * f64::from(i) / 4.0).collect();
        }
        let decades = (self.y.1 / self.y.0).log10().round() as i32;
        (0..=decades).map(|i| self.y.0 * 10f64.powi(i)).collect()
    }
}

pub fn draw(chart: &Chart) -> String {
    let scale = Scale::of(chart);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text(LEFT, 28.0, &Text { size: 18.0, color: INK, bold: true, ..LABEL }, &chart.title);
    svg.text(LEFT, 48.0, &Text { size: 12.5, ..LABEL }, &chart.subtitle);
    for tick in scale.y_ticks() {
        let y = scale.y(tick);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), GRID, "");
        svg.text(LEFT - 8.0, y + 4.0, &Text { anchor: "end", ..LABEL }, &(chart.show)(tick));
    }
    let bottom = HEIGHT - BOTTOM;
    svg.line((LEFT, bottom), (WIDTH - RIGHT, bottom), FAINT, "");
    for (at, label) in &chart.x_labels {
        let x = scale.x(*at);
        svg.line((x, bottom), (x, bottom + 4.0), FAINT, "");
        svg.text(x, bottom + 18.0, &Text { anchor: "middle", size: 11.0, ..LABEL }, label);
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg.text(middle, bottom + 36.0, &Text { anchor: "middle", ..LABEL }, &chart.x_title);
    for (i, series) in chart.series.iter().enumerate() {
        draw_series(&mut svg, &scale, series, TOP + 14.0 + LEGEND_LINE * i as f64);
    }
    svg.text(LEFT, HEIGHT - 10.0, &Text { size: 10.5, ..LABEL }, &chart.footer);
    svg.finish()
}

fn draw_series(svg: &mut Svg, scale: &Scale, series: &Series, legend_y: f64) {
    let dash = if series.stroke != Stroke::Solid { r#" stroke-dasharray="5 4""# } else { "" };
    svg.begin_group(&series.name);
    let (mut line, mut dots) = (String::new(), String::new());
    for (x, y) in &series.points {
        let (x, y) = (scale.x(*x), scale.y(*y));
        // Writing to a string cannot fail.
        let _ = write!(line, "{}{x:.1} {y:.1}", if line.is_empty() { "M" } else { "L" });
        let _ = write!(dots, "M{x:.1} {y:.1}h0");
    }
    if series.stroke != Stroke::Dots {
        svg.path(&line, series.color, 2.0, &format!(r#" stroke-linejoin="round"{dash}"#));
    }
    if series.points.len() <= DOTS_UP_TO || series.stroke == Stroke::Dots {
        svg.path(&dots, series.color, 7.0, r#" stroke-linecap="round""#);
    }
    let x = WIDTH - RIGHT + 18.0;
    svg.path(&format!("M{x:.1} {legend_y:.1}h22"), series.color, 2.0, dash);
    svg.text(x + 30.0, legend_y + 4.0, &Text { color: series.color, ..LABEL }, &series.name);
    svg.end_group();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, log: bool) -> Chart {
        Chart {
            title: "t".into(),
            subtitle: String::new(),
            x_title: "x".into(),
            x_labels: vec![(0.0, "a".into())],
            log,
            show: |v| format!("{v:.0}"),
            series: vec![Series { name: "s<".into(), color: "#000000", points, stroke: Stroke::Solid }],
            footer: String::new(),
        }
    }

    #[test]
    fn scales_hold_what_is_drawn() {
        let scale = Scale::of(&chart(vec![(0.0, 20.0), (3.0, 950.0)], true));
        assert_eq!((scale.x, scale.y), ((0.0, 3.0), (10.0, 10_000.0)));
        assert_eq!(scale.y_ticks(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!(scale.y(20.0) > scale.y(950.0));
    }

    #[test]
    fn one_point_none_and_zero_do_not_divide_by_zero() {
        for points in [vec![], vec![(0.0, 0.0)], vec![(0.0, 5.0)]] {
            for log in [false, true] {
                let svg = draw(&chart(points.clone(), log));
                assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("s&lt;"), "{svg}");
            }
        }
    }
}
