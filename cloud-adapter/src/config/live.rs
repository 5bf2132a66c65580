//! The configuration in force: the file is looked at again and again, and a faulty one leaves the old in force.

use std::{convert::Infallible, path::PathBuf, str, sync::Arc};

use cloud_adapter_security::reload::{self, Follow, ReloadError};
use tokio::sync::watch;

use super::{Config, ConfigError};
use crate::{driver::VendorLimit, metrics::Metrics};

type Parse = Box<dyn Fn(&[Vec<u8>]) -> Result<Config, String> + Send + Sync>;

/// The configuration, now and from now on.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    source: Source,
}

#[derive(Debug)]
enum Source {
    File(Follow<Config, Parse>),
    /// There is no file, and so nothing changes.
    Fixed(watch::Sender<Arc<Config>>),
}

impl LiveConfig {
    /// Reads the file for the first time; without one, the driver's limits hold.
    ///
    /// # Errors
    /// If it cannot be read, or has faults: all are named.
    pub(crate) fn start(
        path: Option<PathBuf>,
        usual: Vec<(&'static str, VendorLimit)>,
    ) -> Result<Self, ConfigError> {
        let parse = move |text: &str| Config::parse(text, &usual);
        let Some(path) = path else {
            let invalid = |faults| ConfigError::Invalid { path: "the driver's defaults".to_owned(), faults };
            let config = parse("").map_err(invalid)?;
            tell_assumed(&config);
            return Ok(Self { source: Source::Fixed(watch::Sender::new(Arc::new(config))) });
        };
        let parse: Parse = Box::new(move |contents| {
            let content = contents.first().map(Vec::as_slice).unwrap_or_default();
            let text = str::from_utf8(content).map_err(|error| format!("is no text: {error}"))?;
            // Whoever writes it in place empties it first: that is no wish for the defaults.
            if text.trim().is_empty() {
                return Err("is empty: write {} for the adapter's own limits".to_owned());
            }
            parse(text)
        });
        let file = Follow::start([path], parse)?;
        tell_assumed(&file.current().borrow());
        Ok(Self { source: Source::File(file) })
    }

    pub(crate) fn current(&self) -> watch::Receiver<Arc<Config>> {
        match &self.source {
            Source::File(file) => file.current(),
            Source::Fixed(config) => config.subscribe(),
        }
    }

    /// Follows the file; never ends. `apply` gets each configuration that is taken over.
    pub(crate) async fn run(self, metrics: &Metrics, apply: impl Fn(&Config)) -> Infallible {
        let told = |result: Result<&Config, &ReloadError<String>>| {
            metrics.config_reload("limits", result.is_ok());
            match result {
                Ok(config) => {
                    tracing::info!(revision = config.revision, "Configuration is taken over");
                    tell_assumed(config);
                    apply(config);
                }
                Err(error) => {
                    tracing::error!(%error, "Configuration is not taken over: the old one stays in force");
                }
            }
        };
        if let Source::File(file) = self.source {
            // What was read first is in force: without this, nobody could tell that from a page that does not know.
            metrics.config_refused("limits", false);
            file.run(reload::EVERY, told).await;
        }
        std::future::pending().await
    }
}

/// A limit that nobody chose is told: too slow for one vendor, too fast for the next.
fn tell_assumed(config: &Config) {
    for family in &config.assumed {
        tracing::warn!(family, rate = 5, burst = 10, "No call limit is configured: set limits.buckets");
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
    async fn a_file_that_was_good_from_the_first_is_told_to_be_no_refused_one() {
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
}
