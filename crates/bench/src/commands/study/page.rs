//! The page that shows everything: one file, nothing from outside.

use super::drawn::{title, Drawn};
use super::figure::Figure;
use crate::bar::Bar;
use crate::plot::{FAINT, GRID, INK, SHEET};

const TEMPLATE: &str = include_str!("page.html");

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// The drawing in colours of the page, which are others in the dark.
fn recoloured(svg: &str) -> String {
    let colors = [(SHEET, "--sheet"), (INK, "--ink"), (FAINT, "--faint"), (GRID, "--grid")];
    colors.iter().fold(svg.to_owned(), |svg, (color, name)| {
        svg.replace(&format!("\"{color}\""), &format!("\"var({name})\""))
    })
}

fn algorithm(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// Each algorithm that has a line, in the order of the figures.
fn algorithms(figures: &[Drawn]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in figures.iter().flat_map(|drawn| &drawn.lines).map(|line| algorithm(&line.name)) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn table(drawn: &Drawn) -> String {
    let head: String = drawn.labels.iter().map(|label| format!("<th>{}</th>", escape(label))).collect();
    let cell = |values: &Vec<f64>| format!("<td>{}</td>", escape(&drawn.cell(values)));
    let rows: String = drawn
        .lines
        .iter()
        .map(|line| {
            let cells: String = line.values.iter().map(cell).collect();
            let name = escape(&line.name);
            format!("<tr data-series=\"{name}\"><td>{name}</td>{cells}</tr>\n")
        })
        .collect();
    format!("<table><tr><th>{}</th>{head}</tr>\n{rows}</table>", escape(&drawn.x_title))
}

fn section(drawn: &Drawn) -> String {
    let (name, figure) = (drawn.figure.name(), drawn.figure);
    // A trace has a column for each stretch of time: the drawing says more.
    let numbers = match figure {
        Figure::Trace => String::new(),
        _ => format!(
            "<details><summary>numbers</summary><div class=\"scroll\">{}</div></details>",
            table(drawn)
        ),
    };
    format!(
        "<section id=\"figure-{name}\">\n{}\n<div class=\"beside\"><div><h3>the paper</h3><p>{}</p></div>\
         <div><h3>here</h3><p>{}</p></div></div>\n{numbers}\n</section>\n",
        recoloured(&drawn.svg()),
        escape(figure.paper()),
        escape(&drawn.finding()),
    )
}

fn bars_section(bars: &[Bar]) -> String {
    let row = |bar: &Bar| {
        let measured = bar.measured.map_or("-".to_owned(), |value| format!("{value:.2}{}", bar.unit));
        let class = if bar.is_met == Some(false) { " class=\"missed\"" } else { "" };
        let cells = [&bar.limit, &measured, bar.verdict()].map(|text| format!("<td>{}</td>", escape(text)));
        format!("<tr{class}><td>{}</td>{}</tr>\n", escape(&bar.what), cells.concat())
    };
    let rows: String = bars.iter().map(row).collect();
    format!(
        "<section id=\"figure-bars\" class=\"bars\"><h2>Bars</h2><div class=\"scroll\"><table><tr><th>bar</th><th>limit</th>\
         <th>measured</th><th>verdict</th></tr>\n{rows}</table></div></section>\n"
    )
}

/// `header`: names and texts of where the figures come from. `choice`: which algorithm to take, in Markdown's `code`.
pub fn page(header: &[(String, String)], figures: &[Drawn], bars: &[Bar], choice: &str) -> String {
    let boxes: Vec<String> = algorithms(figures)
        .iter()
        .map(|name| {
            let name = escape(name);
            format!("<label><input type=\"checkbox\" value=\"{name}\" checked> {name}</label>")
        })
        .collect();
    let lines: Vec<String> =
        header.iter().map(|(name, text)| format!("<li>{}: {}</li>", escape(name), escape(text))).collect();
    let link = |drawn: &Drawn| {
        format!("<a href=\"#figure-{}\">{}</a>", drawn.figure.name(), escape(&title(drawn.figure)))
    };
    let mut links: Vec<String> = figures.iter().map(link).collect();
    let mut sections: String = figures.iter().map(section).collect();
    if !bars.is_empty() {
        links.insert(0, "<a href=\"#figure-bars\">Bars</a>".to_owned());
        sections.insert_str(0, &bars_section(bars));
    }
    TEMPLATE
        .replace("{{boxes}}", &boxes.join("\n"))
        .replace("{{header}}", &lines.join("\n"))
        .replace("{{choice}}", &escape(&choice.replace('`', "")))
        .replace("{{contents}}", &links.join(" · "))
        .replace("{{figures}}", &sections)
}
