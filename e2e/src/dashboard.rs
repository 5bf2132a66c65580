//! The queries of the chart's dashboard.

use anyhow::Context;
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../helm/cloud-controllers/files/dashboard.json");

/// The query of each line in each panel. Grafana replaces `$__rate_interval` with a duration, but this function replaces it with
/// `interval`.
pub fn dashboard_queries(interval: &str) -> anyhow::Result<Vec<String>> {
    let board: Value = serde_json::from_str(DASHBOARD).context("the dashboard is not JSON")?;
    let of = |value: &Value, key| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let targets = of(&board, "panels").into_iter().flat_map(|panel| of(&panel, "targets"));
    let query = |target: Value| {
        let expr = target.get("expr").and_then(Value::as_str);
        let expr = expr.with_context(|| format!("a panel of the dashboard has no query: {target}"))?;
        Ok(expr.replace("$__rate_interval", interval))
    };
    targets.map(query).collect()
}

#[cfg(test)]
mod tests {
    use super::{DASHBOARD, dashboard_queries};

    #[test]
    fn all_dashboard_queries_are_found() {
        let queries = dashboard_queries("30s").unwrap();
        assert_eq!(queries.len(), DASHBOARD.matches("\"expr\":").count());
        let asked: Vec<_> = queries.iter().filter(|query| query.contains('$')).collect();
        assert!(asked.is_empty() && queries.iter().any(|query| query.contains("[30s]")), "{asked:#?}");
    }
}
