//! Measures how calls, memory and CPU time grow with the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::numbers::{float, of_count};
use super::result::{Row, Spent, Target};
use super::stage::Stage;

/// The sizes to measure: a quarter, a half, and all of the nodes.
const PARTS: [usize; 3] = [4, 2, 1];
/// Each steady state is shorter than the measuring time by this factor. Routes are listed every two minutes, so in a shorter time the
/// number of listings would depend on chance.
const SHARE: u64 = 2;
/// The exponent of linear growth, with a tolerance for the measurement.
const LINEAR: f64 = 1.1;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<Row> {
    let mut points = Vec::new();
    let mut last = Spent::default();
    for part in PARTS {
        let nodes = stage.size.nodes / part;
        stage.grow(nodes, stage.size.services / part).await?;
        let before = stage.reading().await?;
        let time = Duration::from_secs((stage.size.seconds / SHARE).max(1));
        stage.progress.wait(&format!("{nodes} nodes, steady state"), time).await;
        last = stage.spent(&before).await?;
        points.push(Point::new(float(nodes), &last));
    }
    let slopes = slopes(&points);
    Ok(Row {
        title: format!("from {} to {} nodes", stage.size.nodes / PARTS[0], stage.size.nodes),
        targets: judge(&slopes),
        notes: points.iter().map(Point::words).collect(),
        spent: last,
        ..Row::default()
    })
}

#[derive(Clone, Debug)]
struct Point {
    nodes: f64,
    /// The measured values, keyed by the name of the figure.
    took: BTreeMap<String, f64>,
}

impl Point {
    fn new(nodes: f64, spent: &Spent) -> Self {
        let minutes = (spent.seconds / 60.0).max(f64::EPSILON);
        let mut took =
            BTreeMap::from([("vendor calls".to_owned(), of_count(spent.vendor.total()) / minutes)]);
        // The CPU time of a single process is too small for the resolution of clock ticks.
        let cpu: f64 = spent.processes.values().map(|usage| usage.cpu_seconds).sum();
        took.insert("CPU time of all".to_owned(), cpu / minutes);
        for (process, usage) in &spent.processes {
            took.insert(format!("memory of {process}"), usage.peak_mib);
        }
        Self { nodes, took }
    }

    fn words(&self) -> String {
        let each = self.took.iter().map(|(what, took)| format!("{what} {took:.2}"));
        format!(
            "{} nodes: {} (MiB, calls and CPU seconds per minute).",
            self.nodes,
            each.collect::<Vec<_>>().join(", ")
        )
    }
}

/// For each figure, the exponent b of the best fit of a * nodes^b; 1 is linear growth.
fn slopes(points: &[Point]) -> BTreeMap<String, f64> {
    let all: BTreeSet<&String> = points.iter().flat_map(|point| point.took.keys()).collect();
    let slope = |what: &String| {
        let seen =
            points.iter().filter_map(|point| Some((point.nodes.ln(), point.took.get(what)?.max(1e-3).ln())));
        Some((what.clone(), fit(&seen.collect::<Vec<_>>())?))
    };
    all.into_iter().filter_map(slope).collect()
}

/// The slope of the least-squares line.
fn fit(points: &[(f64, f64)]) -> Option<f64> {
    let n = float(points.len());
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let over: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    let under: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

fn judge(slopes: &BTreeMap<String, f64>) -> Vec<Target> {
    let target = |(what, slope): (&String, &f64)| {
        Target::at_most(format!("{what}, exponent (1 is linear)"), *slope, LINEAR, "")
    };
    slopes.iter().map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, Point, judge, slopes};

    fn points(took: fn(f64) -> f64) -> Vec<Point> {
        [1250.0, 2500.0, 5000.0]
            .map(|nodes| Point { nodes, took: BTreeMap::from([("memory".to_owned(), took(nodes))]) })
            .into()
    }

    #[test]
    fn quadratic_growth_misses_the_target() {
        for (took, exponent, met) in [
            ((|n| 3.0 * n) as fn(f64) -> f64, 1.0, true),
            (|n| n * n / 7.0, 2.0, false),
            (|_| 25.0, 0.0, true),
        ] {
            let slopes = slopes(&points(took));
            assert!((slopes["memory"] - exponent).abs() < 1e-6, "{slopes:?}");
            assert_eq!(judge(&slopes)[0].met, met);
        }
    }

    #[test]
    fn one_point_has_no_fit() {
        assert!(slopes(&points(|n| n)[..1]).is_empty());
    }
}
