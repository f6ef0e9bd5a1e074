//! Costs as a function of size: curves, and their plots.

use std::path::Path;

use plotters::prelude::*;
use serde::Serialize;

use super::Outcome;

/// The costs of one operation at several sizes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Curve {
    /// The plot of the curve, which is also the name of the file.
    pub(super) plot: Plot,
    /// The label of the line.
    pub(super) line: String,
    /// Sizes, and the cost at each.
    pub(super) points: Vec<(f64, f64)>,
}

/// The laws of growth, one per plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Plot {
    AppendCost,
    AppendBytes,
    TailCost,
    FilteredSearch,
    GraphWalk,
    ClaimCost,
    DurableThroughput,
}

/// All laws, in the order of the page.
const PLOTS: &[Plot] = &[
    Plot::AppendCost,
    Plot::AppendBytes,
    Plot::TailCost,
    Plot::FilteredSearch,
    Plot::GraphWalk,
    Plot::ClaimCost,
    Plot::DurableThroughput,
];

/// Colors that color-blind readers can distinguish (Okabe and Ito).
const COLORS: &[RGBColor] = &[
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

const WIDTH: u32 = 760;
const HEIGHT: u32 = 420;

impl Plot {
    fn file(self) -> &'static str {
        match self {
            Self::AppendCost => "append-cost.svg",
            Self::AppendBytes => "append-bytes.svg",
            Self::TailCost => "tail-cost.svg",
            Self::FilteredSearch => "filtered-search.svg",
            Self::GraphWalk => "graph-walk.svg",
            Self::ClaimCost => "claim-cost.svg",
            Self::DurableThroughput => "durable-throughput.svg",
        }
    }

    /// The law that the plot shows.
    fn law(self) -> &'static str {
        match self {
            Self::AppendCost => "Append cost is independent of thread length",
            Self::AppendBytes => "Bytes written per append are independent of thread length",
            Self::TailCost => "The cost of reading the last 50 is independent of thread length",
            Self::FilteredSearch => "The cost of a filtered search grows with the matches",
            Self::GraphWalk => "The cost of a traversal grows with the relationships visited",
            Self::ClaimCost => "Claim cost is independent of the number of planned tasks",
            Self::DurableThroughput => "Durable appends per second grow with the number of writers",
        }
    }

    fn axes(self) -> (&'static str, &'static str) {
        match self {
            Self::AppendCost => ("messages in the thread", "µs an append"),
            Self::AppendBytes => ("messages in the thread", "bytes of log an append"),
            Self::TailCost => ("messages in the thread", "µs a read"),
            Self::FilteredSearch => ("vectors that match", "µs a search"),
            Self::GraphWalk => ("relationships visited", "µs a walk"),
            Self::ClaimCost => ("tasks that wait", "µs a claim"),
            Self::DurableThroughput => ("writers", "appends a second"),
        }
    }
}

/// A plot that was drawn.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) law: &'static str,
    /// Its path from the page.
    pub(super) file: String,
}

/// Draws every plot that has curves into files of the folder `guide/src/plots` next to the page.
pub(super) fn draw(page: &Path, curves: &[Curve]) -> Outcome<Vec<Drawn>> {
    let folder = page.parent().unwrap_or(Path::new("")).join("guide/src/plots");
    let mut drawn = Vec::new();
    for plot in PLOTS {
        let lines: Vec<&Curve> = curves.iter().filter(|curve| curve.plot == *plot).collect();
        if lines.iter().all(|curve| curve.points.is_empty()) {
            continue;
        }
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(plot.file()), svg(*plot, &lines)?)?;
        drawn.push(Drawn { law: plot.law(), file: format!("guide/src/plots/{}", plot.file()) });
    }
    Ok(drawn)
}

/// Returns the least power of ten at or above a number (`up`), or the greatest at or below it.
fn power(value: f64, up: bool) -> f64 {
    let exponent = value.max(1e-3).log10();
    10_f64.powf(if up { exponent.ceil() } else { exponent.floor() })
}

/// Draws a plot with two logarithmic axes: a constant cost is a level line, and a growing cost climbs.
fn svg(plot: Plot, lines: &[&Curve]) -> Outcome<String> {
    let points = || lines.iter().flat_map(|curve| &curve.points);
    let (least, most) =
        points().fold((f64::MAX, 0.0_f64), |(least, most), (x, _)| (least.min(*x), most.max(*x)));
    let (low, high) = points().fold((f64::MAX, 0.0_f64), |(low, high), (_, y)| (low.min(*y), high.max(*y)));
    let (bottom, mut top) = (power(low, false), power(high * 1.05, true));
    if top <= bottom {
        top = bottom * 10.0;
    }
    let (across, up) = plot.axes();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(plot.law(), ("sans-serif", 18))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d((least * 0.8..most * 1.3).log_scale(), (bottom..top).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(240, 240, 240))
            .x_desc(across)
            .y_desc(up)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|value| amount(*value))
            .y_label_formatter(&|value| amount(*value))
            .draw()?;
        for (curve, color) in lines.iter().zip(COLORS.iter().cycle()) {
            let style = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
                .label(curve.line.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .label_font(("sans-serif", 13))
            .draw()?;
        area.present()?;
    }
    Ok(text)
}

/// Formats a number as a label.
fn amount(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", value / 1e6)
    } else if value >= 1e3 {
        format!("{}k", value / 1e3)
    } else {
        format!("{}", (value * 1e3).round() / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plot_with_a_curve_is_a_file_of_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let curve = |plot, line: &str| Curve {
            plot,
            line: line.to_owned(),
            points: vec![(100.0, 20.0), (10_000.0, 21.0), (1_000_000.0, 22.0)],
        };
        let curves = [
            curve(Plot::AppendCost, "SQLite"),
            curve(Plot::AppendCost, "Postgres"),
            curve(Plot::TailCost, "SQLite"),
        ];
        let drawn = draw(&folder.path().join("BENCHMARKS.md"), &curves).unwrap();
        assert_eq!(drawn.len(), 2);
        let svg = std::fs::read_to_string(folder.path().join(&drawn[0].file)).unwrap();
        for text in [Plot::AppendCost.law(), "SQLite", "Postgres", "messages in the thread", "µs an append"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(PLOTS.iter().all(|plot| plot.file().ends_with(".svg")));
    }
}
