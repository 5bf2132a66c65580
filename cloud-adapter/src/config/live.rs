//! The active configuration. The file is read again periodically; if it is invalid, the previous configuration stays active.

use std::{convert::Infallible, path::PathBuf, str, sync::Arc};

use tokio::sync::watch;

use super::{Config, ConfigError};
use crate::{
    driver::VendorLimit,
    metrics::Metrics,
    reload::{self, Follow, ReloadError},
};

type Parse = Box<dyn Fn(&[Vec<u8>]) -> Result<Config, String> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct LiveConfig {
    source: Source,
    /// Why the file is not used. `None`: its content is in use.
    refused: watch::Sender<Option<String>>,
}

#[derive(Debug)]
enum Source {
    File(Follow<Config, Parse>),
    /// Without a file, the configuration never changes.
    Fixed(watch::Sender<Arc<Config>>),
}

impl LiveConfig {
    /// Without a file, the driver's limits apply.
    ///
    /// Returns all faults if the file cannot be read or is invalid.
    pub(crate) fn start(
        path: Option<PathBuf>,
        usual: Vec<(&'static str, VendorLimit)>,
    ) -> Result<Self, ConfigError> {
        let parse = move |text: &str| Config::parse(text, &usual);
        let Some(path) = path else {
            let invalid = |faults| ConfigError::Invalid { path: "the driver's defaults".to_owned(), faults };
            let config = parse("").map_err(invalid)?;
            log_assumed(&config);
            return Ok(Self::of(Source::Fixed(watch::Sender::new(Arc::new(config)))));
        };
        let parse: Parse = Box::new(move |contents| {
            let content = contents.first().map(Vec::as_slice).unwrap_or_default();
            let text = str::from_utf8(content).map_err(|error| format!("is not UTF-8 text: {error}"))?;
            // An editor that writes the file in place truncates it first. So an empty file does not mean that the user wants the defaults.
            if text.trim().is_empty() {
                return Err("is empty: write {} to use the adapter's default limits".to_owned());
            }
            parse(text)
        });
        let file = Follow::start([path], parse)?;
        log_assumed(&file.current().borrow());
        Ok(Self::of(Source::File(file)))
    }

    fn of(source: Source) -> Self {
        Self { source, refused: watch::Sender::new(None) }
    }

    pub(crate) fn refused(&self) -> watch::Receiver<Option<String>> {
        self.refused.subscribe()
    }

    pub(crate) fn current(&self) -> watch::Receiver<Arc<Config>> {
        match &self.source {
            Source::File(file) => file.current(),
            Source::Fixed(config) => config.subscribe(),
        }
    }

    /// Reads the file periodically and calls `apply` with each new configuration; never ends.
    pub(crate) async fn run(self, metrics: &Metrics, apply: impl Fn(&Config)) -> Infallible {
        let report = |result: Result<&Config, &ReloadError<String>>| {
            metrics.config_reload("limits", result.is_ok());
            self.refused.send_replace(result.err().map(ToString::to_string));
            match result {
                Ok(config) => {
                    tracing::info!(revision = config.revision, "Reloaded the configuration");
                    log_assumed(config);
                    apply(config);
                }
                Err(error) => {
                    tracing::error!(%error, "Cannot reload the configuration; continuing with the previous one");
                }
            }
        };
        if let Source::File(file) = self.source {
            // The metric is exported as 0 from the start, so that a valid file can be distinguished from a missing metric.
            metrics.config_refused("limits", false);
            file.run(reload::EVERY, report).await;
        }
        std::future::pending().await
    }
}

/// Warns about families with assumed limits, which are too slow for some vendors and too fast for others.
fn log_assumed(config: &Config) {
    for family in &config.assumed {
        tracing::warn!(
            family,
            rate = 5,
            burst = 10,
            "Using the default call limit for this family; \
        set limits.buckets to change it"
        );
    }
}

impl From<ReloadError<String>> for ConfigError {
    fn from(error: ReloadError<String>) -> Self {
        match error {
            ReloadError::Read { path, kind } => Self::Read { path, source: kind.into() },
            ReloadError::Parse { paths, error } => Self::Invalid { path: paths, faults: error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn config_refused_metric_is_0_from_the_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "{}").expect("written");
        let live = LiveConfig::start(Some(path), Vec::new()).expect("good");
        let metrics = Metrics::new();
        tokio::select! {
            biased;
            never = live.run(&metrics, |_| ()) => match never {},
            () = tokio::task::yield_now() => (),
        }
        let page = metrics.render().expect("a page");
        assert!(page.contains("cloud_adapter_config_refused{kind=\"limits\"} 0\n"), "{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_file_is_reported_until_it_is_valid() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.yaml");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        write("{}");
        let live = LiveConfig::start(Some(path.clone()), Vec::new()).expect("good");
        let (mut refused, metrics) = (live.refused(), Metrics::new());
        let changes = async {
            write("limits: {buckets: {loadbalancr: {rate: 1, burst: 1}}}");
            refused.changed().await.expect("it runs");
            let why = refused.borrow_and_update().clone().expect("refused");
            assert!(why.contains("limits.buckets.loadbalancr: unknown family, did you mean"), "{why}");
            write("{}");
            refused.changed().await.expect("it runs");
            assert_eq!(*refused.borrow(), None);
        };
        tokio::select! {
            never = live.run(&metrics, |_| ()) => match never {},
            () = changes => (),
        }
    }
}
