//! Small charts of the last ten minutes, with the newest values at the right.

use std::fmt::{self, Display};

use telemetry::report::BucketSample;

use super::text::Number;

/// The size of the drawing in units. The style determines the size on the page.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 32.0;
/// The free space at the top, so that the line is not cut off.
const TOP: f64 = 2.0;
/// The period that a chart shows, in seconds.
const SPAN: f64 = 600.0;
/// The length of a step of the charts, in seconds.
const STEP: f64 = 5.0;

/// The chart of calls a second: used and granted.
pub(super) struct Used<'a>(pub(super) &'a [BucketSample]);

/// The chart of queued calls.
pub(super) struct Waited<'a>(pub(super) &'a [BucketSample]);

impl Display for Used<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = |step: &BucketSample| step.calls as f64 / STEP;
        let granted = |step: &BucketSample| step.rate;
        let most = peak(self.0, used).max(peak(self.0, granted));
        let label = format!(
            "Calls a second over the last 10 minutes: at most {} used of {} granted",
            Number(peak(self.0, used)),
            Number(peak(self.0, granted))
        );
        open(f, &label)?;
        area(f, self.0, used, most)?;
        line(f, "granted", self.0, granted, most)?;
        line(f, "line", self.0, used, most)?;
        f.write_str("</svg>")
    }
}

impl Display for Waited<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = |step: &BucketSample| step.queued as f64;
        let most = peak(self.0, waited);
        open(f, &format!("Queued calls over the last 10 minutes: at most {}", Number(most)))?;
        area(f, self.0, waited, most)?;
        line(f, "line", self.0, waited, most)?;
        f.write_str("</svg>")
    }
}

fn open(f: &mut fmt::Formatter<'_>, label: &str) -> fmt::Result {
    write!(
        f,
        "<svg class=\"spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\">\
         <path class=\"ground\" d=\"M0 {HEIGHT}H{WIDTH}\"/>"
    )
}

fn peak(steps: &[BucketSample], value: impl Fn(&BucketSample) -> f64) -> f64 {
    steps.iter().map(value).fold(0.0, f64::max)
}

/// Returns the position of the point for each step, the oldest at the left.
fn points(
    steps: &[BucketSample],
    value: impl Fn(&BucketSample) -> f64,
    most: f64,
) -> impl DoubleEndedIterator<Item = (f64, f64)> {
    steps.iter().rev().map(move |step| {
        let x = WIDTH * (1.0 - (step.seconds_ago as f64 / SPAN).min(1.0));
        let share = if most > 0.0 { (value(step) / most).clamp(0.0, 1.0) } else { 0.0 };
        (x, HEIGHT - share * (HEIGHT - TOP))
    })
}

fn line(
    f: &mut fmt::Formatter<'_>,
    class: &str,
    steps: &[BucketSample],
    value: impl Fn(&BucketSample) -> f64,
    most: f64,
) -> fmt::Result {
    write!(f, "<path class=\"{class}\" d=\"")?;
    for (index, (x, y)) in points(steps, value, most).enumerate() {
        write!(f, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' })?;
    }
    f.write_str("\"/>")
}

fn area(
    f: &mut fmt::Formatter<'_>,
    steps: &[BucketSample],
    value: impl Fn(&BucketSample) -> f64,
    most: f64,
) -> fmt::Result {
    let points: Vec<_> = points(steps, value, most).collect();
    let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else { return Ok(()) };
    write!(f, "<path class=\"area\" d=\"M{first:.1} {HEIGHT}")?;
    for (x, y) in &points {
        write!(f, "L{x:.1} {y:.1}")?;
    }
    write!(f, "L{last:.1} {HEIGHT}Z\"/>")
}
