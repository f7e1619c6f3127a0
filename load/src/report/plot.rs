//! A plot as inline SVG: lines over axes, with a grid and a legend. The colours come from the page's style.

use std::fmt::Write as _;

use super::scale::Scale;

/// The size of the drawing, in its own units.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 290.0;
/// Margins for the names of ticks and axes.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
/// The number of colours in the style; further series start again with the first.
pub const COLOURS: usize = 8;
/// Lines with more points have no marks.
const MARKS_MAX: usize = 40;

/// One line.
pub struct Series {
    /// None: another line of the same run is in the legend.
    pub name: Option<String>,
    /// Series of one run share a colour.
    pub colour: usize,
    pub dashed: bool,
    /// A point whose value is not a number breaks the line.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
pub struct Plot {
    pub title: String,
    /// How to read it.
    pub note: String,
    pub x_name: String,
    pub y_name: String,
    pub x: Scale,
    pub y: Scale,
    /// Named ticks of the x axis, if round numbers would say less.
    pub x_ticks: Option<Vec<(f64, String)>>,
    pub series: Vec<Series>,
}

impl Plot {
    /// A section of the page; empty if there is nothing to show.
    pub fn section(&self) -> String {
        if self.series.iter().all(|series| series.points.len() < 2) {
            return String::new();
        }
        let (title, note) = (escape(&self.title), escape(&self.note));
        let legend: String = self.series.iter().filter_map(legend_entry).collect();
        let svg = self.svg();
        format!(
            "<section><h2>{title}</h2><p class=\"note\">{note}</p>\n<ul class=\"legend\">{legend}</ul>\n{svg}</section>\n"
        )
    }

    fn svg(&self) -> String {
        let mut out = String::new();
        // Writing into a string does not fail.
        let _ = writeln!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(&format!("{}: {} over {}", self.title, self.y_name, self.x_name))
        );
        self.grid(&mut out);
        for series in &self.series {
            self.line(series, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let right = LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT);
        (right, HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM))
    }

    fn grid(&self, out: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, name) in self.y.ticks() {
            let y = HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM);
            let _ = writeln!(out, "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>");
            let _ =
                writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0, y + 4.0);
        }
        for (value, name) in self.x_ticks.clone().unwrap_or_else(|| self.x.ticks()) {
            let x = LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT);
            let _ = writeln!(out, "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>");
            // A long name at the right end would stick out.
            let anchor = if x > right - 20.0 && name.len() > 4 { "end" } else { "middle" };
            let _ =
                writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name}</text>", bottom + 18.0);
        }
        let (middle, across) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let (x_name, y_name) = (escape(&self.x_name), escape(&self.y_name));
        let below = HEIGHT - 8.0;
        let _ = writeln!(
            out,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{below}\" text-anchor=\"middle\">{x_name}</text>"
        );
        let _ = writeln!(
            out,
            "<text class=\"axis\" transform=\"translate(14 {across:.1}) rotate(-90)\" text-anchor=\"middle\">{y_name}</text>"
        );
    }

    fn line(&self, series: &Series, out: &mut String) {
        let colour = series.colour % COLOURS;
        let dashed = stroke(series);
        for part in series.points.split(|(_, value)| !value.is_finite()).filter(|part| !part.is_empty()) {
            let places: Vec<(f64, f64)> = part.iter().map(|point| self.at(*point)).collect();
            if let [(x, y)] = places[..] {
                let _ = writeln!(out, "<circle class=\"mark c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1\"/>");
                continue;
            }
            let path: String = places.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
            let _ = writeln!(out, "<polyline class=\"line c{colour}{dashed} points=\"{}\"/>", path.trim_end());
        }
        if series.points.len() > MARKS_MAX {
            return;
        }
        for (at, value) in series.points.iter().filter(|(_, value)| value.is_finite()) {
            let (x, y) = self.at((*at, *value));
            let says = format!("{} at {}", super::scale::short(*value), super::scale::short(*at));
            let _ = writeln!(
                out,
                "<circle class=\"mark c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{says}</title></circle>"
            );
        }
    }
}

/// The end of a line's class attribute, and its dash pattern: when colours repeat, lines get dots.
fn stroke(series: &Series) -> String {
    match (series.colour / COLOURS, series.dashed) {
        (0, false) => "\"".to_owned(),
        (0, true) => " dashed\"".to_owned(),
        (again, false) => format!("\" stroke-dasharray=\"{} 3\"", again * 2),
        (again, true) => format!("\" stroke-dasharray=\"{} 3 8 3\"", again * 2),
    }
}

fn legend_entry(series: &Series) -> Option<String> {
    if series.points.is_empty() {
        return None;
    }
    let (colour, name) = (series.colour % COLOURS, escape(series.name.as_ref()?));
    let dashed = stroke(series);
    let swatch = format!(
        "<svg class=\"swatch\" viewBox=\"0 0 24 8\"><line class=\"line c{colour}{dashed} x1=\"0\" y1=\"4\" x2=\"24\" y2=\"4\"/></svg>"
    );
    Some(format!("<li>{swatch}{name}</li>"))
}

/// The text with HTML's special characters escaped.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
