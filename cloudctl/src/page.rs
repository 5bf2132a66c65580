//! The URLs of the pages of the documentation.

/// The chart, whose `home` is the URL of the repository.
const CHART: &str = include_str!("../../helm/cloud-controllers/Chart.yaml");
const HOME: &str = "home: ";

/// Returns the URL of a file of the repository, in the version of this program. The links in the README of the packed chart have the same
/// form.
pub(crate) fn url(path: &str) -> String {
    let home = CHART.lines().find_map(|line| line.strip_prefix(HOME)).unwrap_or_default();
    format!(
        "{}/blob/v{}/{path}",
        home.trim().trim_matches('"').trim_end_matches('/'),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn a_page_has_the_url_of_this_version_in_the_repository() {
        let url = url("docs/a.md#b");
        assert!(url.starts_with("https://"), "{url}");
        let end = format!("/blob/v{}/docs/a.md#b", env!("CARGO_PKG_VERSION"));
        let home = url.strip_suffix(&end).expect("the end");
        let chart = std::fs::read_to_string(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../helm/cloud-controllers/Chart.yaml"),
        );
        let chart = chart.expect("the chart");
        assert!(chart.lines().any(|it| it == format!("home: {home}")), "{home}");
    }
}
