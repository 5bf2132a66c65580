//! The rows of docs/reference/metrics.md.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    unit: String,
    help: String,
    /// Labels in the order of the samples.
    labels: Vec<String>,
    /// The upper bounds of a histogram, without the infinite one.
    bounds: Vec<String>,
    /// Whether the page has a sample of the metric. The description alone does not show the labels.
    shown: bool,
}

/// Returns one line for each metric, sorted by name.
pub(crate) fn rows(page: &str) -> Vec<String> {
    let cell = |text: &str| if text.is_empty() { " ".to_owned() } else { format!(" {text} ") };
    let row = |(name, metric): (&String, &Metric)| {
        let Metric { kind, unit, help, labels, bounds, shown: _ } = metric;
        let total = if kind == "counter" { "_total" } else { "" };
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let kind = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => format!("{kind}, {first} to {last} in {}", bounds.len()),
            _ => kind.clone(),
        };
        let help = help.trim_end_matches('.').replace('|', "\\|");
        format!("| `{name}{total}` |{}|{}|{}|{}|", cell(&kind), cell(&labels), cell(unit), cell(&help))
    };
    metrics(page).iter().map(row).collect()
}

/// Parses the metrics, by name. The samples of a metric follow its description.
fn metrics(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            name.clone_into(&mut current);
            let metric = metrics.entry(current.clone()).or_default();
            match what {
                "HELP" => text.clone_into(&mut metric.help),
                "TYPE" => text.clone_into(&mut metric.kind),
                "UNIT" => text.clone_into(&mut metric.unit),
                _ => (),
            }
        } else if let Some(metric) = metrics.get_mut(&current) {
            metric.shown = true;
            for (label, value) in labels(line) {
                let list = if label == "le" { &mut metric.bounds } else { &mut metric.labels };
                let entry = if label == "le" { value } else { label };
                if entry != "+Inf" && !list.contains(&entry) {
                    list.push(entry);
                }
            }
        }
    }
    metrics.retain(|_name, metric| metric.shown);
    for (name, metric) in &mut metrics {
        if metric.unit.is_empty() && name.ends_with("_seconds") {
            "seconds".clone_into(&mut metric.unit);
        }
    }
    metrics
}

/// Parses the names and values of a sample's labels. A value may contain commas and quotes.
fn labels(sample: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let Some((_, mut rest)) = sample.split_once('{') else { return labels };
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next() {
                Some((_, '\\')) => value.extend(letters.next().map(|(_, letter)| letter)),
                Some((at, '"')) => break at + 1,
                Some((_, letter)) => value.push(letter),
                None => return labels,
            }
        };
        labels.push((name.trim_start_matches(',').to_owned(), value));
        rest = after.get(end..).unwrap_or_default();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::{labels, rows};

    const PAGE: &str = "# HELP calls Calls a|b.\n# TYPE calls counter\n\
                        calls_total{family=\"a,\\\"}b\",code=\"200\"} 1\ncalls_total{family=\"b\",op=\"x\"} 2\n\
                        # HELP age_seconds Since then.\n# TYPE age_seconds gauge\nage_seconds 3\n\
                        # HELP wait_seconds How long.\n# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n\
                        wait_seconds_sum{class=\"x\"} 1\nwait_seconds_bucket{le=\"0.1\",class=\"x\"} 1\n\
                        wait_seconds_bucket{le=\"30.0\",class=\"x\"} 1\nwait_seconds_bucket{le=\"+Inf\",class=\"x\"} 1\n\
                        # HELP later_seconds Not yet.\n# TYPE later_seconds gauge\n# EOF\n";

    #[test]
    fn a_row_is_made_from_description_and_samples() {
        assert_eq!(
            rows(PAGE),
            [
                "| `age_seconds` | gauge | | seconds | Since then |",
                "| `calls_total` | counter | `family`, `code`, `op` | | Calls a\\|b |",
                "| `wait_seconds` | histogram, 0.1 to 30.0 in 2 | `class` | seconds | How long |",
            ]
        );
    }

    #[test]
    fn values_may_have_any_letters() {
        let pairs =
            labels("a{x=\"1,y=\\\"{}\",z=\"\"} 1").into_iter().map(|(name, value)| name + "=" + &value);
        assert_eq!(pairs.collect::<Vec<_>>(), ["x=1,y=\"{}", "z="]);
    }
}
