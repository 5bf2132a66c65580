//! Reads metrics in Prometheus' text format.

use std::collections::BTreeMap;

/// The sum of a metric's values over all labels.
pub(crate) fn sum(metrics: &str, name: &str) -> f64 {
    samples(metrics, name).map(|(_labels, value)| value).sum()
}

/// The values of a metric, summed by the value of one label.
pub(crate) fn by_label(metrics: &str, name: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in samples(metrics, name) {
        let of_label = labels.split(',').find_map(|pair| {
            let quoted = pair.strip_prefix(label)?.strip_prefix("=\"")?;
            quoted.strip_suffix('"')
        });
        *sums.entry(of_label.unwrap_or_default().to_owned()).or_default() += value;
    }
    sums
}

/// The labels, as text, and the value of each line of a metric.
fn samples<'a>(metrics: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    metrics.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        // If `name` is not followed by `{` or a space, the line belongs to another metric with a longer name.
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::{by_label, sum};

    const PAGE: &str = "# TYPE calls counter\n\
                        calls_total{call=\"GetInfo\",outcome=\"OK\"} 2\n\
                        calls_total{call=\"Ensure\",outcome=\"OK\"} 3\n\
                        calls_total{call=\"Ensure\",outcome=\"NOT_LEADER\"} 1\n\
                        calls_total_of_others{call=\"Ensure\",outcome=\"OK\"} 9\n\
                        leader 1\n";

    #[test]
    fn metric_values_are_summed() {
        assert!((sum(PAGE, "calls_total") - 6.0).abs() < 0.1);
        assert!((sum(PAGE, "leader") - 1.0).abs() < 0.1);
        let outcomes = by_label(PAGE, "calls_total", "outcome");
        assert_eq!(outcomes, [("NOT_LEADER".to_owned(), 1.0), ("OK".to_owned(), 5.0)].into());
    }
}
