//! The figure of a save: latency over time, a panel a server, and memory over time. Plain SVG, no scripts and no
//! outside fonts, so that it shows in a README.

use std::fmt::Write;

pub struct Figure {
    pub title: String,
    pub subtitle: String,
    /// Seconds relative to the cut.
    pub from_s: f64,
    pub to_s: f64,
    pub latency: Vec<LatencyPanel>,
    pub memory: Vec<MemorySeries>,
    pub footer: String,
}

pub struct LatencyPanel {
    pub name: String,
    pub headline: String,
    pub color: &'static str,
    /// (seconds from the cut, worst latency in ns) of each 10 ms.
    pub points: Vec<(f64, f64)>,
    /// (start and end of a second, worst latency in ns).
    pub seconds: Vec<(f64, f64, f64)>,
    pub save_end_s: f64,
}

pub struct MemorySeries {
    pub name: String,
    pub color: &'static str,
    /// (seconds from the cut, bytes).
    pub points: Vec<(f64, f64)>,
    pub label: String,
}

/// One colour a server, told apart in print and by the colour-blind.
pub const COLORS: [&str; 4] = ["#c2410c", "#1d4ed8", "#0f766e", "#7e22ce"];

const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 66.0;
const LATENCY_HEIGHT: f64 = 190.0;
const MEMORY_HEIGHT: f64 = 150.0;
const GAP: f64 = 46.0;
const BOTTOM: f64 = 62.0;
/// Behind everything.
pub const SHEET: &str = "#ffffff";
pub const INK: &str = "#1f2937";
pub const FAINT: &str = "#6b7280";
pub const GRID: &str = "#e5e7eb";
const LOWEST_NS: f64 = 1e4;

/// A rectangle of the drawing with its two scales.
struct Panel {
    top: f64,
    height: f64,
    x: (f64, f64),
    y: (f64, f64),
    log: bool,
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.log { v.max(1.0).log10() } else { v };
        let (low, high) = (scale(self.y.0), scale(self.y.1));
        let part = ((scale(value) - low) / (high - low)).clamp(0.0, 1.0);
        self.top + self.height * (1.0 - part)
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

pub struct Text<'a> {
    pub size: f64,
    pub anchor: &'a str,
    pub color: &'a str,
    pub bold: bool,
}

pub const LABEL: Text<'_> = Text { size: 12.0, anchor: "start", color: FAINT, bold: false };

pub struct Svg(String);

impl Svg {
    /// A white sheet.
    pub fn new(width: f64, height: f64) -> Self {
        let mut svg = Self(String::new());
        svg.push(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif">"#
        ));
        svg.push(format_args!(r#"<rect width="{width}" height="{height}" fill="{SHEET}"/>"#));
        svg
    }

    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn push(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(args);
        self.0.push('\n');
    }

    pub fn text(&mut self, x: f64, y: f64, style: &Text<'_>, text: &str) {
        let weight = if style.bold { " font-weight=\"600\"" } else { "" };
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{}" text-anchor="{}" fill="{}"{weight}>{escaped}</text>"#,
            style.size, style.anchor, style.color
        ));
    }

    /// What follows belongs to a series, which a page can show or hide by its name.
    pub fn begin_group(&mut self, name: &str) {
        let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        self.push(format_args!(r#"<g data-series="{escaped}">"#));
    }

    pub fn end_group(&mut self) {
        self.push(format_args!("</g>"));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, extra: &str) {
        self.push(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{color}"{extra}/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    fn band(&mut self, panel: &Panel, from: f64, to: f64, color: &str, opacity: f64) {
        let (x0, x1) = (panel.x(from.max(panel.x.0)), panel.x(to.min(panel.x.1)));
        self.push(format_args!(
            r#"<rect x="{x0:.1}" y="{:.1}" width="{:.1}" height="{:.1}" fill="{color}" fill-opacity="{opacity}"/>"#,
            panel.top,
            (x1 - x0).max(0.0),
            panel.height
        ));
    }

    pub fn path(&mut self, data: &str, color: &str, width: f64, extra: &str) {
        self.push(format_args!(
            r#"<path d="{data}" fill="none" stroke="{color}" stroke-width="{width}"{extra}/>"#
        ));
    }
}

pub fn draw(figure: &Figure) -> String {
    let height = TOP + figure.latency.len() as f64 * (LATENCY_HEIGHT + GAP) + MEMORY_HEIGHT + BOTTOM;
    let mut svg = Svg::new(WIDTH, height);
    svg.text(LEFT, 26.0, &Text { size: 18.0, color: INK, bold: true, ..LABEL }, &figure.title);
    svg.text(LEFT, 46.0, &Text { size: 12.5, ..LABEL }, &figure.subtitle);
    explain_marks(&mut svg);
    let mut top = TOP + 16.0;
    let highest = highest_latency_ns(figure);
    for latency in &figure.latency {
        let panel = Panel {
            top,
            height: LATENCY_HEIGHT - 16.0,
            x: (figure.from_s, figure.to_s),
            y: (LOWEST_NS, highest),
            log: true,
        };
        draw_latency(&mut svg, &panel, latency);
        top += LATENCY_HEIGHT + GAP;
    }
    let memory_top =
        (1.12 * figure.memory.iter().flat_map(|m| &m.points).map(|p| p.1).fold(0.0, f64::max)).max(1.0);
    let panel = Panel {
        top,
        height: MEMORY_HEIGHT - 16.0,
        x: (figure.from_s, figure.to_s),
        y: (0.0, memory_top),
        log: false,
    };
    draw_memory(&mut svg, &panel, figure);
    svg.text(LEFT, height - 10.0, &Text { size: 10.5, ..LABEL }, &figure.footer);
    svg.finish()
}

/// The power of ten above everything, so that all panels have one scale.
fn highest_latency_ns(figure: &Figure) -> f64 {
    let worst = figure.latency.iter().flat_map(|l| &l.points).map(|p| p.1).fold(1e7, f64::max);
    // Room for the labels above the points.
    10f64.powf((worst * 3.0).log10().ceil())
}

fn draw_latency(svg: &mut Svg, panel: &Panel, latency: &LatencyPanel) {
    svg.band(panel, 0.0, latency.save_end_s, latency.color, 0.07);
    svg.band(panel, 0.0, 1.0, latency.color, 0.13);
    let mut decade = panel.y.0;
    while decade <= panel.y.1 * 1.001 {
        let y = panel.y(decade);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), GRID, "");
        svg.text(LEFT - 8.0, y + 4.0, &Text { anchor: "end", ..LABEL }, &decade_label(decade));
        decade *= 10.0;
    }
    time_axis(svg, panel, false);
    let title = Text { size: 13.5, color: latency.color, bold: true, ..LABEL };
    svg.text(LEFT, panel.top - 9.0, &title, &latency.name);
    svg.text(WIDTH - RIGHT, panel.top - 9.0, &Text { anchor: "end", color: INK, ..LABEL }, &latency.headline);
    let mut dots = String::new();
    for (x, ns) in latency.points.iter().filter(|p| p.0 >= panel.x.0 && p.0 <= panel.x.1) {
        let _ = write!(dots, "M{:.1} {:.1}h0", panel.x(*x), panel.y(*ns));
    }
    svg.path(&dots, latency.color, 2.0, r#" stroke-linecap="round" stroke-opacity="0.35""#);
    let mut steps = String::new();
    for (from, to, ns) in latency.seconds.iter().filter(|s| s.1 > panel.x.0) {
        let (x0, x1, y) = (panel.x(from.max(panel.x.0)), panel.x(to.min(panel.x.1)), panel.y(*ns));
        let _ = write!(steps, "{}{x0:.1} {y:.1}L{x1:.1} {y:.1}", if steps.is_empty() { "M" } else { "L" });
    }
    svg.path(&steps, latency.color, 1.8, r#" stroke-linejoin="round""#);
    band_labels(svg, panel, latency);
}

fn band_labels(svg: &mut Svg, panel: &Panel, latency: &LatencyPanel) {
    let style = Text { size: 11.0, color: latency.color, ..LABEL };
    let y = panel.top + 14.0;
    svg.line(
        (panel.x(0.0), panel.top),
        (panel.x(0.0), panel.bottom()),
        latency.color,
        r#" stroke-width="1""#,
    );
    svg.text(panel.x(0.0) - 5.0, y, &Text { anchor: "end", ..style }, "cut");
    let room = panel.x(1.0) - panel.x(0.0);
    let save = format!("save, {:.1} s", latency.save_end_s);
    let first_second = if room > 66.0 { "first second" } else { "" };
    svg.text(panel.x(0.0) + 4.0, y, &style, first_second);
    svg.text(panel.x(1.0) + 5.0, y, &style, &save);
}

/// The legend, at the right of the title.
fn explain_marks(svg: &mut Svg) {
    let (x, y) = (WIDTH - RIGHT - 250.0, 26.0);
    svg.path(&format!("M{x:.1} {:.1}h0m5 3h0m5 -3h0", y - 5.0), FAINT, 3.0, r#" stroke-linecap="round""#);
    svg.text(x + 18.0, y, &LABEL, "worst of 10 ms");
    svg.path(&format!("M{:.1} {:.1}h18", x + 120.0, y - 4.0), FAINT, 2.0, "");
    svg.text(x + 144.0, y, &LABEL, "worst of a second");
}

fn draw_memory(svg: &mut Svg, panel: &Panel, figure: &Figure) {
    let title = Text { size: 13.5, color: INK, bold: true, ..LABEL };
    svg.text(LEFT, panel.top - 9.0, &title, "memory");
    let step = nice_step(panel.y.1 / 3.0);
    let mut value = 0.0;
    while value <= panel.y.1 {
        let y = panel.y(value);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), GRID, "");
        svg.text(LEFT - 8.0, y + 4.0, &Text { anchor: "end", ..LABEL }, &bytes_label(value, step));
        value += step;
    }
    time_axis(svg, panel, true);
    svg.line((panel.x(0.0), panel.top), (panel.x(0.0), panel.bottom()), FAINT, r#" stroke-dasharray="3 3""#);
    let mut label_x = WIDTH - RIGHT;
    for series in figure.memory.iter().rev() {
        let mut line = String::new();
        for (x, bytes) in series.points.iter().filter(|p| p.0 >= panel.x.0 && p.0 <= panel.x.1) {
            let start = if line.is_empty() { "M" } else { "L" };
            let _ = write!(line, "{start}{:.1} {:.1}", panel.x(*x), panel.y(*bytes));
        }
        svg.path(&line, series.color, 2.0, r#" stroke-linejoin="round""#);
        let label = format!("{}: {}", series.name, series.label);
        svg.text(label_x, panel.top - 9.0, &Text { anchor: "end", color: series.color, ..LABEL }, &label);
        label_x -= label.chars().count() as f64 * 6.6 + 18.0;
    }
}

fn time_axis(svg: &mut Svg, panel: &Panel, with_title: bool) {
    let step = nice_step((panel.x.1 - panel.x.0) / 10.0).max(1.0);
    let mut second = (panel.x.0 / step).ceil() * step;
    while second <= panel.x.1 + 1e-9 {
        let x = panel.x(second);
        svg.line((x, panel.bottom()), (x, panel.bottom() + 4.0), FAINT, "");
        let label = if second.abs() < 1e-9 { "0".to_owned() } else { format!("{second:.0}") };
        svg.text(x, panel.bottom() + 17.0, &Text { anchor: "middle", size: 11.0, ..LABEL }, &label);
        second += step;
    }
    svg.line((LEFT, panel.bottom()), (WIDTH - RIGHT, panel.bottom()), FAINT, "");
    if with_title {
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        svg.text(middle, panel.bottom() + 34.0, &Text { anchor: "middle", ..LABEL }, "seconds since the cut");
    }
}

/// 1, 2 or 5 times a power of ten (of two, for bytes it does as well), at least `at_least`.
fn nice_step(at_least: f64) -> f64 {
    let power = 10f64.powf(at_least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= at_least).unwrap_or(10.0 * power)
}

fn decade_label(ns: f64) -> String {
    match ns {
        _ if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        _ if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.0} s", ns / 1e9),
    }
}

fn bytes_label(bytes: f64, step: f64) -> String {
    if step >= 1e9 {
        format!("{:.0} GB", bytes / 1e9)
    } else {
        format!("{:.0} MB", bytes / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(nice_step(3.0), 5.0);
        assert_eq!(nice_step(0.5), 0.5);
        assert_eq!(nice_step(1.2e9), 2e9);
    }

    #[test]
    fn a_figure_escapes_and_closes() {
        let figure = Figure {
            title: "a < b".into(),
            subtitle: String::new(),
            from_s: -1.0,
            to_s: 2.0,
            latency: vec![LatencyPanel {
                name: "x".into(),
                headline: String::new(),
                color: COLORS[0],
                points: vec![(0.0, 1e6)],
                seconds: vec![(0.0, 1.0, 1e6)],
                save_end_s: 1.0,
            }],
            memory: Vec::new(),
            footer: String::new(),
        };
        let svg = draw(&figure);
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }
}
