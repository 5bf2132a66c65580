//! Decides from the metrics of a controller whether it has done all its work.

use anyhow::ensure;

use crate::metrics::sum;

/// Returns an error unless each work queue has processed keys and is now empty and idle.
pub(crate) fn quiet(metrics: &str) -> anyhow::Result<()> {
    let sum = |name| sum(metrics, name);
    let worked = sum("workqueue_work_duration_seconds_count");
    let (waiting, under_way) = (sum("workqueue_depth"), sum("workqueue_unfinished_work_seconds"));
    ensure!(
        worked > 0.0 && waiting <= 0.0 && under_way <= 0.0,
        "{worked} keys done, {waiting} queued, {under_way} s of unfinished work"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quiet;

    fn metrics(done: u64, depth: u64, under_way: &str) -> String {
        format!(
            "# HELP workqueue_depth Keys that wait for a worker.\n\
             workqueue_depth{{name=\"node\"}} {depth}\n\
             workqueue_depth_of_others{{name=\"node\"}} 9\n\
             workqueue_work_duration_seconds_count{{name=\"node\"}} {done}\n\
             workqueue_unfinished_work_seconds{{name=\"node\"}} {under_way}\n"
        )
    }

    #[test]
    fn controller_is_quiet_after_work_with_an_empty_queue() {
        quiet(&metrics(3, 0, "0.0")).unwrap();
        for (done, depth, under_way) in [(0, 0, "0"), (3, 1, "0"), (3, 0, "0.25")] {
            assert!(quiet(&metrics(done, depth, under_way)).is_err(), "{done} {depth} {under_way}");
        }
        assert!(quiet("").is_err());
    }
}
